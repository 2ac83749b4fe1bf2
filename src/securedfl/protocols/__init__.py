"""What a peer says: averaging protocols written once, as generators, without input or output."""

from __future__ import annotations

from securedfl.protocols.admm import DEFAULT_RHO, Schedule, paper
from securedfl.protocols.fixedpoint import FieldPoint, FixedPoint, Symbols, UnencodableError
from securedfl.protocols.grouped import grouped
from securedfl.protocols.masks import Mask
from securedfl.protocols.plain import plain
from securedfl.protocols.protocol import Protocol, by_name
from securedfl.protocols.randomness import InsecureSeededDraw, secret_uniform
from securedfl.protocols.steps import Held, Inbox, Settled

__all__ = [
    "DEFAULT_RHO",
    "FieldPoint",
    "FixedPoint",
    "Held",
    "Inbox",
    "InsecureSeededDraw",
    "Mask",
    "Protocol",
    "Schedule",
    "Settled",
    "Symbols",
    "UnencodableError",
    "by_name",
    "grouped",
    "paper",
    "plain",
    "secret_uniform",
]
