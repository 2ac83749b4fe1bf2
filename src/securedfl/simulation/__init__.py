"""All peers in one process: the memory driver, its faults and transcripts, and `average`."""

from __future__ import annotations

from securedfl.simulation.attempts import Outcome
from securedfl.simulation.driver import run
from securedfl.simulation.faults import Crash, Delay, Drop
from securedfl.simulation.transcript import Message

__all__ = ["Crash", "Delay", "Drop", "Message", "Outcome", "run"]
