"""Vectors that nobody will hold any more give their memory to what is computed from them."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import distvec as dv
from distvec.runtime import liveness

LARGE = 1 << 19
"""Enough for donation, far more than an engine works with besides, and run by compiled kernels
where these are asked for."""
BYTES = 8 * LARGE


@pytest.fixture
def in_place(ps: dv.Session) -> Callable[[], int]:
    """How many vectors were written in place since the last call."""

    def count() -> int:
        found = ps.counters.vectors_in_place
        ps.counters.reset()
        return found

    return count


def peak(ps: dv.Session) -> int:
    """Most vectors that there were at a time; what a session takes besides is less than one."""
    return sum(status.peak for status in ps.client.status()) // BYTES


def make(ps: dv.Session, count: int) -> list[dv.DistArray]:
    return [ps.random.normal(LARGE, seed=seed).persist() for seed in range(count)]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_momentum_loop_needs_no_memory_of_its_own(
    ps: dv.Session, compiled: bool, request: pytest.FixtureRequest, in_place: Callable[[], int]
) -> None:
    if compiled:
        request.getfixturevalue("small_arrays_are_compiled")
    x, v, g = make(ps, 3)
    host_x, host_v, host_g = x.numpy(), v.numpy(), g.numpy()
    for _ in range(5):
        v = 0.9 * v + g
        x = x - 0.1 * v
        dv.evaluate(x, v, norm := v @ v)
        host_v = 0.9 * host_v + host_g
        host_x = host_x - 0.1 * host_v
    assert in_place() == 10
    assert peak(ps) == 3
    assert (x.numpy() == host_x).all()
    assert (v.numpy() == host_v).all()
    np.testing.assert_allclose(float(norm), host_v @ host_v)


def test_in_place_operators_work_in_place(ps: dv.Session, in_place: Callable[[], int]) -> None:
    x, y = make(ps, 2)
    expected = (x.numpy() + y.numpy()) * 2 - 1
    x += y
    x *= 2
    x -= 1.0
    ps.flush()
    assert (x.numpy() == expected).all()
    assert in_place() == 1
    assert peak(ps) == 2


def test_what_somebody_holds_stays(ps: dv.Session, in_place: Callable[[], int]) -> None:
    x, y = make(ps, 2)
    before = x.numpy()
    alias = x
    x = (x + y).persist()
    assert in_place() == 0
    assert (alias.numpy() == before).all()
    copy = y.copy()
    y += 1.0
    y.persist()
    assert in_place() == 0
    assert (copy.numpy() + 1.0 == y.numpy()).all()


def test_what_a_pending_expression_needs_stays(ps: dv.Session, in_place: Callable[[], int]) -> None:
    x, other = make(ps, 2)
    host, host_other = x.numpy(), other.numpy()
    later = x * other
    x = x + 1.0
    x.persist()
    assert in_place() == 0
    assert (later.numpy() == host * host_other).all()


def test_what_a_held_intermediate_needs_stays(
    ps: dv.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An intermediate that somebody holds but that does not come along: the lists are bounded."""
    monkeypatch.setattr("distvec.planner._MOST_RIDERS", 0)
    (x,) = make(ps, 1)
    host = x.numpy()
    total = (x * 3.0).sum()  # another reduction over the same product
    product = x * 3.0
    x = product - 1.0
    x.persist()
    assert (x.numpy() == host * 3.0 - 1.0).all()
    assert float(total) == pytest.approx((host * 3.0).sum())
    assert (product.numpy() == host * 3.0).all()


def test_arrays_hold_and_nothing_else_does(ps: dv.Session, in_place: Callable[[], int]) -> None:
    """Who looks at the insides of an array, as a debugger does, holds no value by that."""
    (x,) = make(ps, 1)
    expected = x.numpy() + 1.0
    insides = [x.node, x.node.value, x.buffer]
    x += 1.0
    x.persist()
    assert in_place() == 1
    assert (x.numpy() == expected).all()
    assert insides[1] is not x.node.value


HOLDERS: list[Callable[[dv.DistArray, dv.DistArray], dv.DistArray]] = [
    lambda x, y: x.copy(),
    lambda x, y: x * y,
    lambda x, y: dv.sum(x * y) + 1.0,
    lambda x, y: x.astype(np.float32).astype(np.float64),
]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("holder", HOLDERS)
def test_another_array_holds_as_long_as_it_is_there(
    ps: dv.Session,
    holder: Callable[[dv.DistArray, dv.DistArray], dv.DistArray],
    gone: bool,
    in_place: Callable[[], int],
) -> None:
    x, y = make(ps, 2)
    host = x.numpy()
    other = holder(x, y)
    expected = holder(ps.array(host), y).numpy()
    if gone:
        del other
    x += 1.0
    ps.counters.reset()
    x.persist()
    assert in_place() == int(gone)
    assert (x.numpy() == host + 1.0).all()
    if not gone:
        assert (other.numpy() == expected).all()


def test_memory_goes_to_vectors_of_the_same_dtype_only(
    ps: dv.Session, in_place: Callable[[], int]
) -> None:
    (x,) = make(ps, 1)
    expected = x.numpy().astype(np.float32)
    x = x.astype(np.float32)
    assert (x.persist().numpy() == expected).all()
    assert in_place() == 0


def test_not_where_more_memory_is_needed(ps: dv.Session, in_place: Callable[[], int]) -> None:
    """Such a program may fail on one server when another has run it: what it read must be there."""
    (x,) = make(ps, 1)
    a, b = x + 1.0, x + 2.0
    del x
    dv.evaluate(a, b)
    assert in_place() == 0


def test_not_where_an_inner_product_may_have_to_be_computed_anew(ps: dv.Session) -> None:
    rng = np.random.default_rng(1)
    host = rng.standard_normal(LARGE)
    near = host + 1e-9 * rng.standard_normal(LARGE)
    a, b = ps.array(near), ps.array(host)
    a = a - (a @ b) / (b @ b) * b
    product = a @ b
    exact = near - (near @ host) / (host @ host) * host
    value = float(product)
    assert ps.cancellations == 1
    assert abs(value - exact @ host) <= 1e-14 * (host @ host)
    np.testing.assert_allclose(a.numpy(), exact, atol=1e-12)


def test_not_where_an_index_may_be_out_of_range(
    ps: dv.Session, in_place: Callable[[], int]
) -> None:
    x, y = make(ps, 2)
    host_x, host_y, order = x.numpy(), y.numpy(), np.arange(LARGE)[::-1]
    index = ps.array(order)
    in_place()
    y = x[index] + y
    y.persist()
    assert in_place() == 0
    assert (y.numpy() == host_x[order] + host_y).all()


@pytest.mark.parametrize("puts", [False, True])
def test_not_where_a_place_in_a_row_may_be_out_of_range(
    ps: dv.Session, in_place: Callable[[], int], puts: bool
) -> None:
    host = np.random.default_rng(0).standard_normal((LARGE, 2))
    places = np.zeros((LARGE, 2), np.int64)
    places[-1, 1] = 2
    table, where = ps.array(host).persist(), ps.array(places)
    taken = table.copy()
    if puts:
        np.put_along_axis(taken, where, 0.0, 1)
    else:
        taken = np.take_along_axis(table, where, 1)
    least = table.min()
    del table
    with pytest.raises(IndexError, match="index 2 is out of bounds for axis 1 with size 2"):
        taken.persist()
    assert float(least) == host.min()
    assert in_place() == 0


def test_small_vectors_are_not_worth_it(ps: dv.Session, in_place: Callable[[], int]) -> None:
    x = ps.array(np.ones(1000))
    x += 1.0
    x.persist()
    assert in_place() == 0


def test_another_copy_where_memory_is_short() -> None:
    """Two vectors fit: an update in place runs, one that needs a third says so and harms none."""
    with dv.local(servers=2, in_process=True, memory=2 * BYTES // 2 + (1 << 16)) as ps:
        x, y = make(ps, 2)
        expected = x.numpy() * 2.0 + y.numpy()
        x = 2.0 * x + y
        assert (x.persist().numpy() == expected).all()
        with pytest.raises(dv.OutOfBudget):
            (x + y).persist()
        assert (x.numpy() == expected).all()


STATEMENTS = (
    "x += y",
    "y = x * 2.0",
    "x = x - y",
    "z = x",
    "z = z + y; y = z - x",
    "y = x.copy(); y -= 1.0",
    "s = float(x @ y)",
    "w = x * z; x = w + y",
    "del w",
    "ps.flush()",
    "z = x - (x @ y) / (1.0 + y @ y) * y",
    "y.persist()",
    "x = np.exp(-np.abs(x)); z += x",
    "k = y > 0; y = np.where(k, x, z)",
)


class _Nothing:
    """NumPy's side has nothing to flush."""

    def flush(self) -> None:
        """Do nothing."""


@given(program=st.lists(st.sampled_from(STATEMENTS), min_size=3, max_size=14))
def test_programs_with_aliases_agree_with_numpy(
    program: list[str], sessions: dict[int, dv.Session]
) -> None:
    """Every vector may be donated here, so whatever is overwritten too early shows."""
    start = {name: np.linspace(-1.0, 1.0 + k, 1500) for k, name in enumerate("xyzw")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liveness, "LEAST_BYTES", 0)
        theirs = {"np": np, "ps": _Nothing(), **{k: v.copy() for k, v in start.items()}}
        ours = {"np": np, "ps": sessions[2], **{k: sessions[2].array(v) for k, v in start.items()}}
        for line in program:
            if line == "del w" and "w" not in theirs:
                continue
            exec(line.replace("y.persist()", "y = y.copy()"), theirs)
            exec(line, ours)
        for name in "xyzw":
            if name in theirs:
                np.testing.assert_allclose(
                    ours[name].numpy(), theirs[name], rtol=1e-9, atol=1e-9, err_msg=repr(program)
                )


def test_what_another_sweep_of_the_program_reads_stays(
    ps: dv.Session, in_place: Callable[[], int]
) -> None:
    (a,) = make(ps, 1)
    host = a.numpy()
    largest = (a[:, None] * np.array([0.5, -2.0])).max(axis=1)  # a sweep of rows
    a += a  # and one of vectors, in the same program
    in_place()
    dv.evaluate(largest, a)
    assert in_place() == 0
    np.testing.assert_array_equal(a.numpy(), 2 * host)
    np.testing.assert_array_equal(largest.numpy(), (host[:, None] * [0.5, -2.0]).max(axis=1))
