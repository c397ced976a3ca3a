"""Phases of collectives: each runs once, in its turn; one that fails has changed nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import BufferLost, InvalidProgram, OutOfBudget, PSError
from ps_backend.in_process import connect_in_process
from ps_backend.program import collectives as scans
from ps_backend.program.collectives import CollectiveCall, CollectiveTypes, verify_collective
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type, client_type
from ps_backend.program.views import View
from ps_backend.server.service import Service
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_collective
from tests.ps_backend.helpers import AXPY, F8, FAULTS, REPEATED, in_process, losing, put
from tests.ps_backend.requests import Sender

SPACE = DenseSpace(5000)
INTS = array_type(SPACE, np.int64)
X = np.random.default_rng(0).integers(-1000, 1000, SPACE.length)
SUM = scans.SCANS["add"].kind


def phase(number: int, workspace: int, x: int, out: int, kind: str = SUM) -> CollectiveCall:
    types = CollectiveTypes((INTS,), (), ((0, INTS),))
    return CollectiveCall(kind, number, workspace, types, (x,), (), (out,), ())


def running_sum(client: Client, x: int) -> int:
    """The buffer of the running sums of ``x``, by two programs."""
    workspace, out = client.new_id(), client.new_id()
    for number in range(2):
        client.run(Program(before=(phase(number, workspace, x, out),)))
    client.free([workspace])
    return out


@given(st.integers(1, 3), FAULTS)
def test_each_phase_runs_once_whatever_is_lost(servers, faults):
    with Client(losing(servers, faults), retry=REPEATED) as client:
        x = put(client, SPACE, X)
        out = running_sum(client, x)
        assert client.read(out, INTS).tolist() == X.cumsum().tolist()
        client.free([x, out])
        put(client, DenseSpace(1), [0])  # takes the frees along
        assert {server.buffers for server in client.status()} <= {0, 1}


def test_phases_come_in_their_turn_and_their_workspace_is_theirs():
    with connect_in_process(2) as client:
        x, out, workspace = put(client, SPACE, X), client.new_id(), client.new_id()
        first, second = (phase(number, workspace, x, out) for number in range(2))

        def refused(
            collective: CollectiveCall, error: type[PSError], why: str, **fields: int
        ) -> None:
            with pytest.raises(error, match=why):
                client.run(Program(before=(replace(collective, **fields),)))

        refused(second, BufferLost, "the result of a collective in workspace")
        client.run(Program(before=(first,)))
        refused(first, InvalidProgram, "exists already")
        refused(second, InvalidProgram, "exists already", workspace=x, phase=0)
        refused(second, InvalidProgram, "writes one of its inputs", outputs=(x,))
        refused(second, BufferLost, "buffer", inputs=(99,))
        client.run(Program(before=(second,)))
        refused(second, InvalidProgram, "phase 1 .* came after phase 1", outputs=(99,))
        assert client.read(out, INTS).tolist() == X.cumsum().tolist()


def test_a_program_has_one_movement_for_each_workspace():
    with connect_in_process(1) as client:
        x, out, other, workspace = put(client, SPACE, X), *(client.new_id() for _ in range(3))
        twice = (phase(0, workspace, x, out), phase(0, workspace, x, other))
        with pytest.raises(InvalidProgram, match="used twice"):
            client.run(Program(before=twice))
        with pytest.raises(InvalidProgram, match="used twice"):
            client.run(Program(before=(phase(0, out, x, out),)))
        assert client.status()[0].buffers == 1


def test_all_phases_of_a_movement_are_of_the_same_types():
    floats = array_type(SPACE, np.float64)
    with connect_in_process(2) as client:
        x, out, workspace = put(client, SPACE, X), client.new_id(), client.new_id()
        y = put(client, SPACE, X * 1.0)
        client.run(Program(before=(phase(0, workspace, x, out),)))
        types = CollectiveTypes((floats,), (), ((0, floats),))
        second = replace(phase(1, workspace, y, out), types=types)
        with pytest.raises(InvalidProgram, match="different types"):
            client.run(Program(before=(second,)))
        client.run(Program(before=(phase(1, workspace, x, out),)))
        assert client.read(out, INTS).tolist() == X.cumsum().tolist()


def test_a_phase_whose_program_failed_may_come_again():
    servers = in_process(2)
    with Client(servers) as client:
        x, y, out, workspace = put(client, SPACE, X), *(client.new_id() for _ in range(3))
        z = put(client, SPACE, X * 1.0)
        indices = put(client, SPACE, np.arange(SPACE.length)[::-1])
        for session in servers[1].service.sessions.all():
            session.store.free([z])  # which the other one finds out in the midst of the program
        client.run(Program(before=(phase(0, workspace, x, out),)))
        copy = Sweep((F8,), (), (Step("negative", (0,), F8),), (1,), ())
        call = SweepCall(copy, SPACE, (z,), (), (y,), (), (View(SPACE, index=indices),))
        with pytest.raises(BufferLost):
            client.run(Program((call,), before=(phase(1, workspace, x, out),)))
        client.run(Program(before=(phase(1, workspace, x, out),)))
        assert client.read(out, INTS).tolist() == X.cumsum().tolist()


def test_a_decomposition_has_two_outputs():
    table = array_type(SPACE, float, (3,))
    r = client_type(np.dtype(float), (3, 3))
    with pytest.raises(InvalidProgram, match="does not take such arguments"):
        verify_collective(
            CollectiveCall(
                "tsqr", 0, 7, CollectiveTypes((table,), (), ((9, r),)), (1,), (), (0,), ()
            )
        )


BAD = {
    "a kind that nobody knows": ({"kind": "shuffle"}, "no collective 'shuffle'"),
    "a phase too many": ({"phase": 2}, "phases 0 .. 1, got 2"),
    "an input too few": ({"inputs": ()}, "does not take such arguments"),
    "an output that the client keeps": ({"outputs": (0,)}, "more or fewer arrays"),
    "written over": ({"outputs": (1,), "inputs": (1,)}, "writes one of its inputs"),
    "parameters": ({"params": (1,)}, "does not take such arguments"),
    "another dtype": (
        {
            "types": CollectiveTypes((INTS,), (), ((0, client_type(np.dtype(bool))),)),
            "outputs": (0,),
        },
        "does not take such arguments",
    ),
    "alone": ({"whole": True}, "only a single server"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_movement_is_refused_in_a_sentence(name):
    fields, why = BAD[name]
    with connect_in_process(2) as client:
        x = put(client, SPACE, X)
        call = replace(phase(0, client.new_id(), x, client.new_id()), **fields)
        with pytest.raises(InvalidProgram, match=why):
            client.run(Program(before=(call,)))
        assert [server.buffers for server in client.status()] == [1, 1]


def test_a_program_with_collectives_gives_no_memory_away():
    with connect_in_process(2) as client:
        x, y, out = put(client, SPACE, X * 1.0), put(client, SPACE, X * 1.0), client.new_id()
        sweep = SweepCall(AXPY, SPACE, (x, y), (2.0,), (out,), donors=(y,))
        ints = put(client, SPACE, X)
        first = phase(0, client.new_id(), ints, client.new_id())
        with pytest.raises(InvalidProgram, match="cannot donate memory"):
            client.run(Program((sweep,), before=(first,)))
        assert client.read(y, array_type(SPACE, float)).tolist() == X.tolist()


def test_operands_are_of_the_size_that_is_said_and_not_too_large():
    with connect_in_process(2) as client:
        call = phase(0, client.new_id(), put(client, SPACE, X), client.new_id())
        types = replace(call.types, operands=(ValueType("float64", (1 << 20,)),))
        large = replace(call, types=types, operands=(np.zeros(1 << 20),))
        with pytest.raises(ValueError, match="put the large ones on the servers"):
            client.run(Program(before=(large,)))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "k" * 1000}, "no collective 'kkk"),
        ({"values": b"123"}, "operands of 0 bytes came as 3"),
        ({"inputs": [pb.Array(space=pb.Space(kind="dense", length=8), dtype="text")]}, "dtype"),
        ({"inputs": [pb.Array(space=pb.Space(kind="dense", length=1 << 60))]}, "length"),
        ({"operands": [pb.ValueType(dtype="bool", row=(2,))], "values": b"\x07\x08"}, "no bool"),
    ],
)
def test_strangers_are_told_what_is_wrong(fields, why):
    service = Service(memory=1 << 20)
    sender = Sender(service)
    message = encode_collective(phase(0, 5, 6, 7))
    for name, value in fields.items():
        message.ClearField(name)
        message.MergeFrom(pb.MovementCall(**{name: value}))
    error = sender.error(run=pb.Run(before=[message]))
    assert why in error.message


def test_what_is_fetched_of_a_workspace_is_there():
    service = Service(memory=1 << 20)
    sender = Sender(service)
    sender.write(6, X)
    whole = encode_collective(phase(0, 5, 6, 7))
    assert not sender.send(run=pb.Run(before=[whole])).HasField("error")
    for shelf, why in (
        (pb.Shelf(workspace=5, name="totals", start=3, count=4), "which has 5 here"),
        (pb.Shelf(workspace=5, name="nothing"), "has no 'nothing'"),
        (pb.Shelf(workspace=6, name="totals"), "the result of a collective in workspace 6"),
    ):
        assert why in sender.error(fetch=pb.Fetch(shelves=[shelf])).message


def test_out_of_budget_in_the_middle_loses_nothing():
    size = 8 * SPACE.length
    with connect_in_process(2, memory=size + (1 << 15)) as client:
        x, hog = put(client, SPACE, X), put(client, SPACE, X)
        workspace, out = client.new_id(), client.new_id()
        client.run(Program(before=(phase(0, workspace, x, out),)))
        with pytest.raises(OutOfBudget, match="free arrays"):
            client.run(Program(before=(phase(1, workspace, x, out),)))
        assert client.read(x, INTS).tolist() == X.tolist()
        with pytest.raises(BufferLost):
            client.read(out, INTS)
        client.free([workspace, hog])
        assert client.read(running_sum(client, x), INTS).tolist() == X.cumsum().tolist()


def test_what_a_client_keeps_has_few_extents():
    """The types of it are remembered, so they must be small."""
    sender = Sender(Service(memory=1 << 20))
    output = pb.Output(kept=pb.ValueType(dtype="float64", row=[300] * 900))
    call = pb.MovementCall(kind=SUM, workspace=5, outputs=[output])
    assert "at most 2 extents" in sender.error(run=pb.Run(before=[call])).message
