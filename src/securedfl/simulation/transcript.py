"""A transcript: who received what from whom, and at which step. What attacks and audits read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from securedfl.protocols.steps import Array


@dataclass(frozen=True)
class Message:
    """One message as its receiver saw it."""

    step: int
    sender: int
    receiver: int
    array: Array


class Transcript:
    """All messages of one average, in the order of steps."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int, int], Array] = {}

    def add(self, step: int, sender: int, receiver: int, array: Array) -> None:
        """Note a message that arrived."""
        self._messages[step, sender, receiver] = array

    def __iter__(self) -> Iterator[Message]:
        for (step, sender, receiver), array in self._messages.items():
            yield Message(step, sender, receiver, array)

    def __len__(self) -> int:
        return len(self._messages)

    def received_by(self, coalition: Iterable[int]) -> list[Message]:
        """Return what the members of a coalition received, from each other too."""
        members = frozenset(coalition)
        return [message for message in self if message.receiver in members]

    @classmethod
    def join(cls, chunks: Sequence[Transcript]) -> Transcript:
        """Put the transcripts of consecutive chunks together into that of the whole vector."""
        if len(chunks) == 1:
            return chunks[0]
        whole = cls()
        for key in sorted({key for chunk in chunks for key in chunk._messages}):  # a short chunk may lack some
            whole.add(*key, np.concatenate([chunk._messages[key] for chunk in chunks if key in chunk._messages]))
        return whole
