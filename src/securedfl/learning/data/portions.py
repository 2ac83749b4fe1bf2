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
from securedfl.learning.data.dataset import Dataset, numbered
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
    if not 0 <= int(settings["number"]) < int(settings["peers"]):
        raise ConfigError(f"there is no peer {settings['number']} among {settings['peers']}; they count from 0")
    if not 0 <= held_back < 1:
        raise ConfigError(f"held_back = {held_back} must be a part of the samples, from 0 to less than 1")
    held = data.dataset if _is_loader(data) else data
    size = _size(held)
    y, classes = _labelled(held, label, size, needed=settings.get("dealing") == "dirichlet")
    described = Dataset(
        name="data",
        # where each sample stands
        x=np.arange(size)[:, None],
        y=y,
        classes=classes,
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
    kind = type(data).__name__
    if isinstance(data, Mapping) and all(hasattr(part, "column_names") for part in data.values()):
        raise InvalidInputError(f"this {kind} has several splits ({', '.join(map(str, data))}); deal one of them")
    few = isinstance(data, list | tuple) and 0 < len(data) < 5
    if isinstance(data, Mapping) or (few and all(hasattr(part, "shape") or isinstance(part, list) for part in data)):
        raise InvalidInputError(
            f"a {kind} of {len(data)} arrays cannot be dealt; give a tuple of numpy arrays or tensors, (x, y)"
        )
    if not hasattr(data, "__len__") or not (hasattr(data, "__getitem__") or isinstance(data, Dataset)):
        raise InvalidInputError(
            f"a {kind} cannot be dealt: it has no length or no samples by number. Give (x, y), a "
            "PyTorch Dataset with a length, a Hugging Face dataset or a list"
        )
    return len(data)


def _labelled(data: Any, label: Any, size: int, *, needed: bool) -> tuple[Array, int]:
    """Return labels as numbers from 0, and how many different ones there are."""
    labels = _column(data, label, size, "label")
    if labels is None:
        labels = _known_labels(data)
    if labels is not None and labels.dtype.kind == "f" and (np.rint(labels) == labels).all():
        labels = labels.astype(np.int64)
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iubUO":
        if needed:
            raise ConfigError(
                'dealing = "dirichlet" needs one label per sample, a text or a whole number; pass label=..., or deal '
                "evenly"
            )
        return np.zeros(size, dtype=np.int64), 1
    classes, y = _numbered(labels, "label")
    return y, len(classes)


def _known_labels(data: Any) -> Array | None:
    """Return the labels of data that tells them by itself."""
    if _is_pair(data):
        return to_numpy(data[-1]) if len(data) > 1 else None
    if isinstance(data, Dataset):
        return data.y
    if getattr(data, "tensors", None):
        return to_numpy(data.tensors[-1])
    if hasattr(data, "targets"):
        return to_numpy(data.targets)
    if hasattr(data, "indices") and hasattr(data, "dataset"):
        # a subset
        inner = _known_labels(data.dataset)
        return None if inner is None else inner[np.asarray(data.indices)]
    if hasattr(data, "datasets") and hasattr(data, "cumulative_sizes"):
        parts = [_known_labels(part) for part in data.datasets]
        known = [part for part in parts if part is not None]
        return np.concatenate(known) if len(known) == len(parts) else None
    return None


def _numbered(values: Array, what: str) -> tuple[Array, Array]:
    try:
        return numbered(values)
    except TypeError:
        raise InvalidInputError(f"not all values of {what} are of one kind; is one of them missing?") from None


def _users(data: Any, user: Any, size: int) -> Array | None:
    found = _column(data, user, size, "user")
    if found is None:
        return data.users if isinstance(data, Dataset) else None
    return _numbered(found, "user")[1]


def _column(data: Any, given: Any, size: int, what: str) -> Array | None:
    """Return what was given, or the column of that name."""
    if given is None:
        return None
    if isinstance(given, str):
        # of Hugging Face, or of pandas
        names = getattr(data, "column_names", getattr(data, "columns", None))
        if names is None or given not in names:
            known = "" if names is None else f" (it has {', '.join(map(str, names))})"
            raise ConfigError(f"the data has no column {given!r}{known}; pass one {what} per sample instead")
        given = data[given]
    found = to_numpy(given) if hasattr(given, "shape") else np.asarray(list(given))
    if len(found) != size:
        raise InvalidInputError(f"there are {size} samples, but {len(found)} values of {what}")
    return found


def _taken(data: Any, places: Array) -> Any:
    """Return some samples, in what held them all."""
    if _is_loader(data):
        return _loader(data, _taken(data.dataset, places))
    if _is_pair(data):
        return tuple(_rows(part, places) for part in data)
    if isinstance(data, Dataset):
        return data.only(places).without_common()
    if hasattr(data, "select") and hasattr(data, "column_names"):
        return data.select(places.tolist())
    if hasattr(data, "shape"):
        return _rows(data, places)
    if isinstance(data, list | tuple | str) or "torch" not in sys.modules:
        return [data[int(place)] for place in places]
    return sys.modules["torch"].utils.data.Subset(data, places.tolist())


def _rows(array: Any, places: Array) -> Any:
    """Return some rows of an array, a tensor, or what pandas has."""
    return array.iloc[places] if hasattr(array, "iloc") else array[places]


def _loader(loader: Any, dataset: Any) -> Any:
    """Return a DataLoader of other samples that is made like one."""
    tools = sys.modules["torch"].utils.data
    plain = tools.SequentialSampler, tools.RandomSampler
    batches = loader.batch_sampler
    order = loader.sampler if batches is None else getattr(batches, "sampler", None)
    if type(order) not in plain or type(batches) not in (tools.BatchSampler, type(None)):
        raise ConfigError(
            "the DataLoader has a sampler of its own, which cannot be dealt: deal its dataset, and make a loader of "
            "the part"
        )
    return type(loader)(
        dataset,
        batch_size=None if batches is None else batches.batch_size,
        shuffle=isinstance(order, tools.RandomSampler),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        drop_last=batches is not None and batches.drop_last,
    )
