"""Secure aggregation among simulated peers: one average, in memory, by the protocol of a method."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securedfl.designs import Design
from securedfl.federation.budget.protection import with_central_noise
from securedfl.federation.budget.task import keys_of
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import averages_differences, bringing, members, passes_messages
from securedfl.federation.simulated.contributions import Contributions
from securedfl.learning.training.team import Added
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
        bring, who = self._contributions(round), members(self._config, round)
        how, rows = bring.how, rows_of(who, parameters)
        brought = [bring(peer, row) for peer, row in zip(who, rows, strict=True)]
        try:
            average, messages = self._average(how.averaging, [one.vector for one in brought], round)
        except (NotFiniteError, UnencodableError) as error:
            name = bring.name_at(error.index)
            if isinstance(error, UnencodableError):
                raise error.at(peer=None if error.peer is None else who[error.peer], name=name) from None
            raise NotFiniteError(who[error.peer], error.index, error.value, name) from None
        self._keep({peer: one.residual for peer, one in zip(who, brought, strict=True)}, parameters)
        mean, base = self._step(bring, average), bring.base
        seconds = time.perf_counter() - started
        difference = None
        if messages is not False:
            true = true_mean(rows, None if self._weights is None else [self._weights[peer] for peer in who])
            if how.plan is not None and how.plan.brings_steps and base is not None:
                true += base
            difference = mean - true
        return self._outcome(parameters, bring, seconds, sum(one.clipped for one in brought), messages, difference)

    def to_add(self, round: int) -> Contributions | None:
        """Return what members bring to a round whose codes can be added up where they train; None if rows are needed.

        They are if messages are passed, and if what a member rounded off stays with it.
        """
        if self._config.between_rounds != "forget" or not self._adds(self._bringing(round).averaging, round):
            return None
        return self._contributions(round)

    def take(self, parameters: Array, added: Added, round: int) -> SimulatedAverage:
        """Finish a round whose codes were added up where members trained; the numbers are those of their rows."""
        started = time.perf_counter()
        bring = self._contributions(round)
        self._step(bring, bring.sums.mean(added.total))
        return self._outcome(parameters, bring, time.perf_counter() - started, added.clipped, messages=False)

    def _step(self, bring: Contributions, average: Array) -> Array:
        """Make the average everybody's model; return the mean of what they had."""
        how = bring.how
        if how.plan is not None and bring.base is not None:
            average = with_central_noise(average, how.plan, keys_of(self._config, -1, bring.round))
        mean = how.model(average, bring.base)
        self.common = self._optimizer.step(self.common, mean)
        return mean

    def _outcome(
        self,
        parameters: Array,
        bring: Contributions,
        seconds: float,
        clipped: int,
        messages: bool | None,
        difference: Array | None = None,
    ) -> SimulatedAverage:
        """Write the model into all rows, and tell what the average cost."""
        assert self.common is not None  # noqa: S101 - for the type checker
        parameters[:] = self._optimizer.model(self.common)
        return SimulatedAverage(
            round=bring.round,
            error_mse=None if difference is None else float(np.square(difference).mean()),
            error_max=None if difference is None else float(np.abs(difference).max()),
            bytes_per_peer=self.sent,
            clipped=clipped if bring.how.beyond == "clip" or bring.how.plan else None,
            average_seconds=seconds,
            messages=messages,
        )

    def _adds(self, averaging: Averaging, round: int) -> bool:
        """Say whether codes are added up in a round, and no messages passed."""
        return self._samples(averaging) and not passes_messages(self._config, round)

    def _samples(self, averaging: Averaging) -> bool:
        """Say whether messages are passed in some rounds only."""
        return self._config.messages_between > 1 and averaging.adds_codes

    def _average(self, averaging: Averaging, vectors: Sequence[Array], round: int) -> tuple[Array, bool | None]:
        """Return the average, and whether messages were passed, where they are not always."""
        if self._adds(averaging, round):
            return add_up(averaging, vectors), False
        outcome = run(averaging, vectors, draws=self._masks(round))
        self.sent = float(np.mean(outcome.sent))
        if not self._samples(averaging):
            return outcome.average, None
        compare(outcome.average, add_up(averaging, vectors), round=round, protocol=averaging.protocol.name)
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

    def _contributions(self, round: int) -> Contributions:
        return Contributions(
            self._config, self._schema, self._bringing(round), round, self._base, self._weights, self.residuals
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
