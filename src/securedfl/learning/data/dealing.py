"""Who holds which samples: dealing a data set to peers, and each peer's split into training and test data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import ConfigError, InvalidInputError, unknown
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.seeds import stream

Indices = npt.NDArray[np.int64]

DEALINGS = ("even", "natural", "dirichlet")
TEST_FRACTION = 0.1
SMALLEST = 10
"""The fewest samples of which a tenth is a whole sample."""

ATTEMPTS = 100
"""How often proportions are drawn again because a peer got too little."""


@dataclass(frozen=True)
class Dealt:
    """The samples of one peer, as indices into the data set."""

    train: Indices
    test: Indices


def hold_back(dataset: Dataset, part: float, seed: int = 0) -> tuple[Dataset, Dataset | None]:
    """Return what the peers get, and the common test set that none of them gets, if there is one.

    Parameters
    ----------
    dataset
        One with test files of its own has its common test set.
    part
        Of the samples that is drawn for it otherwise.
    seed
        Equal seeds draw alike.
    """
    if dataset.common is not None:
        if part:
            raise ConfigError(
                f"held_back = {part} is set, but {dataset.name!r} has test files of its own; leave one of them away"
            )
        marks = dataset.common.astype(bool)
    elif not part:
        return dataset, None
    else:
        marks = np.zeros(len(dataset), dtype=bool)
        drawn = stream(seed, "held back").permutation(len(dataset))
        marks[drawn[: max(1, round(part * len(dataset)))]] = True
    return dataset.only(~marks).without_common(), dataset.only(marks).without_common()


def deal(
    dataset: Dataset,
    peers: int,
    *,
    dealing: str = "even",
    alpha: float = 0.5,
    seed: int = 0,
    own_tests: bool = True,
) -> tuple[Dealt, ...]:
    """Deal all samples to the peers and split each peer's into 90 % training and 10 % test data.

    Parameters
    ----------
    dataset, peers
        What is dealt, and to how many.
    dealing
        ``"even"``: at random, in equal numbers. ``"natural"``: whole users, dealt at random in equal numbers, as in
        the paper. ``"dirichlet"``: each class in proportions drawn from Dirichlet(alpha).
    alpha
        Of ``"dirichlet"``: small gives each peer few classes, large comes close to ``"even"``.
    seed
        Equal seeds deal alike.
    own_tests
        Whether every peer must have test data of its own. Where a common test set scores all, one sample will do for a
        peer, and those with fewer than six test on none.
    """
    least = SMALLEST if own_tests else 1
    if peers * least > len(dataset):
        raise _too_few(dataset, peers, least)
    if dealing not in DEALINGS:
        raise unknown("dealing", dealing, DEALINGS)
    # the stream keeps its first name, so that a seed deals as it always did
    random = stream(seed, "partition")
    if dealing == "dirichlet":
        parts = dirichlet(dataset, peers, alpha, random, least)
    else:
        parts = (natural if dealing == "natural" else even)(dataset, peers, random)
    for peer, part in enumerate(parts):
        if len(part) < least:
            raise InvalidInputError(
                f"peer {peer} got {len(part)} samples, but a 90/10 split needs at least {least}; use fewer peers"
            )
    by_user = dealing == "natural"
    return tuple(
        split(dataset, part, stream(seed, "split", peer), peer=peer, by_user=by_user, own_tests=own_tests)
        for peer, part in enumerate(parts)
    )


def _too_few(dataset: Dataset, peers: int, least: int) -> InvalidInputError:
    """Return the error for less data than the peers need, with what would do."""
    each = "one each" if least == 1 else f"{least} each, so that a tenth is a whole test sample"
    most = len(dataset) // least
    wish = f"use at most {most} peers" if most > 2 else "bring more samples"
    if least > 1 and len(dataset) > peers:
        wish += ", or hold back test data that all share (held_back = 0.1): then one sample for each peer is enough"
    return InvalidInputError(
        f"{peers} peers need at least {peers * least} samples ({each}), but the data set {dataset.name!r} has "
        f"{len(dataset)}; {wish}"
    )


def even(dataset: Dataset, peers: int, random: np.random.Generator) -> list[Indices]:
    """Deal samples at random in equal numbers (one more for the first peers where it does not divide)."""
    return np.array_split(random.permutation(len(dataset)), peers)


def natural(dataset: Dataset, peers: int, random: np.random.Generator) -> list[Indices]:
    """Deal users at random in equal numbers; each peer holds all samples of its users."""
    if dataset.users is None:
        raise ConfigError(
            f"the data set {dataset.name!r} does not say whom its samples are from; of tables, name the column "
            'that does (--user), or use dealing = "even" or "dirichlet"'
        )
    users, user_of = np.unique(dataset.users, return_inverse=True)
    if len(users) < peers:
        raise InvalidInputError(
            f"the data set {dataset.name!r} has {len(users)} user{'s' * (len(users) != 1)}, too few for {peers} peers; "
            "use fewer peers"
        )
    peer_of_user = np.empty(len(users), dtype=np.int64)
    for peer, dealt in enumerate(np.array_split(random.permutation(len(users)), peers)):
        peer_of_user[dealt] = peer
    peer_of = peer_of_user[user_of.reshape(-1)]
    return [np.flatnonzero(peer_of == peer) for peer in range(peers)]


def dirichlet(
    dataset: Dataset, peers: int, alpha: float, random: np.random.Generator, least: int = SMALLEST
) -> list[Indices]:
    """Deal each class in proportions drawn from Dirichlet(alpha), again until every peer has enough to split."""
    if not (alpha > 0 and np.isfinite(alpha)):
        raise ConfigError(f"alpha of the Dirichlet dealing must be a positive number, not {alpha}")
    if dataset.y.ndim != 1:
        raise ConfigError('dealing = "dirichlet" needs one label per sample; use "even" or "natural"')
    for _ in range(ATTEMPTS):
        parts: list[list[Indices]] = [[] for _ in range(peers)]
        for label in range(dataset.classes):
            members = random.permutation(np.flatnonzero(dataset.y == label))
            cuts = np.cumsum(random.dirichlet(np.full(peers, alpha)))[:-1] * len(members)
            for part, piece in zip(parts, np.split(members, cuts.round().astype(np.int64)), strict=True):
                part.append(piece)
        result = [np.concatenate(part) for part in parts]
        if min(map(len, result)) >= least:
            return result
    raise InvalidInputError(
        f"Dirichlet({alpha}) left some peer with fewer than {least} samples in {ATTEMPTS} attempts; "
        "use a larger alpha or fewer peers"
    )


def split(
    dataset: Dataset,
    part: Indices,
    random: np.random.Generator,
    *,
    peer: int,
    by_user: bool = False,
    own_tests: bool = True,
) -> Dealt:
    """Split a peer's samples 90/10, for each user apart if ``by_user``, or as the data set itself does."""
    if dataset.held_out is not None:
        test = dataset.held_out[part].astype(bool)
        shuffled = part
    else:
        shuffled = random.permutation(part)
        groups = dataset.users[shuffled] if by_user and dataset.users is not None else np.zeros(len(part), np.int64)
        test = _one_in_ten(groups)
    dealt = Dealt(train=np.sort(shuffled[~test]), test=np.sort(shuffled[test]))
    for name, indices in (("training", dealt.train), ("test", dealt.test)):
        if not len(indices) and (own_tests or name == "training"):
            raise InvalidInputError(f"peer {peer} has no {name} samples; use fewer peers or another dealing")
    return dealt


def _one_in_ten(groups: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mark the first tenth (rounded) of every group's members, in the order given."""
    order = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    rank = np.arange(len(groups)) - np.repeat(starts, counts)
    marks = np.empty(len(groups), dtype=bool)
    marks[order] = rank < np.repeat(np.rint(counts * TEST_FRACTION), counts)
    return marks
