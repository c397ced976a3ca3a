"""Rows that travel in fewer bytes: how far off they may be, and that the mean of many is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ps_backend.errors import InvalidProgram
from ps_backend.program.types import ValueType
from ps_backend.wire.narrow import KINDS, check_kind, narrowed, travelling, widened

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


def test_what_is_no_number_stays_so():
    row = np.array([[np.nan, np.inf, -np.inf, 1e30, -0.0]])
    type = ValueType("float64", (5,))
    (half,) = narrowed(row, type, "float16", 1)
    np.testing.assert_array_equal(half, [[np.nan, np.inf, -np.inf, 65504, 0]])
    scales, integers = narrowed(row[:, 3:], ValueType("float64", (2,)), "int8", 1)
    assert integers.tolist() == [[127, 0]] and scales[0, 0] == np.float32(1e30 / 127)
    for largest, back in ((1e300, 127 * float(np.finfo(np.float32).max)), (np.inf, np.nan)):
        wide = np.array([[largest, 1.0]])
        found = widened(
            narrowed(wide, ValueType("float64", (2,)), "int8"), ValueType("float64", (2,)), "int8"
        )
        np.testing.assert_allclose(found[0, 0], back)
    for kept in (ValueType("int64", (2,)), ValueType("float32", ()), ValueType("bool")):
        assert travelling(kept, "int8") == (kept,)
    with pytest.raises(InvalidProgram, match="rows do not travel as 'zip', but as float32, float"):
        check_kind("zip")
