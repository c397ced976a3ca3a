"""Index expressions are read as NumPy reads them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from distvec.array.indexing.parse_key import At, Mask, NewAxis, Slice, Take, parse
from distvec.testing import outcome

_INTEGERS = st.integers(-7, 7)
_BOUNDS = st.none() | st.integers(-9, 9) | st.sampled_from((2**70, -(2**70)))
_SLICES = st.builds(slice, _BOUNDS, _BOUNDS, st.sampled_from((None, 1, -1, 2, -3, 0, 10**9)))
_ARRAYS = (
    st.lists(_INTEGERS, max_size=3)
    | st.lists(_INTEGERS, max_size=3).map(np.array)
    | st.lists(_INTEGERS, min_size=1, max_size=3).map(lambda x: np.array(x, np.int8)[:, None])
    | st.lists(st.booleans(), min_size=5, max_size=5)
    | st.lists(st.booleans(), max_size=7).map(lambda x: np.array(x, np.bool_))
)
_ODD = st.sampled_from((1.5, "a", np.float64(2), np.array([1.5]), np.int8(-1), np.array(2)))
_ONE = _INTEGERS | _SLICES | st.just(Ellipsis) | st.none() | _ARRAYS | _ODD
KEYS = _ONE | st.lists(_ONE, max_size=3).map(tuple)


def _rebuilt(part: Any) -> Any:
    if isinstance(part, At):
        return part.index
    if isinstance(part, Slice):
        return part.key
    if isinstance(part, Take):
        assert (part.indices >= 0).all()
        return part.indices
    return None if isinstance(part, NewAxis) else part.mask


@settings(max_examples=200)
@given(shape=st.sampled_from(((0,), (1,), (5,), (7,), (5, 3), (3, 1), (0, 2))), key=KEYS)
def test_as_numpy(shape: tuple[int, ...], key: Any) -> None:
    x = np.arange(int(np.prod(shape))).reshape(shape)
    theirs, their_error = outcome(lambda: x[key])
    parts, error = outcome(lambda: parse(shape, key))
    if their_error is not None or error is not None:
        assert error is not None and issubclass(error, their_error or IndexError)
        return
    rebuilt = tuple(map(_rebuilt, parts))
    np.testing.assert_array_equal(x[rebuilt], theirs)
    for part, extent in zip((p for p in parts if not isinstance(p, NewAxis)), shape, strict=False):
        if isinstance(part, Slice):
            assert part.length == 0 or 0 <= part.start + part.step * (part.length - 1) < extent
        elif isinstance(part, Mask):
            break
