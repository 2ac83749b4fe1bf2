"""The network between peers of one machine: each dials out through a proxy of its own, which may cut and slow."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Mapping

PIECE = 1 << 16
RATE = 250_000
"""Bytes per second of a slow link."""
DELAY = 0.2
"""Seconds that a slow link adds to every piece."""


class Weather:
    """The proxies of all peers, in a thread of their own.

    Parameters
    ----------
    ports
        The number of the peer that listens at each port.
    """

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._peer_at = dict(ports)
        self._held: Counter[tuple[int, int]] = Counter()
        self._broken: Counter[tuple[int, int]] = Counter()
        self._slow: Counter[tuple[int, int]] = Counter()
        self._open: dict[tuple[int, int], set[asyncio.StreamWriter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.urls: dict[int, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def change(self, kind: str, pairs: list[tuple[int, int]], by: int) -> None:
        """Begin (by 1) or end (by -1) something for these directions: ``hold``, ``break`` or ``slow``."""
        self._loop.call_soon_threadsafe(self._change, kind, pairs, by)

    def close(self) -> None:
        """Hang up everything."""

        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _change(self, kind: str, pairs: list[tuple[int, int]], by: int) -> None:
        counts = {"hold": self._held, "break": self._broken, "slow": self._slow}[kind]
        for pair in pairs:
            counts[pair] += by
            if kind == "break" and by > 0:
                for writer in self._open.get((min(pair), max(pair)), ()):
                    writer.transport.abort()

    async def _listen(self) -> None:
        for peer in self._peer_at.values():

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: int = peer) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._tasks.add(task)
                try:
                    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                        await self._serve(peer, reader, writer)
                finally:
                    self._tasks.discard(task)
                    writer.transport.abort()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self.urls[peer] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, source: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        port = int(request.split()[1].rpartition(b":")[2])
        target = self._peer_at.get(port, -1)
        pair = (min(source, target), max(source, target))
        while self._held[source, target]:
            await asyncio.sleep(0.05)
        if self._broken[source, target]:
            writer.write(b"HTTP/1.1 503 Cut\r\n\r\n")
            await writer.drain()
            return
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writers = self._open.setdefault(pair, set())
        writers |= {writer, back}
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            ways = [self._copy(reader, back, (source, target)), self._copy(there, writer, (target, source))]
            _, left = await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
        finally:
            writers -= {writer, back}
            back.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[int, int]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                while self._held[way]:
                    await asyncio.sleep(0.05)
                if self._slow[way]:
                    await asyncio.sleep(DELAY + len(data) / RATE)
                writer.write(data)
                await writer.drain()
