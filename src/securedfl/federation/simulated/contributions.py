"""What the members of a round bring to an average; as a value, so that it can be found where they train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from securedfl.federation.bringing import Bringing, Brought
from securedfl.federation.budget.task import keys_of
from securedfl.federation.config import TrainConfig
from securedfl.parameters import Array, Schema
from securedfl.protocols import InsecureSeededDraw
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.simulation.partial_sums import CodeSums


@dataclass(frozen=True)
class Contributions:
    """Of all members of a round.

    Attributes
    ----------
    config, schema
        Of the run, and of a row.
    how, round
        How rows are brought, in which round.
    base
        The model from which members bring differences, if they do.
    weights, residuals
        Of each peer: what it counts, and what it rounded off before; None if all count the same, and if nothing is
        kept.
    """

    config: TrainConfig
    schema: Schema
    how: Bringing
    round: int
    base: Array | None
    weights: Sequence[float] | None
    residuals: Sequence[Array] | None

    def __call__(self, peer: int, row: Array) -> Brought:
        """Return what a member brings."""
        return self.how(
            row,
            self.base,
            # another stream than that of the masks
            draw=InsecureSeededDraw(self.config.seed, peer=-1 - peer, round=self.round),
            weight=1.0 if self.weights is None else self.weights[peer],
            residual=None if self.residuals is None else self.residuals[peer],
            keys=keys_of(self.config, peer, self.round),
        )

    def codes(self, peer: int, row: Array) -> tuple[Array, int]:
        """Return the same as codes that can be added up, and how many values were cut to the range."""
        brought = self(peer, row)
        try:
            return self.sums.codes(brought.vector, peer), brought.clipped
        except UnencodableError as error:
            raise error.at(name=self.name_at(error.index)) from None

    def add(self, total: Array, codes: Array) -> Array:
        """Return the sum of codes, in the place of the first."""
        return self.sums.add(total, codes)

    @property
    def sums(self) -> CodeSums:
        """How codes are added up."""
        return CodeSums.of(self.how.averaging, self.schema.dtype)

    def name_at(self, index: int) -> str:
        """Return the name of a parameter; a weight after them has none."""
        return self.schema.name_at(index) if index < self.schema.size else ""
