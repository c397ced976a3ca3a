"""Linear recurrences: those of the loop, on any number of servers."""

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

RNG = np.random.default_rng(0)
LENGTHS = (0, 1, 5, 1024, 1025, 3000)


def loop(a: Any, b: Any, initial: Any = 0.0) -> np.ndarray:
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))
    a, b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
    y, last = np.empty(shape), np.asarray(initial, np.float64)
    for t in range(len(y)):
        y[t] = last = a[t] * last + b[t]
    return y


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(LENGTHS), st.booleans(), server_counts(), st.data())
def test_within_the_bound(
    sessions: dict[int, dv.Session], n: int, varies: bool, servers: int, data: st.DataObject
) -> None:
    """Errors enter with each term and go on as what they are of: a recurrence of magnitudes."""
    b = data.draw(vectors(n, special=False))
    a = data.draw(vectors(n, special=False, scale=1.0) if varies else st.floats(-1.0, 1.0))
    initial = data.draw(st.sampled_from([0.0, -0.0, 1.0, 1e6]))
    session = sessions[servers]
    ours = dv.linear_recurrence(session.array(a), session.array(b), initial).numpy()
    bound = 4 * (n + 16) * EPSILON * loop(np.abs(a), np.abs(b), abs(initial)) + 1e-300
    assert_within(ours, loop(a, b, initial), bound, "recurrence")


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((), (3000,), ()),
    ((3000,), (3000,), ()),
    ((3000,), (), ()),
    ((), (3000, 3), (3,)),
    ((3,), (3000, 3), ()),
    ((1, 3), (3000, 3), (3,)),
    ((3000, 1), (3000, 3), (3,)),
    ((3000, 3), (3000, 3), (1,)),
    ((3000, 1), (1, 3), (3,)),
    ((3000, 3), (3000, 1), (3,)),
]


@pytest.mark.parametrize("elements", [1, 1 << 40], ids=["compiled", "by Python"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_shapes_and_the_same_bits(
    sessions: dict[int, dv.Session], monkeypatch: pytest.MonkeyPatch, shapes: Any, elements: int
) -> None:
    monkeypatch.setattr(running, "COMPILED_FROM", elements)
    monkeypatch.setattr(running, "RECURRED_FROM", elements)
    given = [RNG.uniform(-1.0, 1.0, shape) for shape in shapes]
    expected = loop(*given)
    assert_close(dv.linear_recurrence(*given), expected)
    bits = set()
    for session in sessions.values():
        ours = [session.array(one) for one in given]
        found = dv.linear_recurrence(*ours).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(found[:1024], expected[:1024])
        bits.add(found.tobytes())
    assert len(bits) == 1


def test_dtypes_and_numbers(ps: dv.Session) -> None:
    b = np.arange(2000)
    for dtype in ("float64", "float32", "float16", "int64", "bool"):
        given = (b % 3).astype(dtype)
        for a in (0.5, 1, np.float32(0.5), np.float64(0.5)):
            theirs, ours = dv.linear_recurrence(a, given), dv.linear_recurrence(a, ps.array(given))
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=np.finfo(theirs.dtype).eps)
    assert dv.linear_recurrence(0.5, b.astype(np.float32)).dtype == np.float32
    assert dv.linear_recurrence(2, [1, 2, 3], 1).tolist() == [3.0, 8.0, 19.0]
    total = ps.array(np.ones(4)).sum()  # a number that is not computed yet
    np.testing.assert_array_equal(
        dv.linear_recurrence(0.25 * total, ps.ones(2000), total).numpy(), np.arange(5.0, 2005.0)
    )


def test_long_growth_and_decay(ps: dv.Session) -> None:
    """What a block alone multiplies by has no float; what comes of it has."""
    decay = dv.linear_recurrence(0.25, ps.zeros(5000), 1.0).numpy()
    np.testing.assert_array_equal(decay, np.ldexp(1.0, -2 * np.arange(1, 5001)))
    growth = dv.linear_recurrence(4.0, ps.zeros(5000), 0.0).numpy()
    np.testing.assert_array_equal(growth, np.zeros(5000))
    b = np.zeros(5000)
    b[100] = np.nan
    found = dv.linear_recurrence(0.5, ps.array(b)).numpy()
    np.testing.assert_array_equal(np.isnan(found), np.arange(5000) >= 100)


def test_of_what_the_client_keeps(ps: dv.Session) -> None:
    x = RNG.standard_normal((4, 3))
    kept = ps.array(np.eye(4)).T @ ps.array(x)
    found = dv.linear_recurrence(0.5, kept, kept[0])
    np.testing.assert_allclose(found.numpy(), loop(0.5, x, x[0]))
    row = ps.array(np.ones((9, 4))).T @ ps.array(np.ones((9, 3)))  # not computed yet
    found = dv.linear_recurrence(row[0] / 18.0, ps.ones((2000, 3)), row[0])
    np.testing.assert_allclose(found.numpy(), loop(0.5, np.ones((2000, 3)), 9.0))


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: dv.linear_recurrence(0.5, x[0]), ValueError, "must be a vector or a table"),
    (lambda x: dv.linear_recurrence(0.5, 1.0), ValueError, "must be a vector or a table"),
    (lambda x: dv.linear_recurrence(x, x[:2]), ValueError, "broadcast"),
    (lambda x: dv.linear_recurrence(0.5, x, [1.0, 2.0]), ValueError, "one value for each column"),
    (
        lambda x: dv.linear_recurrence(0.5, x.session.space(3, split="columns").ones((3, 4))),
        TypeError,
        "split by columns",
    ),
    (lambda x: dv.linear_recurrence(0.5, x.T @ x, x), ValueError, "must be a vector or a table"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(ps: dv.Session, call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call(ps.array(np.ones(3)))


@pytest.mark.parametrize(("varies", "bytes_per_border"), [(False, 8), (True, 24)])
def test_cost(ps: dv.Session, varies: bool, bytes_per_border: int) -> None:
    b = ps.array(np.ones(10_000)).persist()
    a = b / 2 if varies else 0.5
    ps.counters.reset()
    y = dv.linear_recurrence(a, 2 * b)
    assert float(y.sum()) > 0  # in the same messages
    counted = ps.counters
    assert counted.messages == counted.phases == 2
    assert (counted.peer_messages, counted.peer_bytes) == (1, 5 * bytes_per_border)
