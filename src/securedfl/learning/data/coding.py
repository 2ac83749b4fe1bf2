"""Codings: what the numbers of a data set mean, so that all sites mean the same, and new samples can be scored later.

A coding has the names of the classes and, of a table, each column's: which texts are which features, and by which mean
and deviation numbers are scaled. `read_folder` finds one in the data, or follows one that is given.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from securedfl import storage
from securedfl.errors import InvalidInputError
from securedfl.parameters import Array

VERSION = 1
MOST_VALUES = 2**53
"""So many are counted exactly by a float."""
LARGEST = 1e100
"""Up to which size a mean and a deviation are added up with those of others."""

_ANEW = "make it anew with `securedfl data coding`"

At = Callable[[int], str]
"""Says where the value of a row stands, for errors."""


class Number(Struct, frozen=True, forbid_unknown_fields=True, tag="number", tag_field="kind"):
    """A column of numbers, which becomes one feature of mean 0 and deviation 1; ``count`` values were looked at."""

    name: str
    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, name: str, values: Array) -> Number:
        """Return the scale of some values."""
        wide = values.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return cls(name, float(wide.mean()), float(wide.std()), len(wide))

    def coded(self, values: Array, at: At) -> Array:
        """Return the scaled numbers."""
        if values.dtype.kind not in "fiu":
            raise _other(self, values, at, "numbers")
        with np.errstate(over="ignore", invalid="ignore"):
            # as wide as features are: a tiny deviation makes numbers that are beyond that
            scaled: Array = ((values.astype(np.float64) - self.mean) / (self.deviation or 1.0)).astype(np.float32)
        if max(abs(self.mean), self.deviation) > LARGEST or not np.isfinite(scaled).all():
            raise InvalidInputError(
                f"the column {self.name!r} holds numbers that are too large to be scaled by mean {self.mean:g} and "
                f"deviation {self.deviation:g}; correct them, or the coding"
            )
        return scaled[:, None]

    def merged(self, other: Any) -> Number:
        """Return the scale of the values of both together."""
        count = self.count + other.count
        mine, theirs = self.count / count, other.count / count
        mean = mine * self.mean + theirs * other.mean
        variance = (
            mine * self.deviation**2 + theirs * other.deviation**2 + mine * theirs * (self.mean - other.mean) ** 2
        )
        return Number(self.name, mean, math.sqrt(variance), count)

    def flaw(self) -> str:
        """Return what its numbers cannot be, if anything."""
        if not 1 <= self.count <= MOST_VALUES:
            return "a count that does not lie between 1 and 2^53"
        if not abs(self.mean) <= LARGEST:
            return f"the mean {self.mean:g}, which must lie between {-LARGEST:g} and {LARGEST:g}"
        if not 0 <= self.deviation <= LARGEST:
            return f"the deviation {self.deviation:g}, which must lie between 0 and {LARGEST:g}"
        return ""

    def told(self, *, scaled: bool = True) -> str:
        """Return it for people."""
        return f"{self.name}: number" + (f", mean {self.mean:.6g}, deviation {self.deviation:.6g}" if scaled else "")


class Truth(Struct, frozen=True, forbid_unknown_fields=True, tag="truth", tag_field="kind"):
    """A column of truth values, which becomes one feature, 0 or 1."""

    name: str

    def coded(self, values: Array, at: At) -> Array:
        """Return 0 for false and 1 for true."""
        if values.dtype.kind != "b":
            raise _other(self, values, at, "truth values")
        return values[:, None]

    def merged(self, other: Any) -> Truth:
        """Return the same."""
        del other
        return self

    def flaw(self) -> str:
        """Return nothing: there is nothing that could be wrong."""
        return ""

    def told(self, *, scaled: bool = True) -> str:
        """Return it for people."""
        del scaled
        return f"{self.name}: true or false"


class Texts(Struct, frozen=True, forbid_unknown_fields=True, tag="texts", tag_field="kind"):
    """A column of a few texts, which becomes one feature for each of them, 0 or 1."""

    name: str
    texts: tuple[str, ...]

    def coded(self, values: Array, at: At) -> Array:
        """Return which text it is."""
        if values.dtype.kind not in "UO":
            raise _other(self, values, at, "texts")
        number = _places(values, self.texts, f"the column {self.name!r}", at)
        marks: Array = number[:, None] == np.arange(len(self.texts))
        return marks

    def merged(self, other: Any) -> Texts:
        """Return the texts of both."""
        return Texts(self.name, in_order({*self.texts, *other.texts}))

    def flaw(self) -> str:
        """Return which text is there twice, or that there is none."""
        twice = _twice(self.texts)
        return "no text" if not self.texts else "" if twice is None else f"the text {twice!r:.40} twice"

    def told(self, *, scaled: bool = True) -> str:
        """Return it for people."""
        del scaled
        return f"{self.name}: {', '.join(self.texts)}"


Feature = Number | Truth | Texts
"""What one column gives: ``coded`` features, ``merged`` with another site's, its ``flaw``, ``told`` to people."""


class Coding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What classes and features mean; `read_folder` follows it.

    Attributes
    ----------
    classes
        The names of the classes, in the order of their numbers.
    label
        The column of the class; None for images, whose folders have its name.
    features
        What each column gives, in the order of the features; none for images.
    version
        Of the file.

    Examples
    --------
    >>> import pathlib, securedfl, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("dose,outcome" + chr(10) + "1,ill" + chr(10) + "3,well")
    >>> _ = (folder / "b.csv").write_text("dose,outcome" + chr(10) + "5,dead" + chr(10) + "7,well")
    >>> sites = [securedfl.read_folder(folder / name, label="outcome").coding for name in ("a.csv", "b.csv")]
    >>> coding = securedfl.Coding.together(sites)
    >>> coding.classes
    ('dead', 'ill', 'well')
    >>> data = securedfl.read_folder(folder / "a.csv", coding=coding)
    >>> data.y.tolist(), data.x[:, 0].round(2)
    ([1, 2], array([-1.34, -0.45], dtype=float32))
    """

    classes: tuple[str, ...]
    label: str | None = None
    features: tuple[Feature, ...] = ()
    version: int = VERSION

    @classmethod
    def load(cls, path: str | Path) -> Coding:
        """Read one from the JSON file that `save` wrote."""
        file = storage.path_of(path, "the coding")
        try:
            found = msgspec.json.decode(file.read_bytes(), type=cls)
        except OSError as error:
            raise InvalidInputError(f"the coding {file} cannot be read: {error.strerror}; check its path") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInputError(f"{file} holds no coding: {error}; make it with `securedfl data coding`") from None
        if found.version != VERSION:
            raise InvalidInputError(f"{file} is of version {found.version}, and this software reads {VERSION}")
        if len(set(found.classes)) < max(2, len(found.classes)):
            raise InvalidInputError(f"{file} must name two classes or more, each once")
        found.check(str(file))
        return found

    def check(self, where: str) -> None:
        """Refuse columns that are there twice, and what no column can have."""
        twice = _twice([*([] if self.label is None else [self.label]), *(feature.name for feature in self.features)])
        if twice is not None:
            raise InvalidInputError(f"{where} has the column {twice!r} twice; {_ANEW}")
        for feature in self.features:
            if flaw := feature.flaw():
                raise InvalidInputError(f"{where} has for the column {feature.name!r} {flaw}; {_ANEW}")

    def save(self, path: str | Path) -> None:
        """Write it as JSON, for people to read before it is handed on."""
        storage.write_bytes(storage.path_of(path, "the coding"), self.to_json())

    def to_json(self) -> bytes:
        """Return it as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def together(cls, codings: Iterable[Coding]) -> Coding:
        """Return one for the data of all: all classes and texts, and numbers scaled as those of all together."""
        every = list(codings)
        if not every:
            raise InvalidInputError("there is no coding to put together; give the coding of each site")
        for number, coding in enumerate(every, 1):
            coding.check(f"coding {number} of {len(every)}")
        made = reduce(cls._with, every)
        made.check("what the codings give together")
        return made

    def _with(self, other: Coding) -> Coding:
        kinds = [[(type(one).__name__, one.name) for one in coding.features] for coding in (self, other)]
        if (self.label, kinds[0]) != (other.label, kinds[1]):
            mine, theirs = ({("label", self.label), *kinds[0]}, {("label", other.label), *kinds[1]})
            first = sorted(map(str, (name for _, name in mine ^ theirs)))
            raise InvalidInputError(
                f"the columns differ in name, kind or order: {', '.join(dict.fromkeys(first)) or 'their order'}; mend "
                "that, or name the same columns everywhere with label and features"
            )
        features = tuple(mine.merged(theirs) for mine, theirs in zip(self.features, other.features, strict=True))
        return Coding(classes=in_order({*self.classes, *other.classes}), label=self.label, features=features)

    def numbers(self, labels: Array, at: At) -> Array:
        """Return the number of each label's class."""
        return _places(labels, self.classes, "the label", at)

    def told(self, *, scaled: bool = True) -> str:
        """Return it for people, a line for each column."""
        lines = [f"{self.label or 'class'}: {', '.join(self.classes)}"]
        return "\n".join([*lines, *(feature.told(scaled=scaled) for feature in self.features)])

    def compared(self, *, scaled: bool) -> str:
        """Return it as JSON in which only codings that mean the same are the same; scales have six digits."""
        columns = [msgspec.to_builtins(feature) for feature in self.features]
        for column in columns:
            scale = [column.pop(key, None) for key in ("mean", "deviation", "count")]
            if scaled and column["kind"] == "number":
                column["mean"], column["deviation"] = (f"{number:.6g}" for number in scale[:2])
        return json.dumps([self.label, self.classes, columns])


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in their order: whole numbers by their size, all else by its letters."""
    every = sorted(names)
    whole = all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in every)
    return tuple(sorted(every, key=int) if whole else every)


def _twice(names: Sequence[str]) -> str | None:
    """Return a name that is there more than once, if there is one."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _places(values: Array, names: Sequence[str], what: str, at: At) -> Array:
    """Return the place of each value among names; another one is an error that says where it stands."""
    places = {name: place for place, name in enumerate(names)}
    texts, number = np.unique(values.astype(str), return_inverse=True)
    found = np.array([places.get(str(text), -1) for text in texts])[number.reshape(-1)]
    if (found < 0).any():
        row = int(np.flatnonzero(found < 0)[0])
        raise InvalidInputError(
            f"{what} is {str(values[row])!r:.40} in {at(row)}, which the coding does not have (it has "
            f"{', '.join(names[:20])}{', ...' * (len(names) > 20)}); correct it, or make a coding for all sites "
            "(`securedfl data coding`)"
        )
    return found.astype(np.int64)


def _other(feature: Feature, values: Array, at: At, kind: str) -> InvalidInputError:
    return InvalidInputError(
        f"the column {feature.name!r} holds {str(values[0])!r:.40} in {at(0)}, but the coding has {kind} there; mend "
        "that, or make a coding for all sites (`securedfl data coding`)"
    )


_read: ContextVar[list[str] | None] = ContextVar("codings read", default=None)


def note(coding: Coding, *, agreed: bool) -> None:
    """Take note of what was read, for whoever is `noting`: of numbers, their scale too if it was agreed on."""
    if (read := _read.get()) is not None:
        read.append(coding.compared(scaled=agreed))


@contextmanager
def noting() -> Iterator[list[str]]:
    """Give a list of what is read meanwhile, each coding as it is compared."""
    read = list[str]()
    token = _read.set(read)
    try:
        yield read
    finally:
        _read.reset(token)


def digest(read: Sequence[str]) -> str:
    """Return a short hash of codings as they are compared; empty if there are none."""
    return hashlib.sha256(json.dumps(list(read)).encode()).hexdigest()[:16] if read else ""
