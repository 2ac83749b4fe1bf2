"""What a peer says: averaging protocols written once, as generators, without input or output."""

from __future__ import annotations

from securedfl.protocols.admm import DEFAULT_RHO, Schedule, classic, paper
from securedfl.protocols.fixedpoint import FieldPoint, FixedPoint, Symbols, UnencodableError
from securedfl.protocols.grouped import grouped
from securedfl.protocols.masks import Mask
from securedfl.protocols.plain import plain
from securedfl.protocols.protocol import LEAST_PEERS, Averaging, Protocol, by_name
from securedfl.protocols.randomness import InsecureSeededDraw, secret_uniform
from securedfl.protocols.steps import Array, Draw, Held, Inbox, Outbox, Settled, Steps

__all__ = [
    "DEFAULT_RHO",
    "LEAST_PEERS",
    "Array",
    "Averaging",
    "Draw",
    "FieldPoint",
    "FixedPoint",
    "Held",
    "Inbox",
    "InsecureSeededDraw",
    "Mask",
    "Outbox",
    "Protocol",
    "Schedule",
    "Settled",
    "Steps",
    "Symbols",
    "UnencodableError",
    "by_name",
    "classic",
    "grouped",
    "paper",
    "plain",
    "secret_uniform",
]
