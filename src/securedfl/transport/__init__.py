"""How messages move: drivers that run protocols."""

from __future__ import annotations

from securedfl.transport.faults import Crash, Delay, Drop
from securedfl.transport.memory import Outcome, run
from securedfl.transport.transcript import Message, Transcript

__all__ = ["Crash", "Delay", "Drop", "Message", "Outcome", "Transcript", "run"]
