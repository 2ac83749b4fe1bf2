"""Secure aggregation among simulated peers: one average, in memory, by the protocol of a method."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securedfl.designs import Design
from securedfl.federation.bringing import Bringing, Brought
from securedfl.federation.budget.protection import with_central_noise
from securedfl.federation.budget.task import keys_of
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import averages_differences, bringing, members, passes_messages
from securedfl.parameters import Array, Schema
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols import InsecureSeededDraw
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.protocol import Averaging
from securedfl.simulation.driver import Draws, NotFiniteError, run
from securedfl.simulation.partial_sums import add_up, compare


@dataclass(frozen=True, kw_only=True)
class SimulatedAverage:
    """What one average cost, and how far it is from the true mean, which only a simulation knows; see `Row`."""

    round: int
    error_mse: float | None = None
    error_max: float | None = None
    bytes_per_peer: float = 0.0
    clipped: int | None = None
    average_seconds: float = 0.0
    messages: bool | None = None
    """Whether the protocol's messages were passed, where that is not done in all rounds."""


class SecureAggregation:
    """Averages the rows of all peers, or of the members of a round, and writes the result into every row.

    In rounds that pass no messages (see `passes_messages`), the codes of the members are added up, which gives the same
    bits; when they are passed the next time, that is checked.

    Parameters
    ----------
    config, method, design
        Of the run.
    schema, buffers
        Of a row, and which parts of it are no trained parameters.
    samples
        How many training samples each peer has: its weight, if averages are weighted.
    plan
        Of differential privacy, if there is one.

    Attributes
    ----------
    common
        What all peers hold: the model, and the state of its optimiser; None before the first average.
    residuals
        What each peer rounded off and adds in the next round; None if nothing is kept.
    sent
        Bytes that a member sent in the last round in which messages were passed; rounds differ in their values only.
    """

    def __init__(
        self,
        config: TrainConfig,
        method: str,
        design: Design,
        schema: Schema,
        *,
        buffers: tuple[slice, ...] = (),
        samples: Sequence[int] = (),
        plan: Plan | None = None,
    ) -> None:
        self._config, self._schema = config, schema
        self._bringing = bringing(config, method, design, schema.dtype, plan)
        self._differences = averages_differences(config, method)
        # where nobody has a sample, the average itself says so
        most = max(samples, default=0) or 1
        self._weights = [count / most for count in samples] if config.weighted else None
        self._optimizer = config.common(buffers)
        self.common: Array | None = None
        self.residuals: list[Array] | None = None
        self.sent = 0.0

    def restore(self, common: Array, residuals: Sequence[Array] | None, sent: float = 0.0) -> None:
        """Go on from what all peers held."""
        self.common = common.copy()
        self.residuals = None if residuals is None else list(residuals)
        self.sent = sent

    def __call__(self, parameters: Array, round: int) -> SimulatedAverage:
        """Average the rows."""
        started = time.perf_counter()
        how, who = self._bringing(round), members(self._config, round)
        rows = rows_of(who, parameters)
        brought = [self._bring(how, row, peer, round) for peer, row in zip(who, rows, strict=True)]
        try:
            average, messages = self._average(how.averaging, [one.vector for one in brought], round)
        except (NotFiniteError, UnencodableError) as error:
            name = self._schema.name_at(error.index) if error.index < self._schema.size else ""
            if isinstance(error, UnencodableError):
                raise error.at(peer=None if error.peer is None else who[error.peer], name=name) from None
            raise NotFiniteError(who[error.peer], error.index, error.value, name) from None
        self._keep({peer: one.residual for peer, one in zip(who, brought, strict=True)}, parameters)
        base = self._base
        if how.plan is not None and base is not None:
            average = with_central_noise(average, how.plan, keys_of(self._config, -1, round))
        mean = how.model(average, base)
        self.common = self._optimizer.step(self.common, mean)
        seconds = time.perf_counter() - started

        true = true_mean(rows, None if self._weights is None else [self._weights[peer] for peer in who])
        if how.plan is not None and how.plan.brings_steps and base is not None:
            true += base
        difference = mean - true
        parameters[:] = self._optimizer.model(self.common)
        return SimulatedAverage(
            round=round,
            error_mse=float(np.square(difference).mean()),
            error_max=float(np.abs(difference).max()),
            bytes_per_peer=self.sent,
            clipped=sum(one.clipped for one in brought) if how.beyond == "clip" or how.plan else None,
            average_seconds=seconds,
            messages=messages,
        )

    def _average(self, averaging: Averaging, vectors: Sequence[Array], round: int) -> tuple[Array, bool | None]:
        """Return the average, and whether messages were passed, where they are not always."""
        sometimes = self._config.messages_between > 1 and averaging.adds_codes
        added = add_up(averaging, vectors) if sometimes else None
        if added is not None and not passes_messages(self._config, round):
            return added, False
        outcome = run(averaging, vectors, draws=self._masks(round))
        self.sent = float(np.mean(outcome.sent))
        if added is None:
            return outcome.average, None
        compare(outcome.average, added, round=round, protocol=averaging.protocol.name)
        return outcome.average, True

    def _masks(self, round: int) -> Draws | None:
        """Return where masks come from; None is the operating system."""
        seed = self._config.seed
        if self._config.masks == "secret":
            return None
        return lambda peer, offset: InsecureSeededDraw(seed, peer=peer, round=round, offset=offset)

    def _keep(self, left: Mapping[int, Array | None], parameters: Array) -> None:
        """Keep what members rounded off; what others did earlier stays."""
        if self._config.between_rounds == "forget" or any(residual is None for residual in left.values()):
            self.residuals = None
            return
        kept = self.residuals or [np.zeros_like(row) for row in parameters]
        self.residuals = [kept[peer] if (new := left.get(peer)) is None else new for peer in range(len(parameters))]

    @property
    def _base(self) -> Array | None:
        """The model from which peers bring differences."""
        return None if self.common is None or not self._differences else self._optimizer.model(self.common)

    def _bring(self, how: Bringing, row: Array, peer: int, round: int) -> Brought:
        return how(
            row,
            self._base,
            # another stream than that of the masks
            draw=InsecureSeededDraw(self._config.seed, peer=-1 - peer, round=round),
            weight=1.0 if self._weights is None else self._weights[peer],
            residual=None if self.residuals is None else self.residuals[peer],
            keys=keys_of(self._config, peer, round),
        )


def rows_of(members: Sequence[int], parameters: Array) -> list[Array]:
    """Return the rows of the members: all of them in their order if there are so many, else those of their numbers."""
    return list(parameters) if len(members) == len(parameters) else [parameters[peer] for peer in members]


def true_mean(parameters: Array | Sequence[Array], weights: Sequence[float] | None = None) -> Array:
    """Return the mean of the rows in float64; row by row, because a float64 copy of all would be large."""
    weights = [1.0] * len(parameters) if weights is None else weights
    result = np.zeros(len(parameters[0]), dtype=np.float64)
    for row, weight in zip(parameters, weights, strict=True):
        result += np.multiply(row, weight, dtype=np.float64)
    result /= float(sum(weights))
    return result
