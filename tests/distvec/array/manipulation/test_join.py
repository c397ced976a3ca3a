"""Arrays of servers, of the client and NumPy's put together: as NumPy's, and what it costs."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.testing import assert_plan, vectors
from tests.distvec.alike import arrays, assert_alike
from tests.distvec.conftest import SERVER_COUNTS

LENGTHS = st.sampled_from((0, 1, 2, 7, 1023, 1024, 1025, 3000))
DTYPES = st.sampled_from(("float64", "float32", "int64", "int8", "uint64", "bool"))


class OfNumPy(np.ndarray):
    """Marks what stays a NumPy array."""


@st.composite
def pieces(draw: st.DrawFn, width: int | None = None) -> list[Any]:
    """Vectors, or tables with rows of ``width``, some of which stay on the client."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        length, kind = draw(LENGTHS), draw(DTYPES)
        stays = draw(st.booleans()) and len(found) > 0
        size = min(length, 1025) if stays else length
        values = draw(vectors(size * (width or 1), kind))
        shaped = values if width is None else values.reshape(size, width)
        found.append(shaped.view(OfNumPy) if stays else shaped)
    return found


def _put(session: dv.Session, one: np.ndarray) -> Any:
    return np.asarray(one) if isinstance(one, OfNumPy) else session.array(one)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS), more=st.integers(0, 5))
def test_end_to_end(
    data: st.DataObject, servers: int, more: int, sessions: dict[int, dv.Session]
) -> None:
    width = data.draw(st.sampled_from((None, 1, 3)))
    given_pieces = data.draw(pieces(width)) * (7 if more == 0 else 1)
    ours = [_put(sessions[servers], one) for one in given_pieces]
    expected = np.concatenate([np.asarray(one) for one in given_pieces])
    found = np.concatenate(ours)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found.numpy(), expected)
    cut = slice(data.draw(st.integers(-9, 9)), data.draw(st.none() | st.integers(-9, 9)))
    np.testing.assert_array_equal(found[cut].numpy(), expected[cut], "a view of it")


FUNCTIONS = {
    "vstack": np.vstack,
    "hstack": np.hstack,
    "column_stack": np.column_stack,
    "stack": np.stack,
    "stack columns": lambda a: np.stack(a, axis=1),
    "concatenate": np.concatenate,
    "concatenate columns": lambda a: np.concatenate(a, axis=1),
    "concatenate flat": lambda a: np.concatenate(a, axis=None),
    "concatenate as float32": lambda a: np.concatenate(a, dtype="float32", casting="unsafe"),
    "append": lambda a: np.append(a[0], a[1]),
    "append number": lambda a: np.append(a[0], 5),
    "append rows": lambda a: np.append(a[0], a[1], axis=0),
    "block": lambda a: np.block([a[0], a[1]]),
    "block of rows": lambda a: np.block([[a[0], a[1]], [a[1], a[0]]]),
    "column of ones": lambda a: np.column_stack([np.ones(len(a[0]), np.int8), *a]),
}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS), name=st.sampled_from([*FUNCTIONS]))
def test_put_together(
    data: st.DataObject, servers: int, name: str, sessions: dict[int, dv.Session]
) -> None:
    first = data.draw(arrays())
    others = data.draw(st.lists(arrays((first.shape,)) | arrays(), min_size=1, max_size=2))
    if max(map(np.ndim, (first, *others))) == 2 and name in ("stack", "stack columns"):
        others = [other[:, :1].ravel() if other.ndim == 2 else other for other in others]
        first = first[:, :1].ravel() if first.ndim == 2 else first
    assert_alike(sessions[servers], lambda *a: FUNCTIONS[name](a), first, *others)


@pytest.mark.parametrize("servers", [2, 3])
def test_what_it_costs(sessions: dict[int, dv.Session], servers: int) -> None:
    ps = sessions[servers]
    x, y = ps.array(np.arange(30_000.0)), ps.array(np.arange(10_000.0))
    joined = np.concatenate([2 * x, np.sqrt(abs(y) + 1)[1:], [1.0, 2.0]]) + 1
    assert_plan(joined, messages=1, sweeps=1, vectors_read=2, vectors_written=1)
    del joined
    ps.counters.reset()
    assert len(np.concatenate([x, y])[5:7].persist()) == 2
    assert ps.counters.messages == 1
    assert ps.counters.peer_bytes <= 16, "only what is looked at"
    ps.counters.reset()
    appended = np.append(x, 5.0).persist()
    assert ps.counters.messages == 1
    assert ps.counters.peer_bytes <= 8 * 1024 * servers, "what crosses the borders"
    assert float(appended[-1]) == 5.0
    total = float(np.concatenate([x, x, y]).sum())
    assert total == 2 * sum(range(30_000)) + sum(range(10_000))
