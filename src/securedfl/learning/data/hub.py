"""Public data sets as the hub lays them out: parquet files in a folder of the user's, or fetched; decoded once."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np

from securedfl import storage
from securedfl.errors import ConfigError, InvalidInputError, MissingDependencyError, needing
from securedfl.learning.data.images import decode_one
from securedfl.learning.data.tables.arrays import encoded
from securedfl.parameters import Array
from securedfl.storage import Arrays

if TYPE_CHECKING:
    import pyarrow

Tell = Callable[[str], None]
"""Told, for people, what is being done while it takes its time."""

DATA_DIR = "SECUREDFL_DATA_DIR"
"""The environment variable that names the data folder where no option does."""

HUB = "https://huggingface.co"
PATIENCE = 5.0
"""Seconds that the hub gets to answer before its library is told to work offline."""

VERSION = 1
"""Part of the name of decoded files: raise it when decoding gives other arrays."""


@dataclass(frozen=True)
class Origin:
    """Where a data set is read from: the parquet files of each split, or None for the hub; and its decoded file."""

    address: str
    files: Mapping[str, Sequence[Path]] | None
    cache: Path


@dataclass(frozen=True, kw_only=True)
class HubData:
    """A data set on the hub.

    Attributes
    ----------
    name
        Of the data set here, which is the name of its folder too.
    address
        Its name on the hub.
    splits
        The splits that are read; files of a split are those whose name, or whose folder's name, begins with it.
    """

    name: str
    address: str
    splits: tuple[str, ...] = ("train",)

    def arrays(self, data_dir: Path | None, decode: Callable[[Mapping[str, Rows]], Arrays], report: Tell) -> Arrays:
        """Return what ``decode`` makes of the tables, kept in the user's cache folder for the next time."""
        origin = self.origin(data_dir)
        arrays = storage.recall(origin.cache)
        if arrays is None:
            if origin.files is None:
                tables = {split: self._fetch(split, report) for split in self.splits}
            else:
                tables = {split: _read(self.name, paths) for split, paths in origin.files.items()}
            arrays = decode({s: Rows(self.name, s, table, report) for s, table in tables.items()})
            storage.remember(origin.cache, arrays)
        return arrays

    def origin(self, data_dir: Path | None) -> Origin:
        """Return where the data set comes from, without reading it; a bad folder is an error."""
        folder = self._folder(data_dir)
        files = None if folder is None else self._files(folder)
        every = [path for paths in (files or {}).values() for path in paths]
        name = f"data-v{VERSION}-{self.name}-{storage.fingerprint(self.address, files=every)}.npz"
        return Origin(self.address, files, storage.cache_folder() / name)

    def check(self, data_dir: Path | None) -> None:
        """Raise what reading would, as far as that can be seen without it."""
        origin = self.origin(data_dir)
        if origin.files is None and not origin.cache.exists() and find_spec("datasets") is None:
            raise self._not_here()

    def _not_here(self) -> MissingDependencyError:
        return MissingDependencyError(
            f"the data set {self.name!r} is not on this machine. Name a folder that holds {self.name}/*.parquet "
            f"with --data-dir or {DATA_DIR}, or install what fetches {self.address} from the hub: "
            "pip install 'securedfl[hub]'"
        )

    def _folder(self, data_dir: Path | None) -> Path | None:
        """Return the folder with the data set's files, or None if the user named no data folder."""
        base = data_dir or (Path(os.environ[DATA_DIR]).expanduser() if os.environ.get(DATA_DIR) else None)
        if base is None:
            return None
        if not base.is_dir():
            raise ConfigError(f"there is no data folder {base}; check --data-dir or {DATA_DIR}")
        own = base / self.name
        if own.is_dir():
            return own
        if any(base.glob("*.parquet")):
            return base
        raise ConfigError(
            f"the data folder {base} has no folder {self.name!r} with parquet files; put those of {self.address} "
            f"there, or check --data-dir or {DATA_DIR}"
        )

    def _files(self, folder: Path) -> dict[str, list[Path]]:
        every = sorted(folder.rglob("*.parquet"))
        found = {
            split: [p for p in every if p.name.startswith(split) or p.parent.name.startswith(split)]
            for split in self.splits
        }
        missing = [split for split, paths in found.items() if not paths]
        if missing:
            raise ConfigError(
                f"{folder} has no parquet file for the split {missing[0]!r} of {self.name!r}; expected "
                f"{self.name}/{missing[0]}*.parquet in the data folder, laid out as {self.address} on the hub"
            )
        return found

    def _fetch(self, split: str, report: Tell) -> pyarrow.Table:
        if "datasets" not in sys.modules and _unreachable():
            os.environ.setdefault("HF_HUB_OFFLINE", "1")  # its own cache, or an error now instead of 5 retries
        try:
            from datasets import load_dataset
        except ImportError:
            raise self._not_here() from None
        report(f"Fetching {self.address} ({split}) from the hub")
        try:
            return load_dataset(self.address, split=split).with_format("arrow")[:]
        except Exception as error:  # the library raises whatever its transport does
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ConfigError(
                f"{self.address} could not be fetched from the hub ({reason[0]}); try again with a network, or name a "
                f"folder that holds {self.name}/*.parquet with --data-dir or {DATA_DIR}"
            ) from None


class Rows:
    """The columns of one split, checked as they are read."""

    def __init__(self, name: str, split: str, table: pyarrow.Table, report: Tell) -> None:
        self._name, self._table, self._report = name, table, report
        if not table.num_rows:
            raise InvalidInputError(f"the {split!r} parquet files of {name!r} hold no rows; check the data folder")

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def has(self, column: str) -> bool:
        """Tell whether there is such a column."""
        return column in self._table.column_names

    def column(self, name: str, kind: str) -> list[Any]:
        """Return a column of ``"text"`` or ``"number"`` values as a list; one with gaps is an error."""
        self._check(name)
        column = self._table[name]
        fits = str(column.type).startswith(("int", "uint")) if kind == "number" else "string" in str(column.type)
        if column.null_count or not fits:
            state = f"{column.null_count} empty values" if column.null_count else f"values of type {column.type}"
            raise InvalidInputError(
                f"the column {name!r} of {self._name!r} must hold a {kind} in every row, not {state}"
            )
        return list(column.to_pylist())

    def images(self, name: str, mode: str, size: tuple[int, int], kept: Array | None = None) -> Array:
        """Return the encoded images of a column as uint8.

        Parameters
        ----------
        name
            Of the column.
        mode
            "L" for N, height, width; "RGB" for channels last.
        size
            Height and width; other images are an error.
        kept
            Rows that are wanted, as marks; all by default. The others are not decoded.
        """
        self._check(name)
        wanted = np.arange(len(self)) if kept is None else np.flatnonzero(kept)
        column = encoded(self._table[name].take(wanted))
        if column is None:
            raise InvalidInputError(f"the column {name!r} of {self._name!r} must hold images as {{bytes, path}}")
        result = np.empty((len(wanted), *size, *([] if mode == "L" else [3])), dtype=np.uint8)
        for at, (row, data) in enumerate(zip(wanted, column, strict=True)):
            if at % 5000 == 0:
                self._report(f"Decoding {self._name}: {at:,} of {len(wanted):,} images (only this time)")
            image = f"row {row} of {self._name!r}"
            if not data.as_py():
                raise InvalidInputError(f"{image} has no image; fetch the files again")
            pixels = decode_one(image, data.as_py, mode=mode, advice="restore the file or fetch it again")
            if pixels.shape[:2] != size:
                (h, w), (height, width) = pixels.shape[:2], size
                raise InvalidInputError(
                    f"{image}: the image has {w}x{h} pixels, not {width}x{height}; "
                    "check that the files are the data set's own"
                )
            result[at] = pixels
        return result

    def _check(self, name: str) -> None:
        if not self.has(name):
            raise InvalidInputError(
                f"the parquet files of {self._name!r} have no column {name!r} (they have "
                f"{', '.join(self._table.column_names)}); check that they are the data set's own"
            )


def _unreachable() -> bool:
    """Tell whether the hub's host does not answer. A proxy may still reach it, so with one it counts as reachable."""
    address = urlsplit(os.environ.get("HF_ENDPOINT") or HUB)
    if getproxies().get(address.scheme):
        return False
    try:
        socket.create_connection((address.hostname or "", address.port or 443), PATIENCE).close()
    except OSError:
        return True
    return False


def _read(name: str, paths: Sequence[Path]) -> pyarrow.Table:
    with needing(f"the data set {name!r}"):
        import pyarrow
        import pyarrow.parquet
    tables = []
    for path in paths:
        try:
            tables.append(pyarrow.parquet.read_table(path))
        except (OSError, pyarrow.ArrowException) as error:
            raise InvalidInputError(
                f"{path} cannot be read as parquet ({str(error).splitlines()[0]}); fetch it again"
            ) from None
    try:
        return pyarrow.concat_tables(tables)
    except pyarrow.ArrowException:
        raise InvalidInputError(
            f"the parquet files of {name!r} differ in their columns: {', '.join(map(str, paths))}"
        ) from None
