"""What a peer says: averaging protocols written once, as generators, without input or output."""

from __future__ import annotations

from collections.abc import Callable

from securedfl.errors import ConfigError
from securedfl.protocols.admm import DEFAULT_RHO, Schedule, classic, grouped
from securedfl.protocols.base import Array, Draw, Inbox, Outbox, Steps
from securedfl.protocols.plain import plain
from securedfl.protocols.randomness import InsecureSeededDraw, secret_uniform

PROTOCOLS: dict[str, Callable[..., Steps]] = {"classic": classic, "grouped": grouped, "plain": plain}


def by_name(name: str) -> Callable[..., Steps]:
    """Return the protocol of that name; an unknown one is an error that lists the known ones."""
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise ConfigError(f"unknown protocol {name!r}; known: {', '.join(sorted(PROTOCOLS))}") from None


__all__ = [
    "DEFAULT_RHO",
    "PROTOCOLS",
    "Array",
    "Draw",
    "Inbox",
    "InsecureSeededDraw",
    "Outbox",
    "Schedule",
    "Steps",
    "by_name",
    "classic",
    "grouped",
    "plain",
    "secret_uniform",
]
