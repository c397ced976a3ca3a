"""``ufunc.reduceat``: NumPy's results, on any number of servers, which come to the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.testing import assert_close, server_counts
from tests.distvec.alike import SHAPES, arrays, assert_alike

ROUND = np.random.default_rng(0)
WHOLE = [shape for shape in SHAPES if shape[0]]
cheap = settings(max_examples=40, deadline=None)


@cheap
@given(
    st.sampled_from(["int64", "uint8", "bool"]).flatmap(lambda d: arrays(WHOLE, d)),
    st.sampled_from(["add", "multiply", "maximum", "bitwise_xor", "logical_and"]),
    server_counts(),
    st.data(),
)
def test_between_indices_in_any_order(
    sessions: dict[int, dv.Session], x: np.ndarray, name: str, servers: int, data: st.DataObject
) -> None:
    indices = data.draw(st.lists(st.integers(0, len(x) - 1), min_size=0, max_size=12))

    def between(x: Any) -> Any:
        return getattr(np, name).reduceat(x, indices)

    assert_alike(sessions[servers], between, x)


def test_floats(sessions: dict[int, dv.Session]) -> None:
    for row in ((), (3,)):
        x = ROUND.standard_normal((5000, *row))
        for indices in ([0], [4999], [0, 10, 1024, 4000], [4000, 10, 10, 3000]):
            for name in ("add", "multiply", "fmin", "logaddexp"):
                expected = getattr(np, name).reduceat(x, indices)
                ours = {
                    getattr(np, name).reduceat(one.array(x), indices).numpy().tobytes()
                    for one in sessions.values()
                }
                assert len(ours) == 1
                found = np.frombuffer(ours.pop()).reshape(expected.shape)
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_dtypes_and_what_the_client_keeps(ps: dv.Session) -> None:
    x = np.arange(3000, dtype=np.int8)
    ours = ps.array(x)
    for dtype in (None, "int8", "float32"):
        found = np.add.reduceat(ours, [5, 2000], dtype=dtype)
        assert_close(found.numpy(), np.add.reduceat(x, [5, 2000], dtype=dtype))
    out = np.zeros_like(np.add.reduceat(ours, [1, 2]))
    assert np.add.reduceat(ours + ours, [5, 2000], out=out) is out
    assert_close(out.numpy(), np.add.reduceat(x + x, [5, 2000], dtype=np.int64))
    eye = np.eye(4)
    kept = ps.array(eye).T @ ps.array(eye)
    for axis in (0, 1):
        found = np.add.reduceat(kept, [1, 3, 0], axis=axis)
        assert_close(found.numpy(), np.add.reduceat(eye, [1, 3, 0], axis=axis))


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: np.add.reduceat(x, [3]), IndexError, "index 3 out-of-bounds"),
    (lambda x: np.add.reduceat(x, [-1]), IndexError, "index -1 out-of-bounds"),
    (lambda x: np.add.reduceat(x, [[0]]), ValueError, "indices must be a vector"),
    (lambda x: np.add.reduceat(x, x[:, 0]), TypeError, "indices.numpy"),
    (lambda x: np.add.reduceat(x, [0], axis=1), NotImplementedError, "reduce some columns"),
    (lambda x: np.hypot.reduceat(x, [0]), TypeError, "available are reduceat of add"),
    (lambda x: np.add.reduceat(x[0, 0], [0]), TypeError, "on a scalar"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(sessions: dict[int, dv.Session], call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call(sessions[2].array(np.ones((3, 2))))


def test_cost(ps: dv.Session) -> None:
    """Two messages to each server; 8 bytes for each piece that is not on the first one."""
    x = ps.array(np.ones(10_000)).persist()
    ps.counters.reset()
    found = np.add.reduceat(2 * x, [0, 100, 9000]).persist()
    counted = ps.counters
    assert counted.messages == counted.phases == 2
    assert (counted.peer_messages, counted.peer_bytes) == (1, 8 * (5 + 1))
    assert found.numpy().tolist() == [200.0, 17_800.0, 2000.0]
