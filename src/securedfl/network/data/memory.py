"""How a peer's process uses memory: what the C library does with what several threads allocate and free."""

from __future__ import annotations

import ctypes
import gc
import math
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache

import numpy as np

from securedfl.protocols.steps import Array

COLLECTED = 100
"""Averages after which all garbage is collected."""
SOON = 5.0
"""Seconds within which the next average is expected, if the last one was no longer ago."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of glibc's malloc.h


def share_one_heap() -> None:
    """Let all threads of this process share one heap that keeps what it got; for a process that is a peer and no more.

    By default glibc gives every thread an arena of its own. Messages are allocated by one thread and freed by another,
    so that arenas keep memory which others could use, and hand pages back to the system only to ask for them again.
    """
    mallopt = _found("mallopt")
    mallopt(_ARENA_MAX, 1)
    # a chunk of a vector is used again for the next one; what is longer goes back to the system and leaves no hole
    mallopt(_MMAP_THRESHOLD, 4 << 20)
    mallopt(_TRIM_THRESHOLD, 64 << 20)


class Heap:
    """Memory that averages have freed: given back to the system, unless the next one will ask for it at once.

    Holes in the heap would grow from one average to the next if nothing were ever given back; but memory that comes
    back from the system must be cleared by it first, which costs as much as a tenth of an average.
    """

    def __init__(self) -> None:
        self._averages, self._before = 0, -math.inf

    def due(self, now: float) -> tuple[bool, bool]:
        """Tell, after an average, whether to give memory back, and whether to collect all garbage before.

        Python keeps small objects for later use (up to 2,000 tuples of each length) until it collects all garbage,
        which it hardly ever does where there is little. So that is done now and then.
        """
        self._averages += 1
        collect = self._averages % COLLECTED == 0
        rare, self._before = now - self._before > SOON, now
        return collect or rare, collect

    def average_ended(self) -> None:
        """Do what is due."""
        trim, collect = self.due(time.monotonic())
        if collect:
            gc.collect()
        if trim:
            _found("malloc_trim")(0)


HEAP = Heap()
"""Of this process."""


class Rooms:
    """Room for whole vectors, used again when nobody has the vector any more.

    Memory that is fresh from the system must be cleared by it first, which takes longer than the arithmetic of an
    average. One room that nobody uses is kept.
    """

    def __init__(self) -> None:
        self._free: Array = np.empty(0, np.uint8)
        self._lock = threading.Lock()

    def like(self, vector: Array) -> Array:
        """Return a vector of the same length and dtype with anything in it."""
        with self._lock:
            room, self._free = self._free, np.empty(0, np.uint8)
        if room.nbytes != vector.nbytes or not room.nbytes:
            room = np.empty(vector.nbytes, np.uint8)
        # it dies with the last array or buffer that uses the room; of an array, numpy would keep the room itself
        lease = (ctypes.c_char * room.nbytes).from_buffer(room.data)
        weakref.finalize(lease, self._returned, room).atexit = False
        return np.ndarray(vector.shape, vector.dtype, buffer=memoryview(lease))

    def _returned(self, room: Array) -> None:
        # called wherever the last user is forgotten, so that it must not wait for a lock
        self._free = room


ROOMS = Rooms()
"""Of this process."""


@cache
def _found(name: str) -> Callable[..., object]:
    """Return a function of the C library; one that does nothing if it is another library, which has its own ways."""
    try:
        function: Callable[..., object] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return lambda *_arguments: None
    return function
