"""What crosses the door of this room: endpoints, limits, events, and who reaches whom."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from securedfl.errors import ConfigError, SecuredFLError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"[\w.-]+|[0-9a-fA-F:.]+(%[\w.-]+)?")
"""Names, of any letters, and numbers: nothing that could be another line of a request to a proxy."""


class IdentityError(SecuredFLError):
    """The other end of a connection is not who the roster says it is."""

    exit_code = 11


class FrameError(SecuredFLError):
    """Bytes that are not a frame, or a frame that nobody expects."""

    exit_code = 12


@dataclass(frozen=True)
class Endpoint:
    """One line of the roster, or a relay: its name, address and certificate fingerprint.

    A peer that only dials out (``listen = false``) has no host and port 0.
    """

    name: str
    host: str = ""
    port: int = 0
    fingerprint: str = ""

    @property
    def address(self) -> str:
        """Host and port as people write them."""
        return join_address(self.host, self.port)

    @property
    def listens(self) -> bool:
        """Whether others can dial it."""
        return bool(self.host)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much others may ask for.

    Attributes
    ----------
    unfinished, unfinished_per_address
        Connections that have not proved who they are. One more, and the oldest of the busiest address is closed.
    handshake
        Seconds until a connection must have proved who it is and said what it is for.
    streams
        Bulk streams that a peer may have open towards this one.
    control_bytes
        Bytes of control messages per second that a peer may send, four times as many in a burst; a message counts as
        at least 4 KiB. More are dropped and counted.
    queue
        Bytes that wait to be sent, per stream, and per peer for control messages.
    joined
        Connections that a relay keeps for one peer, waiting or joined with another.
    """

    unfinished: int = 256
    unfinished_per_address: int = 64
    handshake: float = 10.0
    streams: int = 4
    control_bytes: int = 16 << 20
    queue: int = 4 << 20
    joined: int = 64


class LinkUp(Struct, frozen=True):
    """A peer is linked, directly or through a relay or third peer. Said again when the way changes."""

    peer: str
    through: str | None = None


class LinkDown(Struct, frozen=True):
    """A link was lost."""

    peer: str
    reason: str


class ControlMessage(Struct, frozen=True):
    """A control message of a linked peer."""

    peer: str
    data: bytes


class Refused(Struct, frozen=True):
    """A peer, or a stranger without a name, cannot be linked, and why; each reason is said once until it changes.

    ``unfit`` as for `Reach`.
    """

    peer: str
    reason: str
    unfit: bool = False


Event = LinkUp | LinkDown | ControlMessage | Refused


@dataclass(frozen=True)
class Reach:
    """Whether a peer is linked, and how: ``through`` is None for a direct link; ``reason`` says why there is none.

    ``unfit`` says that this is about keys, versions or settings, and not that nobody answers.
    """

    linked: bool
    through: str | None = None
    reason: str = ""
    unfit: bool = False


class Inlet(Protocol):
    """Where the messages of an incoming bulk stream go. Its methods run in the I/O thread and must be quick."""

    def begin(self, head: bytes, nbytes: int) -> memoryview | None:
        """Return where the bytes of a message are to be put, as many as it has; None drops the message."""

    def arrived(self, head: bytes, body: memoryview) -> None:
        """Take a message that is complete in the memory that `begin` gave."""

    def ended(self, reason: str) -> None:
        """Learn that the stream is over: an empty reason if the sender has finished, else why it broke off."""


def join_address(host: str, port: int) -> str:
    """Return host and port as people write them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``[HOST]:PORT``."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(host) or not re.fullmatch("[0-9]{1,5}", port) or not 0 <= int(port) < 65536:
        raise ConfigError(f"{address!r} is not an address; write HOST:PORT, for instance a.example.org:7443")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine for certain."""
    return host in LOOPBACK or host.startswith("127.")
