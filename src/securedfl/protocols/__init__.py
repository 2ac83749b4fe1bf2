"""What a peer says: averaging protocols written once, as generators, without input or output."""

from __future__ import annotations

from collections.abc import Callable

from securedfl.errors import unknown
from securedfl.protocols.admm import DEFAULT_RHO, Schedule, classic, grouped
from securedfl.protocols.fixedpoint import FixedPoint, Symbols, UnencodableError
from securedfl.protocols.masks import Mask
from securedfl.protocols.plain import plain
from securedfl.protocols.randomness import InsecureSeededDraw, secret_uniform
from securedfl.protocols.shares.resilient import resilient
from securedfl.protocols.shares.shares import shares
from securedfl.protocols.steps import Array, Committed, Draw, Inbox, Outbox, Steps

PROTOCOLS: dict[str, Callable[..., Steps]] = {
    "classic": classic,
    "grouped": grouped,
    "plain": plain,
    "resilient": resilient,
    "shares": shares,
}


def by_name(name: str) -> Callable[..., Steps]:
    """Return the protocol of that name; an unknown one is an error that names the nearest."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


__all__ = [
    "DEFAULT_RHO",
    "PROTOCOLS",
    "Array",
    "Committed",
    "Draw",
    "FixedPoint",
    "Inbox",
    "InsecureSeededDraw",
    "Mask",
    "Outbox",
    "Schedule",
    "Steps",
    "Symbols",
    "UnencodableError",
    "by_name",
    "classic",
    "grouped",
    "plain",
    "resilient",
    "secret_uniform",
    "shares",
]
