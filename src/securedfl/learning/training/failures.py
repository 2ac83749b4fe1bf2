"""What goes wrong in another process: that it ended, and an exception on its way home."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from securedfl.errors import SecuredFLError, rebuilt

T = TypeVar("T")


class WorkerLostError(SecuredFLError):
    """A training process ended by itself, for instance because memory ran out."""

    exit_code = 10


class LostError(Exception):
    """A shard is gone, with its peers; the text says why. A team starts it again."""


@dataclass(frozen=True)
class WorkerFailure:
    """An exception on its way from a worker to the team."""

    kind: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> WorkerFailure:
        """Return what can be told about an exception."""
        return cls(type(error).__name__, str(error), "".join(traceback.format_exception(error)))

    def error(self) -> Exception:
        """Return the exception again, of its own kind if it is one of ours."""
        found = rebuilt(self.kind, self.text)
        if found is not None:
            # a traceback shows what happened in the other process
            found.add_note(self.trace)
            return found
        return WorkerLostError(f"a training process failed: {self.kind}: {self.text}\n{self.trace}")


def tried(work: Callable[[], T]) -> T | WorkerFailure:
    """Return what a function gives, or the exception that it raises, for whoever asked from another process."""
    try:
        return work()
    except Exception as error:
        return WorkerFailure.of(error)
