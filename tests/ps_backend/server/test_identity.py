"""TLS with certificates from files: whom clients believe, whom servers let in, and renewals."""

import logging

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.client.status import server_status
from ps_backend.errors import ServerLost
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from ps_backend.program.views import View
from ps_backend.server.endpoints.tls_identity import FileIdentity
from tests.ps_backend.authorities import TestAuthority
from tests.ps_backend.helpers import DOT, TOKEN, put, run_main, served
from tests.ps_backend.stranger import certificate_shown

SPACE = DenseSpace(3000)
X = np.arange(float(SPACE.length))


@pytest.fixture
def authority(tmp_path):
    return TestAuthority(tmp_path, "authority")


@pytest.fixture
def other(tmp_path):
    return TestAuthority(tmp_path, "other")


def works(addresses, **tls) -> bool:
    """Write, read, and let the servers fetch from each other."""
    with Client.connect(addresses, token=TOKEN, timeout=5.0, **tls) as client:
        x = put(client, SPACE, X)
        assert client.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()
        back = View(SPACE, (), SPACE.length - 1, -1)
        call = SweepCall(DOT, SPACE, (x, x), (), (), views=(back, back))
        ((found,),) = client.run(Program((call,)))
        assert client.counters.peer_messages == (2 if len(addresses) == 2 else 0)
        return bool(found.sum() == np.square(X).sum())


def refused(addresses, **tls) -> None:
    with pytest.raises(ServerLost):
        Client.connect(addresses, token=TOKEN, timeout=0.2, **tls)


def shown(server) -> str:
    """The certificate that whoever connects now is shown."""
    return certificate_shown(server.address, TOKEN)


def test_servers_are_known_by_who_signed_their_certificates(authority, other):
    with served(2, identity=FileIdentity(*authority.issue("s"), authority.file)) as servers:
        addresses = [server.address for server in servers]
        assert works(addresses, tls=authority.file)
        refused(addresses, tls=other.file)
        refused(addresses)
        assert works(addresses, tls=authority.file)
    with served(1, identity=FileIdentity(*other.issue("t"))) as (server,):
        refused([server.address], tls=authority.file)
    with served(1) as (server,):
        refused([server.address], tls=authority.file)


def test_clients_may_have_to_show_a_certificate_too(authority, other):
    files = FileIdentity(*authority.issue("s"), authority.file, clients=authority.file)
    with served(2, identity=files) as servers:
        addresses, (cert, key) = [server.address for server in servers], authority.issue("me")
        assert works(addresses, tls=authority.file, tls_cert=cert, tls_key=key)
        refused(addresses, tls=authority.file)
        strange = other.issue("stranger")
        refused(addresses, tls=authority.file, tls_cert=strange[0], tls_key=strange[1])
        found = server_status(
            addresses, token=TOKEN, tls=authority.file, tls_cert=cert, tls_key=key
        )
        assert [one.sessions for one in found] == [0, 0]


def test_a_renewed_certificate_is_used_at_once_and_clients_notice_nothing(authority, caplog):
    files = authority.issue("s")
    with (
        served(1, identity=FileIdentity(*files)) as (server,),
        Client.connect([server.address], token=TOKEN, tls=authority.file) as before,
        caplog.at_level(logging.WARNING, "ps_backend.server.endpoints.tls_identity"),
    ):
        x = put(before, SPACE, X)
        old = shown(server)
        assert old == files[0].read_text()
        files[0].write_text("half of a fi")  # as while it is copied
        assert shown(server) == old
        assert shown(server) == old
        assert len(caplog.records) == 1, "it is said once"
        assert "was not renewed, the old one goes on" in caplog.text
        files[1].unlink()
        assert shown(server) == old
        authority.issue("s")
        assert shown(server) == files[0].read_text() != old
        assert "was renewed" in caplog.text
        assert before.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()
        assert works([server.address], tls=authority.file)


def test_files_that_do_not_fit_are_refused_at_the_start(authority, tmp_path, capsys):
    certificate, key = authority.issue("a")
    _, another = authority.issue("b")
    with pytest.raises(ValueError, match=r"b-key.pem is not the unencrypted key of"):
        FileIdentity(certificate, another).credentials()
    with pytest.raises(ValueError, match="contains no certificate"):
        FileIdentity(certificate, key, clients=key).credentials()
    with pytest.raises(OSError, match="nowhere"):
        FileIdentity(tmp_path / "nowhere", key).credentials()
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    for options, text in (
        (["--tls-key", str(key)], "both --tls-cert and --tls-key"),
        (["--tls-client-ca", str(authority.file)], "need --tls-cert"),
        (["--tls-cert", str(certificate), "--tls-key", str(another)], "is not the"),
    ):
        assert run_main("serve", "--port", "0", "--token-file", str(token), *options) == 1
        assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"tls_cert": "c"}, "both tls_cert=... and tls_key="),
        ({"tls": "a", "tls_key": "k"}, "both tls_cert=... and tls_key="),
        ({"tls_cert": "c", "tls_key": "k"}, "tls_cert=... needs tls="),
    ],
)
def test_a_client_with_half_of_what_it_needs_is_told(given, text):
    with pytest.raises(ValueError, match=text):
        Client.connect(["127.0.0.1:1"], token=TOKEN, **given)
