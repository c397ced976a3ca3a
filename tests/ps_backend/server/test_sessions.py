"""Who shares what with whom, and how connections begin and end."""

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import BufferLost, PSError, ServerLost
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from tests.ps_backend.helpers import QUICK, Faulty, dot, in_process, put

SPACE = DenseSpace(5000)
FLOATS = array_type(SPACE, float)


def values(space=SPACE, seed=0):
    return np.random.default_rng(seed).standard_normal(space.length)


def test_two_sessions_do_not_see_each_other():
    transports = in_process(2)
    with Client(transports) as one, Client(transports) as two:
        x = put(one, SPACE, values())
        with pytest.raises(BufferLost):
            two.read(x, FLOATS)
        put(two, SPACE, values(seed=1))
        assert one.status()[0].sessions == 2
        np.testing.assert_array_equal(one.read(x, FLOATS), values())


def test_two_clients_of_a_session_do():
    transports = in_process(2)
    with Client(transports) as owner:
        x = put(owner, SPACE, values())
        with Client(transports, session=owner.secret) as worker:
            ids = {owner.new_id(), worker.new_id(), owner.new_id(), worker.new_id(), x}
            assert len(ids) == 5
            y = put(worker, SPACE, worker.read(x, FLOATS))
        np.testing.assert_array_equal(owner.read(y, FLOATS), values())
    assert transports[0].service.status().sessions == 0
    assert transports[0].service.memory.used == 0


def test_joining_needs_a_session_and_the_same_servers():
    transports = in_process(2)
    with pytest.raises(PSError, match="does not know the session"):
        Client(transports, session="nobody")
    with Client(transports) as owner, pytest.raises(ValueError, match=r"server 1 of 2.*not 0 of 2"):
        Client(transports[::-1], session=owner.secret)


def test_a_session_that_cannot_open_everywhere_opens_nowhere():
    transports = [Faulty(transport) for transport in in_process(2)]
    transports[1].plan = lambda _: "lose request"
    with pytest.raises(ServerLost):
        Client(transports, patience=QUICK)
    assert transports[0].inner.service.status().sessions == 0


def test_closing_ends_the_session_whatever_is_unawaited():
    (transport,) = in_process(1)
    client = Client([transport])
    client.run(dot(SPACE, 1, 2), wait=False)
    client.close()
    assert transport.service.status().sessions == 0


def test_a_closed_client_says_so():
    client = connect_in_process(1)
    client.close()
    client.close()
    with pytest.raises(PSError, match="closed"):
        client.status()
    assert "closed" in repr(client)


def test_a_client_needs_servers():
    with pytest.raises(ValueError, match="at least one"):
        Client.connect([], token=None)
    with pytest.raises(ValueError, match="'host:port', got 'host'"):
        Client.connect(["host"], token=None)
    with pytest.raises(TypeError, match="list"):
        Client.connect("host:1", token=None)
    with pytest.raises(ValueError, match="1 or more"):
        connect_in_process(0)


def test_counters_print_as_a_table():
    with connect_in_process(1) as client:
        put(client, SPACE, values())
        lines = str(client.counters).splitlines()
        assert len({len(line) for line in lines}) == 1
        assert lines[0].split() == ["messages", "1"]
        assert "vectors_written=1" in repr(client.counters)
