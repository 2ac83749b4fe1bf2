"""A user's own folder: tables with a label column, or images in folders that are named by their class.

Files, or folders, whose name begins with ``test`` are the common test set. Nothing of them is written anywhere. A
folder with x.npy and y.npy holds arrays already: they are mapped into memory, and may be larger than it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from securedfl import storage
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.data.coding import Coding, in_order, note
from securedfl.learning.data.dataset import UNREADABLE, Dataset, Mapped, check_finite, numbered
from securedfl.learning.data.images import decode
from securedfl.learning.data.tables.arrays import Coded, Columns, features_of, table_arrays
from securedfl.learning.data.tables.reading import TABLES, read_table, table_kind
from securedfl.parameters import Array

SAMPLES, LABELS, USERS, COMMON = "x.npy", "y.npy", "users.npy", "common.npy"
"""The files of a folder of arrays; the last two need not be there."""

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
LEFT_OUT = ("val", "dev")
"""How the names of files and folders begin that are neither trained nor tested on."""


@dataclass(frozen=True)
class Found:
    """The files of a data folder, all tables or all images, in the order in which they are read.

    ``tests`` are those of them that are the common test set; ``left_out`` counts those whose names say that they are
    for validation. With ``mapped`` they are arrays: samples, labels, and which of them are the common test set.
    """

    root: Path
    files: tuple[Path, ...]
    tests: frozenset[Path]
    images: bool
    left_out: int = 0
    mapped: bool = False


def is_path(name: str) -> bool:
    """Tell whether the name of a data set is a path: it has a slash, begins with ``~`` or ``.``, or is a table file."""
    return "/" in name or "\\" in name or name.startswith(("~", ".")) or name.lower().endswith(TABLES)


def name_of(path: Path) -> str:
    """Return what a data folder or a table is called, without its ending; a table may have two, as in .csv.gz."""
    ending = table_kind(path) or path.suffix
    return path.name[: len(path.name) - len(ending)]


def look(path: Path) -> Found:
    """Find the files of a data folder; one without any, or with tables beside images, is an error."""
    path = path.expanduser()
    if not path.exists():
        raise ConfigError(f"there is no file or folder {path}; check the path of the data set")
    if (path / SAMPLES).is_file():
        arrays = tuple(path / name for name in (SAMPLES, LABELS, USERS, COMMON) if (path / name).is_file())
        return Found(path, arrays, frozenset({path / COMMON} & set(arrays)), images=False, mapped=True)
    every = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p, path))
    kinds = {kind: [p for p in every if p.name.lower().endswith(kind)] for kind in (TABLES, IMAGES)}
    if not any(kinds.values()):
        counted = Counter(p.suffix or p.name for p in every).most_common(3)
        found = f"it has {', '.join(f'{count} x {name}' for name, count in counted)}" if every else "it is empty"
        raise ConfigError(
            f"{path} holds no data that can be read ({found}); a data folder has tables "
            f"({', '.join(TABLES)}), or images ({', '.join(IMAGES)}) in folders that are named by their class, or "
            f"{SAMPLES} and {LABELS}"
        )
    if all(kinds.values()):
        raise ConfigError(
            f"{path} holds tables ({kinds[TABLES][0].name}) beside images ({kinds[IMAGES][0].name}); name the folder "
            "of one of them"
        )
    images = bool(kinds[IMAGES])
    files = kinds[IMAGES] or kinds[TABLES]
    kept = [p for p in files if _split(p, path, images) != "left out"]
    if not kept:
        raise ConfigError(f"all files of {path} are for validation by their names; there is nothing to train on")
    tests = frozenset(p for p in kept if _split(p, path, images) == "test")
    if len(tests) == len(kept):
        raise ConfigError(f"all files of {path} are for testing by their names; there is nothing to train on")
    return Found(path, tuple(kept), tests, images, len(files) - len(kept))


def read_folder(
    path: str | Path,
    *,
    label: str | None = None,
    user: str | None = None,
    features: Sequence[str] = (),
    coding: Coding | str | Path | None = None,
    report: Callable[[str], None] | None = None,
) -> Dataset:
    """Read a folder of parquet, CSV or TSV files (packed as .gz, too), or of images, as a data set for classification.

    Parameters
    ----------
    path
        The folder, or one table file. Files and folders whose name begins with ``test`` are the common test set
        (`Dataset.common`); ``val`` and ``dev`` are left out. A folder of arrays has x.npy and y.npy, and may have
        users.npy and common.npy, which marks the common test set.
    label
        Of tables: the column of the class, text or whole numbers; by default ``label``. Images have their folder's
        name.
    user
        Of tables: the column that says whom a row is from, for the dealing ``natural``.
    features
        Of tables: the columns to learn from. By default the image column, if there is one; or else all columns with
        numbers, which are brought to mean 0 and deviation 1, and those with few different texts, one feature for each.
    coding
        What classes, texts and scales mean: one for all sites (`Coding.together`), or that of a run
        (``coding.json``), or the path of its file. Without one, it is found in these very data, and another site
        that has other classes or texts numbers them differently. It has label and features already.
    report
        Told what takes its time.

    Returns
    -------
    Dataset
        With ``x``, ``y``, ``classes``, the ``names`` of the classes, and the ``coding`` of all that.

    Raises
    ------
    ConfigError, InvalidInputError
        The folder, or a column, is not there or makes no data set; the text says what was found.

    Examples
    --------
    >>> import pathlib, securedfl, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rows = [f"{k},{k % 5},{'ill' if k % 3 else 'well'}" for k in range(60)]
    >>> _ = (folder / "patients.csv").write_text(chr(10).join(["age,dose,outcome", *rows]))
    >>> data = securedfl.read_folder(folder, label="outcome")
    >>> data.x.shape, data.classes, data.names
    ((60, 2), 2, ('ill', 'well'))
    """
    tell = report or (lambda _text: None)
    found = look(storage.path_of(path, "the data folder"))
    columns = Columns(label=label, user=user, features=tuple(features))
    agreed = Coding.load(coding) if isinstance(coding, str | Path) else coding
    if found.mapped:
        if columns != Columns() or agreed is not None:
            raise ConfigError(
                f"{path} holds arrays ({SAMPLES}), not columns; leave label, user, features and coding away"
            )
        return _mapped(found, tell)
    if found.images and columns != Columns():
        raise ConfigError(
            f"{path} holds images, whose classes are the names of their folders; leave label, user and features away"
        )
    if agreed is not None:
        columns = _columns_of(agreed, columns, found)
    if found.left_out:
        tell(f"{found.left_out} files of {path} are for validation by their names, and are left out")
    tell(f"Reading {path if len(found.files) == 1 else f'{len(found.files)} files of {path}'}")
    common = np.array([file in found.tests for file in found.files])
    if found.images:
        made = _images(found)
    else:
        tables = [(file, read_table(file)) for file in found.files]
        common = np.repeat(common, [table.num_rows for _, table in tables])
        made = table_arrays(tables, columns, ~common, agreed)
    return _dataset(found, made, common, columns, agreed)


def read_features(path: str | Path, coding: Coding | str | Path) -> Array:
    """Read the features of a table that may lack the label, to score samples that are new.

    Parameters
    ----------
    path
        A folder of tables, or one.
    coding
        Of the run whose model shall score them, or the path of its ``coding.json``.

    Returns
    -------
    Array
        float32, one row for each of the table's.

    Raises
    ------
    ConfigError, InvalidInputError
        It is no table, a column is missing, or holds what the coding does not have.

    Examples
    --------
    >>> import pathlib, securedfl, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "new.csv"
    >>> _ = file.write_text("dose,when" + chr(10) + "5,today")
    >>> dose = {"kind": "number", "name": "dose", "mean": 3.0, "deviation": 2.0, "count": 10}
    >>> import json
    >>> about = file.with_name("coding.json")
    >>> _ = about.write_text(json.dumps({"classes": ["ill", "well"], "label": "outcome", "features": [dose]}))
    >>> securedfl.read_features(file, about).tolist()
    [[1.0]]
    """
    found = look(storage.path_of(path, "the data folder"))
    agreed = coding if isinstance(coding, Coding) else Coding.load(coding)
    if found.images or found.mapped or not agreed.features:
        raise ConfigError(f"{path} or its coding is not of a table; read_folder reads images and arrays")
    return features_of([(file, read_table(file)) for file in found.files], agreed)


def _columns_of(coding: Coding, given: Columns, found: Found) -> Columns:
    """Return the columns that a coding names; label and features besides it are an error."""
    if found.images != (coding.label is None):
        kinds = ("images", "tables") if found.images else ("tables", "images")
        raise ConfigError(f"{found.root} holds {kinds[0]}, but the coding is of {kinds[1]}; give the right one")
    if given.label not in (None, coding.label) or given.features:
        raise ConfigError("the coding names label and features already; leave them away")
    return Columns(label=coding.label, user=given.user, features=tuple(feature.name for feature in coding.features))


def _dataset(found: Found, made: Coded, common: Array, columns: Columns, agreed: Coding | None) -> Dataset:
    name, x = name_of(found.root), made.x
    coding = agreed
    if coding is None:
        classes = in_order(map(str, np.unique(made.labels)))
        if len(classes) < 2:
            raise InvalidInputError(
                f"all samples of {name!r} are of one class, {classes[0]}; there is nothing to learn"
            )
        label = None if found.images else columns.label or "label"
        coding = Coding(classes=classes, label=label, features=made.features)
    y = coding.numbers(made.labels, lambda row: f"row {row + 1} of {found.root}")
    if x.dtype == np.uint8:
        x = x.astype(np.float32)
        x /= np.float32(255)
    unseen = np.setdiff1d(y[common], y[~common]) if common.any() and agreed is None else np.empty(0, dtype=np.int64)
    if len(unseen):
        raise InvalidInputError(
            f"the test files of {name!r} have the class {coding.classes[unseen[0]]}, which the others do not have"
        )
    note(coding, agreed=agreed is not None)
    return Dataset(
        name=name,
        x=x,
        y=y,
        classes=len(coding.classes),
        users=made.users,
        common=common if common.any() else None,
        names=coding.classes,
        coding=coding,
    )


def _mapped(found: Found, tell: Callable[[str], None]) -> Dataset:
    """Map the samples of a folder of arrays, and read all else."""
    x, y = Mapped(found.root / SAMPLES), _array(found, LABELS)
    if y is None:
        raise ConfigError(f"{found.root} holds {SAMPLES}, but no {LABELS} with the class of each sample; add it")
    if y.ndim != 1 or y.dtype.kind not in "iu" or not len(y) or y.min() < 0 or y.max() >= len(y):
        raise InvalidInputError(
            f"{found.root / LABELS} must hold one whole number for each sample: its class, counted from 0"
        )
    if not y.max():
        raise InvalidInputError(f"all samples of {found.root} are of one class, 0; there is nothing to learn")
    users, common = _array(found, USERS), _array(found, COMMON)
    if common is not None and (common.dtype != bool or common.shape != y.shape):
        raise InvalidInputError(
            f"{found.root / COMMON} must hold True or False for each sample: is it for testing only?"
        )
    tell(f"Checking {len(x)} samples of {found.root} ({x.nbytes / 1e9:.1f} GB)")
    first = 0
    for block in x.blocks():
        check_finite(block, str(x.path), first)
        first += len(block)
    return Dataset(
        name=found.root.stem,
        x=x,
        y=y.astype(np.int64),
        classes=int(y.max()) + 1,
        users=None if users is None else numbered(users)[1],
        common=common,
    )


def _array(found: Found, name: str) -> Array | None:
    """Read a small array of the folder; None if it is not there."""
    path = found.root / name
    try:
        return np.array(np.lib.format.open_memmap(path, mode="r")) if path in found.files else None
    except UNREADABLE as error:
        raise InvalidInputError(f"{path} cannot be read ({error}); write it with numpy.save") from None


def _images(found: Found) -> Coded:
    """Decode all images; their class is the folder that they lie in."""
    labels: list[str] = []
    for file in found.files:
        inside = file.relative_to(found.root).parts[:-1]
        if not inside or (len(inside) == 1 and _kind(inside[0])):
            raise InvalidInputError(
                f"{file} lies in no folder of a class; put every image into a folder that is named by its class"
            )
        labels.append(file.parent.name)
    x = decode([(str(file), file.read_bytes) for file in found.files])
    return Coded(x=x, labels=np.array(labels), users=None, features=())


def _split(file: Path, root: Path, images: bool) -> str:
    """Tell what a file is for, by the names of its folders or, of tables, its own."""
    inside = file.relative_to(root).parts if file != root else ()
    # classes may be called anything, so that only the first folder of images can name a split
    names = inside[:1] if images and len(inside) > 2 else () if images else inside
    return next((kind for name in names if (kind := _kind(name))), "")


def _kind(name: str) -> str:
    name = name.lower()
    return "test" if name.startswith("test") else "left out" if name.startswith(LEFT_OUT) else ""


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)
