"""Running results along axis 0: NumPy's, on any number of servers, in two messages to each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.testing import assert_close, server_counts, vectors
from distvec.testing.compare import assert_within
from distvec.testing.error_bounds import EPSILON
from ps_backend.kernels.collectives import running
from ps_backend.program.collectives import SCANS
from tests.distvec.alike import SHAPES, arrays, assert_alike

SERVERS = (1, 2, 3, 7)
ROUND = ("add", "multiply", "logaddexp", "logaddexp2")
"""Those whose floats depend on the order."""
EXACT = [name for name in SCANS if name not in ROUND]

INTEGERS = st.sampled_from(["int64", "int8", "uint32", "bool"]).flatmap(lambda d: arrays(dtype=d))

cheap = settings(max_examples=30, deadline=None)


def sum_bound(x: np.ndarray, axis: int = 0) -> np.ndarray:
    """What NumPy's running sums, and ours, may be off, each from the exact ones."""
    n = x.shape[axis]
    magnitudes = np.cumsum(np.abs(x).astype(np.float64), axis=axis)
    unit = np.finfo(x.dtype).eps
    return 2 * (n + 4) * unit * magnitudes


@cheap
@given(arrays(), st.sampled_from(EXACT), st.integers(-2, 1), server_counts())
def test_exact_ones(
    sessions: dict[int, dv.Session], x: np.ndarray, name: str, axis: int, servers: int
) -> None:
    def scan(x: Any) -> Any:
        return getattr(np, name).accumulate(x, axis=axis)

    if x.dtype.kind == "f":
        x = x + 0.0  # of -0.0 and 0.0, which are equal, either may be the larger one
    assert_alike(sessions[servers], scan, x)


@cheap
@given(
    INTEGERS, st.sampled_from(["cumsum", "cumprod"]), st.sampled_from([None, 0, 1, -1]),
    server_counts(),
)  # fmt: skip
def test_integers_are_exact(
    sessions: dict[int, dv.Session], x: np.ndarray, name: str, axis: Any, servers: int
) -> None:
    assert_alike(sessions[servers], lambda x: getattr(np, name)(x, axis=axis), x)
    assert_alike(sessions[servers], lambda x: getattr(x, name)(axis), x)


@cheap
@given(st.sampled_from(SHAPES), st.sampled_from(["float64", "float32"]), server_counts(), st.data())
def test_sums_of_floats_are_within_their_bound(
    sessions: dict[int, dv.Session], shape: Any, dtype: str, servers: int, data: st.DataObject
) -> None:
    x = data.draw(vectors(int(np.prod(shape)), dtype, special=False)).reshape(shape)
    for axis in range(len(shape)):
        ours = np.cumsum(sessions[servers].array(x), axis=axis).numpy()
        assert_within(ours, np.cumsum(x, axis=axis), sum_bound(x, axis), "cumsum")


@cheap
@given(st.sampled_from(SHAPES), server_counts(), st.data())
def test_products_of_floats(
    sessions: dict[int, dv.Session], shape: Any, servers: int, data: st.DataObject
) -> None:
    scale = data.draw(st.sampled_from([1.001, 1.0, 0.999]))
    x = data.draw(vectors(int(np.prod(shape)), special=False, scale=2.0)).reshape(shape)
    x = np.where(np.abs(x) < 0.5, 1.0, np.sign(x) * scale)
    ours, theirs = np.cumprod(sessions[servers].array(x), axis=0).numpy(), np.cumprod(x, axis=0)
    assert_within(ours, theirs, 4 * (len(x) + 4) * EPSILON * np.abs(theirs), "cumprod")


def test_what_is_not_finite_goes_on(sessions: dict[int, dv.Session]) -> None:
    x = np.linspace(0.9, 1.1, 5000)
    for special in (np.nan, np.inf, -np.inf, 0.0):
        y = x.copy()
        y[2500] = special
        for name in ROUND:
            with np.errstate(all="ignore"):
                expected = getattr(np, name).accumulate(y)
            ours = getattr(np, name).accumulate(sessions[3].array(y)).numpy()
            np.testing.assert_allclose(ours, expected, rtol=1e-9)
        y[4000] = -np.inf
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(np.cumsum(sessions[3].array(y)).numpy(), np.cumsum(y))


def test_products_leave_the_range_of_floats_only_where_numpys_do(
    sessions: dict[int, dv.Session],
) -> None:
    """Not where a block alone would: the first ones lead down, the next ones up again."""
    x = np.repeat([0.9, 1 / 0.9, 1.3, 1 / 1.3], 2048)
    ours = np.cumprod(sessions[2].array(x)).numpy()
    np.testing.assert_allclose(ours, np.cumprod(x), rtol=1e-10)
    x = np.repeat([2.0**-0.9, 2.0**0.9], 1100)  # a block of the latter is more than 1e308 / 2
    ours = np.cumprod(sessions[2].array(x)).numpy()
    np.testing.assert_allclose(ours, np.cumprod(x), rtol=1e-10)


@pytest.mark.parametrize("name", ROUND)
def test_logarithms_of_sums_and_others(sessions: dict[int, dv.Session], name: str) -> None:
    x = np.random.default_rng(0).uniform(-1.0, 1.0, (2100, 2))
    expected = getattr(np, name).accumulate(x)
    ours = getattr(np, name).accumulate(sessions[3].array(x)).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-11, atol=1e-11)


@cheap
@given(arrays(), st.sampled_from([None, "int64", "int8", "float64", "float32", "bool"]))
def test_dtypes(sessions: dict[int, dv.Session], x: np.ndarray, dtype: Any) -> None:
    if x.dtype.kind == "f":
        x = np.clip(np.nan_to_num(x), -3, 3).round().astype(x.dtype)
    x = x[:1030]
    for function in (np.cumulative_sum, np.add.accumulate, np.logical_or.accumulate):
        if function is np.logical_or.accumulate and dtype not in (None, "bool"):
            continue

        def scan(x: Any, function: Any = function) -> Any:
            return function(x, axis=0, dtype=dtype)

        assert_alike(sessions[2], scan, x)


@cheap
@given(INTEGERS, st.sampled_from(["cumulative_sum", "cumulative_prod"]), st.integers(-2, 1))
def test_with_what_they_begin_from(
    sessions: dict[int, dv.Session], x: np.ndarray, name: str, axis: int
) -> None:
    def scan(x: Any) -> Any:
        return getattr(np, name)(x, axis=axis, include_initial=True)

    assert_alike(sessions[3], scan, x)


def test_without_nan(sessions: dict[int, dv.Session]) -> None:
    x = np.array([1.5, np.nan, 2.0, np.nan, -1.0] * 500).reshape(-1, 2)
    for scan in (np.nancumsum, np.nancumprod):
        for axis in (0, 1, None):
            ours = scan(sessions[3].array(x), axis=axis).numpy()
            np.testing.assert_allclose(ours, scan(x, axis=axis), rtol=1e-12)
    whole = np.arange(5, dtype=np.int8)
    assert_close(np.nancumsum(a=sessions[1].array(whole)).numpy(), np.nancumsum(a=whole))


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: np.subtract.accumulate(x), TypeError, "available are accumulate of add"),
    (lambda x: np.bitwise_and.accumulate(x), TypeError, "bitwise_and"),
    (lambda x: np.add.accumulate(x, axis=2), ValueError, "axis 2"),
    (lambda x: np.cumsum(x, axis=3), ValueError, "axis 3"),
    (lambda x: np.add.accumulate(x, axis=None), ValueError, "multiple axes"),
    (lambda x: np.cumulative_sum(x), ValueError, "``axis`` argument is required"),
    (lambda x: np.add.accumulate(x[0, 0]), TypeError, "on a scalar"),
    (lambda x: np.cumsum(x, out=np.ones((3, 2))), TypeError, "out"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(sessions: dict[int, dv.Session], call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call(sessions[2].array(np.ones((3, 2))))


def test_into_another_array(sessions: dict[int, dv.Session]) -> None:
    x = np.arange(3000, dtype=np.int16)
    for scan in (np.cumsum, np.add.accumulate, np.cumulative_sum, np.nancumsum):
        ours, theirs = sessions[2].zeros(3000), np.zeros(3000)
        assert scan(sessions[2].array(x), out=ours) is ours
        scan(x, out=theirs)
        assert_close(ours.numpy(), theirs)
    x = sessions[2].arange(3000)
    np.maximum.accumulate(x, out=x)
    assert_close(x.numpy(), np.arange(3000))


def test_of_what_is_computed_views_and_selections(sessions: dict[int, dv.Session]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, 4000)
    for servers in SERVERS:
        ours = sessions[servers].array(x)
        for of in (
            lambda x: np.cumsum(2 * x + 1),
            lambda x: np.cumsum(x[5:3000]),
            lambda x: np.cumsum(x[::-1])[::-1],
            lambda x: np.cumsum(x)[10:] - np.cumsum(x)[:-10],
            lambda x: np.cumsum(np.maximum.accumulate(x)),
            lambda x: np.cumsum(x[x > 0]),
            lambda x: np.cumsum(np.cumsum(x) + x),
        ):
            assert_close(of(ours).numpy(), of(x))


def test_of_what_the_client_keeps(ps: dv.Session) -> None:
    x = np.arange(12.0).reshape(4, 3)
    kept = ps.array(np.eye(4)).T @ ps.array(x)
    assert kept.node.on_client
    assert_close(np.cumsum(kept, axis=0).numpy(), np.cumsum(x, axis=0))
    assert_close(np.maximum.accumulate(kept, axis=1).numpy(), x)
    assert_close(np.cumsum(kept).numpy(), np.cumsum(x))
    assert_close(np.cumsum(ps.array(3.0)).numpy(), np.cumsum(np.array(3.0)))
    with_zero = np.cumulative_sum(kept, axis=1, include_initial=True)
    assert_close(with_zero.numpy(), np.cumulative_sum(x, axis=1, include_initial=True))


@pytest.mark.parametrize("elements", [1, 1 << 40], ids=["compiled", "by NumPy"])
@pytest.mark.parametrize("shape", [(30_000,), (3000, 5)])
def test_the_bits_do_not_depend_on_the_servers(
    sessions: dict[int, dv.Session], monkeypatch: pytest.MonkeyPatch, shape: Any, elements: int
) -> None:
    monkeypatch.setattr(running, "COMPILED_FROM", elements)
    x = np.random.default_rng(0).standard_normal(shape)
    for scan in (np.cumsum, np.cumprod, np.maximum.accumulate, np.logaddexp.accumulate):
        found = {scan(sessions[k].array(x), axis=0).numpy().tobytes() for k in SERVERS}
        assert len(found) == 1
    np.testing.assert_allclose(
        np.cumsum(sessions[3].array(x), axis=0).numpy(), np.cumsum(x, axis=0), atol=1e-10
    )


def test_sums_of_what_is_not_negative_never_fall(sessions: dict[int, dv.Session]) -> None:
    x = np.random.default_rng(0).exponential(size=50_000) ** 8
    assert (np.diff(np.cumsum(sessions[3].array(x)).numpy()) >= 0).all()


@pytest.mark.parametrize("row", [(), (3,)])
def test_cost(sessions: dict[int, dv.Session], row: tuple[int, ...]) -> None:
    """Two messages to each server; 8 bytes for each border of blocks, and column, from those
    before."""
    for servers, session in sessions.items():
        x = session.array(np.ones((10_000, *row)))
        blocks = [(k * 10 // servers) for k in range(servers + 1)]  # of 1024 slots
        x.persist()
        session.counters.reset()
        y = np.cumsum(x, axis=0).persist()
        counted = session.counters
        assert counted.messages == counted.phases == (2 if servers > 1 else 1)
        pairs = servers * (servers - 1) // 2
        assert counted.peer_messages == pairs
        assert counted.peer_bytes == 8 * sum(blocks[:-1]) * int(np.prod(row))
        session.counters.reset()
        assert float((2.0 * np.cumsum(x + x, axis=0)).sum()) > 0
        assert session.counters.messages == 2  # as the work around them comes along
        del y


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_tables_that_are_split_by_columns(ps: dv.Session, axis: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, 1500))
    ours = ps.space(3, split="columns").array(x)
    for scan in (np.cumsum, np.cumprod, np.maximum.accumulate, np.cumulative_sum, np.nancumsum):
        assert_close(scan(ours, axis=axis).numpy(), scan(x, axis=axis))
    assert_close(ours.cumsum(axis).numpy(), x.cumsum(axis))
    assert_close(ours.cumprod(axis=axis, dtype="int8").numpy(), x.cumprod(axis, np.int8))
    into = np.zeros_like(ours)
    assert np.add.accumulate(ours, axis=axis, out=into) is into
    assert_close(into.numpy(), np.add.accumulate(x, axis=axis))
    with pytest.raises(TypeError, match="out= must be split by columns"):
        np.cumsum(ours, axis=axis, out=ps.ones((3, 1500)))


def test_nothing_is_warned_of_whoever_computes_it(sessions: dict[int, dv.Session]) -> None:
    """As nobody has asked for values yet; long enough for several threads."""
    x = np.ones(150_000)
    x[1000::1000], x[1500::1000] = np.inf, -np.inf
    with np.errstate(all="ignore"):
        expected = np.cumsum(x)
    np.testing.assert_array_equal(np.cumsum(sessions[1].array(x)).numpy(), expected)
