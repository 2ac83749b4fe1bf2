"""Averages of very many members without their messages: the codes of all, added up in the ring or field.

A protocol whose row says ``adds_codes`` gives exactly this, because masks cancel and sums in a ring or field are the
same in any order. It is bookkeeping for a simulation, which holds everybody's parameters anyway, and hides nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from securedfl.errors import SecuredFLError
from securedfl.protocols.fixedpoint import FieldPoint, FixedPoint, UnencodableError
from securedfl.protocols.protocol import Averaging
from securedfl.protocols.steps import Array
from securedfl.simulation.driver import check_alike


class DifferentAverageError(SecuredFLError):
    """The messages of a protocol gave another average than the sum of the members' codes; nothing may build on it."""


def add_up(averaging: Averaging, vectors: Sequence[Array]) -> Array:
    """Return the average that the protocol gives, from the sum of the members' codes.

    Parameters
    ----------
    averaging
        What would be run; its protocol ``adds_codes``.
    vectors
        Of the members, alike in shape and dtype.

    Raises
    ------
    UnencodableError
        A value is not finite or beyond the range, as the protocol itself would say.
    """
    check_alike(vectors)
    sums = CodeSums.of(averaging, vectors[0].dtype)
    return sums.mean(sum_of_codes(sums, vectors))


@dataclass(frozen=True)
class CodeSums:
    """The codes of ``n`` members, in a ring or field, and sums of them."""

    codec: FixedPoint
    n: int
    dtype: str

    @classmethod
    def of(cls, averaging: Averaging, dtype: npt.DTypeLike) -> CodeSums:
        """Return those of an average; its protocol ``adds_codes``."""
        assert averaging.codec is not None  # noqa: S101 - the caller asks the protocol's row
        return cls(averaging.codec, averaging.n, np.dtype(dtype).str)

    def codes(self, vector: Array, peer: int) -> Array:
        """Return a member's codes; `UnencodableError` names it."""
        try:
            return self.codec.encode(vector, self.n)
        except UnencodableError as error:
            raise error.at(peer=peer) from None

    def add(self, total: Array, codes: Array) -> Array:
        """Return the sum, in the place of the first."""
        if isinstance(self.codec, FieldPoint):
            return self.codec.field(self._like).add(total, codes, out=total)
        return np.add(total, codes, out=total)

    def mean(self, total: Array) -> Array:
        """Return what all members' codes together stand for, divided by their number."""
        return self.codec.decode(total, self.n, self._like)

    @property
    def _like(self) -> Array:
        return np.empty(0, dtype=self.dtype)


def sum_of_codes(sums: CodeSums, vectors: Sequence[Array]) -> Array:
    """Return the sum of members' codes; the same bits in any order and in any parts."""
    return functools.reduce(sums.add, (sums.codes(vector, member) for member, vector in enumerate(vectors)))


def compare(passed: Array, added: Array, *, round: int, protocol: str) -> None:
    """Raise `DifferentAverageError` unless messages and sums gave the same bits."""
    if passed.tobytes() != added.tobytes():
        apart = int(np.count_nonzero(passed != added))
        raise DifferentAverageError(
            f"the messages of {protocol} gave another average in round {round} than the sum of the members' codes, at "
            f"{apart} of {passed.size} parameters; rounds without messages are not to be trusted. Set messages_every = "
            "1, and please report this"
        )
