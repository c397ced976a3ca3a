"""Authorities for tests: they sign certificates for servers on the loopback, and for clients."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_LOOPBACK = x509.SubjectAlternativeName(
    [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
)


class TestAuthority:
    """Its certificate is in ``file``."""

    __test__ = False

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._signed(self._key, self._name, ca=True))

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a new certificate and of its key; those of that name are replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        files = self._folder / f"{name}-cert.pem", self._folder / f"{name}-key.pem"
        files[0].write_bytes(self._signed(key, subject, ca=False))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _signed(self, key: ec.EllipticCurvePrivateKey, subject: x509.Name, *, ca: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            self._name,
            subject,
            key.public_key(),
            x509.random_serial_number(),
            now - _DAY,
            now + _DAY,
        ).add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if not ca:
            builder = builder.add_extension(_LOOPBACK, critical=False)
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
