"""Dialling: one try to get a connected socket, directly or through an HTTP CONNECT proxy."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.wire.contact.why import why
from securedfl.network.wire.values import is_loopback, join_address

_LONGEST_ANSWER = 8192
_SET = "http://USER:PASSWORD@HOST:PORT as `proxy` in peer.toml or HTTPS_PROXY"


async def dial(host: str, port: int, *, proxy: str | None, timeout: float) -> tuple[socket.socket, bytes]:
    """Return a connected socket, and bytes that came already; `PeerLostError` if there is none.

    Parameters
    ----------
    host, port
        Where to.
    proxy
        ``http://[USER:PASSWORD@]HOST:PORT``; an empty text for none, None for what the environment says (HTTPS_PROXY,
        NO_PROXY). Loopback addresses never take a proxy of the environment.
    timeout
        Seconds until it has failed.
    """
    where, request = join_address(host, port), b""
    if proxy is None:
        proxy = "" if is_loopback(host) or _bypassed(host, port) else getproxies().get("https", "")
    if proxy:
        request = _connect_request(host, port, proxy)
        parts = urlsplit(proxy)
        host, port = str(parts.hostname), parts.port or 80
        where += f" through the proxy {join_address(host, port)}"
    try:
        async with asyncio.timeout(timeout):
            sock = await _connected(host, port, timeout)
            try:
                return sock, await _ask_proxy(sock, request) if request else b""
            except BaseException:
                sock.close()
                raise
    except OSError as error:
        raise PeerLostError(f"{where}: {why(error, proxied=bool(proxy))}") from None


def _bypassed(host: str, port: int) -> bool:
    """Tell whether NO_PROXY names a host, with or without its port, or a network that the host is in."""
    if proxy_bypass(host) or proxy_bypass(join_address(host, port)):
        return True
    for entry in getproxies().get("no", "").split(","):
        with suppress(ValueError):
            if "/" in entry and ip_address(host) in ip_network(entry.strip(), strict=False):
                return True
    return False


async def _connected(host: str, port: int, timeout: float) -> socket.socket:
    """Try all addresses of a host, each for its part of the time; if none answers, raise what the last one gave."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError:
        addresses = []
    failure: OSError = socket.gaierror("no such host")
    for family, kind, protocol, _, address in addresses:
        try:
            # of two addresses, one of IPv6 that leads nowhere must not use up all of it
            async with asyncio.timeout(0.9 * timeout / len(addresses)):
                return await _connect(socket.socket(family, kind, protocol), address)
        except OSError as error:
            failure = error
    raise failure


async def _connect(sock: socket.socket, address: Any) -> socket.socket:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _ask_proxy(sock: socket.socket, request: bytes) -> bytes:
    """Let a proxy connect the socket with somebody else; return bytes that came after its answer."""
    loop, rest, came, code = asyncio.get_running_loop(), b"", 0, "1xx"
    await loop.sock_sendall(sock, request)
    # such an answer only says that another one follows
    while code[0] == "1":
        while b"\r\n\r\n" not in rest:
            data = await loop.sock_recv(sock, _LONGEST_ANSWER)
            rest, came = rest + data, came + len(data)
            if not data or came > 2 * _LONGEST_ANSWER:
                raise OSError("the proxy gave no proper answer")
        head, _, rest = rest.partition(b"\r\n\r\n")
        found = re.match(rb"HTTP/1\.\d ([1-9]\d\d)(?!\S)", head)
        code = found[1].decode() if found else "?"
    if code[0] != "2":
        wants = f"; it wants a user and a password that it knows: set {_SET}" if code == "407" else ""
        raise OSError(f"the proxy refused with code {code}{wants}")
    return rest


def _connect_request(host: str, port: int, proxy: str) -> bytes:
    try:
        parts = urlsplit(proxy)
        # a password with one of /?# would be taken for a port, or a path
        bare = parts.path in ("", "/") and not parts.query and not parts.fragment
        fine = bare and parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise ConfigError(
            f"the proxy of {host} must be http://HOST:PORT; set {_SET}, with / ? # @ of a password written as "
            "%2F %3F %23 %40"
        )
    where = join_address(host.encode("idna").decode(), port)
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
    if parts.username or parts.password:
        secret = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(secret.encode()).decode()}")
    return "\r\n".join([*lines, "", ""]).encode("ascii", "replace")
