"""How a client connects to the gRPC of a server: the proof that comes first, and TLS."""

from __future__ import annotations

import hashlib
import hmac
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

SERVER_NAME = "distvec-server"
"""What servers that were started for one application are called in their certificates, wherever
they run."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom a client takes for its servers, and how it shows who it is itself; all in PEM."""

    authority: bytes
    """The certificate of who signed those of the servers."""
    name: str = ""
    """That the servers' certificates must be made out for; by default the host of the address."""
    chain: bytes = b""
    """The client's own certificate, for servers that ask for one."""
    key: bytes = field(default=b"", repr=False)


def tls_of(
    tls: str | Path | Tls | None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
) -> Tls | None:
    """What users say: the files (PEM) of the authority and of the client's own certificate.

    None for none. Raises ``ValueError`` if one is missing that belongs to another, ``OSError``.
    """
    if isinstance(tls, Tls):
        return tls
    if (certificate is None) != (key is None):
        raise ValueError("a client's own certificate needs both tls_cert=... and tls_key=...")
    if tls is None:
        if certificate is not None:
            raise ValueError(
                "tls_cert=... needs tls=..., the file with the certificate of the authority that "
                "signed the servers'"
            )
        return None
    own = (b"" if file is None else Path(file).read_bytes() for file in (certificate, key))
    return Tls(Path(tls).read_bytes(), "", *own)


def proof_of_token(token: str) -> str:
    """The proof that a client has the token. The token cannot be computed from it."""
    return hmac.new(token.encode(), b"distvec gRPC", hashlib.sha256).hexdigest()


def open_channel(
    address: str, options: Sequence[tuple[str, Any]], tls: Tls | None, token: str | None
) -> grpc.Channel:
    """A channel to ``address``, which connects when it is used; plain if ``tls`` is None.

    The server reads nothing before the proof, which gRPC sends to it as it does to a proxy.
    """
    proof = () if token is None else (f"Proxy-Authorization: {proof_of_token(token)}",)
    options = (
        *options,
        ("grpc.enable_http_proxy", 0),  # one of the environment knows no servers of ours
        ("grpc.http_connect_server", "distvec"),
        *(("grpc.http_connect_headers", header) for header in proof),
    )
    if tls is None:
        return grpc.insecure_channel(address, options)
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key or None, tls.chain or None)
    named = (("grpc.ssl_target_name_override", tls.name),) if tls.name else ()
    return grpc.secure_channel(address, credentials, (*options, *named))


def client_context(tls: Tls) -> ssl.SSLContext:
    """The same for sockets, which take for a server whom gRPC does. Raises ``OSError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=tls.authority.decode())
    if tls.key:
        load_pair(context, tls.chain, tls.key)
    return context


def load_pair(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Take a certificate with its key from memory. Raises ``OSError`` where that cannot be done.

    OpenSSL reads files only: this one lies in memory, has no name, and ends here.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError("this system does not support files in memory")
    file = os.memfd_create("distvec-tls", os.MFD_CLOEXEC)
    try:
        os.write(file, key + b"\n" + chain)
        context.load_cert_chain(f"/proc/self/fd/{file}", password=lambda: b"")
    finally:
        os.close(file)
