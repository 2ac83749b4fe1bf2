"""The door: the listening socket, and how many strangers may stand before it.

A connection is unfinished until it has proved who it is and said what it is for. There are never many of those: one
more closes the oldest of the address that has the most, so that a crowd of idle connections gets in nobody's way.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from securedfl.errors import ConfigError
from securedfl.network.wire.connection import Connection
from securedfl.network.wire.loop import Loop
from securedfl.network.wire.values import Limits, join_address, split_address

_ACCEPTED_AT_ONCE = 32
_BACKLOG = 512
_NOTHING = Path(os.devnull)


def bound(address: str) -> socket.socket:
    """Return a socket that listens at ``HOST:PORT``; `ConfigError` if that cannot be."""
    host, port = split_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # Python adds to the system's own words what stands in ours already; names that nobody knows have no number
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise ConfigError(
            f"cannot listen at {address}: {reason}; is the port taken, or "
            "the address of another machine? Listen at another one: `listen` in peer.toml, --listen of a relay"
        ) from None


class Door:
    """Accepts connections.

    Parameters
    ----------
    address
        ``HOST:PORT`` to listen at; port 0 takes any free one.
    limits
        How many may stand before it.
    """

    def __init__(self, address: str, limits: Limits) -> None:
        self._limits = limits
        self._opened: dict[Connection, str] = {}
        self._sock = bound(address)
        self._sock.setblocking(False)
        self.address = join_address(split_address(address)[0], self._sock.getsockname()[1])
        # closed for a moment when descriptors run out, so that whoever knocks can be sent away
        self._spare = _NOTHING.open("rb")

    def open(self, loop: Loop, welcome: Callable[[socket.socket], Connection]) -> None:
        """Begin to accept; ``welcome`` makes the connection of a socket. For the I/O thread."""
        loop.add_reader(self._sock, self._accept, welcome)

    def close(self, loop: Loop) -> None:
        """Stop accepting, and hang up on those who are not finished; for the I/O thread."""
        loop.unwatch(self._sock)
        self._sock.close()
        self._spare.close()
        for connection in self._unfinished():
            connection.close("this side is stopping")

    def _unfinished(self) -> dict[Connection, str]:
        """Return the connections that are neither somebody's nor closed, and where they come from."""
        return {one: where for one, where in self._opened.items() if not (one.settled or one.closed)}

    def _accept(self, welcome: Callable[[socket.socket], Connection]) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_away()
                return
            sock.setblocking(False)
            with suppress(OSError):  # some systems refuse it where the other side has hung up already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._make_room(str(address[0]))
            connection = welcome(sock)
            self._opened[connection] = str(address[0])
            connection.start()

    def _make_room(self, address: str) -> None:
        """Close the oldest unfinished connection of a busy address if there are too many."""
        self._opened = unfinished = self._unfinished()
        counts = Counter(unfinished.values())
        if counts[address] >= self._limits.unfinished_per_address:
            busiest = address
        elif len(unfinished) >= self._limits.unfinished:
            busiest = counts.most_common(1)[0][0]
        else:
            return
        oldest = next(connection for connection, where in unfinished.items() if where == busiest)
        oldest.close("too many connections that do not say who they are")

    def _turn_away(self) -> None:
        self._spare.close()
        with suppress(OSError):
            self._sock.accept()[0].close()
        with suppress(OSError):
            self._spare = _NOTHING.open("rb")
