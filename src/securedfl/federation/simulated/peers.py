"""All peers of Algorithm 3 in one process: a team that trains, and a way to average."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import METHODS, members
from securedfl.federation.simulated.aggregation import SecureAggregation, SimulatedAverage
from securedfl.federation.simulated.contributions import Contributions
from securedfl.learning.training.task import Score
from securedfl.learning.training.team import Added, Progress, Team
from securedfl.parameters import Array

Members = Callable[[int], Sequence[int]]
"""Gives who takes part in a round."""


class SimulatedPeers:
    """All peers at once. The rows of ``team.parameters`` are the paper's w_k.

    Parameters
    ----------
    team
        Who trains.
    aggregation
        How they average; None leaves every peer its own parameters (Local-Only).
    report
        Hears how many peers have trained in a round.
    members
        Tells who trains in a round; by default everybody.
    private
        Whether steps are differentially private for each record.
    keep
        Is given all rows before the average of a round.

    Attributes
    ----------
    right
        What the last `evaluate` found: of each peer, which predictions were right, if that is known.
    """

    def __init__(
        self,
        team: Team,
        aggregation: SecureAggregation | None,
        report: Progress | None = None,
        *,
        members: Members | None = None,
        private: bool = False,
        keep: Callable[[Array, int], None] | None = None,
    ) -> None:
        self._team, self._aggregation, self._report, self._members = team, aggregation, report, members
        self._private, self._keep = private, keep
        self._added: Added | None = None
        self.right: list[Array] | None = None

    def initialise(self) -> None:
        """Choose w_k^0."""
        self._seated(0)
        self._team.initialise()

    def update(self, round: int) -> Sequence[float | None]:
        """Train all peers, or the members of the round; add up what they bring, where rows would travel for that."""
        who, brings = self._seated(round), self._to_add(round)
        if brings is None:
            return self._team.update(round, self._report, only=who, private=self._private)
        losses, self._added = self._team.update_and_add(brings, self._report, who)
        return losses

    def _to_add(self, round: int) -> Contributions | None:
        """Return what members bring to a sum; None if their rows are needed, or are here anyway."""
        if not self._team.rows_travel or self._aggregation is None or self._keep is not None or self._private:
            return None
        return self._aggregation.to_add(round)

    def _seated(self, round: int) -> Sequence[int] | None:
        """Return who trains in a round, None for everybody; they get the rows, if there are no others."""
        if self._members is None:
            return None
        who = self._members(round)
        self._team.seat(who)
        return who

    def average(self, round: int) -> SimulatedAverage:
        """Average all peers."""
        if self._keep is not None:
            self._keep(self._team.parameters, round)
        if self._aggregation is None:
            return SimulatedAverage(round=round)
        if self._added is not None:
            added, self._added = self._added, None
            return self._aggregation.take(self._team.parameters, added, round)
        return self._aggregation(self._team.parameters, round)

    def evaluate(self) -> Sequence[Score | None]:
        """Score all peers."""
        found = self._team.evaluate_each()
        known = [right for _, right in found if right is not None]
        self.right = known if len(known) == len(found) else None
        return [score for score, _ in found]


def drawn_in(config: TrainConfig) -> Members | None:
    """Return who takes part in a round; None if everybody does in all of them."""
    return None if config.members == config.peers else lambda round: members(config, round)


def rows_needed(config: TrainConfig) -> int | None:
    """Return for how many peers parameters are held at a time: of the members only, where nobody needs its own."""
    own = config.between_rounds == "keep" or any(METHODS[name].protocol is None for name in config.methods)
    return None if own or config.members == config.peers else config.members
