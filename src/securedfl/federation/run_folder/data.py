"""data.json: what the peers of a run hold and how large their model is, in numbers. No sample is in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from securedfl.federation.run_folder.files import DATA, RESUME, damaged, read_object
from securedfl.learning.training.task import Held
from securedfl.storage import write_text


@dataclass(frozen=True, kw_only=True)
class Data:
    """What peers hold and train.

    Attributes
    ----------
    peers
        What each peer holds; in a real peer's own folder that is one peer, because sites do not tell each other.
    common
        Samples of the common test set; None if there is none.
    averaged, at_home
        How many parameters of the model are averaged, and how many stay with each peer, where that is known.
    """

    peers: tuple[Held, ...]
    common: int | None = None
    averaged: int | None = None
    at_home: int | None = None


def joined(parts: Iterable[Data]) -> Data | None:
    """Return what peers hold together, from what each of them tells; None if nobody tells anything."""
    known = list(parts)
    if not known:
        return None
    common = [part.common for part in known if part.common is not None]
    return Data(
        peers=tuple(held for part in known for held in part.peers),
        common=max(common, default=None),
        averaged=known[0].averaged,
        at_home=known[0].at_home,
    )


def write_data(folder: Path, data: Data) -> None:
    """Replace data.json."""
    peers = [{key: value for key, value in asdict(held).items() if value not in (None, "")} for held in data.peers]
    write_text(folder / DATA, json.dumps({**asdict(data), "peers": peers}) + "\n", RESUME)


def read_data(folder: Path) -> Data | None:
    """Read data.json; None if there is none, as in older run folders."""
    if not (folder / DATA).exists():
        return None
    try:
        return msgspec.convert(read_object(folder, DATA), Data)
    except msgspec.ValidationError as error:
        raise damaged(folder, DATA, error) from None
