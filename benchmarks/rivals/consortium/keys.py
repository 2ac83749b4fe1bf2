"""Keys and certificates for systems that want to be given them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

PEM, PLAIN = Encoding.PEM, NoEncryption()


class Authority:
    """Signs certificates, and writes them to a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP384R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "consortium")])
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(self._sign(self._name, self._key, [], authority=True).public_bytes(PEM))

    def issue(self, name: str, addresses: list[str]) -> tuple[Path, Path]:
        """Return the files of a new certificate, good for both ends of TLS, and of its key."""
        key = ec.generate_private_key(ec.SECP384R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._sign(subject, key, [name, "localhost", *addresses], authority=False)
        certificate, private = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(made.public_bytes(PEM))
        private.write_bytes(key.private_bytes(PEM, PrivateFormat.PKCS8, PLAIN))
        return certificate, private

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, names: list[str], *, authority: bool
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            known = [x509.IPAddress(ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(known), critical=False)
        return builder.sign(self._key, hashes.SHA384())


def ssh_key(path: Path) -> Path:
    """Write a private key as SSH has them, and the public one beside it, whose path is returned."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(PEM, PrivateFormat.OpenSSH, PLAIN))
    public = path.with_suffix(".pub")
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return public
