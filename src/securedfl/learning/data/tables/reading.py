"""Files that hold tables: parquet, and lines of text with names in the first."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from securedfl.errors import InvalidInputError, needing

if TYPE_CHECKING:
    import pyarrow

TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
"""How the names of tables end that are lines of text."""
TABLES = (".parquet", *TEXTS)

UNPACKED = 100_000_000
"""Bytes that any packed table may unpack to."""

TIMES = 100
"""How many times its own size a packed table may unpack to beyond that; ordinary ones take 3 to 20 times as much."""


def table_kind(path: Path) -> str:
    """Return how the name of a table's file ends, in small letters: one of `TABLES`; empty for any other file."""
    return max((end for end in TABLES if path.name.lower().endswith(end)), key=len, default="")


def read_table(path: Path) -> pyarrow.Table:
    """Read a parquet, CSV or TSV file, packed by gzip or not; the first line of a text names its columns."""
    with needing(f"reading {path}"):
        import pyarrow
        import pyarrow.parquet
    kind = table_kind(path)[1:]
    try:
        table = pyarrow.parquet.read_table(path) if kind == "parquet" else _read_csv(path)
        names = [str(name).strip() for name in table.column_names]
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not text in UTF-8; save it in that encoding") from None
    except (OSError, EOFError, zlib.error, pyarrow.ArrowException) as error:
        raise InvalidInputError(
            f"{path} cannot be read as {kind} ({str(error).splitlines()[0]}); repair or remove it"
        ) from None
    if not table.num_rows:
        raise InvalidInputError(f"{path} holds no rows; remove it, or fill it")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"{path} has two columns that are called {twice!r}; rename one")
    return table.rename_columns(names)


def _read_csv(path: Path) -> pyarrow.Table:
    """Read lines of text; where the names stand between semicolons or tabs, so do the values. TSV always has tabs."""
    import pyarrow.csv

    kind, packing = table_kind(path), "gzip" if table_kind(path).endswith(".gz") else None
    if packing:
        _check_unpacked(path)
    with gzip.open(path, "rb") if packing else path.open("rb") as file:
        names, some = (read(1 << 20).decode("utf-8-sig", "replace") for read in (file.readline, file.read))
    signs = "\t" if kind.startswith(".tsv") else ",;\t|"
    separator = next((sign for sign in signs if sign in names), signs[0])
    # not in the first row alone: whole numbers have none
    comma = separator == ";" and re.search(r"(^|;)-?\d+,\d+(;|\s*$)", some, re.MULTILINE) is not None

    def read(**more: Any) -> pyarrow.Table:
        return pyarrow.csv.read_csv(
            pyarrow.input_stream(path, compression=packing),
            read_options=pyarrow.csv.ReadOptions(use_threads=not more),
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, **more),
            convert_options=pyarrow.csv.ConvertOptions(decimal_point="," if comma else "."),
        )

    try:
        table = read()
    except pyarrow.ArrowInvalid as error:
        _complain(path, read, error)
    for field in table.schema:
        if str(field.type).endswith("binary"):
            # what pyarrow makes of bytes that are no text
            raise InvalidInputError(
                f"the column {field.name!r} of {path} is not text in UTF-8; save it in that encoding"
            )
    return table


def _complain(path: Path, read: Callable[..., pyarrow.Table], error: pyarrow.ArrowInvalid) -> NoReturn:
    """Say what is wrong with lines that cannot be read, without what stands in them."""
    import pyarrow

    with gzip.open(path, "rb") if table_kind(path).endswith(".gz") else path.open("rb") as file:
        decoder = codecs.getincrementaldecoder("utf-8")()
        while piece := file.read(1 << 20):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "error"

    # once more, because only one thread knows the numbers of rows
    with suppress(pyarrow.ArrowInvalid):
        read(invalid_row_handler=note)
    if not ragged:
        raise error
    row = ragged[-1]
    raise InvalidInputError(
        f"row {row.number - 1} of {path} has {row.actual_columns} values for {row.expected_columns} columns; "
        "repair or remove it"
    ) from None


def _check_unpacked(path: Path) -> None:
    """Refuse a packed file that would fill the memory: a few bytes can unpack to a thousand times as many."""
    most = max(UNPACKED, TIMES * path.stat().st_size)
    with gzip.open(path) as file:
        # unpacks piece by piece, and keeps nothing
        file.seek(most)
        if file.read(1):
            raise InvalidInputError(
                f"{path} has {path.stat().st_size:,} bytes and unpacks to more than {most:,}, more than tables do; "
                "if it comes from somebody whom you trust, unpack it with gunzip and read what that gives"
            )
