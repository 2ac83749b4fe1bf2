"""A line that can be slow: frames between a machine and the switch, held back by this process.

The kernels of many machines can limit a rate but not add a delay, so that this is done here. Each pair of machines has
a rate of its own, as in the campaign that SecureD-FL goes through (tests/network/campaign/weather.py).
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import threading
import time
from contextlib import suppress
from itertools import count

RATE = 250_000
"""Bytes per second of a slow line, for each pair of machines and direction."""
DELAY = 0.2
"""Seconds that a slow line adds to every frame."""
SET_INTERFACE = 0x400454CA
TAP, WITHOUT_HEADER = 0x0002, 0x1000


def tap(name: str) -> int:
    """Make a network interface whose frames this process reads and writes."""
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, SET_INTERFACE, struct.pack("16sH22x", name.encode(), TAP | WITHOUT_HEADER))
    return handle


class Line:
    """A line between two interfaces that it makes, in a thread of its own."""

    def __init__(self, one: str, other: str) -> None:
        self.slow = False
        self._ends = (tap(one), tap(other))
        self._free: dict[bytes, float] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._number = count()
        self._ended = False
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        self._ended = True
        self._thread.join(5)
        for end in self._ends:
            os.close(end)

    def _carry(self) -> None:
        across = {self._ends[0]: self._ends[1], self._ends[1]: self._ends[0]}
        while not self._ended:
            pause = self._waiting[0][0] - time.monotonic() if self._waiting else 0.5
            ready, _, _ = select.select(self._ends, (), (), min(max(pause, 0.0), 0.5))
            for end in ready:
                with suppress(BlockingIOError):
                    while True:
                        self._take(os.read(end, 1 << 17), across[end])
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, end, frame = heapq.heappop(self._waiting)
                # an interface that is down takes nothing
                with suppress(OSError):
                    os.write(end, frame)

    def _take(self, frame: bytes, end: int) -> None:
        at = time.monotonic()
        if self.slow:
            # from whom to whom: the first twelve bytes of a frame
            at = max(self._free.get(frame[:12], 0.0), at) + len(frame) / RATE
            self._free[frame[:12]] = at
            at += DELAY
        heapq.heappush(self._waiting, (at, next(self._number), end, frame))
