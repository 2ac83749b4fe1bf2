"""Tables of the user's own: which columns are features, label and user, and what they are as arrays."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securedfl.errors import InvalidInputError, needing
from securedfl.learning.data.images import decode
from securedfl.parameters import Array
from securedfl.storage import Arrays

if TYPE_CHECKING:
    import pyarrow

MOST_TEXTS = 50
"""Different texts of a column that are still made features of; more are an identifier, or free text."""

FEW_CLASSES = 10
"""So many are plausible, however few rows there are."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a table mean what; see `read_folder`."""

    label: str | None = None
    user: str | None = None
    features: tuple[str, ...] = ()


def read_table(path: Path) -> pyarrow.Table:
    """Read a parquet or CSV file; the first line of a CSV file names its columns."""
    with needing(f"reading {path}"):
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    try:
        table = pyarrow.parquet.read_table(path) if path.suffix.lower() == ".parquet" else pyarrow.csv.read_csv(path)
    except (OSError, pyarrow.ArrowException) as error:
        kind = path.suffix.lower()[1:]
        raise InvalidInputError(
            f"{path} cannot be read as {kind} ({str(error).splitlines()[0]}); repair or remove it"
        ) from None
    if not table.num_rows:
        raise InvalidInputError(f"{path} holds no rows; remove it, or fill it")
    return table


def has_images(path: Path, columns: Columns) -> bool:
    """Tell whether the features of a table are images, without reading it; only parquet can hold some."""
    if path.suffix.lower() != ".parquet":
        return False
    with needing(f"reading {path}"):
        import pyarrow
        import pyarrow.parquet
    try:
        schema = pyarrow.parquet.read_schema(path)
    except (OSError, pyarrow.ArrowException):
        return False  # reading it tells
    return any(_is_image(field.type) for field in schema if field.name in columns.features or not columns.features)


def table_arrays(tables: Sequence[tuple[Path, pyarrow.Table]], columns: Columns, training: Array) -> Arrays:
    """Return features ``x``, ``labels`` and ``users`` of tables with the same columns.

    Parameters
    ----------
    tables
        Each with the file that it is from.
    columns
        What means what.
    training
        Marks the rows by which numbers are scaled.
    """
    import pyarrow

    (first, one), *others = tables
    for file, table in others:
        if set(table.column_names) != set(one.column_names):
            different = sorted(set(table.column_names) ^ set(one.column_names))
            raise InvalidInputError(f"{first} and {file} do not have the same columns: {', '.join(different)}")
    try:
        whole = pyarrow.concat_tables(
            [table.select(one.column_names) for _, table in tables], promote_options="permissive"
        )
    except pyarrow.ArrowException as error:
        raise InvalidInputError(
            f"the files of {first.parent} differ in what their columns hold ({str(error).splitlines()[0]})"
        ) from None
    label = _found(whole, columns.label or "label", "label", where=first)
    labels = _plain(whole[label], label)
    if labels.dtype.kind == "f":
        if not (labels == np.rint(labels)).all():
            raise InvalidInputError(
                f"the label column {label!r} holds numbers with fractions; a class is a text or a whole number. To "
                "predict numbers, write an app (docs/guides/own-models.md)"
            )
        labels = labels.astype(np.int64)
    if len(np.unique(labels)) > max(FEW_CLASSES, len(labels) // 2):
        raise InvalidInputError(
            f"the label column {label!r} has {len(np.unique(labels))} different values in {len(labels)} rows; that is "
            "no class. Name the right column with --label"
        )
    found: Arrays = {"labels": labels}
    if columns.user is not None:
        user = _found(whole, columns.user, "user", where=first)
        found["users"] = np.unique(_plain(whole[user], user), return_inverse=True)[1].reshape(-1)
    chosen = _chosen(whole, columns, taken={label, columns.user}, where=first)
    pictures = [name for name in chosen if _is_image(whole[name].type)]
    found["x"] = _pictures(whole, pictures, columns) if pictures else _numbers(whole, chosen, training)
    return found


def _found(table: pyarrow.Table, name: str, option: str, *, where: Path) -> str:
    if name not in table.column_names:
        near = difflib.get_close_matches(name, table.column_names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidInputError(
            f"{where} has no column {name!r}{hint} (it has {', '.join(table.column_names)}); name the right one with "
            f"--{option}"
        )
    return name


def _chosen(table: pyarrow.Table, columns: Columns, *, taken: set[str | None], where: Path) -> list[str]:
    """Return the columns of features: the named ones, or the image, or all."""
    if columns.features:
        chosen = [_found(table, name, "features", where=where) for name in columns.features]
        if wrong := taken.intersection(chosen):
            raise InvalidInputError(f"the column {wrong.pop()!r} cannot be a feature, because it is label or user")
        return chosen
    chosen = [name for name in table.column_names if name not in taken]
    if not chosen:
        raise InvalidInputError(f"{where} has no column besides label and user; there is nothing to learn from")
    return [name for name in chosen if _is_image(table[name].type)] or chosen


def _is_image(kind: Any) -> bool:
    """Tell whether a column holds encoded images: bytes, or the hub's {bytes, path}."""
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return str(kind).endswith("binary")


def _pictures(table: pyarrow.Table, names: list[str], columns: Columns) -> Array:
    """Decode the one image column."""
    if len(names) > 1 or (columns.features and len(columns.features) > 1):
        raise InvalidInputError(
            f"the features are images ({', '.join(names)}); learn from one image column, named by --features"
        )
    column = table[names[0]]

    def read(row: int) -> bytes:
        value = column[row].as_py()
        data = value["bytes"] if isinstance(value, dict) else value
        if not data:
            raise ValueError("there are no bytes; images must be in the file, not beside it")
        return bytes(data)

    return decode([(f"row {row} of {names[0]!r}", lambda row=row: read(row)) for row in range(len(column))])  # type: ignore[misc]


def _numbers(table: pyarrow.Table, names: list[str], training: Array) -> Array:
    """Return numbers, scaled by the training rows, and a feature for each of a few texts."""
    parts: list[Array] = []
    for name in names:
        values = _plain(table[name], name)
        if values.dtype.kind == "f" or values.dtype.kind in "iu":
            wide = values.astype(np.float64)
            mean, deviation = wide[training].mean(), wide[training].std()
            parts.append(((wide - mean) / (deviation or 1.0))[:, None])
        elif values.dtype.kind == "b":
            parts.append(values[:, None])
        else:
            texts, number = np.unique(values, return_inverse=True)
            if len(texts) > MOST_TEXTS:
                raise InvalidInputError(
                    f"the column {name!r} has {len(texts)} different texts; columns with more than {MOST_TEXTS} are no "
                    "features. Name the others with --features, or write an app for text (docs/guides/own-models.md)"
                )
            parts.append(number.reshape(-1, 1) == np.arange(len(texts)))
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def _plain(column: pyarrow.ChunkedArray, name: str) -> Array:
    """Return a column of numbers, truth values or texts as an array; gaps and other types are errors."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if not (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    ):
        raise InvalidInputError(
            f"the column {name!r} holds {kind}, which is neither number, text, truth value nor image; name other "
            "columns with --features"
        )
    if column.null_count:
        raise InvalidInputError(f"the column {name!r} has {column.null_count} empty values; fill or remove those rows")
    values: Array = np.array(column.to_pylist()) if not types.is_floating(kind) else column.to_numpy()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidInputError(f"the column {name!r} holds NaN or infinity in row {row}; fill or remove that row")
    return values
