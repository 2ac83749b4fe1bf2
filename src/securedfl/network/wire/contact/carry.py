"""Bytes between two sockets: within the kernel where it offers that, else through memory of ours."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

from securedfl.network.wire.loop import Loop

_AT_ONCE = 1 << 19
_COPIED_AT_ONCE = 1 << 17
_MOST_PIPES = 64
"""Each takes a thread, two descriptors and the kernel's memory; when all are in use, bytes are copied."""

Pipe = tuple[int, int]


class Carrier:
    """Moves bytes between sockets.

    Attributes
    ----------
    bytes
        How many it has moved.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop, self._lent = loop, 0
        self._threads = ThreadPoolExecutor(_MOST_PIPES, thread_name_prefix="securedfl-relay")
        self._lock = threading.Lock()
        self.bytes = 0

    async def join(self, first: socket.socket, second: socket.socket, silence: float) -> None:
        """Send each of two sockets what the other one says, and close both.

        That is until one of them ends, or fails, or nothing moves in one direction for so many seconds.
        """
        ways = ((first, second), (second, first))
        with first, second, self._pipes() as pipes:
            moving: list[asyncio.Future[None]]
            if pipes:
                jobs = [partial(self._splice, *way, pipe, silence) for way, pipe in zip(ways, pipes, strict=True)]
                moving = [self._loop.run_in_executor(self._threads, job) for job in jobs]
            else:
                moving = [self._loop.create_task(self._copy(*way, silence)) for way in ways]
            try:
                await asyncio.wait(moving, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in (first, second):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                # they look at the sockets until they have ended
                await asyncio.wait(moving)

    def close(self) -> None:
        """Join nobody any more."""
        self._threads.shutdown(wait=False)

    def _splice(self, source: socket.socket, target: socket.socket, pipe: Pipe, silence: float) -> None:
        """Move bytes in one direction, in a thread that waits for them: less work than to be told of every piece."""
        out, into = pipe
        with suppress(OSError):
            for end, option in ((source, socket.SO_RCVTIMEO), (target, socket.SO_SNDTIMEO)):
                end.setblocking(True)
                end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", *divmod(int(silence * 1e6), 1_000_000)))
            while True:
                try:
                    left = os.splice(source.fileno(), into, _AT_ONCE)
                except BlockingIOError:
                    return
                except OSError:
                    left = 0
                if not left:
                    # refused by the system, or urgent data, which no splice gets past; else it is the end, here too
                    target.sendall(data := source.recv(_COPIED_AT_ONCE))
                    self._moved(len(data))
                    if not data:
                        return
                while left:
                    sent = os.splice(out, target.fileno(), left)
                    left -= sent
                    self._moved(sent)

    async def _copy(self, source: socket.socket, target: socket.socket, silence: float) -> None:
        """Move bytes in one direction."""
        with suppress(OSError):
            data = b"more"
            while data:
                async with asyncio.timeout(silence):
                    data = await self._loop.sock_recv(source, _COPIED_AT_ONCE)
                    await self._loop.sock_sendall(target, data)
                self._moved(len(data))
                # two sockets that are always ready must not keep all others waiting
                await asyncio.sleep(0)

    def _moved(self, count: int) -> None:
        with self._lock:
            self.bytes += count

    @contextmanager
    def _pipes(self) -> Iterator[list[Pipe]]:
        """Lend two pipes, if the system moves bytes through pipes and has some left; else none."""
        pipes: list[Pipe] = []
        if hasattr(os, "splice") and self._lent + 2 <= _MOST_PIPES:
            with suppress(OSError):
                for _ in range(2):
                    pipes.append(os.pipe())
                    fcntl.fcntl(pipes[-1][0], fcntl.F_SETPIPE_SZ, _AT_ONCE)
        self._lent += len(pipes)
        try:
            yield pipes if len(pipes) == 2 else []
        finally:
            self._lent -= len(pipes)
            for pipe in pipes:
                for end in pipe:
                    os.close(end)
