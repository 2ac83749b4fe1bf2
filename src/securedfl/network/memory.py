"""How a peer's process uses memory: what the C library does with what several threads allocate and free."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of glibc's malloc.h


def share_one_heap() -> None:
    """Let all threads of this process share one heap that keeps what it got; for a process that is a peer and no more.

    By default glibc gives every thread an arena of its own. Messages are allocated by one thread and freed by another,
    so that arenas keep memory which others could use, and hand pages back to the system only to ask for them again.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, which has its own ways
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, 64 << 20)
