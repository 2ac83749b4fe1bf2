"""Symbols that protocols compute with instead of numbers: linear forms with exact coefficients."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from securedfl.errors import PrivacyError
from securedfl.privacy.symbolic.algebra import Coefficients, Vector


class Form:
    """A linear form: one coefficient per symbol; symbol 0 is the constant one.

    Put into numpy arrays of dtype object, forms go through any protocol that adds, subtracts and multiplies by
    public numbers. Anything else (a product of two forms, a comparison, a conversion) is not linear and is an
    error: what a protocol does then cannot be audited by linear algebra.
    """

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("ring", "row")

    def __init__(self, row: Vector, ring: Coefficients) -> None:
        self.row, self.ring = row, ring

    @classmethod
    def unit(cls, symbol: int, ring: Coefficients) -> Form:
        """Return the form that is just one symbol."""
        row = np.zeros(symbol + 1, dtype=ring.dtype)
        row[symbol] = 1
        return cls(row, ring)

    def padded(self, symbols: int) -> Vector:
        """Return the coefficients of so many symbols: they are numbered as they are drawn, so that rows grow."""
        row = np.zeros(symbols, dtype=self.row.dtype)
        row[: len(self.row)] = self.row
        return row

    def __add__(self, other: Any) -> Any:
        added = self._form(other)
        return NotImplemented if added is None else Form(self.ring.add(*_padded(self.row, added.row)), self.ring)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        taken = self._form(other)
        if taken is None:
            return NotImplemented
        return Form(self.ring.subtract(*_padded(self.row, taken.row)), self.ring)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Form:
        return Form(self.ring.subtract(np.zeros_like(self.row), self.row), self.ring)

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, Form):
            raise _not_linear("multiplies two private values")
        value = exactly(factor)
        if value is None:
            return NotImplemented
        return Form(self.ring.scaled(self.row, self.ring.element(value)), self.ring)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        if isinstance(divisor, Form):
            raise _not_linear("divides by a private value")
        value = exactly(divisor)
        return NotImplemented if value is None else self * (1 / value)

    def __rtruediv__(self, _other: Any) -> Any:
        raise _not_linear("divides by a private value")

    def __eq__(self, other: object) -> bool:
        compared = self._form(other)
        return compared is not None and bool(np.array_equal(*_padded(self.row, compared.row)))

    def __lt__(self, _other: Any) -> bool:
        raise _not_linear("compares private values")

    __gt__ = __le__ = __ge__ = __lt__

    def __bool__(self) -> bool:
        raise _not_linear("decides on a private value")

    def __float__(self) -> float:
        raise _not_linear("converts a private value to a number")

    def __repr__(self) -> str:
        terms = [f"{int(self.row[k])}*s{k}" for k in np.flatnonzero(self.row)]
        return f"Form({' + '.join(terms) or '0'})"

    def _form(self, other: Any) -> Form | None:
        if isinstance(other, Form):
            return other
        value = exactly(other)
        if value is None:
            return None
        return Form(np.full(1, self.ring.element(value), dtype=self.ring.dtype), self.ring)


def exactly(value: Any) -> Fraction | None:
    """Return a public number as the fraction that it stands for; None for what is no number.

    A float stands for the simplest fraction that rounds to it: 0.1 is one tenth, 1/9 is one ninth. Otherwise the
    rounding of public constants would look like information.
    """
    if isinstance(value, Rational | np.integer):
        return Fraction(int(value)) if isinstance(value, np.integer) else Fraction(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            raise PrivacyError(f"the protocol uses the constant {value}, which no exact arithmetic knows")
        return simplest(number)
    return None


def simplest(number: float) -> Fraction:
    """Return the fraction with the smallest power of ten as bound on its denominator that rounds to the number."""
    exact = Fraction(number)
    for digits in range(17):
        fraction = exact.limit_denominator(10**digits)
        if float(fraction) == number:
            return fraction
    return exact


def _padded(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """Return both at the length of the longer: symbols are numbered as they are drawn, so rows grow."""
    if len(a) == len(b):
        return a, b
    longer = max(len(a), len(b))
    return np.pad(a, (0, longer - len(a))), np.pad(b, (0, longer - len(b)))


def _not_linear(what: str) -> PrivacyError:
    return PrivacyError(f"the protocol {what}, so it is not linear and this audit cannot tell what it reveals")
