"""One peer's part of data that a user already has, whatever holds it: arrays, PyTorch, Hugging Face, a list.

Nothing is imported for it: what holds samples is recognised by what it can do.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securedfl.arrays import to_numpy
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.dealing import deal as deal_indices
from securedfl.learning.data.dealing import hold_back
from securedfl.parameters import Array


@dataclass(frozen=True)
class Portion:
    """What one peer gets; each part is of the kind that was dealt.

    Attributes
    ----------
    train, test
        The peer's own samples: nine tenths for training, and a tenth for testing.
    common
        The common test set that no peer trains on, None if nothing was held back.

    Examples
    --------
    >>> import numpy as np, securedfl
    >>> x, y = np.arange(60).reshape(30, 2), np.arange(30) % 3
    >>> mine = securedfl.deal((x, y), {"number": 0, "peers": 2}, held_back=0.2)
    >>> isinstance(mine, securedfl.Portion), len(mine.common[1])
    (True, 6)
    """

    train: Any
    test: Any
    common: Any = None


def deal(
    data: Any,
    settings: Mapping[str, Any],
    *,
    label: str | Sequence[Any] | None = None,
    user: str | Sequence[Any] | None = None,
    held_back: float = 0.0,
) -> Portion:
    """Return one peer's part of data that all peers of a simulation, or of a trial on one machine, can read.

    Parameters
    ----------
    data
        ``(x, y)`` as arrays or tensors; a PyTorch Dataset with a length, or a DataLoader of one; a Hugging Face
        dataset; a `Dataset` as `read_folder` gives; or a list of samples.
    settings
        Of the peer, as the app gets them: ``number``, ``peers``, ``seed``, ``dealing`` and ``alpha`` count.
    label
        For the dealing ``dirichlet``: the name of the column, or the labels themselves. The labels of ``(x, y)``, and
        of a PyTorch Dataset with ``targets`` or ``tensors``, are known.
    user
        For the dealing ``natural``: the name of the column that says whom a sample is from, or a list of that.
    held_back
        Part of the samples that no peer gets.

    Returns
    -------
    Portion
        The peer's samples for training and testing, and the common test set.

    Raises
    ------
    ConfigError
        The settings do not say whose part it is, or how to deal.
    InvalidInputError
        What holds the samples cannot be dealt.

    Examples
    --------
    >>> import numpy as np, securedfl
    >>> x, y = np.arange(60).reshape(30, 2), np.arange(30) % 3
    >>> mine = securedfl.deal((x, y), {"number": 1, "peers": 3, "seed": 0})
    >>> train_x, train_y = mine.train
    >>> train_x.shape, len(mine.test[1])
    ((9, 2), 1)
    """
    for key in ("number", "peers"):
        if key not in settings:
            raise ConfigError(f"the settings to deal by lack {key!r}; hand over those that the app was made with")
    held = data.dataset if _is_loader(data) else data
    size = _size(held)
    described = Dataset(
        name="data",
        # where each sample stands
        x=np.arange(size)[:, None],
        **_labelled(held, label, size, needed=settings.get("dealing") == "dirichlet"),
        users=_users(held, user, size),
        common=held.common if isinstance(held, Dataset) else None,
    )
    seed = int(settings.get("seed", 0))
    rest, common = hold_back(described, held_back, seed)
    places = rest.x[:, 0]
    dealt = deal_indices(
        rest,
        int(settings["peers"]),
        dealing=str(settings.get("dealing", "even")),
        alpha=float(settings.get("alpha", 0.5)),
        seed=seed,
    )[int(settings["number"])]
    return Portion(
        _taken(data, places[dealt.train]),
        _taken(data, places[dealt.test]),
        None if common is None else _taken(data, common.x[:, 0]),
    )


def _is_loader(data: Any) -> bool:
    return hasattr(data, "dataset") and hasattr(data, "batch_sampler") and hasattr(data, "collate_fn")


def _is_pair(data: Any) -> bool:
    """Tell whether these are arrays of equal length, and not a list of samples."""
    return isinstance(data, tuple) and len(data) > 0 and all(hasattr(part, "shape") for part in data)


def _size(data: Any) -> int:
    if _is_pair(data):
        sizes = {len(part) for part in data}
        if len(sizes) > 1:
            raise InvalidInputError(f"the arrays have different lengths: {', '.join(map(str, sorted(sizes)))}")
        return sizes.pop()
    if not hasattr(data, "__len__") or not (hasattr(data, "__getitem__") or isinstance(data, Dataset)):
        raise InvalidInputError(
            f"a {type(data).__name__} cannot be dealt: it has no length or no samples by number. Give (x, y), a "
            "PyTorch Dataset with a length, a Hugging Face dataset or a list"
        )
    return len(data)


def _labelled(data: Any, label: Any, size: int, *, needed: bool) -> dict[str, Any]:
    """Return labels as numbers from 0, and how many different ones there are."""
    labels = _column(data, label, size, "label")
    if labels is None and _is_pair(data) and len(data) > 1:
        labels = to_numpy(data[-1])
    if labels is None and isinstance(data, Dataset):
        labels = data.y
    if labels is None and getattr(data, "tensors", None):
        labels = to_numpy(data.tensors[-1])
    if labels is None and hasattr(data, "targets"):
        labels = np.asarray(data.targets)
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iubUO":
        if needed:
            raise ConfigError('dealing = "dirichlet" needs one label per sample; pass label=..., or deal evenly')
        return {"y": np.zeros(size, dtype=np.int64), "classes": 1}
    classes, y = np.unique(labels, return_inverse=True)
    return {"y": y.reshape(-1).astype(np.int64), "classes": len(classes)}


def _users(data: Any, user: Any, size: int) -> Array | None:
    found = _column(data, user, size, "user")
    if found is None:
        return data.users if isinstance(data, Dataset) else None
    return np.unique(found, return_inverse=True)[1].reshape(-1)


def _column(data: Any, given: Any, size: int, what: str) -> Array | None:
    """Return what was given, or the column of that name."""
    if given is None:
        return None
    if isinstance(given, str):
        names = getattr(data, "column_names", None)
        if names is None or given not in names:
            known = f" (it has {', '.join(names)})" if names else ""
            raise ConfigError(f"the data has no column {given!r}{known}; pass one {what} per sample instead")
        given = data[given]
    found = to_numpy(given) if hasattr(given, "shape") else np.asarray(list(given))
    if len(found) != size:
        raise InvalidInputError(f"there are {size} samples, but {len(found)} values of {what}")
    return found


def _taken(data: Any, places: Array) -> Any:
    """Return some samples, in what held them all."""
    if _is_loader(data):
        torch = sys.modules["torch"]
        return type(data)(
            _taken(data.dataset, places),
            batch_size=data.batch_size,
            shuffle=isinstance(data.sampler, torch.utils.data.RandomSampler),
            num_workers=data.num_workers,
            collate_fn=data.collate_fn,
            drop_last=data.drop_last,
        )
    if _is_pair(data):
        return tuple(part[places] for part in data)
    if isinstance(data, Dataset):
        return data.only(places).without_common()
    if hasattr(data, "select") and hasattr(data, "column_names"):
        return data.select(places.tolist())
    if isinstance(data, list | tuple | str | np.ndarray) or "torch" not in sys.modules:
        return data[places] if isinstance(data, np.ndarray) else [data[int(place)] for place in places]
    return sys.modules["torch"].utils.data.Subset(data, places.tolist())
