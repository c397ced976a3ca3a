"""Key lists in few bytes: there and back, how many bytes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.wire.keyed import BLOCK, decode, encode

LEAST, MOST = -(1 << 63), (1 << 63) - 1
GAPS = st.integers(0, 63).flatmap(lambda bits: st.integers(1, 1 << bits))
KEYS = st.one_of(
    st.lists(st.integers(LEAST, MOST) | st.sampled_from([0, -1, LEAST, MOST]), max_size=20),
    st.tuples(st.integers(LEAST, 0), st.lists(GAPS, max_size=20)).map(
        lambda start: [k for k in np.cumsum([start[0], *start[1]], dtype=object) if k <= MOST]
    ),
    st.tuples(st.integers(0, 4 * BLOCK), st.integers(1, 1 << 54), st.integers(0, 99)).map(
        lambda n: [k * n[1] + (k == n[2]) for k in range(n[0])]
    ),
)


@settings(max_examples=150)
@given(KEYS)
def test_there_and_back(keys):
    keys = np.array(sorted(set(keys)), np.int64)
    data = encode(keys)
    found = decode(data, len(keys))
    assert found.dtype == np.int64 and found.tolist() == keys.tolist()
    assert len(data) <= 8 * len(keys) + -(-max(len(keys) - 1, 0) // BLOCK)
    with pytest.raises(ValueError, match="bytes"):
        decode(data + b"\1", len(keys))
    with pytest.raises(ValueError, match="bytes"):
        decode(data, len(keys) + 10_000)


@pytest.mark.parametrize(
    ("step", "most"), [(1, 1.02), (7, 1.02), (60_000, 2.02), (1 << 22, 3.02), (1 << 45, 6.02)]
)
def test_bytes_a_key(step, most):
    keys = np.arange(-50_000, 50_000) * step
    assert len(encode(keys)) < most * len(keys)
    assert np.array_equal(decode(memoryview(encode(keys)), len(keys)), keys)


@settings(max_examples=200)
@given(st.binary(max_size=300), st.integers(-2, 300) | st.just(1 << 62))
def test_any_bytes_are_keys_or_refused(data, count):
    try:
        keys = decode(data, count)
    except ValueError:
        return
    assert len(keys) == count and np.all(keys[1:] > keys[:-1])


def test_keys_that_do_not_ascend_are_refused():
    for first, gap in ((MOST, 0), (0, (1 << 64) - 1), (5, (1 << 64) - 4), (-1, 1 << 63)):
        data = np.array([first], "<i8").tobytes() + b"\x08" + np.array([gap], "<u8").tobytes()
        with pytest.raises(ValueError, match="ascending"):
            decode(data, 2)
