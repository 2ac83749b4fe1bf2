"""Signatures of the log: each peer signs with the key of its certificate, which the roster names by its fingerprint.

Peers hand each other the certificates that they know, so that what a third peer signed can be checked too. Only
certificates of the federation's authority are taken, and they are kept, because the log on disk is checked with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from securedfl.network.wire.keys import LONGEST_CERTIFICATE, KeyFiles, read_certificate, read_key
from securedfl.storage import make_folder, write_bytes

MOST_CERTIFICATES = 1024
_PURPOSE = b"securedfl log 1\0"
_HASH = ec.ECDSA(hashes.SHA256())


class Keyring:
    """Signs with this peer's key, and checks what others signed with the certificates that are known.

    Parameters
    ----------
    files
        This peer's key, certificate and authority.
    folder
        Where certificates are kept.
    """

    def __init__(self, files: KeyFiles, folder: Path) -> None:
        make_folder(folder, private=True)
        self._folder = folder
        self._authority = read_certificate(files.authority)
        self._known: dict[bytes, ec.EllipticCurvePublicKey] = {}
        self.certificates: list[bytes] = []
        for path in sorted(folder.glob("*.der")):
            self._take(path.read_bytes())
        self.use(files)

    def use(self, files: KeyFiles) -> None:
        """Sign with the key of these files from now on."""
        der = read_certificate(files.certificate).public_bytes(serialization.Encoding.DER)
        self._key, self.own = read_key(files.key), hashlib.sha256(der).digest()
        self.learn([der])

    def learn(self, certificates: Iterable[bytes]) -> bool:
        """Take certificates that others know; return whether any was new."""
        new = False
        for der in certificates:
            name = hashlib.sha256(der).digest()
            if name in self._known:
                continue
            if len(self._known) >= MOST_CERTIFICATES or not self._take(der):
                # nobody hands on what it could not check itself; a liar's other thousand would take long
                break
            write_bytes(self._folder / f"{name.hex()}.der", der)
            new = True
        return new

    def owns(self, key: bytes) -> bool:
        """Say whether this peer signs with the key of the certificate with this fingerprint."""
        return key == self.own

    def sign(self, data: bytes) -> bytes:
        """Return this peer's signature."""
        return self._key.sign(_PURPOSE + data, _HASH)

    def verify(self, key: bytes, data: bytes, signature: bytes) -> bool:
        """Say whether the signature is that of the owner of the certificate with this fingerprint."""
        known = self._known.get(key)
        if known is None:
            return False
        try:
            known.verify(signature, _PURPOSE + data, _HASH)
        except InvalidSignature:
            return False
        return True

    def _take(self, der: bytes) -> bool:
        if len(der) > LONGEST_CERTIFICATE:
            return False
        try:
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(self._authority)
            key = certificate.public_key()
        except Exception:  # whatever another peer made of it
            return False
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        self._known[hashlib.sha256(der).digest()] = key
        self.certificates.append(der)
        return True
