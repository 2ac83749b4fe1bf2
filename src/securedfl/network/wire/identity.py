"""Who is at the other end: TLS 1.3 on bytes in memory, and the checks that turn a connection into a name.

TLS runs on memory instead of the socket: one system call then moves many records, which is faster, and a connection
through a relay can go on with another TLS on the same socket.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from cryptography import x509

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.wire.keys import CertificateInfo, KeyFiles, check_pair
from securedfl.network.wire.values import Endpoint, IdentityError

_OTHER_AUTHORITY = "all sites need certificates of one authority, and its ca.crt"
_INVALID = (
    ((10,), "; that site needs a new one (`securedfl certs issue NAME --renew`, then `securedfl roster renew`)"),
    ((9,), "; check the clocks of both machines"),
    ((18, 19, 20, 21), f"; {_OTHER_AUTHORITY}, and nothing in between may open TLS"),
    ((62,), "; somebody else is at that address: correct it"),
)
"""What to do, by the codes of X509_V_ERR."""
_ALERTS = {
    "expired": "; is this site's certificate still valid, and the clock there right? `securedfl certs show FILE` tells",
    "unknown ca": f"; {_OTHER_AUTHORITY}: compare the two files",
    "protocol version": "; install the same version at all sites",
}
"""What to do, by a word of what the other side says."""


class Identity:
    """A key and its certificate, ready for both ends of connections.

    Parameters
    ----------
    files
        Key, certificate and the federation's authority.
    name
        Whose it must be; None for anybody's.
    """

    def __init__(self, files: KeyFiles, name: str | None = None) -> None:
        self._files, self._name, found = files, name, check_pair(files)
        if name not in (None, found.name):
            raise ConfigError(f"{files.certificate} is the certificate of {found.name!r} and not of {name!r}")
        self._fingerprint = found.fingerprint
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (self._server, self._client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            try:
                context.load_verify_locations(cafile=str(files.authority))
                context.load_cert_chain(files.certificate, files.key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"cannot use the key files: {error}") from None
        self._server.verify_mode = ssl.CERT_REQUIRED
        self._server.num_tickets = 0

    def renewed(self) -> Identity | None:
        """Return what the files hold now, if that is another key, and whole."""
        try:
            found = Identity(self._files, self._name)
        except ConfigError:
            return None
        return None if found._fingerprint == self._fingerprint else found

    def accepting(self) -> Tls:
        """Return the TLS of the side that was dialled; it demands a certificate of the federation."""
        return Tls(self._server, None)

    def dialling(self, name: str) -> Tls:
        """Return the TLS of the side that dials; it demands a certificate of that name."""
        return Tls(self._client, name)


class Tls:
    """One TLS session on bytes in memory."""

    def __init__(self, context: ssl.SSLContext, name: str | None) -> None:
        self._incoming, self._outgoing, self._dialled = ssl.MemoryBIO(), ssl.MemoryBIO(), name is not None
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=name is None, server_hostname=name)

    def handshake(self) -> bool:
        """Go on with the handshake; return whether it is done. `IdentityError` if it fails."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise IdentityError(explain(error, dialled=self._dialled)) from None
        return True

    def feed(self, data: memoryview | bytes) -> None:
        """Take bytes from the socket."""
        self._incoming.write(data)

    def read(self, into: memoryview) -> int:
        """Decrypt as many records as there are and fit; return how many bytes there were, 0 if none now.

        `PeerLostError` once the other side has ended TLS: whatever it sends after that would be kept and never read.
        """
        read: Callable[[int, memoryview], Any] = self._object.read  # a number, because it reads into memory
        at, room = 0, len(into)
        try:
            while at < room and (count := read(room - at, into[at:])):
                at += count
            if at == 0 < room:
                raise PeerLostError("the other side hung up")
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise IdentityError(explain(error, dialled=self._dialled)) from None
        return at

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt."""
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]

    def to_send(self) -> bytes:
        """Return the bytes for the socket."""
        return self._outgoing.read()

    def rest(self) -> bytes:
        """Return bytes from the socket that came after the end of this TLS."""
        return self._incoming.read()

    @property
    def certificate(self) -> bytes:
        """The other side's certificate (DER)."""
        return self._object.getpeercert(binary_form=True) or b""


def explain(error: ssl.SSLError, *, dialled: bool) -> str:
    """Return what went wrong in TLS in words, and what to do about it on the side that dialled, or was dialled."""
    if isinstance(error, ssl.SSLCertVerificationError):
        todo = next((todo for codes, todo in _INVALID if error.verify_code in codes), "")
        return f"its certificate is not valid here: {error.verify_message}{todo}"
    reason = (error.reason or "no TLS").lower().replace("_", " ")
    if "alert" in reason:
        todo = next((todo for word, todo in _ALERTS.items() if word in reason), "")
        return f"it refuses this side's certificate or TLS ({reason}){todo}"
    todo = "; is another service at this port? Check the address" if dialled else ""
    return f"it does not speak TLS 1.3 of this federation ({reason}){todo}"


def identify(certificate: bytes, roster: Mapping[str, Endpoint]) -> str:
    """Return the name of the peer that a certificate (DER) belongs to; `IdentityError` for everybody else.

    The authority was checked by TLS; here the roster must have the name *and* the fingerprint.
    """
    name = name_of(certificate)
    if name not in roster:
        raise IdentityError(f"a certificate for {name!r}, which is not in the roster")
    require(certificate, roster[name])
    return name


def require(certificate: bytes, endpoint: Endpoint) -> None:
    """Raise `IdentityError` unless a certificate (DER) has the name and the fingerprint of an endpoint."""
    name, fingerprint = name_of(certificate), fingerprint_of(certificate).hex()
    if name != endpoint.name:
        raise IdentityError(f"{endpoint.address} should be {endpoint.name} but is {name!r}")
    if fingerprint != endpoint.fingerprint:
        raise IdentityError(
            f"{name} shows a certificate with fingerprint {fingerprint}, but the roster says {endpoint.fingerprint}; "
            "update the roster if it was renewed"
        )


def name_of(certificate: bytes) -> str:
    """Return the name in a certificate (DER)."""
    try:
        return CertificateInfo.of(x509.load_der_x509_certificate(certificate)).name
    except ValueError:
        raise IdentityError("no readable certificate") from None


def fingerprint_of(certificate: bytes) -> bytes:
    """Return the fingerprint of a certificate (DER)."""
    return hashlib.sha256(certificate).digest()
