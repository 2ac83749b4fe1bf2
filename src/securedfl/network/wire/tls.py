"""Who is at the other end: TLS credentials, and the checks that turn a connection into a name of the roster.

Both directions are checked against the federation's authority, the name in the certificate and the fingerprint in the
roster. A server learns its client's certificate from gRPC. A client cannot ask gRPC for the server's, so it first
fetches it over TLS 1.3 (`fetch_certificate`), compares the fingerprint, and then lets gRPC trust that very certificate
and no other.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import grpc

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.links.keys import KeyFiles, describe_pem, read_private
from securedfl.network.links.values import IdentityError, Member, is_loopback

TLS_VERSION = b"TLSv1.3"


def server_credentials(files: KeyFiles) -> grpc.ServerCredentials:
    """Return credentials that demand a certificate of the federation from every client."""
    return grpc.ssl_server_credentials(
        [(read_private(files.key), files.certificate.read_bytes())],
        root_certificates=files.authority.read_bytes(),
        require_client_auth=True,
    )


def channel_credentials(files: KeyFiles, server_certificate: bytes) -> grpc.ChannelCredentials:
    """Return credentials that trust exactly one server certificate."""
    return grpc.ssl_channel_credentials(
        root_certificates=server_certificate,
        private_key=read_private(files.key),
        certificate_chain=files.certificate.read_bytes(),
    )


def fetch_certificate(member: Member, files: KeyFiles, timeout: float = 5.0) -> bytes:
    """Connect with TLS 1.3 and return the certificate of a peer as PEM, once it is known to be the roster's.

    Raises
    ------
    PeerLostError
        Nobody answers at the address.
    IdentityError
        Somebody answers who is not that peer, or the certificate is not valid (expired, other authority).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cafile=str(files.authority))
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the key files: {error}") from None
    try:
        with (
            socket.create_connection((member.host, member.port), timeout=timeout) as raw,
            context.wrap_socket(raw, server_hostname=member.name) as connection,
        ):
            der = connection.getpeercert(binary_form=True) or b""
    except ssl.SSLCertVerificationError as error:
        raise IdentityError(
            f"{member.name} at {member.address} cannot prove who it is: {error.verify_message}"
        ) from None
    except ssl.SSLError as error:
        raise IdentityError(f"no TLS 1.3 with {member.name} at {member.address}: {error.reason or error}") from None
    except OSError as error:
        raise PeerLostError(f"{member.name} does not answer at {member.address}: {error}") from None
    pem = ssl.DER_cert_to_PEM_cert(der).encode()
    require_member(pem, member)
    return pem


def require_member(pem: bytes, member: Member) -> None:
    """Raise `IdentityError` unless a certificate carries the member's name and fingerprint."""
    info = describe_pem(pem)
    if info.name != member.name:
        raise IdentityError(f"{member.address} should be {member.name} but is {info.name!r}")
    if info.fingerprint != member.fingerprint:
        raise IdentityError(
            f"{member.name} shows a certificate with fingerprint {info.fingerprint[:16]}..., "
            f"but the roster says {member.fingerprint[:16]}...; update federation.toml if it was renewed"
        )


def caller(
    auth: Mapping[str, Sequence[bytes]],
    metadata: Mapping[str, str],
    roster: Sequence[Member],
    *,
    insecure: bool,
) -> int:
    """Return the number of the peer that calls; raise `IdentityError` for everybody else."""
    if insecure:
        name = metadata.get("securedfl-peer", "")
        return _position(name, tuple(member.name for member in roster))
    if tuple(auth.get("ssl_tls_version", ())) != (TLS_VERSION,):
        raise IdentityError("a connection that is not TLS 1.3")
    pems = tuple(auth.get("x509_pem_cert", ()))
    if len(pems) != 1:
        raise IdentityError("a connection without a certificate")
    return _identify(pems[0], tuple(roster))


@lru_cache(maxsize=1024)
def _identify(pem: bytes, roster: tuple[Member, ...]) -> int:
    info = describe_pem(pem)
    index = _position(info.name, tuple(member.name for member in roster))
    require_member(pem, roster[index])
    return index


def _position(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise IdentityError("a certificate whose name is not in the roster")
    return names.index(name)


def metadata_for(name: str, *, insecure: bool) -> tuple[tuple[str, str], ...] | None:
    """Return what a client says about itself where no certificate says it."""
    return (("securedfl-peer", name),) if insecure else None


def options(max_message: int, streams: int) -> list[tuple[str, Any]]:
    """Return the limits of every connection."""
    return [
        ("grpc.max_receive_message_length", max_message),
        ("grpc.max_send_message_length", max_message),
        ("grpc.max_concurrent_streams", streams),
        ("grpc.max_metadata_size", 8192),
        ("grpc.enable_http_proxy", 0),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]


__all__ = ["IdentityError", "Member", "is_loopback"]
