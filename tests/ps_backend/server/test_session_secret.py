"""Who knows the name of a session, or a client's, and no secret, can do nothing with it."""

from __future__ import annotations

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import AuthenticationError, SessionUnknown
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport import GrpcTransport
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import PROTOCOL, decode_error, new_key, session_name
from tests.ps_backend.helpers import TOKEN, dot, put, served
from tests.ps_backend.requests import ask, barrier

SPACE = DenseSpace(3000)
X = np.random.default_rng(0).standard_normal(SPACE.length)


@pytest.fixture
def server():
    with served() as (running,):
        yield running


@pytest.fixture
def owner(server):
    with Client.connect([server.address], token=TOKEN) as client:
        yield client


@pytest.fixture
def said(server):
    """Sends a request by hand, with the server's token; raises what the server says."""
    transport = GrpcTransport(server.address, token=TOKEN)

    def send(request):
        reply = transport.call(request, into=None).reply
        if reply.HasField("error"):
            raise decode_error(reply.error, server.address)

    yield send
    transport.close()


def opening(secret: str, *, create: bool) -> pb.Open:
    return pb.Open(protocol=PROTOCOL, servers=1, create=create, secret=secret)


def bodies(buffer: int) -> list[pb.Request]:
    """A request of each sort: reads, writes, frees, ends."""
    array = encode_array(buffer, array_type(SPACE, "float64"))
    return [
        pb.Request(read=pb.Read(rows=pb.Rows(array=array))),
        pb.Request(nothing=pb.Nothing(), frees=[buffer], sequence=10**6),
        pb.Request(end=pb.End(barrier=barrier("round", "r")), sequence=10**6, settled=10**6),
        pb.Request(join=pb.Join(barrier=barrier("loop", "l"), ranks=1)),
        pb.Request(wait=ask("t", 1, value=b"")),
        pb.Request(renew=pb.Nothing()),
        pb.Request(close=pb.Close(session=False)),
        pb.Request(close=pb.Close(session=True)),
    ]


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("secret", ["", "a guess"])
def test_the_name_of_a_session_is_not_enough_to_join(owner, said, secret, create):
    request = pb.Request(
        session=owner.session, client="stranger", key=b"k", open=opening(secret, create=create)
    )
    with pytest.raises(AuthenticationError, match="secret of the session is wrong"):
        said(request)


@pytest.mark.parametrize("kind", range(8))
def test_who_did_not_join_reads_frees_and_closes_nothing(owner, said, kind):
    x = put(owner, SPACE, X)
    request = bodies(x)[kind]
    request.session, request.client, request.key = owner.session, "stranger", new_key()
    with pytest.raises(SessionUnknown, match="does not know the client"):
        said(request)
    assert owner.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()


@pytest.mark.parametrize("kind", range(8))
@pytest.mark.parametrize("key", [b"", bytes(16)])
def test_the_id_of_a_client_is_not_enough_to_silence_it(owner, said, kind, key):
    """Nor to end it, or to settle what it has not heard of."""
    x = put(owner, SPACE, X)
    request = bodies(x)[kind]
    request.session, request.client, request.key = owner.session, owner.client_id, key
    with pytest.raises(AuthenticationError, match="key that it joined with"):
        said(request)
    y = owner.new_id()
    owner.scatter_add(x, y, array_type(SPACE, float), [1], [1.0], donate=False)
    assert sum(owner.run(dot(SPACE, x, x))[0][0]) == pytest.approx(X @ X)


def test_nobody_joins_under_the_id_of_another_client(owner, said):
    """Not even who knows the secret."""
    request = pb.Request(
        session=owner.session,
        client=owner.client_id,
        key=new_key(),
        open=opening(owner.secret, create=False),
    )
    with pytest.raises(AuthenticationError, match="key that it joined with"):
        said(request)
    put(owner, SPACE, X)


def test_a_new_server_gives_the_name_to_none_but_who_knows_the_secret(said):
    """As when a lost server was replaced, and the session is to be opened there again."""
    name = session_name("a secret of others")
    request = pb.Request(session=name, client="c", key=b"k", open=opening("mine", create=True))
    with pytest.raises(AuthenticationError, match="secret of the session is wrong"):
        said(request)


def test_the_secret_is_shown_nowhere(owner):
    assert owner.secret not in repr(owner)
    assert owner.secret not in repr(owner.status())
    assert owner.session == session_name(owner.secret)
