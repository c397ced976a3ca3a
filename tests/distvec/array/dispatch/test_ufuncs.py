"""Every ufunc of NumPy that has real arguments, with its keywords and methods."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings

import distvec as dv
from ps_backend.program import ops
from tests.distvec.conftest import SERVER_COUNTS
from tests.distvec.oracle import DTYPES, LENGTHS, assert_close, outcome, vectors

NOT_REAL = {np.isnat}
PRODUCTS = {np.matmul, np.vecdot, np.matvec, np.vecmat}


def test_there_is_a_row_for_every_ufunc_of_real_arguments() -> None:
    found = {one for one in vars(np).values() if isinstance(one, np.ufunc)}
    assert found - set(ops.NAMES) - set(ops.PARTS) == NOT_REAL | PRODUCTS


@pytest.mark.parametrize("name", ["log1p", "expm1", "exp2", "cbrt"])
def test_what_scipy_has_by_numpys_name_is_numpys(ps: dv.Session, name: str) -> None:
    values = np.array([0.1, 0.5, 2.0])
    found = getattr(scipy.special, name)(ps.array(values)).numpy()
    np.testing.assert_array_equal(found, getattr(np, name)(values))


def test_what_scipy_alone_has_is_refused_by_its_name(ps: dv.Session) -> None:
    with pytest.raises(TypeError, match=r"scipy\.special\.gamma is not available.*x\.numpy\(\)"):
        scipy.special.gamma(ps.ones(3))


@pytest.mark.parametrize("function", ops.PARTS, ids=lambda function: function.__name__)
@settings(max_examples=12)
@given(data=st.data(), count=st.sampled_from(SERVER_COUNTS))
def test_several_results(
    sessions: dict[int, dv.Session], function: np.ufunc, data: st.DataObject, count: int
) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    host = [data.draw(vectors(length, data.draw(st.sampled_from(DTYPES))))]
    if function.nin == 2:
        host.append(data.draw(vectors(length, data.draw(st.sampled_from(DTYPES)))))
    theirs, their_error = outcome(function, *host)
    ours, error = outcome(function, *map(sessions[count].array, host))
    if their_error is None and any(part.dtype.name not in DTYPES for part in theirs):
        assert error is TypeError
        return
    assert (error is None) == (their_error is None)
    if error is None:
        for mine, expected in zip(ours, theirs, strict=True):
            assert_close(mine.numpy(), expected, 0, function.__name__)


def test_several_results_are_computed_in_one_sweep(ps: dv.Session) -> None:
    x = ps.random.normal(5000, seed=1).persist()
    mantissa, exponent = np.frexp(x)
    ps.counters.reset()
    dv.evaluate(mantissa, exponent, *np.modf(x), *np.divmod(x, 0.25))
    counted = ps.counters.snapshot()
    assert (counted["messages"], counted["sweeps"], counted["vectors_read"]) == (1, 1, 1)
    assert (np.ldexp(mantissa, exponent).numpy() == x.numpy()).all()


def test_several_results_go_where_out_says(ps: dv.Session) -> None:
    x, whole = ps.array([1.5, -2.25]), ps.zeros(2)
    fraction, same = np.modf(x, out=(None, whole))
    assert same is whole and whole.numpy().tolist() == [1.0, -2.0]
    assert fraction.numpy().tolist() == [0.5, -0.25]
    with pytest.raises(TypeError, match="keyword where="):
        np.modf(x, where=x > 0)


@settings(max_examples=12)
@given(data=st.data(), count=st.sampled_from(SERVER_COUNTS), target=st.sampled_from(DTYPES))
def test_where_and_out(
    sessions: dict[int, dv.Session], data: st.DataObject, count: int, target: str
) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    x, y = (data.draw(vectors(length, "float64", special=False)) for _ in range(2))
    mask, out = data.draw(vectors(length, "bool")), data.draw(vectors(length, target))
    ps = sessions[count]
    ours = ps.array(out)

    def call(x: Any, y: Any, out: Any, where: Any) -> Any:
        return np.subtract(x, y, out=out, where=where)

    theirs, their_error = outcome(call, x, y, out, mask)
    result, error = outcome(call, ps.array(x), ps.array(y), ours, ps.array(mask))
    assert error is None or issubclass(their_error or object, error)
    if error is None:
        assert result is ours
        assert_close(ours.numpy(), theirs, 0, "where=")


def test_where_of_no_out_says_what_to_type(ps: dv.Session) -> None:
    x = ps.ones(3)
    with pytest.raises(TypeError, match=r"give out= as well, or write distvec.where"):
        np.add(x, 1, where=x > 0)
    with pytest.raises(ValueError, match="cannot broadcast"):
        np.add(x, 1, where=ps.ones(2) > 0, out=x)


@pytest.mark.parametrize("function", [np.add, np.subtract])
def test_at_counts_repeated_indices(ps: dv.Session, function: Any) -> None:
    host, indices = np.arange(3000.0), np.array([5, -1, 5, 2500, 5])
    for values in (2.0, np.arange(5.0), [1, 2, 3, 4, 5]):
        x, expected = ps.array(host), host.copy()
        before = x.copy()
        assert function.at(x, indices, values) is None
        function.at(expected, indices, values)
        np.testing.assert_array_equal(x.numpy(), expected)
        np.testing.assert_array_equal(before.numpy(), host)
    x, expected = ps.array(host), host.copy()
    for array in (x, expected):
        function.at(array, 3, 1.5)
        function.at(array, [[1, 2], [2, 1]], [[1.0, 10.0], [2.0, 20.0]])
        function.at(array, [], 1.0)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_at_takes_masks_and_slices(ps: dv.Session) -> None:
    host, mask = np.arange(3000.0), np.arange(3000) % 7 == 0
    slices = ((np.add, ...), (np.minimum, slice(10, 2000, 3)))
    for function, key in ((np.maximum, mask), (np.multiply, mask), *slices):
        x, expected = ps.array(host), host.copy()
        function.at(x, ps.array(key) if key is mask else key, 1000.5)
        function.at(expected, key, 1000.5)
        np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("function", [np.maximum, np.multiply, np.logaddexp, np.negative])
def test_at_of_other_ufuncs(ps: dv.Session, function: np.ufunc) -> None:
    host, indices = np.arange(3000.0), np.array([5, -1, 5, 2500, 5])
    values = [np.arange(5.0) + 4] if function.nin == 2 else []
    x, table = ps.array(host), ps.array(host.reshape(-1, 3))
    expected, rows = host.copy(), host.reshape(-1, 3).copy()
    before = x.copy()
    function.at(x, indices, *values)
    function.at(expected, indices, *values)
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(before.numpy(), host)
    few = [one[:3] for one in values]
    function.at(table, [0, -1, 0], *few)
    function.at(rows, [0, -1, 0], *few)
    np.testing.assert_array_equal(table.numpy(), rows)


def test_at_is_a_message_to_each_holder(ps: dv.Session) -> None:
    x = ps.array(np.arange(3000.0))
    ps.counters.reset()
    np.add.at(x, [0, 1, 0], 1.0)
    assert ps.counters.messages == 1


def test_at_of_rows_and_of_unsigned_integers(ps: dv.Session) -> None:
    host = np.arange(12.0).reshape(4, 3)
    for function in (np.add, np.subtract):
        for values in (1.5, [1.0, 2.0, 3.0], np.arange(9.0).reshape(3, 3)):
            table, expected = ps.array(host), host.copy()
            function.at(table, [0, -1, 0], values)
            function.at(expected, [0, -1, 0], values)
            np.testing.assert_array_equal(table.numpy(), expected)
        small, bytes = ps.array(np.zeros(3, np.uint8)), np.zeros(3, np.uint8)
        function.at(small, ([0, 0, 2],), 1)
        function.at(bytes, ([0, 0, 2],), 1)
        np.testing.assert_array_equal(small.numpy(), bytes)
    with pytest.raises(TypeError, match="along the first axis"):
        np.add.at(ps.array(host), ([0, 1], [1, 2]), 1.0)


def test_at_refuses_what_numpy_refuses(ps: dv.Session) -> None:
    x = ps.array(np.arange(5))
    for indices, values, error in (
        ([5], 1, IndexError),
        ([0, 1], [1, 2, 3], ValueError),
    ):
        with pytest.raises(error):
            np.add.at(x.numpy(), indices, values)
        with pytest.raises(error):
            np.add.at(x, indices, values)
    with pytest.raises(TypeError, match="cannot add float64 values to a int64 array"):
        np.add.at(x, [0], 1.5)
    with pytest.raises(TypeError, match="on the client"):
        np.add.at(np.arange(5.0), [0], ps.ones(1))


def test_methods_take_out(ps: dv.Session) -> None:
    x, out = ps.array([1.26, -3.0]), ps.zeros(2)
    assert x.round(1, out=out) is out and out.tolist() == [1.3, -3.0]
    assert x.clip(-1, 1, out=out) is out and out.tolist() == [1.0, -1.0]
    assert np.round(x, out=out) is out and out.tolist() == [1.0, -3.0]
