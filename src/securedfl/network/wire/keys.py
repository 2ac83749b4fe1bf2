"""Keys of a federation: a small certificate authority, one certificate per peer, fingerprints, expiry.

ECDSA P-256 throughout, because every TLS 1.3 library speaks it. A peer's name stands in its certificate as common name
and as DNS name, so that both ends of a connection can check it; the roster pins the certificate's fingerprint too.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from securedfl.errors import ConfigError
from securedfl.network.core.entries import NAME
from securedfl.storage import OWNER, make_folder, write_bytes

AUTHORITY_DAYS, PEER_DAYS = 3650, 365
MOST_DAYS = 36500
WARN_DAYS = 30
LONGEST_CERTIFICATE = 4096
"""Bytes; peers hand certificates on."""
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")
_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_CLOCK_SLACK = dt.timedelta(minutes=5)  # a certificate that is valid from now on would fail on a slow clock


@dataclass(frozen=True)
class CertificateInfo:
    """What a person wants to know about a certificate."""

    name: str
    hosts: tuple[str, ...]
    not_before: dt.datetime
    not_after: dt.datetime
    fingerprint: str

    @classmethod
    def of(cls, certificate: x509.Certificate) -> CertificateInfo:
        """Read a certificate."""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return cls(
            name=str(names[0].value) if names else "",
            hosts=hosts_of(certificate.extensions),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        )

    def expiry(self) -> str:
        """Return a warning if the certificate is not valid or soon will not be, else an empty string."""
        left = self.not_after - dt.datetime.now(dt.UTC)
        if self.valid():
            soon = left < dt.timedelta(days=WARN_DAYS)
            return f"the certificate of {self.name} expires in {left.days} days{self._renewal}" if soon else ""
        if left > dt.timedelta():
            return f"the certificate of {self.name} is not valid before {self.not_before:%Y-%m-%d %H:%M} UTC"
        return f"the certificate of {self.name} expired on {self.not_after:%Y-%m-%d %H:%M} UTC{self._renewal}"

    @property
    def _renewal(self) -> str:
        """The command that makes a new one; an authority has none, as all of its certificates end with it."""
        hosts = "".join(f" --host {host}" for host in self.hosts if host != self.name)
        command = f"; make a new one: securedfl certs issue {self.name}{hosts} --renew"
        return command if re.fullmatch(NAME, self.name) else ""

    def valid(self) -> bool:
        """Tell whether the certificate is valid now."""
        return self.not_before <= dt.datetime.now(dt.UTC) < self.not_after


@dataclass(frozen=True)
class KeyFiles:
    """Where a peer's key, its certificate and the authority's certificate lie."""

    key: Path
    certificate: Path
    authority: Path


def create_authority(folder: Path, *, days: int = AUTHORITY_DAYS) -> CertificateInfo:
    """Make the federation's authority (``ca.key``, ``ca.crt``) in a folder; an existing one is never replaced."""
    if (folder / "ca.key").exists():
        raise ConfigError(f"{folder} already holds an authority; a new one would lock out every peer")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SecureD-FL federation authority")])
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    make_folder(folder, private=not folder.exists())
    write_bytes(folder / "ca.key", private_pem(key), mode=OWNER)
    write_bytes(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))
    return describe(folder / "ca.crt")


def issue(
    folder: Path,
    name: str,
    hosts: Sequence[str] = (),
    *,
    days: float = PEER_DAYS,
    start: dt.datetime | None = None,
    renew: bool = False,
) -> KeyFiles:
    """Issue key and certificate of one peer, signed by the authority in the folder.

    Parameters
    ----------
    folder
        Where `create_authority` put the authority; ``NAME.key`` and ``NAME.crt`` are written beside it.
    name
        The peer's name in the roster: lower case letters, digits and hyphens.
    hosts
        Host names or addresses under which others may reach the peer.
    days, start
        How long the certificate is valid, and from when (by default: now).
    renew
        Replace an existing certificate. Its fingerprint changes, so the roster must be updated.
    """
    files = KeyFiles(folder / f"{name}.key", folder / f"{name}.crt", folder / "ca.crt")
    key = _new_key(files.key, name, renew=renew)
    certificate = certify(folder, name, key.public_key(), hosts, days, start)
    write_bytes(files.key, private_pem(key), mode=OWNER)
    write_bytes(files.certificate, certificate)
    return files


def describe(path: Path) -> CertificateInfo:
    """Read a certificate file."""
    return CertificateInfo.of(read_certificate(path))


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the certificate {path}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{path} is not a PEM certificate") from None


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file; refuse one that others than its owner can read."""
    try:
        mode = path.stat().st_mode
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"cannot read the key {path}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise ConfigError(f"{path} is not a PEM file of a private key without a password") from None
    if mode & 0o077:
        raise ConfigError(f"others can read the private key {path}; run: chmod 600 {path}")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} is not an elliptic curve key; make one with `securedfl certs`")
    return key


def check_pair(files: KeyFiles) -> CertificateInfo:
    """Return what the certificate says; raise `ConfigError` if key, certificate and authority do not match."""
    info = check_issued(files.certificate, files.authority)
    if not belongs(files.key, files.certificate):
        raise ConfigError(f"the key {files.key} does not belong to the certificate {files.certificate}; {_mend(files)}")
    return info


def belongs(key: Path, certificate: Path) -> bool:
    """Tell whether a key and a certificate are a pair."""
    return read_key(key).public_key() == read_certificate(certificate).public_key()


def next_key(key: Path) -> Path:
    """Where a new key waits for its certificate, beside the one in use."""
    return key.with_name(f"{key.stem}.next.key")


def _mend(files: KeyFiles) -> str:
    """Return what to do about a key and a certificate that are no pair."""
    folder, waiting = files.key.parent, next_key(files.key)
    if waiting.exists() and belongs(waiting, files.certificate):
        return f"{waiting} does: securedfl certs install {files.certificate} --dir {folder}"
    return (
        "put the key back that was made with it, or the certificate that was issued for this key (securedfl certs "
        f"install NAME.crt --dir {folder}), or make a new pair (docs/guides/operations.md, Renew a key)"
    )


def check_issued(path: Path, authority: Path) -> CertificateInfo:
    """Return what a certificate says; raise `ConfigError` if the authority did not issue it."""
    certificate, issuer = read_certificate(path), read_certificate(authority)
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:
        raise ConfigError(f"{path} was not issued by the authority {authority}") from None
    _check_length(certificate, path)
    return CertificateInfo.of(certificate)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    days: float,
    start: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    begin = start or dt.datetime.now(dt.UTC) - _CLOCK_SLACK
    if not days <= MOST_DAYS:
        raise ConfigError(f"a certificate for {days:g} days is too long; use {MOST_DAYS} at most")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=days))
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key(path: Path, name: str, *, renew: bool) -> ec.EllipticCurvePrivateKey:
    check_name(name)
    if path.exists() and not renew:
        raise ConfigError(f"{path} exists; pass --renew to replace it")
    return ec.generate_private_key(ec.SECP256R1())


def certify(
    folder: Path,
    name: str,
    public: ec.EllipticCurvePublicKey,
    hosts: Sequence[str],
    days: float,
    start: dt.datetime | None = None,
) -> bytes:
    """Return a peer's certificate (PEM), signed by the authority in a folder."""
    if not (folder / "ca.key").exists():
        raise ConfigError(
            f"{folder} holds no authority (ca.key): run this where it is, and name its folder with --dir. At a site: "
            f"securedfl certs request. For a new federation make one first: securedfl certs init --dir {folder}"
        )
    signer, authority = read_key(folder / "ca.key"), read_certificate(folder / "ca.crt")
    certificate = (
        _builder(subject(name), authority.subject, public, days, start)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        .add_extension(alternatives(name, hosts), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _check_length(certificate, f"the certificate of {name}")
    return certificate.public_bytes(serialization.Encoding.PEM)


def _check_length(certificate: x509.Certificate, what: object) -> None:
    if len(certificate.public_bytes(serialization.Encoding.DER)) > LONGEST_CERTIFICATE:
        raise ConfigError(f"{what} is too long for other peers to take; name fewer hosts (--host)")


def check_name(name: str) -> None:
    """Refuse what cannot be a peer's name."""
    if not re.fullmatch(NAME, name):
        raise ConfigError(f"{name!r} cannot be a peer's name; use up to 63 lower case letters, digits and hyphens")


def subject(name: str) -> x509.Name:
    """Return a peer's name as certificates have it."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def alternatives(name: str, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return a peer's name and its hosts as certificates have them."""
    return x509.SubjectAlternativeName([x509.DNSName(name), *(_host(h) for h in dict.fromkeys(hosts) if h != name)])


def hosts_of(extensions: x509.Extensions) -> tuple[str, ...]:
    """Return the hosts that a certificate or a request names."""
    try:
        found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(host.value) for host in found if isinstance(host, x509.DNSName | x509.IPAddress))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        # names with other letters than ASCII travel as xn--...
        name = host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name):
        raise ConfigError(f"{host!r} is no host: give a name such as a.example.org, or an IP address")
    return x509.DNSName(name)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as its file holds it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
