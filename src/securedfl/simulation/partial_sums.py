"""Averages of very many members without their messages: the codes of all, added up in the ring or field.

A protocol whose row says ``adds_codes`` gives exactly this, because masks cancel and sums in a ring or field are the
same in any order. It is bookkeeping for a simulation, which holds everybody's parameters anyway, and hides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from securedfl.errors import SecuredFLError
from securedfl.protocols.field import PrimeWords
from securedfl.protocols.fixedpoint import FieldPoint, UnencodableError
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
    total = partial_sum(averaging, vectors)
    assert averaging.codec is not None  # noqa: S101 - `partial_sum` has used it
    return averaging.codec.decode(total, averaging.n, vectors[0])


def partial_sum(averaging: Averaging, vectors: Iterable[Array]) -> Array:
    """Return the sum of some members' codes; partial sums are added in any order, by `join`."""
    codec = averaging.codec
    assert codec is not None  # noqa: S101 - the caller asks the protocol's row
    total: Array | None = None
    for member, vector in enumerate(vectors):
        try:
            codes = codec.encode(vector, averaging.n)
        except UnencodableError as error:
            raise error.at(peer=member) from None
        total = codes if total is None else join(averaging, total, codes)
    assert total is not None  # noqa: S101 - there are members
    return total


def join(averaging: Averaging, first: Array, second: Array) -> Array:
    """Add a partial sum to another, in place."""
    if isinstance(averaging.codec, FieldPoint):
        return PrimeWords(8 * first.dtype.itemsize).add(first, second, out=first)
    result: Array = np.add(first, second, out=first)
    return result


def compare(passed: Array, added: Array, *, round: int, protocol: str) -> None:
    """Raise `DifferentAverageError` unless messages and sums gave the same bits."""
    if passed.tobytes() != added.tobytes():
        apart = int(np.count_nonzero(passed != added))
        raise DifferentAverageError(
            f"the messages of {protocol} gave another average in round {round} than the sum of the members' codes, at "
            f"{apart} of {passed.size} parameters; rounds without messages are not to be trusted. Set messages_every = "
            "1, and please report this"
        )
