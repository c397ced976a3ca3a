"""Servers whose certificates their parent signs: no key is anywhere but in their memory."""

import os
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from ps_backend.client import Client
from ps_backend.errors import PSError, ServerLost
from ps_backend.processes.certificates import Authority, held_identity, new_key
from ps_backend.processes.server_process import ServerProcess, Signer
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from tests.ps_backend.helpers import TOKEN, put, served
from tests.waiting import PATIENCE

SPACE = DenseSpace(3000)
X = np.arange(float(SPACE.length))


@contextmanager
def process(authority, certify=None):
    one = ServerProcess(
        "server 0",
        token=TOKEN,
        threads=1,
        memory=1 << 26,
        signer=Signer(authority.tls.authority.decode(), certify or authority.sign),
    )
    try:
        yield one, one.wait_until_up(time.monotonic() + PATIENCE)
    finally:
        one.stop(time.monotonic() + PATIENCE)


def test_a_process_gets_its_certificate_from_its_parent_and_keeps_its_key(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    authority, requests = Authority(), []

    def certify(request):
        requests.append(request)
        return authority.sign(request)

    with process(authority, certify) as (one, address):
        with Client.connect([address], token=TOKEN, tls=authority.tls) as client:
            x = put(client, SPACE, X)
            assert client.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()
        with pytest.raises(ServerLost):
            Client.connect([address], token=TOKEN, timeout=0.2)
        with pytest.raises(ServerLost):
            Client.connect([address], token=TOKEN, timeout=0.2, tls=Authority().tls)
        assert len(requests) == 1
        here = Path(f"/proc/{one.pid}")
        said = (here / "environ").read_bytes() + (here / "cmdline").read_bytes()
        assert b"PRIVATE KEY" not in said + one.log_tail().encode() + requests[0].encode()
        assert TOKEN.encode() not in said
        assert not list(tmp_path.rglob("*"))
        assert not any(b"PRIVATE" in kept(fd) for fd in (here / "fd").iterdir())


def kept(handle: Path) -> bytes:
    """What a file holds that a process has open; nothing of what is no file."""
    target = os.readlink(handle)
    return handle.read_bytes() if target.startswith("/tmp") and handle.is_file() else b""


def test_each_process_has_another_key():
    authority = Authority()
    keys = set()
    for _ in range(2):
        secret, request = new_key()
        made = x509.load_pem_x509_certificate(authority.sign(request).encode())
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["distvec-server"]
        assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        keys |= {secret, made.public_key().public_numbers()}
    assert len(keys) == 4


def test_what_is_no_request_gets_no_certificate():
    authority = Authority()
    _, request = new_key()
    name = x509.Name([])
    weak = x509.CertificateSigningRequestBuilder(name).sign(
        rsa.generate_private_key(65537, 1024), SHA256()
    )
    lines = request.splitlines()
    lines[-2] = lines[-2][::-1]
    for wrong in ("", "x", "\n".join(lines), weak.public_bytes(Encoding.PEM).decode()):
        with pytest.raises(ValueError, match=r"\w"):
            authority.sign(wrong)


def test_a_certificate_that_was_signed_cannot_sign():
    """Who gets one as a server is no authority."""
    authority, (secret, request) = Authority(), new_key()
    chain = authority.sign(request)
    key = load_pem_private_key(secret, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    false = Authority()
    false._key, false._name = key, x509.load_pem_x509_certificate(chain.encode()).subject
    mine, asked = new_key()
    pretender = held_identity(mine, false.sign(asked) + chain, authority.tls.authority.decode())
    with served(1, identity=pretender) as (server,), pytest.raises(ServerLost):
        Client.connect([server.address], token=TOKEN, timeout=0.2, tls=authority.tls)


def test_a_parent_without_an_answer_is_said():
    def certify(_):
        raise PSError("no")

    with pytest.raises(PSError, match="no"), process(Authority(), certify):
        pass


def test_a_machine_without_the_package_says_what_to_type(tmp_path, monkeypatch):
    (tmp_path / "cryptography.py").write_text("raise ModuleNotFoundError('No module cryptography')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text = r"No module cryptography, on the machine of this server: .* pip install 'distvec\[tls\]'"
    with pytest.raises(PSError, match=text), process(Authority()):
        pass
