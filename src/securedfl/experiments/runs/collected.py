"""What experiments collect: cells, which are runs that differ in little, and by which of them claims are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from securedfl.experiments import paper
from securedfl.learning.training.task import Initial


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Runs that differ in nothing but seed (and iterations): a cell of the paper's table.

    Attributes
    ----------
    scaled, users, width
        How they are smaller than the paper's: in words, and the shares of all users and of the model's width.
    initial
        Whether all peers began with the same parameters; results that do not say it began with their own.
    whole, only
        Whether all methods have finished, with one seed at least; those that have, where no more were asked for.
    versions
        Of what trained it; several of one package are listed.
    """

    dataset: str
    peers: int
    scaled: str
    rounds: int
    users: float
    width: float
    seeds: list[int]
    initial: Initial = "own"
    whole: bool = True
    only: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Data set and peers, whether the runs were scaled, and if peers had starts of their own."""
        return f"{paper.name(self.dataset)}, {self.peers} peers{self.marks}"

    @property
    def marks(self) -> str:
        """What sets the runs apart from the paper's."""
        return (", scaled" if self.scaled else "") + (", own starts" if self.initial == "own" else "")

    @property
    def scale(self) -> str:
        """How the runs are smaller than the paper's, for the column "Scale"."""
        return self.scaled or "full"

    def record(self, **numbers: object) -> dict[str, object]:
        """Return a row of numbers for CSV."""
        told = {"dataset": self.dataset, "peers": self.peers, "scaled": self.scaled, "initial": self.initial}
        return {**told, **numbers}


C = TypeVar("C", bound=Cell)


@dataclass(frozen=True)
class Collected(Generic[C]):
    """What was found, and the data sets and numbers of peers that the paper has; without those, all count as such."""

    cells: list[C]
    wanted: list[tuple[str, int]] = field(default_factory=list)

    @property
    def judged(self) -> list[C]:
        """The cells by which the paper's claims are judged: its places, at full size, with a common start."""
        return [cell for cell in self._of_paper if not cell.scaled]

    @property
    def smaller(self) -> dict[str, list[C]]:
        """The cells that are smaller than the paper's, by how they are: they decide nothing about it."""
        found: dict[str, list[C]] = {}
        for cell in self._of_paper:
            if cell.scaled:
                found.setdefault(cell.scaled, []).append(cell)
        return found

    @property
    def _of_paper(self) -> list[C]:
        # own starts are shown only
        places = self.wanted or [(cell.dataset, cell.peers) for cell in self.cells]
        return [cell for cell in self.cells if cell.initial == "common" and (cell.dataset, cell.peers) in places]


@dataclass(frozen=True)
class ByPlace(Collected[C]):
    """What was found by place."""

    @property
    def places(self) -> dict[tuple[str, int], list[C]]:
        """The cells of each place that the paper has or somebody ran."""
        found: dict[tuple[str, int], list[C]] = {place: [] for place in self.wanted}
        for cell in self.cells:
            found.setdefault((cell.dataset, cell.peers), []).append(cell)
        return found

    def not_run(
        self, dataset: str | None = None, cells: Sequence[C] | None = None, method: str | None = None
    ) -> list[str]:
        """Return what the paper has, of one data set or of all, and no cell is (of the judged), or has of a method."""
        known = self.judged if cells is None else cells
        ran = {(cell.dataset, cell.peers) for cell in known if cell.whole or method in cell.only}
        left = [place for place in self.wanted if place not in ran and dataset in (None, place[0])]
        return [f"{paper.name(name)} with {peers} peers" for name, peers in left]


@dataclass(frozen=True)
class ByIterations(Collected[C]):
    """What was found, and all numbers of iterations that the paper has."""

    iterations: list[int] = field(default_factory=list)
