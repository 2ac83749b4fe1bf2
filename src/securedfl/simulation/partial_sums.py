"""Averages of very many members without their messages: the codes of all, added up in the ring or field.

A protocol whose row says ``adds_codes`` gives exactly this, because masks cancel and sums in a ring or field are the
same in any order. It is bookkeeping for a simulation, which holds everybody's parameters anyway, and hides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    codec, n = averaging.codec, averaging.n
    assert codec is not None  # noqa: S101 - the caller asks the protocol's row
    return codec.decode(sum_of_codes(codec, vectors, n), n, vectors[0])


def sum_of_codes(codec: FixedPoint, vectors: Sequence[Array], n: int) -> Array:
    """Return the sum of members' codes, in the ring or field; the same bits in any order and in any parts."""
    add = codec.field(vectors[0]).add if isinstance(codec, FieldPoint) else np.add
    total: Array | None = None
    for member, vector in enumerate(vectors):
        try:
            codes = codec.encode(vector, n)
        except UnencodableError as error:
            raise error.at(peer=member) from None
        total = codes if total is None else add(total, codes, out=total)
    return np.asarray(total)


def compare(passed: Array, added: Array, *, round: int, protocol: str) -> None:
    """Raise `DifferentAverageError` unless messages and sums gave the same bits."""
    if passed.tobytes() != added.tobytes():
        apart = int(np.count_nonzero(passed != added))
        raise DifferentAverageError(
            f"the messages of {protocol} gave another average in round {round} than the sum of the members' codes, at "
            f"{apart} of {passed.size} parameters; rounds without messages are not to be trusted. Set messages_every = "
            "1, and please report this"
        )
