"""What indexing costs, by count; and algorithms that are made of slices, typed as for NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv
from distvec.testing import assert_plan

N = 5000

COUNTED = ("programs", "sweeps", "vectors_read", "vectors_written", "peer_messages", "peer_bytes")


def cost_of(ps: dv.Session, action: Callable[[], object]) -> tuple[int, ...]:
    """What ``action`` costs: programs, sweeps, vectors read, written; and between servers."""
    ps.counters.reset()
    action()
    cost = ps.counters.snapshot()
    return tuple(cost[name] for name in COUNTED)


@pytest.fixture
def vectors(ps: dv.Session) -> tuple[dv.DistArray, dv.DistArray]:
    """Two vectors on two servers."""
    a, b = (ps.random.normal(N, seed=seed).persist() for seed in (1, 2))
    return a, b


READ: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "differences": (lambda a, b: a[1:] - a[:-1], (1, 1, 1, 1, 1, 8)),
    "of an expression": (
        lambda a, b: (2 * a + b)[1:] - (2 * a + b)[:-1],
        (1, 1, 2, 1, 1, 16),
    ),
    "second differences": (lambda a, b: np.diff(a, 2), (1, 1, 1, 1, 1, 24)),
    "every other one": (lambda a, b: a[::2] + b[1::2], (1, 1, 2, 1, 0, 0)),
    "three views": (lambda a, b: a[:-2] - 2 * a[1:-1] + a[2:], (1, 1, 1, 1, 1, 24)),
}


@pytest.mark.parametrize(("call", "cost"), READ.values(), ids=READ)
def test_slices_are_read_in_one_sweep(
    ps: dv.Session, vectors: Any, call: Callable[[Any, Any], Any], cost: tuple[int, ...]
) -> None:
    result = call(*vectors)
    measured = cost_of(ps, result.persist)
    assert measured[:4] == cost[:4]
    assert measured[4] <= cost[4] and measured[5] <= cost[5]
    np.testing.assert_array_equal(result.numpy(), call(*(x.numpy() for x in vectors)))


def test_elements_come_alone(ps: dv.Session, vectors: Any) -> None:
    a, b = vectors
    pending = 2 * a + b
    assert cost_of(ps, lambda: float(pending[3])) == (1, 1, 2, 0, 0, 0)
    assert not pending.node.known
    assert cost_of(ps, lambda: a[[1, 5, 5]].numpy()) == (1, 1, 1, 0, 0, 0)
    with pytest.raises(IndexError, match="index 5000 is out of bounds for axis 0 with size 5000"):
        a[N]


def test_assignments_fuse(ps: dv.Session, vectors: Any) -> None:
    a, b = vectors
    x, host = a.copy(), a.numpy()
    x[10:20] = 0
    host[10:20] = 0
    x[-1] = 3
    host[-1] = 3
    x[::2] *= 2
    host[::2] *= 2
    x[b > 1] = -1
    host[b.numpy() > 1] = -1
    assert cost_of(ps, x.persist) == (1, 1, 2, 1, 0, 0)
    np.testing.assert_array_equal(x.numpy(), host)


def test_elements_of_a_mask(ps: dv.Session, vectors: Any) -> None:
    a, b = vectors
    mask = (b > 0).persist()
    chosen = a[mask]
    host = a.numpy()[mask.numpy()]
    ps.counters.reset()
    np.testing.assert_array_equal(chosen.numpy(), host)
    # counted, put together, cut anew as vectors of that length are, and read
    assert ps.counters.messages == 4
    length = len(chosen)
    assert ps.counters.messages == 4 and length == len(host)
    np.testing.assert_array_equal((chosen[1:] - chosen[:-1]).numpy(), np.diff(host))
    x, y = a.copy(), a.numpy()
    x[mask] = np.arange(length)
    y[mask.numpy()] = np.arange(length)
    np.testing.assert_array_equal(x.numpy(), y)
    with pytest.raises(ValueError, match="cannot assign 3 input values to the"):
        x[mask] = [1, 2, 3]


def test_what_is_read_at_other_slots_is_stored_first_where_it_is_costly(ps: dv.Session) -> None:
    x = ps.random.normal(N, seed=1).persist()
    difference = np.diff(np.exp(x))
    assert_plan(difference, messages=2, vectors_written=2)
    text = difference.explain()
    assert "is stored: read at other slots" in text and "is a view: slots 1, 2" in text
    difference = long = x
    for step in range(12):
        long = long * 0.5 + step
    difference = np.diff(long)
    assert_plan(difference, messages=2, vectors_written=2)
    y = ps.random.normal(N, seed=2).persist()
    long = 2 * x + y  # held, and so stored
    difference = np.diff(long)
    assert_plan(difference, messages=2, vectors_written=2)
    del difference, long
    moved = np.diff(3 * x)
    assert "computed from views" in moved.explain()


WINDOWS: dict[str, Callable[[Any, Any], Any]] = {
    "an element": lambda x, t: x[1:3].__setitem__(0, 5),
    "all": lambda x, t: x[1:3].fill(0),
    "where": lambda x, t: np.putmask(x[1:3], np.array([True, False]), 1),
    "out=": lambda x, t: np.add(x[1:3], 1, out=x[2:4]),
    "a row": lambda x, t: t[1].__setitem__(0, 5),
    "a column": lambda x, t: t[:, 0].__setitem__(0, 5),
    "a push": lambda x, t: x[1:3].push([0], [1.0]),
}


@pytest.mark.parametrize("change", WINDOWS.values(), ids=WINDOWS)
def test_nothing_is_assigned_into_a_slice(
    ps: dv.Session, change: Callable[[Any, Any], Any]
) -> None:
    x, table = ps.arange(2000.0), ps.ones((2000, 3))
    with pytest.raises(ValueError, match="assignment destination is read-only: a slice is a copy"):
        change(x, table)
    copy = x[1:3].copy()
    copy[0] = 7
    assert copy.numpy().tolist() == [7, 2]
    part = x[1:3]
    part += 1
    assert part.numpy().tolist() == [2, 3] and x.numpy()[1] == 1
    (x[1:3] * 2)[0] = 1
    everything = table[:, :]
    everything[0] = 5
    assert table.numpy()[0].tolist() == [5, 5, 5]


def heat(u: Any, steps: int) -> Any:
    """The explicit heat equation."""
    for _ in range(steps):
        u = u.copy()
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def jacobi(b: Any, steps: int) -> Any:
    """Jacobi iteration of the tridiagonal system with 4 on the diagonal and -1 beside it."""
    x = b * 0
    for _ in range(steps):
        new = b.copy()
        new[1:] += x[:-1]
        new[:-1] += x[1:]
        x = new / 4.0
    return x


@pytest.mark.parametrize("algorithm", [heat, jacobi])
def test_a_step_of_a_stencil_is_one_sweep(
    ps: dv.Session, algorithm: Callable[[Any, int], Any]
) -> None:
    host = np.random.default_rng(0).standard_normal(3000)
    x = ps.array(host)
    result = algorithm(x, 20)
    cost = cost_of(ps, result.persist)
    assert cost[:2] == (20, 20) and cost[5] <= 20 * 24
    assert cost[3] == 20
    np.testing.assert_array_equal(result.numpy(), algorithm(host, 20))


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "take": lambda x, t, m: np.take(x, [3, -1, 5]),
    "take columns": lambda x, t, m: np.take(t, [2, 0], axis=1),
    "take of all elements": lambda x, t, m: np.take(t, [20, 50]),
    "take clipped": lambda x, t, m: np.take(x, [3, 10**6], mode="clip"),
    "take wrapped": lambda x, t, m: x.take([3, 10**6], mode="wrap"),
    "take out of range": lambda x, t, m: np.take(x, [10**6]),
    "put": lambda x, t, m: np.put(x, [3, 5, 3], [1, 2, 9.5]),
    "put repeated": lambda x, t, m: np.put(x, [3, 5, -3], 1),
    "place": lambda x, t, m: np.place(x, x > 0, [4]),
    "diff": lambda x, t, m: np.diff(x),
    "diff of columns": lambda x, t, m: np.diff(t),
    "diff of rows": lambda x, t, m: np.diff(t, 2, axis=0),
    "diff of masks": lambda x, t, m: np.diff(m),
    "many indices": lambda x, t, m: x[np.arange(-2000, 1000).repeat(2)],
    "where a mask says": lambda x, t, m: x[np.flatnonzero(m)],
    "rows of a mask": lambda x, t, m: t[m],
    "sum of rows of a mask": lambda x, t, m: t[m].sum(axis=0),
    "largest of rows of a mask": lambda x, t, m: t[m].max(axis=0),
    "centred rows of a mask": lambda x, t, m: (t[m] - t[m].mean(axis=0)).sum(axis=1),
    "places in rows of a mask": lambda x, t, m: t[m].argmax(axis=0),
    "elements of a table": lambda x, t, m: t[t > 0],
    "sum of elements of a table": lambda x, t, m: t[t > 0].sum(),
    "index by an index": lambda x, t, m: x[x.argmax()],
}


@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions(ps: dv.Session, call: Callable[[Any, Any, Any], Any]) -> None:
    rng = np.random.default_rng(0)
    hosts = rng.standard_normal(2000), rng.standard_normal((2000, 3)), rng.random(2000) > 0.4
    ours = [*map(ps.array, hosts)]
    try:
        expected = call(*hosts)
    except IndexError:
        with pytest.raises(IndexError):
            call(*ours)
        return
    result = call(*ours)
    if expected is not None:
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)
    for mine, host in zip(ours, hosts, strict=True):
        np.testing.assert_array_equal(mine.numpy(), host)


@pytest.mark.parametrize(
    ("rows", "columns", "named"),
    [
        ([1, 5000], [0, 2], "index 5000 is out of bounds for axis 0 with size 2000"),
        ([1, -2001], [0, 2], "index -2001 is out of bounds for axis 0 with size 2000"),
        ([1, 1999], [3, 2], "index 3 is out of bounds for axis 1 with size 3"),
        ([-2000, 0], [0, -4], "index -4 is out of bounds for axis 1 with size 3"),
    ],
)
@pytest.mark.parametrize("known", ["neither", "rows", "columns"])
def test_the_axis_is_named_of_which_an_index_is_out_of_range(
    ps: dv.Session, rows: list[int], columns: list[int], named: str, known: str
) -> None:
    host = np.arange(6000.0).reshape(2000, 3)
    table = ps.array(host)
    key = (
        np.array(rows) if known == "rows" else ps.array(rows),
        np.array(columns) if known == "columns" else ps.array(columns),
    )
    with pytest.raises(IndexError, match=named):
        table[key].numpy()
    with pytest.raises(IndexError, match=named):
        table[key] = 1.0
    np.testing.assert_array_equal(table.numpy(), host)


def test_indices_out_of_range_are_heard_by_who_asks(ps: dv.Session) -> None:
    x = ps.arange(2000.0).persist()
    bad = x[ps.array([1, 5000])] + 1
    assert float((x + 1).sum()) == 2000 * 2001 / 2
    with pytest.raises(IndexError, match="5000 is out of range for length 2000"):
        bad.numpy()


@pytest.mark.parametrize(
    "part",
    [
        (slice(1, -1), slice(1, -1)),
        (slice(None), slice(2, 5)),
        (slice(3, 3000), slice(0, 4)),
        (slice(2, None), slice(3, None)),
    ],
)
def test_a_part_of_a_table_is_assigned_in_one_pass(part):
    x = np.random.default_rng(0).random((4000, 7))
    with dv.local(servers=3, in_process=True) as ps:
        u = ps.array(x)
        u[part] = 2 * u[part] + u[part]
        assert_plan(u, messages=1, sweeps=1)
        x[part] = 2 * x[part] + x[part]
        assert u.numpy().tobytes() == x.tobytes()
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        x[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
        assert_plan(u, messages=1, sweeps=1)
        assert u.numpy().tobytes() == x.tobytes()
