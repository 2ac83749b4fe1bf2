"""Tables of the user's own: which columns are features, label and user, and what they are as arrays."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securedfl.errors import ConfigError, InvalidInputError, near, needing
from securedfl.learning.data.coding import Coding, Feature, Number, Texts, Truth
from securedfl.learning.data.dataset import numbered
from securedfl.learning.data.images import decode
from securedfl.learning.data.tables.reading import TEXTS, table_kind
from securedfl.parameters import Array

if TYPE_CHECKING:
    import pyarrow

    Tables = Sequence[tuple[Path, pyarrow.Table]]
    """Tables with the same columns, each with the file that it is from."""

MOST_TEXTS = 50
"""Different texts of a column that are still made features of; more are an identifier, or free text."""

STRAYS = 0.1
"""Up to which part of a column's values texts are mistakes among numbers."""

FEW_CLASSES = 10
"""So many are plausible, however few rows there are."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a table mean what; see `read_folder`."""

    label: str | None = None
    user: str | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Coded:
    """What the columns of a table are as arrays: samples, labels as they stand there, users, and how it was coded."""

    x: Array
    labels: Array
    users: Array | None
    features: tuple[Feature, ...]


def _at(tables: Tables, row: int) -> str:
    """Return in which file a row stands, if all tables are one below the other, and which of its rows it is, from 1."""
    for file, table in tables:
        if row < table.num_rows:
            return f"{file}, row {row + 1}"
        row -= table.num_rows
    raise IndexError(row)


def has_images(path: Path, columns: Columns) -> bool:
    """Tell whether the features of a table are images, without reading it; only parquet can hold some."""
    if table_kind(path) != ".parquet":
        return False
    with needing(f"reading {path}"):
        import pyarrow
        import pyarrow.parquet
    try:
        schema = pyarrow.parquet.read_schema(path)
    except (OSError, pyarrow.ArrowException):
        return False  # reading it tells
    return any(_is_image(field.type) for field in schema if field.name in columns.features or not columns.features)


def table_arrays(tables: Tables, columns: Columns, training: Array, coding: Coding | None = None) -> Coded:
    """Return the columns of tables as arrays, by a coding, or scaled by the rows marked ``training``."""
    whole, first = _merged(tables), tables[0][0]
    label = _found(whole, columns.label or "label", "label", where=first)
    labels = _labels(whole[label], label, tables, new=coding is None)
    users = None
    if columns.user is not None:
        user = _found(whole, columns.user, "user", where=first)
        users = numbered(_whole(whole[user], user, tables))[1]
    chosen = _chosen(whole, columns, taken={label, columns.user}, where=first)
    pictures = [name for name in chosen if _is_image(whole[name].type)]
    if coding is not None and bool(pictures) == bool(coding.features):
        kinds = ("images", "columns of features") if pictures else ("no image column", "no features, as of images")
        raise ConfigError(f"{first} has {kinds[0]}, but the coding has {kinds[1]}; give the coding of such tables")
    if pictures:
        return Coded(x=_pictures(whole, pictures, columns, tables), labels=labels, users=users, features=())
    x, features = _numbers(whole, chosen, training, tables, coding)
    return Coded(x=x, labels=labels, users=users, features=features)


def features_of(tables: Tables, coding: Coding) -> Array:
    """Return the features of tables that may lack the label."""
    whole, chosen = _merged(tables), Columns(features=tuple(feature.name for feature in coding.features))
    names = _chosen(whole, chosen, taken=set(), where=tables[0][0])
    return _numbers(whole, names, np.ones(whole.num_rows, dtype=bool), tables, coding)[0]


def _merged(tables: Tables) -> pyarrow.Table:
    """Return all tables as one; columns that differ between files are an error that names them."""
    import pyarrow

    (first, one), *others = tables
    for file, table in others:
        if set(table.column_names) != set(one.column_names):
            different = sorted(set(table.column_names) ^ set(one.column_names))
            raise InvalidInputError(f"{first} and {file} do not have the same columns: {', '.join(different)}")
    try:
        return pyarrow.concat_tables(
            [table.select(one.column_names) for _, table in tables], promote_options="permissive"
        )
    except pyarrow.ArrowException as error:
        reason = str(error).splitlines()[0]
    for name in one.column_names:
        kinds = {str(table[name].type): (file, table) for file, table in tables}
        if len(kinds) > 1 and "string" in kinds:
            file, table = kinds.pop("string")
            kind, (other, _) = kinds.popitem()
            stray = _stray(np.array(table[name].to_pylist(), dtype=object), name, [(file, table)])
            reason = stray or f"the column {name!r} holds texts in {file}, but {kind} in {other}"
            break
    raise InvalidInputError(f"the files of {first.parent} differ in what their columns hold: {reason}; mend that")


def _labels(column: pyarrow.ChunkedArray, label: str, tables: Tables, *, new: bool) -> Array:
    """Return the labels: texts, truth values or whole numbers; new ones are fewer than half as many as rows."""
    labels = _whole(column, label, tables)
    if labels.dtype.kind == "f":
        if not (labels == np.rint(labels)).all():
            raise InvalidInputError(
                f"the label column {label!r} holds numbers with fractions; a class is a text or a whole number. To "
                "predict numbers, write an app (docs/guides/own-models.md)"
            )
        labels = labels.astype(np.int64)
    if new and len(np.unique(labels)) > max(FEW_CLASSES, len(labels) // 2):
        raise InvalidInputError(
            f"the label column {label!r} has {len(np.unique(labels))} different values in {len(labels)} rows; that is "
            "no class. Name the right column with --label"
        )
    return labels


def _found(table: pyarrow.Table, name: str, option: str, *, where: Path) -> str:
    if name not in table.column_names:
        hint = near(name, table.column_names)
        unnamed = any(_is_number(other) for other in table.column_names)
        first = "; the first line must name the columns" if unnamed and table_kind(where) in TEXTS else ""
        raise InvalidInputError(
            f"{where} has no column {name!r}{hint} (it has {', '.join(table.column_names)}); name the right one with "
            f"--{option}{first}"
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
        at = kind.get_field_index("bytes")
        return at >= 0 and _is_image(kind.field(at).type)
    return str(kind).endswith("binary")


def encoded(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray | None:
    """Return the bytes of the images in a column, None if it holds none."""
    import pyarrow.compute

    if not _is_image(column.type):
        return None
    return pyarrow.compute.struct_field(column, "bytes") if pyarrow.types.is_struct(column.type) else column


def _pictures(table: pyarrow.Table, names: list[str], columns: Columns, tables: Tables) -> Array:
    """Decode the one image column."""
    if len(names) > 1 or (columns.features and len(columns.features) > 1):
        raise InvalidInputError(
            f"the features are images ({', '.join(names)}); learn from one image column, named by --features"
        )
    column: Any = encoded(table[names[0]])

    def read(row: int) -> bytes:
        data: bytes | None = column[row].as_py()
        if not data:
            raise ValueError("there are no bytes; images must be in the file, not beside it")
        return data

    return decode([(f"{_at(tables, row)}, {names[0]!r}", lambda row=row: read(row)) for row in range(len(column))])  # type: ignore[misc]


def _numbers(
    table: pyarrow.Table, names: list[str], training: Array, tables: Tables, coding: Coding | None
) -> tuple[Array, tuple[Feature, ...]]:
    """Return the features of all columns, and how they were coded.

    Columns that make none are told together, with the command that does without them.
    """
    parts: list[Array] = []
    found: list[Feature] = []
    bad: dict[str, str] = {}
    known = {} if coding is None else {feature.name: feature for feature in coding.features}
    for name in names:
        try:
            values = _plain(table[name], name, tables)
            feature = known[name] if known else _feature(values, name, training, tables)
            parts.append(feature.coded(values, lambda row: _at(tables, row)).astype(np.float32))
            found.append(feature)
        except InvalidInputError as error:
            bad[name] = str(error)
    if bad:
        good = ",".join(name for name in names if name not in bad)
        told = "; ".join(list(bad.values())[:3]) + (f"; and {len(bad) - 3} more columns" if len(bad) > 3 else "")
        if known:
            raise InvalidInputError(told)
        advice = f"learn from the other columns: --features {shlex.quote(good)}" if good else "write an app"
        raise InvalidInputError(
            f"{told}. Mend that, or {advice} (docs/guides/own-models.md has apps, for text and dates too)"
        )
    return np.concatenate(parts, axis=1), tuple(found)


def _feature(values: Array, name: str, training: Array, tables: Tables) -> Feature:
    """Return how a column is coded: numbers are scaled by the training rows, and a few texts are a feature each."""
    if values.dtype.kind in "fiu":
        return Number.of(name, values[training])
    if values.dtype.kind == "b":
        return Truth(name)
    if stray := _stray(values, name, tables):
        raise InvalidInputError(stray)
    texts = numbered(values)[0]
    if len(texts) > MOST_TEXTS:
        raise InvalidInputError(f"the column {name!r} has {len(texts)} different texts, more than {MOST_TEXTS}")
    return Texts(name, tuple(map(str, texts)))


def _stray(values: Array, name: str, tables: Tables) -> str:
    """Tell of a text among numbers, which makes all of them texts; an empty string if there is none, or many."""
    texts, number, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    odd = np.array([not _is_number(text) for text in texts])
    strays = int(counts[odd].sum())
    if not 0 < strays <= len(values) * STRAYS:
        return ""
    row = int(np.flatnonzero(odd[number.reshape(-1)])[0])
    return (
        f"the column {name!r} holds {str(values[row])!r:.40} ({_at(tables, row)}), while {len(values) - strays} of its "
        f"{len(values)} values are numbers"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole(column: pyarrow.ChunkedArray, name: str, tables: Tables) -> Array:
    """Return a column as `_plain` does; what is wrong with it says what to do."""
    try:
        return _plain(column, name, tables)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}; mend that, or name another column") from None


def _plain(column: pyarrow.ChunkedArray, name: str, tables: Tables) -> Array:
    """Return a column of numbers, truth values or texts as an array; gaps and other types are errors."""
    from pyarrow import float64, string, types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast(float64())
    if "string" in str(column.type):
        # there are three kinds of them
        column = column.cast(string())
    kind = column.type
    if types.is_null(kind):
        raise InvalidInputError(f"the column {name!r} is empty")
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_string(kind)):
        raise InvalidInputError(f"the column {name!r} holds {kind}, which is neither number, text, nor truth value")
    if types.is_string(kind):
        texts = column.to_pylist()
        values, gaps = np.array(texts), np.array([text is None or not text.strip() for text in texts])
    else:
        values, gaps = column.to_numpy(), column.is_null().to_numpy()
    if gaps.any():
        count, first = int(gaps.sum()), _at(tables, int(np.flatnonzero(gaps)[0]))
        raise InvalidInputError(
            f"the column {name!r} has {count} empty value{'s' * (count > 1)} ({'first in ' * (count > 1)}{first}); "
            "fill in what is missing, or remove such rows"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidInputError(f"the column {name!r} holds NaN or infinity ({_at(tables, row)})")
    return values
