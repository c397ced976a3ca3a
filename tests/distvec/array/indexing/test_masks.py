"""``a[mask]``: as NumPy's, though the elements are not made where only their reduction counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

import distvec as dv
from distvec.testing import assert_plan
from tests.distvec.conftest import SERVER_COUNTS
from tests.distvec.oracle import LENGTHS, WIDE, outcome, vectors

Call = Callable[[Any, Any, Any], Any]

REDUCED: dict[str, Call] = {
    "sum": lambda a, b, m: a[m].sum(),
    "prod": lambda a, b, m: a[m].prod(),
    "mean": lambda a, b, m: a[m].mean(),
    "mean of the others": lambda a, b, m: np.mean(a[~m]),
    "min": lambda a, b, m: a[m].min(),
    "max": lambda a, b, m: np.max(a[m]),
    "any": lambda a, b, m: a[m].any(),
    "all": lambda a, b, m: a[m].all(),
    "argmin": lambda a, b, m: a[m].argmin(),
    "argmax": lambda a, b, m: np.argmax(a[m]),
    "count_nonzero": lambda a, b, m: np.count_nonzero(a[m]),
    "norm": lambda a, b, m: np.linalg.norm(a[m]),
    "norm 1": lambda a, b, m: np.linalg.norm(a[m], 1),
    "least norm": lambda a, b, m: np.linalg.norm(a[m], -np.inf),
    "dot": lambda a, b, m: a[m] @ b[m],
    "of an expression": lambda a, b, m: (2 * a[m] - b[m]).sum(),
    "with a scalar of it": lambda a, b, m: ((a[m] - a[m].sum()) ** 2).sum(),
    "in another dtype": lambda a, b, m: a[m].astype("float32").max(),
    "keepdims": lambda a, b, m: np.sum(a[m], keepdims=True),
    "a sum of indices": lambda a, b, m: np.flatnonzero(m).sum(),
    "the last index": lambda a, b, m: np.where(m)[0].max(),
    "of a where": lambda a, b, m: np.where(a[m] > 0, a[m], b[m]).sum(),
    "extract": lambda a, b, m: np.extract(m, a).sum(),
    "compress": lambda a, b, m: np.compress(m, a).sum(),
    "len": lambda a, b, m: len(a[m]),
    "shape": lambda a, b, m: a[m].shape[0] + a[m].size + a[m].ndim,
}


def _multiplied(a: Any, b: Any, m: Any) -> None:
    a[m] *= -1


def _set(value: Any) -> Call:
    def change(a: Any, b: Any, m: Any) -> None:
        a[m] = value

    return change


def _of_another(a: Any, b: Any, m: Any) -> None:
    a[m] = 2 * b[m] + a[m]


def _of_its_own_sum(a: Any, b: Any, m: Any) -> None:
    a[m] -= a[m].sum()


def _later(a: Any, b: Any, m: Any) -> None:
    chosen, other = a[m], a
    a[m] = 1
    chosen += 1
    other[m] += chosen


def _both(a: Any, b: Any, m: Any) -> None:
    a[m] = 3
    a[~m] = b[~m]


def _of_a_changed_mask(a: Any, b: Any, m: Any) -> None:
    chosen = a[m]
    m[:] = True
    a[:] = chosen.sum()


CHANGED: dict[str, Call] = {
    "x[m] *= -1": _multiplied,
    "x[m] = 0": _set(0),
    "x[m] = 2.7": _set(2.7),
    "x[m] = True": _set(True),
    "x[m] = [3]": _set([3]),
    "x[m] = nan": _set(float("nan")),
    "x[m] = 2**40": _set(2**40),
    "x[m] = text": _set("a"),
    "x[m] = f(y[m], x[m])": _of_another,
    "x[m] -= x[m].sum()": _of_its_own_sum,
    "a copy of that time": _later,
    "either": _both,
    "another mask": _of_a_changed_mask,
    "putmask": lambda a, b, m: np.putmask(a, m, b),
    "putmask of a number": lambda a, b, m: np.putmask(a, m, 2.5),
    "copyto": lambda a, b, m: np.copyto(a, b, where=m),
    "copyto of a number": lambda a, b, m: np.copyto(a, 7, where=m),
    "copyto everywhere": lambda a, b, m: np.copyto(a, b),
    "copyto of a fraction": lambda a, b, m: np.copyto(a, 2.5),
    "fill": lambda a, b, m: a.fill(3.5),
}


@st.composite
def _operands(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    length = draw(st.sampled_from(LENGTHS))
    tame = {"special": False, "scale": 100.0}
    a = draw(vectors(length, draw(st.sampled_from(WIDE)), **tame))
    b = draw(vectors(length, draw(st.sampled_from(WIDE)), **tame))
    return a, b, draw(vectors(length, "bool") | st.just(np.zeros(length, np.bool_)))


def _assert_same(ours: Any, theirs: Any) -> None:
    got, expected = np.asarray(ours), np.asarray(theirs)
    assert got.shape == expected.shape
    if not isinstance(theirs, int):
        assert got.dtype == expected.dtype
    if expected.dtype.kind == "f":
        tolerance = 1e-4 if expected.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=1e3 * tolerance)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("call", REDUCED.values(), ids=REDUCED)
@settings(max_examples=10)
@given(operands=_operands(), count=st.sampled_from(SERVER_COUNTS))
def test_reductions(
    sessions: dict[int, dv.Session], call: Call, operands: tuple[Any, Any, Any], count: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mean of nothing
        theirs, their_error = outcome(call, *operands)
        # Whether a product meets infinity on its way to 0 depends on the order of its factors.
        largest = np.prod(np.maximum(np.abs(operands[0]), 1, dtype=np.float64))
    assume(call is not REDUCED["prod"] or operands[0].dtype.kind != "f" or np.isfinite(largest))
    ours, error = outcome(
        lambda *given: _value(call(*given)), *map(sessions[count].array, operands)
    )
    if their_error is not None:
        assert error is not None and issubclass(error, their_error)
        return
    assert error is None
    _assert_same(ours, theirs)


def _value(result: Any) -> Any:
    return result.numpy() if isinstance(result, dv.DistArray) else result


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
@settings(max_examples=10)
@given(operands=_operands(), count=st.sampled_from(SERVER_COUNTS))
def test_assignments(
    sessions: dict[int, dv.Session], change: Call, operands: tuple[Any, Any, Any], count: int
) -> None:
    theirs, ours = [x.copy() for x in operands], [*map(sessions[count].array, operands)]
    _, their_error = outcome(change, *theirs)
    _, error = outcome(change, *ours)
    if their_error is not None:
        assert error is not None and issubclass(their_error, error)
        return
    assert error is None
    for mine, expected in zip(ours, theirs, strict=True):
        _assert_same(mine.numpy(), expected)


def test_cost(ps: dv.Session) -> None:
    x, y = ps.random.normal(5000, seed=1).persist(), ps.random.normal(5000, seed=2).persist()
    m = (y > 0).persist()
    ps.counters.reset()
    chosen = x[m]
    total, mean, best = chosen.sum(), chosen.mean(), chosen.max()
    assert ps.counters.messages == 0
    assert_plan(total, mean, best, messages=1, sweeps=1, vectors_read=2, vectors_written=0)
    dv.evaluate(total, mean, best)
    assert len(chosen) == int(m.numpy().sum())  # counted for the mean already
    assert ps.counters.programs == 1
    cost = ps.counters.snapshot()
    assert cost["sweeps"] == 1 and cost["vectors_written"] == 0
    assert_plan((2 * x[m] + y[m]) @ y[m], messages=1, sweeps=1, vectors_read=3, vectors_written=0)
    x[m] *= -1
    x[y > 1] = 0
    assert_plan(x, messages=1, sweeps=1, vectors_read=3, vectors_written=1)
    assert_plan(x[m].argmax(), messages=2, vectors_written=1)


def test_a_length_is_counted_once_and_as_an_implicit_evaluation(ps: dv.Session) -> None:
    x = ps.arange(3000).persist()
    chosen, others = x[x > 10], (x * 2)[x > 10]
    before = ps.implicit_evaluations
    assert len(chosen) == chosen.size == len(others) == 2989 and chosen.shape == (2989,)
    assert ps.implicit_evaluations == before + 1
    with ps.strict(), pytest.raises(RuntimeError, match="length of a selection"):
        len(x[x > 11])


def test_that_nothing_was_selected_is_heard_by_who_asks(ps: dv.Session) -> None:
    x = ps.arange(3000.0).persist()
    none = x[x < 0].max()
    other = x + 1
    assert float(other.sum()) == 3000 * 3001 / 2
    ps.flush()
    for _ in range(2):
        with pytest.raises(ValueError, match="zero-size array to reduction operation maximum"):
            float(none)
    with pytest.raises(ValueError, match="attempt to get argmin of an empty sequence"):
        int(x[x < 0].argmin())
    assert np.isnan(float(x[x < 0].mean())) and float(x[x < 0].sum()) == 0


def test_masks_of_the_client(ps: dv.Session) -> None:
    host = np.arange(10.0)
    x = ps.array(host)
    for mask in (host > 3, [True, False] * 5):
        assert float(x[mask].sum()) == host[mask].sum()
    for wrong in (host[1:] > 3, ps.array(host[1:]) > 3, [True]):
        with pytest.raises(IndexError, match="boolean index did not match indexed array along"):
            x[wrong]
        with pytest.raises(IndexError, match="size of axis is 10"):
            x[wrong] = 1
    with pytest.raises(IndexError, match="too many indices"):
        ps.array(3.0)[[True]]


def test_a_long_chain_on_a_selection_is_sent_off(ps: dv.Session) -> None:
    x = ps.arange(3000.0).persist()
    chosen = x[x > 2990]
    for _ in range(3 * ps.pending_depth):
        chosen = chosen * 0.5 + 1
    assert chosen.values.node.depth <= ps.pending_depth
    assert float(chosen.sum()) == 18.0


PIECES: dict[str, Callable[[Any, Any], Any]] = {
    "select": lambda f, i: np.select([f > 3, i < 2], [f, i], -1),
    "select of numbers": lambda f, i: np.select([f > 3, i < 2], [1, 2]),
    "select without a default": lambda f, i: np.select([f > 3], [i]),
    "piecewise": lambda f, i: np.piecewise(f, [f < 2, f > 5], [np.square, lambda v: -v, 7]),
    "piecewise of integers": lambda f, i: np.piecewise(i, [i < 2], [1.5, lambda v: v / 2]),
    "piecewise of one": lambda f, i: np.piecewise(f, f < 2, [np.exp]),
    "too few": lambda f, i: np.piecewise(f, [f < 2, f > 5], [1]),
    "too many choices": lambda f, i: np.select([f > 3], [f, i]),
    "no choices": lambda f, i: np.select([], []),
    "no conditions": lambda f, i: np.select([i], [f]),
    "putmask of an unsafe dtype": lambda f, i: np.putmask(i, f > 3, f),
    "copyto where numbers": lambda f, i: np.copyto(i, 2, where=i),
    "a long condition": lambda f, i: np.compress([True] * 2000, f),
    "a short condition": lambda f, i: np.compress([True] * 20, f).sum(),
    "where with one choice": lambda f, i: np.where(f > 3, f),
}


@pytest.mark.parametrize("call", PIECES.values(), ids=PIECES)
def test_pieces(ps: dv.Session, call: Callable[[Any, Any], Any]) -> None:
    operands = np.linspace(-1, 9, 1030), np.arange(1030) % 5
    theirs, their_error = outcome(call, *operands)
    ours, error = outcome(call, *map(ps.array, operands))
    assert error == their_error
    if theirs is not None:
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-13)
        assert ours.dtype == theirs.dtype


def test_a_selection_changed_after_it_was_put_together_is_what_is_assigned(ps: dv.Session) -> None:
    x, mask = ps.array([1.0, 2.0, 3.0]), ps.array([True, False, True])
    added = x[mask] * 10
    assert added.numpy().tolist() == [10.0, 30.0]
    x[mask] += added
    assert x.numpy().tolist() == [11.0, 2.0, 33.0]
    chosen = x[mask]
    chosen += added
    assert chosen.astype(np.int64).numpy().tolist() == [21, 63]


def test_a_mask_of_nothing_chooses_nothing(ps: dv.Session) -> None:
    host = np.arange(6.0).reshape(2, 3)
    x, v = ps.array(host), ps.array(host[0])
    none = ps.zeros(0, np.bool_)
    assert v[none].shape == host[0][np.zeros(0, bool)].shape == (0,)
    assert x[none].shape == (0, 3)
    assert x[ps.zeros((0, 3), np.bool_)].shape == host[np.zeros((0, 3), bool)].shape == (0,)
    v[none] = 7.0
    np.testing.assert_array_equal(v.numpy(), host[0])
    with pytest.raises(IndexError, match="did not match"):
        v[ps.ones(2, np.bool_)]
