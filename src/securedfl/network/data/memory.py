"""How a peer's process uses memory: what the C library does with what several threads allocate and free."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of glibc's malloc.h


def share_one_heap() -> None:
    """Let all threads of this process share one heap that keeps what it got; for a process that is a peer and no more.

    By default glibc gives every thread an arena of its own. Messages are allocated by one thread and freed by another,
    so that arenas keep memory which others could use, and hand pages back to the system only to ask for them again.
    """
    mallopt = _found("mallopt")
    mallopt(_ARENA_MAX, 1)
    # a chunk of a vector is longer than a message: it goes back to the system and leaves no hole in the heap
    mallopt(_MMAP_THRESHOLD, 3 << 19)
    mallopt(_TRIM_THRESHOLD, 64 << 20)


def give_back() -> None:
    """Give memory that was freed back to the system; holes in the heap would grow from one average to the next."""
    _found("malloc_trim")(0)


def _found(name: str) -> Callable[..., object]:
    """Return a function of the C library; one that does nothing if it is another library, which has its own ways."""
    try:
        function: Callable[..., object] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return lambda *_arguments: None
    return function
