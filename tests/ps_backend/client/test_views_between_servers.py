"""What views cost between servers: messages, memory, and what is refused or lost."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import BufferLost, InvalidProgram
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Step, Sweep, SweepCall
from ps_backend.program.types import array_type
from ps_backend.program.views import View
from tests.ps_backend.helpers import in_process, put
from tests.ps_backend.views import BOOL, DIFFERENCE, F8, difference, values, view


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_neighbours_exchange_one_element_at_a_border(servers):
    space, over = DenseSpace(10_240), DenseSpace(10_239)
    with connect_in_process(servers) as client:
        a = put(client, space, values(10_240))
        client.counters.reset()
        difference(client, a, a, over, view(space, slice(1, None, 1)), view(space, slice(0, -1, 1)))
        assert client.counters.peer_messages == servers - 1
        assert client.counters.peer_bytes == 8 * (servers - 1)
        client.counters.reset()
        difference(client, a, a, space, None, None)
        assert client.counters.peer_messages == 0


def test_one_message_to_each_neighbour_for_all_views():
    """Second differences of two vectors, in two sweeps."""
    space, over = DenseSpace(10_240), DenseSpace(10_238)
    views = View(space, (), 2), View(space, (), 1)
    with connect_in_process(3) as client:
        calls = tuple(
            SweepCall(DIFFERENCE, over, (one, one), (), (client.new_id(),), views=views)
            for one in (put(client, space, values(10_240)), put(client, space, values(10_240, 1)))
        )
        client.counters.reset()
        client.run(Program(calls))
        assert (client.counters.peer_messages, client.counters.peer_bytes) == (2, 2 * 2 * 24)


def test_far_slices_come_piece_by_piece_within_the_budget():
    """Half of a vector from the other server, by far more than is fetched at once."""
    length = 3_000_000
    x = values(length)
    space, over = DenseSpace(length), DenseSpace(length // 2)
    with connect_in_process(2, memory=40 << 20) as client:
        a = put(client, space, x)
        expected = x[length // 2 :] - x[: length // 2]
        cuts = view(space, slice(length // 2, None, 1)), view(space, slice(0, length // 2, 1))
        found, _ = difference(client, a, a, over, *cuts)
        assert found.tobytes() == expected.tobytes()
        assert client.counters.peer_messages >= 4
        peak = max(server.peak for server in client.status())
        assert peak < 8 * length // 2 + 8 * length // 4 + (16 << 20)


def test_what_is_refused():
    with connect_in_process(2) as client:
        space, small = DenseSpace(5000), DenseSpace(100)
        a, b = put(client, space, values(5000)), put(client, small, values(100))
        i = put(client, small, np.arange(100))
        out = client.new_id()

        def refused(match, first, *, over=small, inputs=(a, b), kind=InvalidProgram, **more):
            call = SweepCall(DIFFERENCE, over, inputs, (), (out,), views=(first, None), **more)
            with pytest.raises(kind, match=match):
                client.run(Program((call,)))

        for one in (
            View(space, (), 4901),
            View(space, (), -1),
            View(space, (), 98, -1),
            View(space, (), 0, 51),
            View(space, (), 0, 0),
            View(space, (3,), 0),
            View(space, (), 0, 0, spread=True),
            View(DenseSpace(0)),
            View(space, (), 1, index=i),
        ):
            if one.row == (3,):
                refused("not float64", one)
            else:
                refused("views stay within their buffers", one)
        refused("float64 over .* length 5000", View(DenseSpace(5000, 1)))
        refused("float64 over .* length 5000", View(DenseSpace(4000)))
        refused("not on this server", View(space), inputs=(77, b), kind=BufferLost)
        refused("not on this server", View(space, index=77), kind=BufferLost)
        refused("not int64", View(space, index=b))
        refused("made or given away", View(space), donors=(a,), inputs=(a, a), over=space)
        refused("indices where memory", View(space, index=i), donors=(b,))
        program = Program(
            (
                SweepCall(DIFFERENCE, space, (a, a), (), (out,)),
                SweepCall(
                    DIFFERENCE, small, (out, b), (), (client.new_id(),), views=(View(space), None)
                ),
            )
        )
        with pytest.raises(InvalidProgram, match=f"buffer {out} is read through a view, and made"):
            client.run(program)
        far = put(client, small, np.where(np.arange(100) == 7, 5000, 3))
        refused(
            "index 5000 is out of range for length 5000", View(space, index=far), kind=IndexError
        )
        found, _ = difference(client, a, b, small, View(space, (), 50), None)
        assert found.tobytes() == (values(5000)[50:150] - values(100)).tobytes()
        assert sum(server.buffers for server in client.status()) == 2 * 1 + 3


def test_a_program_with_views_is_awaited():
    """Also where nobody asks for it; what went before has ended when it begins."""
    with connect_in_process(2) as client:
        space, over = DenseSpace(5000), DenseSpace(4999)
        a, heard = put(client, space, values(5000)), []
        call = SweepCall(
            DIFFERENCE,
            over,
            (a, a),
            (),
            (client.new_id(),),
            views=(View(space, (), 1), View(space)),
        )
        client.run(Program((call,), frees=(a,)), wait=False, ended=heard.append)
        assert heard == [None]
        client.run(Program((call,)), wait=False, ended=heard.append)
        assert isinstance(heard[1], InvalidProgram | BufferLost)
        with pytest.raises((InvalidProgram, BufferLost)):
            client.run(Program((call,)), wait=False)


def test_a_source_lost_on_another_server():
    transports = in_process(2)
    with Client(transports) as client:
        space, over = DenseSpace(5000), DenseSpace(4999)
        a = put(client, space, values(5000))
        transports[1].service.sessions.get(client.session).store.free([a])
        views = View(space, (), 1), View(space)
        call = SweepCall(DIFFERENCE, over, (a, a), (), (client.new_id(),), views=views)
        with pytest.raises(BufferLost, match=f"buffer {a} is not on this server.*in-process:1"):
            client.run(Program((call,)))
        assert [server.buffers for server in client.status()] == [1, 0]


def test_an_assignment_takes_over_the_memory_of_the_array():
    """``x[1::2] = v`` where nobody else holds ``x``, in batches and over the border."""
    length = 400_001
    x, v, where = values(length), values(length // 2, 1), np.zeros(length, bool)
    where[1::2] = True
    sweep = Sweep((BOOL, F8, F8), (), (Step("where", (0, 1, 2), F8),), (3,), ())
    space, source = DenseSpace(length), DenseSpace(len(v))
    with connect_in_process(3, memory=1 << 26) as client:
        m, a, b = (
            put(client, over, one) for over, one in ((space, where), (space, x), (source, v))
        )
        call = SweepCall(
            sweep,
            space,
            (m, b, a),
            (),
            (out := client.new_id(),),
            (a,),
            (None, View(source, (), 1, 2, spread=True), None),
        )
        used = sum(server.used for server in client.status())
        client.run(Program((call,)))
        assert sum(server.used for server in client.status()) < used + 65536
        x[1::2] = v
        assert client.read(out, array_type(space, float)).tobytes() == x.tobytes()


def test_what_a_failed_program_held_is_free_at_once():
    """Not when garbage is collected next: errors hold frames, and these what they worked with."""
    servers = in_process(2)
    space, over = DenseSpace(10_240), DenseSpace(10_239)
    with Client(servers) as client:
        a = put(client, space, values(10_240))
        one, other = view(space, slice(1, None, 1)), view(space, slice(0, -1, 1))
        difference(client, a, a, over, one, other)
        (session,) = servers[1].service.sessions.all()
        session.store.free([a])
        servers[0].service.memory.forget_kept()
        before = [server.service.memory.used for server in servers]
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                with pytest.raises(BufferLost):
                    difference(client, a, a, over, one, other)
            client.status()
            assert servers[0].service.memory.used - before[0] < 4096  # replies, but no buffers
        finally:
            gc.enable()
