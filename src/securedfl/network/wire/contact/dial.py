"""Dialling: one try to get a connected socket, directly or through an HTTP CONNECT proxy."""

from __future__ import annotations

import base64
import errno
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from securedfl.errors import ConfigError
from securedfl.network.wire.loop import READ, WRITE, Loop
from securedfl.network.wire.values import is_loopback, join_address

_LONGEST_ANSWER = 8192
_NAMES = ThreadPoolExecutor(2, thread_name_prefix="securedfl-names")
"""Host names are looked up here, because that blocks."""

Connected = Callable[[socket.socket, bytes], None]
Failed = Callable[[str], None]


class Dial:
    """One try to reach an address; calls back once, unless it is given up.

    Parameters
    ----------
    host, port
        Where to.
    proxy
        ``http://[USER:PASSWORD@]HOST:PORT``; an empty text for none, None for what the environment says (HTTPS_PROXY,
        NO_PROXY). Loopback addresses never take a proxy of the environment.
    timeout
        Seconds until it has failed.
    connected, failed
        Called in the I/O thread, with the socket and bytes that came already, or with the reason.
    """

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        *,
        proxy: str | None,
        timeout: float,
        connected: Connected,
        failed: Failed,
    ) -> None:
        self._loop, self._connected, self._failed = loop, connected, failed
        self._sock: socket.socket | None = None
        self._over = False
        self._addresses: list[Any] = []
        self._answer = b""
        self._request = b""
        self._where = join_address(host, port)
        self._timer = loop.later(timeout, lambda: self._fail("no answer in time"))
        url = _proxy(host) if proxy is None else proxy
        if url:
            self._request = _connect_request(host, port, url)
            parts = urlsplit(url)
            host, port = str(parts.hostname), parts.port or 80
            self._where += f" through the proxy {join_address(host, port)}"
        looking: Future[Any] = _NAMES.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        looking.add_done_callback(lambda future: loop.call(self._found, future))

    def give_up(self) -> None:
        """Stop, and call nobody back."""
        self._over = True
        self._timer.cancel()
        if self._sock is not None:
            self._loop.watch(self._sock, 0, self._ready)
            self._sock.close()

    def _found(self, looked_up: Future[Any]) -> None:
        if self._over:
            return
        try:
            self._addresses = list(looked_up.result())
        except (OSError, UnicodeError) as error:
            self._fail(getattr(error, "strerror", None) or "no such host")
            return
        self._try_next("no such host")

    def _try_next(self, reason: str) -> None:
        """Try the next address of the host; if there is none, it has failed for this reason."""
        if self._sock is not None:
            self._loop.watch(self._sock, 0, self._ready)
            self._sock.close()
        if not self._addresses:
            self._fail(reason)
            return
        family, kind, protocol, _, address = self._addresses.pop(0)
        try:
            self._sock = socket.socket(family, kind, protocol)
            self._sock.setblocking(False)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self._sock.connect_ex(address)
        except OSError as error:
            self._fail(error.strerror or "no socket")
            return
        if code in (0, errno.EINPROGRESS):
            self._loop.watch(self._sock, WRITE, self._ready)
        else:
            self._try_next(os.strerror(code))

    def _ready(self, events: int) -> None:
        if self._over or self._sock is None:
            return
        try:
            if events & WRITE:
                code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    self._try_next(os.strerror(code))
                elif not self._request:
                    self._succeed(b"")
                else:
                    self._sock.send(self._request)
                    self._loop.watch(self._sock, READ, self._ready)
            else:
                self._hear(self._sock.recv(_LONGEST_ANSWER))
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error.strerror or "the connection broke off")

    def _hear(self, data: bytes) -> None:
        """Take what a proxy answers."""
        self._answer += data
        head, end, rest = self._answer.partition(b"\r\n\r\n")
        if not data or (not end and len(self._answer) > _LONGEST_ANSWER):
            self._fail("the proxy gave no proper answer")
        elif end:
            words = head.split(b"\r\n")[0].split(b" ", 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or words[1] != b"200":
                code = words[1].decode("ascii", "replace")[:3] if len(words) > 1 else "?"
                self._fail(f"the proxy refused with code {code}")
            else:
                self._succeed(rest)

    def _succeed(self, rest: bytes) -> None:
        sock, self._sock = self._sock, None
        assert sock is not None  # noqa: S101 - for the type checker
        self._loop.watch(sock, 0, self._ready)
        self.give_up()
        self._connected(sock, rest)

    def _fail(self, reason: str) -> None:
        if not self._over:
            self.give_up()
            self._failed(f"{self._where}: {reason[:1].lower()}{reason[1:]}")


def _proxy(host: str) -> str:
    if is_loopback(host) or proxy_bypass(host):
        return ""
    return getproxies().get("https", "")


def _connect_request(host: str, port: int, url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(f"the proxy of {host} must be http://HOST:PORT; set `proxy` in peer.toml or HTTPS_PROXY")
    where = join_address(host, port)
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
    if parts.username:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(secret.encode()).decode()}")
    return "\r\n".join([*lines, "", ""]).encode("ascii", "replace")
