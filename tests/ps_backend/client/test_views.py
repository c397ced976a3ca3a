"""Programs whose inputs are views, beside NumPy."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from ps_backend import kernels
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace, RaggedSpace
from ps_backend.program.sweep import Program, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from ps_backend.program.views import View
from ps_backend.server import inputs
from tests.ps_backend.helpers import put
from tests.ps_backend.rows import Rows
from tests.ps_backend.views import COMBINED, agrees, difference, values, view

LENGTHS = st.one_of(
    st.sampled_from([1023, 1024, 1025, 1026, 2048, 2049, 3073, 5000, 10_000]), st.integers(1, 6000)
)
SERVERS = st.sampled_from([1, 2, 3, 7])


@pytest.fixture(scope="module")
def clients():
    """In-process servers, by their number."""
    made = {servers: connect_in_process(servers, memory=1 << 28) for servers in (1, 2, 3, 7)}
    yield made
    for client in made.values():
        client.close()


@st.composite
def slices(draw) -> tuple[int, slice, slice]:
    """A length, and two slices of as many elements."""
    length = draw(LENGTHS)
    steps = [draw(st.sampled_from([1, 1, 2, 3, -1, -2, 7, 1500, -999])) for _ in range(2)]
    most = min((length - 1) // abs(step) + 1 for step in steps)
    count = draw(st.integers(1, most) | st.just(most))
    cuts = []
    for step in steps:
        reach = abs(step) * (count - 1)
        first = draw(st.integers(0, length - 1 - reach))
        start = first if step > 0 else first + reach
        stop = start + step * count
        cuts.append(slice(start, None if stop < 0 else stop, step))
    return length, *cuts


@settings(max_examples=60, deadline=None)
@given(slices(), SERVERS)
@example((5000, slice(1, 5000, 1), slice(0, 4999, 1)), 3)
def test_slices(clients, cut, servers):
    length, first, second = cut
    client, space, x = clients[servers], DenseSpace(length), values(length)
    a = put(client, space, x)
    expected = x[first] - x[second]
    over = DenseSpace(len(expected))
    agrees(
        client,
        expected,
        *difference(client, a, a, over, view(space, first), view(space, second)),
    )
    client.free([a])


@settings(max_examples=30, deadline=None)
@given(slices(), SERVERS)
def test_spread(clients, cut, servers):
    """``y[cut] = x``, where what is not assigned is zero."""
    length, first, _ = cut
    expected = np.zeros(length)
    x = values(len(expected[first]))
    expected[first] = x
    y = values(length, 1)
    client, space, source = clients[servers], DenseSpace(length), DenseSpace(len(x))
    a, b = put(client, source, x), put(client, space, y)
    spread = View(source, (), first.start, first.step, spread=True)
    agrees(client, expected - y, *difference(client, a, b, space, spread, None))
    client.free([a, b])


@settings(max_examples=30, deadline=None)
@given(LENGTHS, LENGTHS, SERVERS, st.integers(0, 9))
def test_index(clients, length, count, servers, seed):
    rng = np.random.default_rng(seed)
    index = rng.integers(-length if seed % 3 else 0, length, count)
    if seed % 2:
        index.sort()
    x, y = values(length), values(count, 1)
    client, source, space = clients[servers], DenseSpace(length), DenseSpace(count)
    a, b, i = put(client, source, x), put(client, space, y), put(client, space, index)
    at = View(source, index=i)
    agrees(client, x[index] - y, *difference(client, a, b, space, at, None))
    assert moved(client, a, space, at).tobytes() == x[index].tobytes()
    client.free([a, b, i])


def moved(client, source, space, how):
    """What a sweep stores that does nothing but read it so."""
    value, out = ValueType("float64"), client.new_id()
    sweep = Sweep((value,), (), (), (0,), ())
    client.run(Program((SweepCall(sweep, space, (source,), (), (out,), views=(how,)),)))
    found = client.read(out, array_type(space, float))
    client.free([out])
    return found


@pytest.mark.parametrize("kind", ["blocks", "random", "reversed", "stripes"])
@pytest.mark.parametrize("servers", [1, 3])
def test_runs_of_indices_that_one_server_has(clients, monkeypatch, kind, servers):
    """By whom they are found: each server in turn, all of them, or more turns than are worth it."""
    monkeypatch.setattr(inputs, "_PIECE", 64)
    length = 3 * 1024
    index = {
        "blocks": np.roll(np.arange(length), 960),
        "random": np.random.default_rng(0).integers(-length, length, length),
        "reversed": -1 - np.arange(length),
        "stripes": np.arange(length).reshape(-1, 64)[np.arange(48) * 17 % 48].ravel(),
    }[kind]
    x, client, space = values(length), clients[servers], DenseSpace(length)
    a, i = put(client, space, x), put(client, space, index)
    client.counters.reset()
    assert moved(client, a, space, View(space, index=i)).tobytes() == x[index].tobytes()
    most = {"blocks": 3, "reversed": 2}.get(kind, 6)
    assert client.counters.peer_messages <= (servers > 1) * most
    client.free([a, i])


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 900),
    st.sampled_from([1, 2, 3, 7, 64]),
    st.sampled_from([1, 2, 5, 21]),
    SERVERS,
    st.data(),
)
def test_reshapes(clients, length, width, other, servers, data):
    """Rows of one width as rows of another, from any element on."""
    x = values(length, row=(width,))
    start = data.draw(st.integers(0, length * width - 1))
    count = (length * width - start) // other
    expected = x.reshape(-1)[start : start + count * other].reshape(count, other)
    if width == other:
        start = data.draw(st.integers(0, length - 1))
        expected, count = x[start:], length - start
    value = ValueType("float64", (other,))
    double = Sweep((value,), (), (Step("add", (0, 0), value),), (1,), ())
    client, source, space = clients[servers], DenseSpace(length), DenseSpace(count)
    a, out = put(client, source, x), client.new_id()
    client.run(
        Program(
            (SweepCall(double, space, (a,), (), (out,), views=(View(source, (width,), start),)),)
        )
    )
    found = client.read(out, array_type(space, float, (other,)))
    assert found.tobytes() == (2 * expected).tobytes()
    client.free([a, out])


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize(("start", "step"), [(1, 1), (8999, -1), (1, 2)])
def test_rows_and_all_their_reductions_as_of_stored_arrays(clients, servers, start, step):
    """Whatever the runs of blocks are that a view cuts a sweep into."""
    count = 4400
    x, y, s = values(9000, row=(3,)), values(count, 1), values(9, 2).reshape(3, 3)
    viewed = x[start::step][:count]
    listed = np.array([count - 1, 7, 7, 0, 2049])
    rows = Rows([viewed, y], [s, listed])
    column = rows.step("as_column", 1, row=(1,))
    product = rows.step("matmul", 0, 2)
    total = rows.step("add", product, column, row=(3,))
    reductions = [
        ("sum", (total,), 0),
        ("argmax", (total,), 0),
        ("argmin", (total,), None),
        ("gram", (0, total), None),
        ("collect", (total,), None),
        ("take", (total, 3), None),
        ("max", (1,), None),
    ]
    stored, left = rows.run(clients[1], [total], reductions)
    source = View(DenseSpace(len(x)), (3,), start, step), x
    outputs, found = rows.run(clients[servers], [total], reductions, [source, None])
    for got, expected in zip((*outputs, *found), (*stored, *left), strict=True):
        assert got.shape == expected.shape and got.tobytes() == expected.tobytes()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=7, max_size=7), SERVERS, st.booleans())
def test_what_a_mask_chose_becomes_dense(clients, counts, servers, back):
    """As much on each server as may be, and also read backwards."""
    cuts = np.cumsum([0, *counts[:servers]]).tolist()
    length = cuts[-1]
    client, x = clients[servers], values(length)
    source, space = RaggedSpace(length, 0, tuple(cuts)), DenseSpace(length)
    a, b = put(client, source, x), put(client, space, values(length, 1))
    one = View(source, (), length - 1, -1) if back else View(source)
    expected = x[:: -1 if back else 1] - values(length, 1)
    agrees(client, expected, *difference(client, a, b, space, one, None))
    client.free([a, b])


def test_nothing(clients):
    for servers in (1, 3):
        client, space, none = clients[servers], DenseSpace(5000), DenseSpace(0)
        a, e = put(client, space, values(5000)), put(client, none, [])
        i = put(client, none, np.zeros(0, np.int64))
        for one in (View(space, (), 3), View(space, (), 9, -2), View(space, index=i)):
            agrees(client, np.empty(0), *difference(client, a, e, none, one, None))
        spread = View(none, (), 3, 2, spread=True)
        agrees(client, -values(5000), *difference(client, e, a, space, spread, None))


@pytest.mark.parametrize("kind", ["slice", "strided", "spread", "index", "reshape"])
def test_over_grpc(connect, kind):
    """Bulk and single elements, on servers that fetch from each other at once."""
    length = 400_000
    client, space, x = connect(3), DenseSpace(length), values(length)
    a, over = put(client, space, x), space
    views: tuple[View | None, ...]
    if kind == "slice":
        over = DenseSpace(length // 2)
        views, expected = (
            (View(space, (), length // 2), View(space)),
            x[length // 2 :] - x[: length // 2],
        )
    elif kind == "strided":
        over = DenseSpace(length // 2)
        views, expected = (View(space, (), length - 1, -2), View(space)), x[::-2] - x[: length // 2]
    elif kind == "spread":
        views, expected = (View(space, (), length - 1, -1, spread=True), None), x[::-1] - x
    elif kind == "index":
        index = np.random.default_rng(1).permutation(length)
        views, expected = (View(space, index=put(client, space, index)), None), x[index] - x
    else:
        table = DenseSpace(length // 8)
        a = put(client, table, x.reshape(-1, 8))
        views = View(table, (8,)), View(table, (8,))
        expected = x - x
    agrees(client, expected, *difference(client, a, a, over, *views))
    assert client.counters.peer_bytes > 0


@pytest.mark.parametrize("engine", ["numba", "mixed"])
def test_compiled_kernels_over_runs_of_blocks(monkeypatch, engine):
    """Bits of their sums as over stored arrays: slices that begin anywhere, and batches."""
    monkeypatch.setattr(kernels, "LINEAR_FROM_LENGTH", 1)
    if engine == "numba":
        monkeypatch.setattr(kernels, "NUMBA_FROM_LENGTH", 1)
    length = 9001
    x, space, over = values(length), DenseSpace(length), DenseSpace(4500)
    assert kernels.engine_for(COMBINED, over.length) == engine
    found = []
    for servers in (1, 2, 3):
        with connect_in_process(servers, memory=1 << 26) as client:
            a = put(client, space, x)
            for cut in (slice(1, 4501, 1), slice(0, 9000, 2), slice(8999, 0, -2)):
                stored, results = put(client, over, x[cut]), []
                for one, views in ((stored, ()), (a, (view(space, cut),) * 2)):
                    call = SweepCall(
                        COMBINED, over, (one, one), (0.5,), (out := client.new_id(),), views=views
                    )
                    (partials,) = client.run(Program((call,)))
                    results.append([client.read(out, array_type(over, float)), *partials])
                first, second = ([part.tobytes() for part in one] for one in results)
                assert first == second
                found.append(first)
    assert found[:3] == found[3:6] == found[6:]
