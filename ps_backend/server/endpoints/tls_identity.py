"""How a server shows who it is: the certificate and key that its port and its own calls use."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import grpc

from ps_backend.transport.tls import Tls, load_pair, tls_of

_LOG = logging.getLogger(__name__)


class Identity(Protocol):
    """A certificate with its key."""

    def credentials(self) -> grpc.ServerCredentials:
        """For the port. Raises ``OSError`` or ``ValueError``."""

    def context(self) -> ssl.SSLContext:
        """For a connection to a socket now. Raises ``OSError`` or ``ValueError``."""

    def reach(self) -> Tls | None:
        """How other servers of a session are reached now. Raises ``OSError``."""


@dataclass(frozen=True, slots=True)
class InMemoryIdentity:
    """In the memory of this process alone; all PEM."""

    key: bytes = field(repr=False)
    chain: bytes
    others: Tls
    """How other servers are reached."""

    def credentials(self) -> grpc.ServerCredentials:
        """As ``Identity``."""
        return grpc.ssl_server_credentials([(self.key, self.chain)])

    def context(self) -> ssl.SSLContext:
        """As ``Identity``."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, self.chain, self.key)
        return context

    def reach(self) -> Tls:
        """As ``Identity``."""
        return self.others


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """In PEM files, which may be renewed while the server runs: each new connection gets the newest
    that is whole."""

    certificate: Path
    key: Path
    authority: Path | None = None
    """Of who signed the certificates of other servers; by default as this one's."""
    clients: Path | None = None
    """Of who signed those of clients; without it they need none."""

    def credentials(self) -> grpc.ServerCredentials:
        """As ``Identity``."""
        renewal = _Renewal(self)
        return grpc.dynamic_ssl_server_credentials(
            renewal.first,
            renewal.fetch,  # type: ignore[arg-type] # None: nothing is new
            require_client_authentication=self.clients is not None,
        )

    def context(self) -> ssl.SSLContext:
        """As ``Identity``; of what is there now."""
        return self._check()

    def reach(self) -> Tls | None:
        """As ``Identity``; where servers ask clients for certificates, this one shows its own."""
        own = (self.certificate, self.key) if self.clients is not None else (None, None)
        return tls_of(self.authority or self.certificate, *own)

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when a file is another one. Raises ``OSError``."""
        files = (self.certificate, self.key, self.clients)
        found = [file.stat() for file in files if file is not None]
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Raises ``OSError``, or ``ValueError`` if the certificate and the key do not fit."""
        self._check()
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        clients = None if self.clients is None else self.clients.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], clients)

    def _check(self) -> ssl.SSLContext:
        """gRPC would say nothing but that handshakes fail."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except ssl.SSLError as error:
            raise ValueError(
                f"{self.key} is not the unencrypted key of the certificate in "
                f"{self.certificate}, or one of these files is not PEM: {error}"
            ) from None
        if self.clients is not None:
            try:
                context.load_verify_locations(self.clients)
            except ssl.SSLError as error:
                raise ValueError(f"{self.clients} contains no certificate: {error}") from None
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _Renewal:
    """Looks with each handshake whether the files have changed."""

    def __init__(self, files: FileIdentity) -> None:
        self._files = files
        self._seen = files.stamp()
        self.first = files.read()

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """What is new, or None; what is wrong is logged, once, and the old goes on."""
        try:
            stamp = self._files.stamp()
            if stamp == self._seen:
                return None
            self._seen = stamp
            found = self._files.read()
            if self._files.stamp() != stamp:  # being written: the next handshake looks again
                self._seen = ()
                return None
        except (OSError, ValueError) as error:
            _LOG.error("the certificate was not renewed, the old one goes on: %s", error)
            return None
        _LOG.warning("the certificate in %s was renewed", self._files.certificate)
        return found
