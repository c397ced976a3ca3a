"""Certificates for the servers of one application, made by the process that starts them.

A server makes its own key, which never leaves its memory, and asks for a certificate with it; the
process that started it signs. So a client needs to know one certificate, that of who signed, and a
server that takes the place of a lost one is known to all at once. Nothing is written to a disk.

Imported where TLS is wanted only: it needs the package ``cryptography``.
"""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ps_backend.processes.server_process import Signer
from ps_backend.server.endpoints.tls_identity import InMemoryIdentity
from ps_backend.transport.tls import SERVER_NAME, Tls

_BEFORE, _AFTER = datetime.timedelta(days=2), datetime.timedelta(days=3650)
"""Clocks of machines differ; and a key ends with its process in any case."""


class Authority:
    """Signs for the servers of one application. Its key is in this object alone. Thread-safe."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _x509_name("a distvec application")
        can_sign = x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._key.public_key(), self._name)
        made = builder.add_extension(can_sign, critical=True).sign(self._key, SHA256())
        self.tls = Tls(made.public_bytes(Encoding.PEM), SERVER_NAME)
        """How clients, and other servers, reach the servers; no secret."""

    @property
    def signer(self) -> Signer:
        """For processes of this machine."""
        return Signer(self.tls.authority.decode(), self.sign)

    def new_identity(self) -> InMemoryIdentity:
        """Of a service of this process, with a new key."""
        key, request = new_key()
        return held_identity(key, self.sign(request), self.tls.authority.decode())

    def sign(self, request: str) -> str:
        """A server's certificate (PEM) for the key of a ``request`` (PEM), whatever names that has.

        Raises ``ValueError`` for what is no request, or is not signed with its own key.
        """
        asked = x509.load_pem_x509_csr(request.encode())
        key = asked.public_key()
        if not asked.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("the certificate request is invalid, or not signed with its own key")
        serves = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        made = (
            self._builder(key, _x509_name(SERVER_NAME))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
            .add_extension(serves, critical=False)
            .sign(self._key, SHA256())
        )
        return made.public_bytes(Encoding.PEM).decode()

    def _builder(
        self, key: ec.EllipticCurvePublicKey, subject: x509.Name
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder(self._name, subject, key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _AFTER)
        )


def new_key() -> tuple[bytes, str]:
    """A new key and a request for a certificate for it; both PEM, the key not encrypted."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder(_x509_name(SERVER_NAME)).sign(key, SHA256())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret, request.public_bytes(Encoding.PEM).decode()


def held_identity(key: bytes, certificate: str, authority: str) -> InMemoryIdentity:
    """Of a server with this key and a certificate for it, signed by ``authority``; all PEM."""
    return InMemoryIdentity(key, certificate.encode(), Tls(authority.encode(), SERVER_NAME))


def _x509_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
