"""Why nobody was reached, in the system's words, and what to do: each kind of failure is mended in another way."""

from __future__ import annotations

import errno
import os
import socket

NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)
PROXY = "`proxy` in peer.toml, or HTTPS_PROXY"


def why(error: OSError, *, proxied: bool = False) -> str:
    """Return what happened and what to do; ``proxied`` says that a proxy was dialled, and not the address itself."""
    # asyncio has words of its own for what the system refuses
    words = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    happened = words or str(error) or "no answer in time"
    happened = happened[:1].lower() + happened[1:]
    todo = _todo_of_proxy(error) if proxied else _todo(error)
    return f"{happened}; {todo}" if todo else happened


def _todo(error: OSError) -> str:
    match error:
        case socket.gaierror(errno=socket.EAI_AGAIN):
            return "this machine's name server does not answer: check the network here"
        case socket.gaierror():
            return "the name server knows no such host: correct the address, or give an IP address"
        case ConnectionRefusedError():
            return "the machine is there, but nothing listens: start the peer or relay there, or check the address"
        case TimeoutError():
            return "no machine answers there: is it on, is the address right, does a firewall drop what comes?"
        case OSError(errno=number) if number in NO_WAY:
            return "no network leads there from here: check the network of this machine, and the address"
    return ""


def _todo_of_proxy(error: OSError) -> str:
    match error:
        case socket.gaierror() | ConnectionRefusedError():
            return f"that is the proxy: check {PROXY}"
        case TimeoutError():
            return f"the proxy does not answer, or cannot get there: check {PROXY}"
        case OSError(errno=number) if number in NO_WAY:
            return f"no network leads to the proxy: check {PROXY}"
    return ""
