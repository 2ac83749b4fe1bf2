"""A look at a relay: whether it is there, and is the one that was named. Nobody is joined."""

from __future__ import annotations

import asyncio

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.wire.contact.dial import dial
from securedfl.network.wire.contact.why import why
from securedfl.network.wire.frames import HEADER_BYTES, Kind, frame, read_header
from securedfl.network.wire.identity import Identity, require
from securedfl.network.wire.values import Endpoint, FrameError

_MOST_AT_ONCE = 1 << 16


async def look_at(relay: Endpoint, identity: Identity, *, proxy: str | None, timeout: float) -> None:
    """Return once a relay has answered: `PeerLostError` if it does not, another error if it is not the one named.

    Parameters
    ----------
    relay, identity
        Which one, and who asks it.
    proxy
        As for `dial`.
    timeout
        Seconds to reach it, and as many for its answer.
    """
    if not relay.listens:
        raise ConfigError("it has no address in federation.toml")
    sock, received = await dial(relay.host, relay.port, proxy=proxy, timeout=timeout)
    loop, tls, answer = asyncio.get_running_loop(), identity.dialling(relay.name), bytearray(HEADER_BYTES)
    secured = False
    with sock:
        try:
            async with asyncio.timeout(timeout):
                # TLS 1.3 is done before the relay has seen this side's certificate: only its answer says that it fits
                while True:
                    tls.feed(received)
                    if not secured and (secured := tls.handshake()):
                        require(tls.certificate, relay)
                        tls.write(frame(Kind.PING))
                    await loop.sock_sendall(sock, tls.to_send())
                    if secured and tls.read(memoryview(answer)):
                        break
                    if not (received := await loop.sock_recv(sock, _MOST_AT_ONCE)):
                        raise PeerLostError(f"{relay.address}: the other side hung up")
        except OSError as error:
            raise PeerLostError(f"{relay.address}: {why(error)}") from None
    if read_header(bytes(answer))[0] is not Kind.PONG:
        raise FrameError("it does not answer as a relay does")
