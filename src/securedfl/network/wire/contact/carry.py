"""Bytes from one socket to another: within the kernel where it offers that, else through memory of ours."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from securedfl.network.wire.loop import Loop

_AT_ONCE = 1 << 19
_COPIED_AT_ONCE = 1 << 17
_MOST_PIPES = 64
"""Each takes two descriptors and the kernel's memory; when all are in use, bytes are copied."""


class Carrier:
    """Moves bytes between sockets that do not block; for the I/O thread.

    Attributes
    ----------
    bytes
        How many it has moved.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop, self._pipes = loop, 0
        self.bytes = 0

    async def move(self, source: socket.socket, target: socket.socket, silence: float) -> None:
        """Move bytes in one direction, until there are no more, none move for so many seconds, or a socket fails."""
        with suppress(OSError), self._pipe() as pipe:
            async with asyncio.timeout(silence) as patience:

                def moved(count: int) -> None:
                    self.bytes += count
                    end = self._loop.time() + silence
                    # not for every piece: it takes its time
                    if end > (patience.when() or 0.0) + silence / 8:
                        patience.reschedule(end)

                while await self._pass_on(source, target, pipe, moved):
                    # two sockets that are always ready must not keep all others waiting
                    await asyncio.sleep(0)

    async def _pass_on(
        self,
        source: socket.socket,
        target: socket.socket,
        pipe: tuple[int, int] | None,
        moved: Callable[[int], None],
    ) -> bool:
        """Move the next bytes; return False at the end."""
        if pipe is None:
            return await self._copy(source, target, moved)
        out, into = pipe
        try:
            count = left = await _splice(source.fileno(), into, _AT_ONCE, lambda: self._loop.readable(source))
        except OSError:
            # refused by the system, or urgent data, which no splice gets past; a socket that failed fails here again
            return await self._copy(source, target, moved)
        while left:
            with suppress(BlockingIOError):
                sent = await _splice(out, target.fileno(), left, lambda: self._loop.writable(target))
                left -= sent
                moved(sent)
        return count > 0

    async def _copy(self, source: socket.socket, target: socket.socket, moved: Callable[[int], None]) -> bool:
        data = await self._loop.sock_recv(source, _COPIED_AT_ONCE)
        await self._loop.sock_sendall(target, data)
        moved(len(data))
        return bool(data)

    @contextmanager
    def _pipe(self) -> Iterator[tuple[int, int] | None]:
        """Lend a pipe, if the system moves bytes through pipes and has one left."""
        pipe = None
        if hasattr(os, "splice") and self._pipes < _MOST_PIPES:
            with suppress(OSError):
                pipe = os.pipe()
        if pipe is None:
            yield None
            return
        self._pipes += 1
        try:
            with suppress(OSError):
                fcntl.fcntl(pipe[0], fcntl.F_SETPIPE_SZ, _AT_ONCE)
            yield pipe
        finally:
            self._pipes -= 1
            for end in pipe:
                os.close(end)


async def _splice(source: int, target: int, most: int, ready: Callable[[], Awaitable[None]]) -> int:
    """Move bytes between a socket and a pipe, if need be once the socket is ready; return how many."""
    with suppress(BlockingIOError):
        return os.splice(source, target, most, flags=os.SPLICE_F_NONBLOCK)
    await ready()
    return os.splice(source, target, most, flags=os.SPLICE_F_NONBLOCK)
