"""What one request may cost: each case here stopped a server, or filled it, with a few bytes."""

from __future__ import annotations

import logging
import re
import threading

import numpy as np
import pytest

from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Combination, Link, Reduction, Step, Sweep
from ps_backend.program.types import ValueType, array_type
from ps_backend.server.service import Service
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array, encode_space
from ps_backend.wire.protocol import PROTOCOL
from tests.ps_backend.requests import F8, I8, IOTA_SUM, Sender, ask, barrier, call, run
from tests.waiting import join_all, wait_for

LOOP = barrier("loop", "l")

MB = 1 << 20
LONG = 10**15
COPY = Sweep((F8,), (), (Step("copy", (0,), F8),), (1,), ())
TWICE = Sweep((F8,), (), (Step("add", (0, 0), F8),), (1,), ())
SUM = Sweep((F8,), (), (), (), (Reduction("sum", (0,)),))


@pytest.fixture
def service(caplog):
    made = Service(memory=256 * MB)
    with caplog.at_level(logging.ERROR, "ps_backend.server.service"):
        yield made
    made.end_waits()
    assert not caplog.records, "an exception that nobody expected"


@pytest.fixture
def sender(service):
    return Sender(service)


def in_thread(work):
    done: list[pb.Reply] = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()
    return thread, done


# --- long programs --------------------------------------------------------------------------------


def begun(service: Service) -> None:
    """Wait until a program computes."""
    wait_for(lambda: service._host.fair_lock._busy)


def test_a_long_program_keeps_no_other_sessions_programs_out(service, sender):
    other = Sender(service, "another", "one")
    other.write(1, np.arange(1000.0))
    thread, _ = in_thread(lambda: sender.send(run=run(call(IOTA_SUM, LONG))))
    begun(service)
    for _ in range(20):
        reply = other.send(run=run(call(SUM, 1000, (1,))))
        assert np.frombuffer(reply.partials[0]).sum() == 499_500
    assert thread.is_alive()
    service.end_waits()
    join_all(thread)


PAIRS = Sweep(
    (),
    (ValueType("float64", (2,)),),
    (Step("fill", (0,), ValueType("float64", (2,))),),
    (),
    (Reduction("sum", (1,), 0),),
)
"""By the engine of rows, any length as well."""


@pytest.mark.parametrize(
    "long", [call(IOTA_SUM, LONG), call(PAIRS, LONG, scalars=(np.ones(2),))], ids=["flat", "rows"]
)
def test_closing_a_session_ends_its_programs(service, sender, long):
    thread, done = in_thread(lambda: sender.send(run=run(long)))
    begun(service)
    Sender(service, client="d").send(close=pb.Close(session=True))
    join_all(thread)
    assert done[0].error.kind == "Abandoned"
    assert service.memory.used == 0


def test_stopping_the_server_ends_programs(service, sender):
    threads = [in_thread(lambda: sender.send(run=run(call(IOTA_SUM, LONG)))) for _ in range(3)]
    begun(service)
    service.end_waits()
    for thread, done in threads:
        join_all(thread)
        assert "server was stopped" in done[0].error.message


def test_sums_in_pieces_have_the_bits_of_sums_in_one(monkeypatch):
    from ps_backend.kernels.compiled import numba_engine

    steps = (Step("iota", (), I8), Step("cast", (0,), F8), Step("sqrt", (1,), F8))
    ops = ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax")
    sweep = Sweep(
        (), (), steps, (2,), tuple(Reduction(op, (value,)) for op in ops for value in (0, 2))
    )
    results = []
    for piece in (numba_engine._PIECE_WORK, 1, 50_000):
        monkeypatch.setattr(numba_engine, "_PIECE_WORK", piece)
        kernel = numba_engine.NumbaKernel(sweep)
        out = np.empty(100_000)
        results.append((kernel((), (), (out,), 1 << 20, 100_000, 1 << 15), out))
    for partials, out in results[1:]:
        assert out.tobytes() == results[0][1].tobytes()
        assert [p.tobytes() for p in partials] == [p.tobytes() for p in results[0][0]]


def test_inner_products_in_pieces_have_the_bits_of_those_in_one(monkeypatch):
    from ps_backend.kernels.compiled import numba_engine

    products = [(a, b) for a in range(3) for b in range(a, 3)]
    dots = tuple(Reduction("dot", pair) for pair in products)
    sweep = Sweep((F8,) * 3, (), (), (), dots)
    vectors = np.random.default_rng(7).normal(size=(3, 70_000))
    results = []
    for piece in (numba_engine._PIECE_WORK, 1):
        monkeypatch.setattr(numba_engine, "_PIECE_WORK", piece)
        found = numba_engine.NumbaKernel(sweep)(tuple(vectors), (), (), 0, 70_000, 1 << 14)
        results.append([partial.tobytes() for partial in found])
    assert results[0] == results[1]


# --- programs that are large, or do not fit together ----------------------------------------------


def test_a_program_of_fifty_thousand_steps_keeps_no_value_longer_than_it_is_used(service, sender):
    n, steps = 30_000, 50_000
    sender.write(1, np.zeros(n))
    chain = tuple(Step("sqrt", (k,), F8) for k in range(steps))
    sender.send(run=run(call(Sweep((F8,), (), chain, (steps,), ()), n, (1,), (2,))))
    assert service.memory.peak < 128 * MB


def test_values_that_are_alive_at_once_need_memory_of_the_budget(sender):
    n, steps = 30_000, 3_000
    sender.write(1, np.zeros(n))
    wide = tuple(Step("sqrt", (0,), F8) for _ in range(steps))
    sums = tuple(Reduction("sum", (1 + k,)) for k in range(steps))
    error = sender.error(run=run(call(Sweep((F8,), (), wide, (), sums), n, (1,))))
    assert error.kind == "OutOfBudget"
    assert "computing the program needs" in error.message


def test_a_program_has_so_many_values(sender):
    sweep = Sweep((), (), (Step("iota", (), I8),) * 600_000, (), ())
    error = sender.error(run=run(call(sweep, 10)))
    assert error.message == "values of a program must be 0 .. 524288, got 600000"


def test_links_of_combinations_count_among_the_values(sender):
    links = (Link("start", 0), *[Link("negate")] * 600_000)
    error = sender.error(run=run(call(Sweep((F8,), (), (Combination(links, F8),), (), ()), 10)))
    assert error.message == "values of a program must be 0 .. 524288, got 600002"


def test_a_program_has_so_many_partial_results(sender):
    sums = tuple(Reduction("sum", (0,)) for _ in range(10_000))
    sender.write(1, np.zeros(1 << 20))
    error = sender.error(run=run(call(Sweep((F8,), (), (), (), sums), 1 << 20, (1,))))
    assert "bytes of partial results" in error.message


def test_what_a_program_takes_along_has_so_many_bytes(sender):
    row = ValueType("float64", (5,))
    sweep = Sweep((), (row,), (Step("fill", (0,), row),), (1,), ())
    message = run(call(sweep, 1, (), (2,), (), (np.zeros(5),)))
    message.calls[0].scalars = bytes(4_000_000)
    error = sender.error(run=message)
    assert error.message == "bytes of scalars of a program must be 0 .. 3145728, got 4000000"


def test_a_step_has_so_many_parameters(sender):
    step = Step("column", (0,), F8, (1,) * 5000)
    error = sender.error(run=run(call(Sweep((F8,), (), (step,), (1,), ()), 9, (1,), (2,))))
    assert error.message == "parameters of a step must be 0 .. 3, got 5000"


@pytest.mark.parametrize("op", ["gram", "collect", "sum"])
def test_tables_that_come_back_have_so_many_bytes(sender, op):
    """As many as their shapes say, before anything is computed."""
    wide = ValueType("float64", (1 << 22,) if op == "sum" else (4000,))
    filled = Sweep(
        (),
        (F8,),
        (Step("fill", (0,), wide),),
        (),
        (Reduction(op, (1, 1) if op == "gram" else (1,), 0 if op == "sum" else None),),
    )
    error = sender.error(run=run(call(filled, 3000, scalars=(1.0,))))
    assert error.kind == "InvalidProgram"
    assert "bytes of partial results" in error.message


@pytest.mark.parametrize("op", ["exp", "broadcast"])
def test_scratch_memory_of_rows_is_of_the_budget(sender, op):
    """A row of 2 ** 27 elements does not fit into it, nor what a sum makes of it."""
    wide = ValueType("float64", (1 << 27,))
    steps = (Step("fill", (0,), wide), Step("broadcast", (1,), wide), Step(op, (2,), wide))
    sweep = Sweep((), (F8,), steps, (), (Reduction("sum", (3,)),))
    error = sender.error(run=run(call(sweep, 3, scalars=(1.0,))))
    assert (error.kind, "computing the program" in error.message) == ("OutOfBudget", True)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (
            [call(TWICE, 9, (1,), (2,), (1,)), call(TWICE, 9, (1,), (3,), (1,))],
            "buffer 1 is read after its memory was given away",
        ),
        (
            [call(TWICE, 9, (1,), (2,), (1,)), call(SUM, 9, (1,))],
            "buffer 1 is read after its memory was given away",
        ),
        (
            [call(TWICE, 9, (1,), (2,)), call(TWICE, 9, (2,), (3,), (2,))],
            "buffer 2 is made and given away by one program",
        ),
        ([call(COPY, 9, (1,), (2,)), call(COPY, 9, (1,), (2,))], "written twice by the program"),
        ([call(COPY, 9, (1,), (1,))], "buffer 1 exists already"),
        ([call(TWICE, 9, (1,), (2,), (5,))], "donors are inputs"),
        (
            [call(TWICE, 9, (1,), (2,), (1,)), call(SUM, 9, (77,))],
            "buffer 77 is not on this server",
        ),
    ],
)
def test_calls_that_do_not_fit_together_change_nothing(sender, calls, said):
    sender.write(1, np.arange(9.0))
    assert said in sender.error(run=run(*calls)).message
    np.testing.assert_array_equal(sender.read(1, 9), np.arange(9.0))


@pytest.mark.parametrize(
    ("op", "args", "result"),
    [("exp", "bool", "bool"), ("exp", "int32", "int32"), ("add", "float64", "bool")],
)
def test_a_step_has_the_dtypes_of_a_loop_of_numpy(sender, op, args, result):
    """A kernel that took the sender's word for it would write past its arrays."""
    given, out = ValueType(args), ValueType(result)
    arity = 2 if op == "add" else 1
    sweep = Sweep((given,), (), (Step(op, (0,) * arity, out),), (1,), ())
    sender.write(1, np.ones(9, args))
    error = sender.error(run=run(call(sweep, 9, (1,), (2,))))
    assert "steps have the dtypes of NumPy's loop for their op" in error.message


def test_a_scalar_that_its_type_cannot_hold_is_refused(sender):
    i4 = ValueType("int32")
    sweep = Sweep((), (i4,), (Step("fill", (0,), i4),), (1,), ())
    error = sender.error(run=run(call(sweep, 9, (), (2,), (), (1 << 40,))))
    assert (error.kind, error.message) == ("InvalidProgram", f"scalar {1 << 40} is no int32")


# --- sizes, counts, clocks, durations -------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"servers": 0}, "servers must be 1 .. 65536, got 0"),
        ({"servers": 1 << 31}, "servers must be 1 .. 65536, got 2147483648"),
        ({"servers": 2, "index": 2}, "index of a server must be 0 .. 1, got 2"),
    ],
)
def test_a_session_has_so_many_servers(sender, body, said):
    opening = pb.Open(protocol=PROTOCOL, create=True, **body)
    sender.session = "another"
    assert sender.error(open=opening).message == said


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_wait_is_a_number_of_seconds(sender, seconds):
    sender.send(wait=ask("t", 1, value=b"v"))
    sender.send(join=pb.Join(barrier=LOOP, ranks=2, staleness=0))
    array = pb.Array(buffer=1, space=pb.Space(kind="dense", length=9), dtype="float64")
    for body in (
        {"wait": pb.Wait(barrier=barrier("mailbox", "t"), turn=9, seconds=seconds)},
        {"wait": ask("t", 1, count=9, seconds=seconds)},
        {"wait": pb.Wait(barrier=LOOP, seconds=seconds, rows=pb.Rows(array=array))},
    ):
        assert f"got {seconds}" in sender.error(**body).message


def test_a_commit_of_contributions_that_nobody_staged_is_refused_at_once(sender):
    target = pb.Array(buffer=5, space=pb.Space(kind="dense", length=9), dtype="float64")
    winners = [pb.Winner(partition=k, attempt=0, contributions=2**32 - 1) for k in range(100)]
    total = pb.Total(target=target, op="add", winners=winners)
    error = sender.error(release=pb.Release(round="r", totals=[total]))
    assert "this server has no updates of (partition, attempt) (0, 0), (1, 0)" in error.message


def test_a_rank_may_go_on_at_a_late_clock(sender):
    at = (1 << 53) - 5
    sender.send(join=pb.Join(barrier=LOOP, ranks=1, staleness=0))
    reply = sender.send(join=pb.Join(barrier=LOOP, attempt=1, at=at))
    assert list(reply.clocks.clocks) == [at]
    sender.write(1, np.zeros(3))
    array = pb.Array(buffer=1, space=pb.Space(kind="dense", length=3), dtype="float64")
    sender.send(copy=pb.Copy(share=True, arrays=[array], targets=[2]))
    array.buffer = 2
    tick = pb.Contribute(barrier=LOOP, attempt=1, turn=at, rows=[pb.Rows(array=array)])
    assert not sender.send(np.ones(3).tobytes(), contribute=tick).HasField("error")
    sender.send(copy=pb.Copy(arrays=[array], targets=[3]))
    np.testing.assert_array_equal(sender.read(3, 3), np.ones(3))


def test_a_clock_is_bounded(sender):
    sender.send(join=pb.Join(barrier=LOOP, ranks=1))
    sender.send(join=pb.Join(barrier=LOOP, attempt=1))
    tick = pb.Contribute(barrier=LOOP, attempt=1, turn=2**64 - 1)
    assert "clock must be 0 .. " in sender.error(contribute=tick).message


@pytest.mark.parametrize("row", [[2] * 100_000, [1 << 31, 2]])
def test_a_row_has_so_many_elements(sender, row):
    array = pb.Array(buffer=1, space=pb.Space(kind="dense", length=9), dtype="float64", row=row)
    assert (
        "of a row must be 0 .. " in sender.error(write=pb.Write(rows=pb.Rows(array=array))).message
    )


@pytest.mark.parametrize("length", [1 << 53, 2**64 - 1])
def test_a_space_is_bounded_and_an_array_by_the_budget(sender, length):
    array = pb.Array(space=pb.Space(kind="dense", length=length), dtype="float64")
    error = sender.error(write=pb.Write(rows=pb.Rows(array=array), target=1))
    assert error.kind in ("ValueError", "PayloadBroken")


def test_a_name_is_bounded(sender):
    error = sender.error(end=pb.End(barrier=barrier("round", "r" * 100_000)))
    assert "round must have at most 512 characters, got 100000: 'rrr" in error.message


# --- what servers fetch from each other -----------------------------------------------------------


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        ({"start": 995, "step": 1, "count": 10, "width": 1}, "is outside the part of buffer 1"),
        ({"start": 3, "step": -1, "count": 5, "width": 1}, "is outside the part of buffer 1"),
        ({"start": 0, "step": 10, "count": 100, "width": 20}, "is outside the part of buffer 1"),
        ({"start": 1 << 63, "step": 1, "count": 1, "width": 1}, "is outside the part of buffer 1"),
        ({"start": 0, "step": 1, "count": 1 << 60, "width": 1}, "pieces must be 0 .. "),
        ({"start": 0, "step": 1 << 60, "count": 1, "width": 1}, "steps between pieces must be"),
        ({"start": 0, "step": 0, "count": 1 << 50, "width": 9}, "needs .* bytes, but"),
    ],
)
def test_a_fetch_stays_within_the_part_and_the_budget(sender, piece, said):
    sender.write(1, np.arange(1000.0))
    array = encode_array(1, array_type(DenseSpace(1000), float))
    error = sender.error(fetch=pb.Fetch(pieces=[pb.Pieces(array=array, **piece)]))
    assert re.search(said, error.message), error.message


def test_a_fetch_copies_only_what_does_not_lie_together(sender):
    values = np.arange(1000.0)
    sender.write(1, values)
    array = encode_array(1, array_type(DenseSpace(1000), float))
    pieces = [
        pb.Pieces(array=array, start=7, step=2, count=1, width=5),
        pb.Pieces(array=array, start=999, step=-3, count=4, width=1),
        pb.Pieces(array=array, start=10, step=10, count=3, width=2),
    ]
    response = sender.outcome(fetch=pb.Fetch(pieces=pieces))
    found = np.frombuffer(b"".join(response.parts), float)
    expected = [*values[7:12], *values[999:987:-3], 10, 11, 20, 21, 30, 31]
    assert found.tolist() == expected
    assert response.parts[0].obj is not None and len(response.keep) == 3


def test_views_of_a_stranger_are_bounded(sender):
    sender.write(1, np.arange(1000.0))
    space = encode_space(DenseSpace(1000))
    wide, long = pb.View(space=space, row=[1 << 30, 4], step=1), pb.View(step=1)
    long.space.length = 1 << 60
    for view, said in ((wide, "extents of a row"), (long, "length of a space")):
        message = run(call(SUM, 1000, (1,)))
        message.calls[0].views.append(view)
        message.peers.extend(["x" * 100] * 50)  # more bytes than are let in unseen
        assert said in sender.error(run=message).message
    message = run(call(SUM, 1000, (1,)))
    message.peers.append("x" * 5000)
    assert "address must have at most" in sender.error(run=message).message
