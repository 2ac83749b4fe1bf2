"""The I/O thread: an event loop of asyncio in a thread of its own, which does all input and output of a peer."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

log = logging.getLogger("securedfl.network")


class Loop(asyncio.SelectorEventLoop):
    """The event loop, and what all connections share. Its methods are for the I/O thread, but for `call` and `end`.

    Attributes
    ----------
    buffer
        Memory for what a callback receives, for as long as the callback runs.
    bytes_in, bytes_out
        What all connections together received and sent.
    counters
        What was refused or dropped, by kind.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.buffer = memoryview(bytearray(1 << 18))
        self.bytes_in = self.bytes_out = 0
        self.counters: Counter[str] = Counter()
        # host names are looked up there, because that blocks
        self.set_default_executor(ThreadPoolExecutor(2, thread_name_prefix="securedfl-names"))
        # one connection's trouble must not end the thread that serves all of them
        self.set_exception_handler(
            lambda _loop, context: log.error(
                "an error in the I/O thread of the links: %s", context["message"], exc_info=context.get("exception")
            )
        )
        self._thread = threading.Thread(target=self._run, name=f"securedfl-links-{name}", daemon=True)
        self._thread.start()

    def call(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Do something in the I/O thread soon; from any thread. Once that has ended, nothing happens: False."""
        with suppress(RuntimeError):
            self.call_soon_threadsafe(action, *arguments)
            return True
        return False

    def end(self) -> None:
        """End the thread after all calls made so far, and wait for that."""
        self.call(self.stop)
        self._thread.join(10)

    def unwatch(self, sock: socket.socket) -> None:
        """Call nobody any more when a socket is ready."""
        self.remove_reader(sock)
        self.remove_writer(sock)

    async def readable(self, sock: socket.socket) -> None:
        """Wait until a socket has something to receive."""
        await self._until(self.add_reader, self.remove_reader, sock)

    async def writable(self, sock: socket.socket) -> None:
        """Wait until a socket takes something."""
        await self._until(self.add_writer, self.remove_writer, sock)

    async def _until(self, watch: Callable[..., Any], unwatch: Callable[..., Any], sock: socket.socket) -> None:
        ready = asyncio.Event()
        watch(sock, ready.set)
        try:
            await ready.wait()
        finally:
            unwatch(sock)

    def _run(self) -> None:
        self.run_forever()
        self.run_until_complete(self._cancel_all())
        self.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
