"""Keys that never leave their site: asking for a certificate, signing it elsewhere, and installing what comes back.

A new key waits beside the one in use (``NAME.next.key``) until its certificate is there, which may take days: a peer
that is started meanwhile goes on with the old pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from securedfl.errors import ConfigError
from securedfl.network.wire.keys import (
    PEER_DAYS,
    CertificateInfo,
    alternatives,
    belongs,
    certify,
    check_issued,
    check_name,
    describe,
    hosts_of,
    next_key,
    private_pem,
    read_key,
    subject,
)
from securedfl.storage import OWNER, cannot_write, make_folder, write_bytes


@dataclass(frozen=True)
class KeyRequest:
    """A request for a certificate: its file, and the key that it is for, which stays."""

    csr: Path
    key: Path


def request(folder: Path, name: str, hosts: Sequence[str] = (), *, renew: bool = False) -> KeyRequest:
    """Make a peer's key and ask for a certificate: writes ``NAME.key``, which stays at the site, and ``NAME.csr``.

    Parameters
    ----------
    folder
        Where to; it is made if it does not exist.
    name, hosts
        As for `securedfl.network.wire.keys.issue`.
    renew
        The key that is there is left as it is; the new one is ``NAME.next.key``. One that waits already is asked for
        again, because its certificate may be on the way.
    """
    check_name(name)
    key_file, csr_file = folder / f"{name}.key", folder / f"{name}.csr"
    if key_file.exists():
        if not renew:
            raise ConfigError(f"{key_file} exists; pass --renew to make a new one, which takes its place later")
        key_file = next_key(key_file)
    key = read_key(key_file) if key_file.exists() else ec.generate_private_key(ec.SECP256R1())
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject(name))
        .add_extension(alternatives(name, hosts), critical=False)
        .sign(key, hashes.SHA256())
    )
    make_folder(folder, private=not folder.exists())
    if not key_file.exists():
        write_bytes(key_file, private_pem(key), mode=OWNER)
    write_bytes(csr_file, csr.public_bytes(serialization.Encoding.PEM))
    return KeyRequest(csr_file, key_file)


def sign(folder: Path, csr_file: Path, *, days: float = PEER_DAYS, renew: bool = False) -> Path:
    """Sign what `request` made, with the authority in a folder; writes ``NAME.crt`` there and returns its path.

    If the key waits in that very folder, it is ``NAME.next.crt``, because ``NAME.crt`` is in use. Name and hosts are
    taken from the request, and nothing else: who may have that name is for a person to check.
    """
    try:
        csr = x509.load_pem_x509_csr(csr_file.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the request {csr_file}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{csr_file} is not a request for a certificate; make one: securedfl certs request") from None
    names = csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    public = csr.public_key()
    if not csr.is_signature_valid or not names or not isinstance(public, ec.EllipticCurvePublicKey):
        raise ConfigError(f"{csr_file} is damaged or has no ECDSA key; make a new one: securedfl certs request")
    name = str(names[0].value)
    check_name(name)
    certificate_file, waiting = folder / f"{name}.crt", next_key(folder / f"{name}.key")
    if certificate_file.exists() and not renew:
        raise ConfigError(f"{certificate_file} exists; pass --renew to replace it")
    if waiting.exists() and read_key(waiting).public_key() == public:
        certificate_file = waiting.with_suffix(".crt")
    write_bytes(certificate_file, certify(folder, name, public, hosts_of(csr.extensions), days))
    return certificate_file


def install(folder: Path, certificate: Path) -> CertificateInfo:
    """Put a certificate that came back, and the key that waits for it, in the place of the pair in use.

    After a crash the same call does what is left: the certificate is replaced first, and the new key is where it was
    until it is in its place. A peer that runs takes neither alone, because they are no pair.
    """
    info = describe(certificate)
    check_name(info.name)
    key, place = folder / f"{info.name}.key", folder / f"{info.name}.crt"
    waiting = next_key(key)
    own = next((path for path in (waiting, key) if path.exists() and belongs(path, certificate)), None)
    if own is None:
        raise ConfigError(
            f"no key in {folder} belongs to {certificate} (neither {waiting.name} nor {key.name}): name the folder in "
            "which it was requested with --dir, or send the request that is there now to the authority"
        )
    if (folder / "ca.crt").exists():
        check_issued(certificate, folder / "ca.crt")
    if not info.valid():
        raise ConfigError(f"{certificate} is of no use: {info.expiry()}")
    try:
        write_bytes(place, certificate.read_bytes())
        if own == waiting:
            write_bytes(key, waiting.read_bytes(), mode=OWNER)
            waiting.unlink()
        if not waiting.exists():
            waiting.with_suffix(".crt").unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(waiting, error) from None
    return info
