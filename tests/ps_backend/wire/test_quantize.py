"""Rows that travel in fewer bytes: how far off they may be, and that the mean of many is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ps_backend.errors import InvalidProgram
from ps_backend.program.types import ValueType
from ps_backend.wire.quantize import KINDS, check_kind, narrowed, travelling, widened

dtypes = st.sampled_from(["float32", "float64"])
keys = st.one_of(st.none(), st.integers(0, 2**100))


@st.composite
def tables(draw):
    dtype = draw(dtypes)
    shape = draw(st.tuples(st.integers(0, 4), st.sampled_from([1, 3, 300])))
    limit = 1e4
    return draw(arrays(dtype, shape, elements=st.floats(-limit, limit, width=32)))


@given(tables(), st.sampled_from(KINDS), keys)
def test_rows_come_back_nearly_as_they_were(rows, kind, key):
    type = ValueType(rows.dtype.name, rows.shape[1:])
    parts = narrowed(rows, type, kind, key)
    for part, travels in zip(parts, travelling(type, kind), strict=True):
        assert part.dtype == travels.dtype and part.shape == (len(rows), *travels.row)
    back = widened(parts, type, kind)
    assert back.dtype == rows.dtype and back.shape == rows.shape
    if kind == "int8":
        spans = [abs(rows[:, k : k + 256]).max(1, initial=0) for k in range(0, rows.shape[1], 256)]
        step = np.repeat(np.stack(spans, 1), 256, axis=1)[:, : rows.shape[1]] / 127
        assert np.all(abs(back - rows) <= 1.001 * step + 1e-30)
    else:
        digits = np.finfo(kind).eps * abs(rows) + np.finfo(kind).smallest_subnormal
        assert np.all(abs(back - rows) <= digits)
    again = narrowed(rows, type, kind, key)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(parts, again, strict=True))
    for k in range(len(rows)):  # each row by itself, to the nearest
        if key is None:
            alone = narrowed(rows[k : k + 1], type, kind)
            assert all(one.tobytes() == p[k].tobytes() for one, p in zip(alone, parts, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_many_is_right(dtype, kind):
    row = np.array([[1.0, 1 / 3, -0.7531, 1e-3, 3e-8, -2e-5]], dtype)
    type = ValueType(dtype, (6,))
    many = [widened(narrowed(row, type, kind, key), type, kind) for key in range(4000)]
    least = 0 if kind == "int8" else np.finfo(kind).smallest_subnormal
    step = 1 / 127 if kind == "int8" else np.maximum(np.finfo(kind).eps * abs(row), least)
    assert np.all(abs(np.mean(many, axis=0, dtype=float) - row) <= 0.05 * step + 1e-11)
    if type.dtype != kind:
        assert len({one.tobytes() for one in many}) > 1


def any_rows(dtype, columns):
    """Rows among which some numbers are none, or are beyond what the kinds can hold."""
    largest = [65504.0, 65519.9, 65520.0, float(np.finfo("float32").max)]
    largest += [3.5e38, 4e40, 4.4e40, 1e300] if dtype == "float64" else []
    special = [0.0, -0.0, 1.0, -3.5, 1e-30, np.nan, np.inf, *largest, *(-x for x in largest)]
    elements = st.sampled_from(special) | st.floats(-100, 100, width=32)
    return arrays(
        dtype, st.tuples(st.integers(0, 4), st.just(columns)), elements=elements, fill=st.just(1.0)
    )


@given(
    dtypes.flatmap(lambda one: any_rows(one, 3) | any_rows(one, 260)), st.sampled_from(KINDS), keys
)
@example(np.array([[np.finfo("float32").max, 1.0, 1.0]], np.float32), "int8", None)
def test_each_number_travels_by_itself(rows, kind, key):
    """NaN and infinities arrive; what is too large becomes infinite; the others stay near."""
    type = ValueType(rows.dtype.name, rows.shape[1:])
    back = widened(narrowed(rows, type, kind, key), type, kind)
    with np.errstate(over="ignore"):
        if kind == "int8":
            most = 127 * float(np.finfo("float32").max)
            expected = np.where(abs(rows.astype(float)) > most, np.copysign(np.inf, rows), rows)
            expected[np.isnan(rows)] = np.nan
        elif np.dtype(kind).itemsize < rows.dtype.itemsize:
            expected = rows.astype(kind).astype(rows.dtype)
        else:
            expected = rows
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(back[~finite], expected[~finite])
    assert np.isfinite(back[finite]).all()
    error = abs(back[finite].astype(float) - rows[finite].astype(float))
    if kind == "int8":
        sizes = np.where(finite, abs(rows.astype(float)), 0)
        spans = [sizes[:, k : k + 256].max(1, initial=0) for k in range(0, rows.shape[1], 256)]
        step = np.repeat(np.stack(spans, 1), 256, axis=1)[:, : rows.shape[1]] / 126
        assert np.all(error <= 1.001 * step[finite] + 1e-30)
    else:
        least = float(np.finfo(kind).smallest_subnormal)
        assert np.all(error <= float(np.finfo(kind).eps) * abs(rows[finite].astype(float)) + least)


def test_what_does_not_narrow():
    for kept in (ValueType("int64", (2,)), ValueType("float32", ()), ValueType("bool")):
        assert travelling(kept, "int8") == (kept,)
    with pytest.raises(InvalidProgram, match="rows do not travel as 'zip', but as float32, float"):
        check_kind("zip")
