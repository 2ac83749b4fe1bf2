"""The samples of peers as parts of one data set, copied or read when a peer needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from securedfl.learning.data.dataset import Dataset, Mapped
from securedfl.learning.data.dealing import Dealt
from securedfl.parameters import Array


@dataclass(frozen=True)
class PeerData:
    """The samples of one peer."""

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array


@dataclass(frozen=True)
class Slices(Mapping[int, PeerData]):
    """The samples of some peers, copied out of the data set when they are asked for.

    Another process gets copies of these peers' samples only; what is mapped it maps itself.
    """

    dataset: Dataset
    dealt: Mapping[int, Dealt]

    def __getitem__(self, peer: int) -> PeerData:
        d, own = self.dataset, self.dealt[peer]
        return PeerData(d.x[own.train], d.y[own.train], d.x[own.test], d.y[own.test])

    def __iter__(self) -> Iterator[int]:
        return iter(self.dealt)

    def __len__(self) -> int:
        return len(self.dealt)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        if not self.on_disk:
            return dict, (dict(self),)
        # the places of these peers' samples, one peer's after the other's
        parts = [part for own in self.dealt.values() for part in (own.train, own.test)]
        places = np.concatenate(parts)
        moved = iter(np.split(np.arange(len(places)), np.cumsum([len(part) for part in parts])[:-1]))
        dealt = {peer: Dealt(next(moved), next(moved)) for peer in self.dealt}
        return Slices, (replace(self.dataset, users=None, held_out=None).only(places), dealt)

    @property
    def on_disk(self) -> bool:
        """Whether samples are on disk, and are not to be held in memory."""
        return isinstance(self.dataset.x, Mapped)

    def counts(self, peer: int) -> tuple[int, int]:
        """Return how many samples a peer has for training and for testing; nothing is read."""
        own = self.dealt[peer]
        return len(own.train), len(own.test)
