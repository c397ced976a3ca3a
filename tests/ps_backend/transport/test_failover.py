"""A server is replaced by an empty one elsewhere: what was lost is named, the rest goes on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import BufferLost, PSError, ServerLost, SessionUnknown
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from ps_backend.program.views import View
from ps_backend.server.commands.command import Payload
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.service import Incarnation, Service
from ps_backend.transport import Location
from ps_backend.wire import ps_pb2 as pb
from tests.ps_backend.helpers import DOT, TOKEN, axpy, dot, put
from tests.ps_backend.requests import Sender

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
X = np.random.default_rng(0).standard_normal(SPACE.length)


class Cluster:
    """gRPC servers in this process, and the directory of them."""

    def __init__(self, servers):
        self.servers = [self._start() for _ in range(servers)]
        self.generations = [0] * servers
        self.asked = 0
        self.over = False
        self.back_at = None

    def locate(self, server):
        self.asked += 1
        if self.asked == self.back_at:
            self.replace(server)
        if self.over:
            raise ServerLost("the servers were stopped")
        here = self.servers[server]
        return None if here is None else Location(here.address, self.generations[server])

    def lose(self, server):
        self.servers[server].stop(0)
        self.servers[server] = None

    def replace_later(self, server, asks):
        self.lose(server)
        self.back_at = self.asked + asks

    def replace(self, server):
        if self.servers[server] is not None:
            self.lose(server)
        self.generations[server] += 1
        self.servers[server] = self._start(self.generations[server] + 1)

    def stop(self):
        for server in filter(None, self.servers):
            server.stop(0)

    @staticmethod
    def _start(life=1):
        server = Server(Service(memory=1 << 28, life=Incarnation(life)), token=TOKEN)
        server.start()
        return server


@pytest.fixture
def cluster():
    cluster = Cluster(2)
    yield cluster
    cluster.stop()


def follow(cluster, **options):
    return Client.follow(cluster, 2, token=TOKEN, **options)


def backwards(x):
    """``x @ x[::-1]``."""
    views = View(SPACE), View(SPACE, (), SPACE.length - 1, -1)
    return Program((SweepCall(DOT, SPACE, (x, x), (), (), views=views),))


def test_nobody_asks_the_directory_while_all_is_well(cluster):
    with follow(cluster) as client:
        asked = cluster.asked
        x = put(client, SPACE, X)
        assert client.read(x, FLOATS).tobytes() == X.tobytes()
        assert cluster.asked == asked == 2


def test_what_was_lost_is_named_and_the_session_goes_on(cluster):
    with follow(cluster) as client:
        x, y = put(client, SPACE, X), put(client, SPACE, X)
        cluster.replace(1)
        lost = rf"server 1 was lost.*{cluster.servers[1].address} began empty.*"
        for named, use in (
            (f"{x} .length 3000.", lambda: client.run(dot(SPACE, x, x))),
            (f"{x} .length 3000.", lambda: client.read(x, FLOATS)),
            (f"{y} .length 3000.", lambda: client.gather(y, FLOATS, [2999])),
            (f"{x} .length 3000.", lambda: client.run(backwards(x))),
            (f"{x} .*{y} ", lambda: client.run(axpy(SPACE, 2.0, x, y, client.new_id()))),
            (
                f"{y} ",
                lambda: client.scatter_add(y, client.new_id(), FLOATS, [2999], [1.0], donate=True),
            ),
        ):
            with pytest.raises(ServerLost, match=lost + named):
                use()
        with pytest.raises(ServerLost, match=lost):  # of y the first server has nothing any more
            client.read(y, FLOATS)
        z = put(client, SPACE, X)
        w = client.new_id()
        client.run(axpy(SPACE, 2.0, z, z, w))
        ((partials,),) = client.run(backwards(z))  # the servers find each other
        np.testing.assert_allclose(partials.sum(), X @ X[::-1])
        np.testing.assert_array_equal(client.read(w, FLOATS), 2.0 * X + X)
        assert client.addresses == tuple(server.address for server in cluster.servers)
        assert not client.lost


def test_what_needs_nothing_lost_succeeds_without_a_word(cluster):
    with follow(cluster) as client:
        cluster.replace(0)
        cluster.replace(1)
        x = put(client, SPACE, X)
        client.stage("r", 0, 0, SPACE, [5, 2999], [1.0, 2.0])
        client.commit("r", [(0, 0)], FLOATS, total := client.new_id())
        assert client.read(total, FLOATS).sum() == 3.0
        assert client.read(x, FLOATS).tobytes() == X.tobytes()
        client.free([x, total])
        assert [server.buffers for server in client.status()] == [0, 0]


def test_a_lost_contribution_is_never_left_out(cluster):
    with follow(cluster) as client:
        client.stage("r", 0, 0, SPACE, [5, 2999], [1.0, 2.0])
        cluster.replace(1)
        with pytest.raises(ServerLost, match="server 1 was lost"):
            client.commit("r", [(0, 0)], FLOATS, client.new_id())


def test_several_threads_meet_the_new_server_at_once(cluster):
    with follow(cluster) as client, ThreadPoolExecutor(8) as pool:
        cluster.replace(1)
        numbers = list(pool.map(lambda _: put(client, SPACE, X), range(16)))
        for number in numbers:
            assert client.read(number, FLOATS).tobytes() == X.tobytes()


def test_buffer_ids_stay_distinct_after_the_counting_server_was_replaced(cluster):
    with follow(cluster) as owner:
        x = put(owner, SPACE, X)
        cluster.replace(0)
        with follow(cluster, session=owner.secret) as worker:  # comes first to the new server
            y = put(worker, SPACE, 2 * X)
            z = put(owner, SPACE, 3 * X)
            assert len({x, y, z}) == 3
            np.testing.assert_array_equal(owner.read(y, FLOATS), 2 * X)
            np.testing.assert_array_equal(worker.read(z, FLOATS), 3 * X)
            with pytest.raises(ServerLost, match=f"buffers {x} "):
                worker.read(x, FLOATS)


def test_buffer_ids_stay_distinct_over_several_losses(cluster):
    with follow(cluster) as owner:
        prefixes = {owner.new_id() >> 36}
        for _ in range(3):
            cluster.replace(0)
            with follow(cluster, session=owner.secret) as worker:
                cluster.replace(0)  # where it now joins again, by its next message
                put(worker, SPACE, X)
                with follow(cluster, session=owner.secret) as other:
                    prefixes |= {worker.new_id() >> 36, other.new_id() >> 36}
        assert len(prefixes) == 7


def test_a_closed_session_is_not_opened_again_by_who_joins(cluster):
    owner = follow(cluster)
    owner.close()
    with pytest.raises(SessionUnknown):
        follow(cluster, session=owner.secret)


def test_a_retry_after_server_lost_waits_for_the_replacement(cluster):
    with follow(cluster, retry=0.2) as client:
        x = put(client, SPACE, X)
        cluster.replace_later(1, asks=9)
        with pytest.raises(ServerLost, match="try again: another, empty one takes its place"):
            client.read(x, FLOATS)
        assert client.read(put(client, SPACE, X), FLOATS).tobytes() == X.tobytes()
        assert cluster.generations == [0, 1]


def test_while_no_other_serves_the_server_is_lost(cluster, monkeypatch):
    monkeypatch.setattr("ps_backend.client.server_link.REPLACED_SECONDS", 0.5)
    with follow(cluster, retry=0.3) as client:
        x = put(client, SPACE, X)
        cluster.lose(1)
        for _ in range(2):
            with pytest.raises(ServerLost, match="does not answer"):
                client.read(x, FLOATS)
        with pytest.raises(ServerLost, match="server 1 of 2 was lost and is not back yet"):
            follow(cluster, timeout=0.1)
        cluster.servers[1] = cluster._start(2)
        cluster.generations[1] += 1
        assert client.read(put(client, SPACE, X), FLOATS).tobytes() == X.tobytes()


def test_a_directory_that_is_over_ends_the_waiting(cluster):
    with follow(cluster, retry=60.0) as client:
        x = put(client, SPACE, X)
        cluster.lose(1)
        cluster.over = True
        with pytest.raises(ServerLost, match="the servers were stopped"):
            client.read(x, FLOATS)


@pytest.mark.parametrize("replaced", [(), (1,), (0, 1, 1)])
def test_a_freed_buffer_is_no_lost_server(cluster, replaced):
    with follow(cluster) as client:
        x = put(client, SPACE, X)
        for server in replaced:
            cluster.replace(server)
            client.status()
        y = put(client, SPACE, X)
        client.free([y])
        with pytest.raises(
            BufferLost, match=f"buffer {y} is not on this server: it was freed"
        ) as caught:
            client.read(y, FLOATS)
        assert not isinstance(caught.value, ServerLost)
        assert isinstance(caught.value, PSError)
        if replaced:
            with pytest.raises(ServerLost, match=f"Gone is a part of buffers {x} "):
                client.read(x, FLOATS)


def test_what_a_session_never_had_on_a_server_that_was_lost_before_it_began_is_not_lost(cluster):
    cluster.replace(1)
    with follow(cluster) as client:
        with pytest.raises(BufferLost, match="it was freed, or never created"):
            client.read(client.new_id(), FLOATS)
        with pytest.raises(PSError, match="round") as caught:
            client.commit("r", [(0, 0)], FLOATS, client.new_id())
        assert not isinstance(caught.value, ServerLost)


@pytest.mark.parametrize("how", ["it hears of the newer one", "its time is over"])
def test_a_zombie_is_left_and_does_nothing_more(cluster, how):
    with follow(cluster) as client:
        x, zombie = put(client, SPACE, X), cluster.servers[1]
        try:
            cluster.servers[1] = cluster._start(2)  # the first one goes on
            cluster.generations[1] = 1
            assert client.read(x, FLOATS).tobytes() == X.tobytes(), "nobody knows of the new one"
            life = zombie.service.life
            if how == "its time is over":
                life.until = time.monotonic()
            else:
                request = client._requests.request(status={})
                request.life = 2
                zombie.service.handle(request, Payload(0))
                assert zombie.service.sessions.get(client.session).fenced
            used = zombie.service.memory.used
            with pytest.raises(ServerLost, match=f"server 1 was lost.*buffers {x} "):
                client.read(x, FLOATS)
            assert client.addresses[1] == cluster.servers[1].address
            assert client.read(put(client, SPACE, X), FLOATS).tobytes() == X.tobytes()
            assert zombie.service.memory.used == used
        finally:
            zombie.stop(0)


def test_a_server_refuses_what_is_meant_for_another_life(cluster):
    def said(life):
        request = pb.Request(session="s", client="c", life=life, status=pb.StatusQuery())
        return cluster.servers[0].service.handle(request, Payload(0)).reply.error

    assert [said(life).kind for life in (0, 1)] == ["", ""]
    cluster.servers[0].service.life.number = 2
    assert said(1).kind == "EpochFenced"
    assert "for incarnation 1 of the server, but this is incarnation 2" in said(1).message
    assert said(3).kind == "EpochFenced"
    assert said(2).kind == "", "who told it of another life was a stranger"


def test_what_was_begun_in_time_and_ended_too_late_is_not_answered(cluster):
    """As where the process was stopped in between."""
    service = cluster.servers[0].service
    run, life = service.sessions.status, service.life

    def status(request):
        life.until = time.monotonic() - 1.0
        return run(request)

    service.sessions.status = status
    reply = service.handle(pb.Request(session="s", client="c", status=pb.StatusQuery()), Payload(0))
    assert reply.reply.error.kind == "EpochFenced"
    assert not reply.reply.HasField("status")


def test_who_says_that_a_newer_life_has_begun_ends_the_work_of_nobody_else():
    service = Service(memory=1 << 20, life=Incarnation(1))
    one, other = Sender(service, "one"), Sender(service, "other")
    one.write(1, X)
    request = pb.Request(
        session=other.session, client=other.client, life=2, status=pb.StatusQuery()
    )
    assert service.handle(request, Payload(0)).reply.error.kind == "EpochFenced"
    assert other.error(nothing=pb.Nothing()).kind == "EpochFenced"
    assert one.read(1, len(X)).tobytes() == X.tobytes()


@pytest.mark.parametrize("size", [SPACE.length, 200_000], ids=["small", "bulk"])
@pytest.mark.parametrize("way", ["call", "start"])
def test_who_speaks_to_a_server_that_another_thread_has_just_left_goes_on_with_it(
    cluster, way, size
):
    """Its connection is closed between the two lines that look it up and send."""
    space = DenseSpace(size)
    with follow(cluster) as client:
        following = client._fan_out.links[0 if way == "start" else 1].transport
        server = 0 if way == "start" else 1
        inner = following._here[0]
        send = getattr(inner, way)

        def too_late(*message):
            cluster.replace(server)
            following._follow(inner)
            return send(*message)

        setattr(inner, way, too_late)
        x = put(client, space, np.ones(size))
        np.testing.assert_array_equal(client.read(x, array_type(space, float)), np.ones(size))
        assert following.generation == 1
