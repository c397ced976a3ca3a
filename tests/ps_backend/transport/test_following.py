"""A server is replaced by an empty one elsewhere: what was lost is named, the rest goes on."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import BufferLost, PSError, ServerLost, SessionUnknown
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from ps_backend.program.views import View
from ps_backend.server.grpc_server import Server
from ps_backend.server.service import Service
from ps_backend.transport import Location
from tests.ps_backend.helpers import DOT, TOKEN, axpy, dot, put

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
        self.servers[server] = self._start()
        self.generations[server] += 1

    def stop(self):
        for server in filter(None, self.servers):
            server.stop(0)

    @staticmethod
    def _start():
        server = Server(Service(memory=1 << 28), token=TOKEN)
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
        cluster.replace_later(1, asks=12)
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
        cluster.servers[1] = cluster._start()
        cluster.generations[1] += 1
        assert client.read(put(client, SPACE, X), FLOATS).tobytes() == X.tobytes()


def test_a_directory_that_is_over_ends_the_waiting(cluster):
    with follow(cluster, retry=60.0) as client:
        x = put(client, SPACE, X)
        cluster.lose(1)
        cluster.over = True
        with pytest.raises(ServerLost, match="the servers were stopped"):
            client.read(x, FLOATS)


def test_a_freed_buffer_is_no_lost_server(cluster):
    with follow(cluster) as client, pytest.raises(BufferLost) as caught:
        client.read(client.new_id(), FLOATS)
    assert not isinstance(caught.value, ServerLost)
    assert isinstance(caught.value, PSError)
