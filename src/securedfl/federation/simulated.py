"""All peers of Algorithm 3 in one process: a team that trains, and secure aggregation in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securedfl.designs import Design
from securedfl.federation.bringing import Bringing, Brought
from securedfl.federation.budget.protection import Keys, with_central_noise
from securedfl.federation.budget.task import keys_of
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import METHODS, averages_differences, bringing, members, passes_messages, protocol_of
from securedfl.learning.training.common_optimizer import NO_OPTIMIZER, CommonOptimizer
from securedfl.learning.training.task import Score
from securedfl.learning.training.team import Progress, Team
from securedfl.parameters import Array
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols import InsecureSeededDraw
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.protocol import Averaging
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Draw
from securedfl.simulation.driver import Draws, NotFiniteError, run
from securedfl.simulation.partial_sums import add_up, compare


@dataclass(frozen=True, kw_only=True)
class SimulatedAverage:
    """What one average cost, and how far it is from the true mean, which only a simulation knows."""

    round: int
    error_mse: float | None = None
    error_max: float | None = None
    bytes_per_peer: float = 0.0
    clipped: int | None = None
    seconds: float = 0.0
    messages: bool | None = None
    """Whether the protocol's messages were passed, where that is not done in all rounds."""


Aggregation = Callable[[Array, int], SimulatedAverage]
"""Replaces every peer's row by the average of a round, in place."""


Members = Callable[[int], Sequence[int]]
"""Gives who takes part in a round."""


class SimulatedPeers:
    """All peers at once: a team that trains, and a way to average. The rows of ``team.parameters`` are the paper's w_k.

    `no_aggregation` leaves every peer on its own (Local-Only). ``report`` hears how many peers have trained in a round,
    and ``members`` tells who trains in it, by default everybody. ``private`` takes steps that are differentially
    private for each record. ``right`` is what the last `evaluate` found: of each peer, which predictions were right,
    if that is known.
    """

    def __init__(
        self,
        team: Team,
        aggregation: Aggregation,
        report: Progress | None = None,
        members: Members | None = None,
        *,
        private: bool = False,
    ) -> None:
        self._team, self._aggregation, self._report, self._members = team, aggregation, report, members
        self._private = private
        self.right: list[Array] | None = None

    def initialise(self) -> None:
        """Choose w_k^0."""
        self._seat(0)
        self._team.initialise()

    def update(self, round: int) -> Sequence[float | None]:
        """Train all peers, or the members of the round."""
        if self._members is None:
            return self._team.update(round, self._report, private=self._private)
        self._seat(round)
        return self._team.update(round, self._report, only=self._members(round), private=self._private)

    def _seat(self, round: int) -> None:
        """Give the members of a round the rows, if there are no others."""
        if self._members is not None:
            self._team.seat(self._members(round))

    def average(self, round: int) -> SimulatedAverage:
        """Average all peers."""
        return self._aggregation(self._team.parameters, round)

    def evaluate(self) -> Sequence[Score | None]:
        """Score all peers."""
        found = self._team.evaluate_each()
        known = [right for _, right in found if right is not None]
        self.right = known if len(known) == len(found) else None
        return [score for score, _ in found]


def no_aggregation(_parameters: Array, round: int) -> SimulatedAverage:
    """Leave every peer its own parameters."""
    return SimulatedAverage(round=round)


class SecureAggregation:
    """Averages all rows by a protocol in the memory driver and writes the result into every row.

    Parameters
    ----------
    bringing
        Gives for a round how parameters are brought, and by what they are averaged.
    draws
        Gives the source of masks for a round.
    rounding
        Gives the source of random rounding for a round and a peer.
    differences
        Whether differences are averaged from round 1 on.
    noise
        Gives the keys of the noise of differential privacy for a round and a peer (-1: the server that is compared
        with); by default secret ones.
    weights
        How much each peer counts; without, all count alike.
    optimizer
        What the common model does with an average.
    members
        Tells who takes part in a round; without, everybody. All peers get the average.
    keeps
        Whether a peer keeps what it rounded off for its next average.
    passes
        Tells whether the messages of the protocol are passed in a round. If not, the codes of the members are added up,
        which gives the same bits; when they are passed the next time, that is checked. Without, always.
    name_at
        Gives the parameter that an index belongs to, for messages.

    Attributes
    ----------
    held
        What all peers hold: the model, and the state of its optimiser; None before the first average.
    residuals
        What each peer rounded off and adds in the next round; None if nothing is kept.
    sent
        Bytes that a member sent in the last round in which messages were passed; rounds differ in their values only.
    """

    def __init__(
        self,
        bringing: Callable[[int], Bringing],
        *,
        draws: Callable[[int], Draws | None],
        rounding: Callable[[int, int], Draw],
        differences: bool = True,
        noise: Callable[[int, int], Keys] | None = None,
        weights: Sequence[float] | None = None,
        optimizer: CommonOptimizer = NO_OPTIMIZER,
        members: Members | None = None,
        keeps: bool = True,
        passes: Callable[[int], bool] | None = None,
        name_at: Callable[[int], str] | None = None,
    ) -> None:
        self._bringing, self._draws, self._rounding, self._name_at = bringing, draws, rounding, name_at
        self._differences = differences
        self._noise = noise or (lambda _round, _peer: secret_uniform.seed)
        self._weights = None if weights is None else [weight / max(weights) for weight in weights]
        self._optimizer, self._members, self._keeps, self._passes = optimizer, members, keeps, passes
        self.sent = 0.0
        self.held: Array | None = None
        self.residuals: list[Array] | None = None

    def restore(self, held: Array, residuals: Sequence[Array] | None, sent: float = 0.0) -> None:
        """Go on from what all peers held."""
        self.sent = sent
        self.held = held.copy()
        self.residuals = None if residuals is None else list(residuals)

    def __call__(self, parameters: Array, round: int) -> SimulatedAverage:
        """Average the rows."""
        started = time.perf_counter()
        bring, size = self._bringing(round), parameters.shape[1]
        members = range(len(parameters)) if self._members is None else self._members(round)
        rows = rows_of(members, parameters)
        brought = [self._bring(bring, row, peer, round) for peer, row in zip(members, rows, strict=True)]
        try:
            average, messages = self._average(bring.averaging, [one.vector for one in brought], round)
        except (NotFiniteError, UnencodableError) as error:
            name = self._name_at(error.index) if self._name_at and error.index < size else ""
            if isinstance(error, UnencodableError):
                raise error.at(peer=None if error.peer is None else members[error.peer], name=name) from None
            raise NotFiniteError(members[error.peer], error.index, error.value, name) from None
        self._keep({peer: one.residual for peer, one in zip(members, brought, strict=True)}, parameters)
        base = self._base
        if bring.plan is not None and base is not None:
            average = with_central_noise(average, bring.plan, self._noise(round, -1))
        mean = bring.model(average, base)
        self.held = self._optimizer.step(self.held, mean)
        seconds = time.perf_counter() - started

        weights = None if self._weights is None else [self._weights[peer] for peer in members]
        true = true_mean(rows, weights)
        if bring.plan is not None and bring.plan.brings_steps and base is not None:
            true += base
        difference = mean - true
        parameters[:] = self._optimizer.model(self.held)
        return SimulatedAverage(
            round=round,
            error_mse=float(np.square(difference).mean()),
            error_max=float(np.abs(difference).max()),
            bytes_per_peer=self.sent,
            clipped=sum(one.clipped for one in brought) if bring.beyond == "clip" or bring.plan else None,
            seconds=seconds,
            messages=messages,
        )

    def _average(self, averaging: Averaging, vectors: Sequence[Array], round: int) -> tuple[Array, bool | None]:
        """Return the average, and whether messages were passed, where they are not always."""
        sometimes = self._passes is not None and averaging.adds_codes
        added = add_up(averaging, vectors) if sometimes else None
        if added is not None and self._passes is not None and not self._passes(round):
            return added, False
        outcome = run(averaging, vectors, draws=self._draws(round))
        self.sent = float(np.mean(outcome.sent))
        if added is None:
            return outcome.average, None
        compare(outcome.average, added, round=round, protocol=averaging.protocol.name)
        return outcome.average, True

    def _keep(self, left: Mapping[int, Array | None], parameters: Array) -> None:
        """Keep what members rounded off; what others did earlier stays."""
        if not self._keeps or any(residual is None for residual in left.values()):
            self.residuals = None
            return
        kept = self.residuals or [np.zeros_like(row) for row in parameters]
        self.residuals = [kept[peer] if (new := left.get(peer)) is None else new for peer in range(len(parameters))]

    @property
    def _base(self) -> Array | None:
        """The model from which peers bring differences."""
        return None if self.held is None or not self._differences else self._optimizer.model(self.held)

    def _bring(self, bring: Bringing, row: Array, peer: int, round: int) -> Brought:
        return bring(
            row,
            self._base,
            draw=self._rounding(round, peer),
            weight=1.0 if self._weights is None else self._weights[peer],
            residual=None if self.residuals is None else self.residuals[peer],
            keys=self._noise(round, peer),
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


def aggregation_of(
    config: TrainConfig, method: str, design: Design, team: Team, samples: Sequence[int], plan: Plan | None
) -> SecureAggregation | None:
    """Return how a method of a run averages; None if it does not.

    Parameters
    ----------
    config, method, design
        Of the run.
    team, samples
        Who trains, and how many training samples each peer has.
    plan
        Of differential privacy, if there is one.
    """
    if protocol_of(config, method) is None:
        return None

    def draws(round: int) -> Draws | None:
        if config.masks == "secret":
            return None
        return lambda peer, offset: InsecureSeededDraw(config.seed, peer=peer, round=round, offset=offset)

    return SecureAggregation(
        bringing(config, method, design, team.schema.dtype, plan),
        draws=draws,
        # another stream than that of the masks
        rounding=lambda round, peer: InsecureSeededDraw(config.seed, peer=-1 - peer, round=round),
        differences=averages_differences(config, method),
        noise=lambda round, peer: keys_of(config, peer, round),
        weights=[float(count) for count in samples] if config.weighted else None,
        optimizer=config.common(team.buffers),
        members=drawn_in(config),
        keeps=config.between_rounds == "keep",
        passes=None if config.messages_between == 1 else lambda round: passes_messages(config, round),
        name_at=team.schema.name_at,
    )


def drawn_in(config: TrainConfig) -> Members | None:
    """Return who takes part in a round; None if everybody does in all of them."""
    return None if config.members == config.peers else lambda round: members(config, round)


def rows_needed(config: TrainConfig) -> int | None:
    """Return for how many peers parameters are held at a time: of the members only, where nobody needs its own."""
    own = config.between_rounds == "keep" or any(METHODS[name].protocol is None for name in config.methods)
    return None if own or config.members == config.peers else config.members
