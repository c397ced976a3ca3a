"""Small arrays that the client keeps are joined along any axis, as NumPy's, without a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv

TABLE = np.random.default_rng(0).standard_normal((50, 3))

# Of a row and a small table that the client keeps.
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "stack": lambda r, t: np.stack([r, r + 1.0, t[0]]),
    "stack columns": lambda r, t: np.stack([r, 2.0 * r], axis=1),
    "stack numbers": lambda r, t: np.stack([r.sum(), r.max()]),
    "stack beside NumPy's": lambda r, t: np.stack([np.arange(3), r], axis=-1),
    "stack integers": lambda r, t: np.stack([r > 0.0, t[0] > 0.0]),
    "vstack": lambda r, t: np.vstack([r, t, t[:1]]),
    "hstack": lambda r, t: np.hstack([t, t[:, :1]]),
    "hstack rows": lambda r, t: np.hstack([r, r]),
    "column_stack": lambda r, t: np.column_stack([r, t]),
    "concatenate": lambda r, t: np.concatenate([r[:1], r]),
    "concatenate rows": lambda r, t: np.concatenate([t, t], axis=0),
    "concatenate columns": lambda r, t: np.concatenate([t, t], axis=1),
}


@pytest.mark.parametrize("name", CASES)
def test_as_numpys(ps: dv.Session, name: str) -> None:
    table = ps.array(TABLE)
    row, small = table.sum(0), table.T @ table
    before = ps.counters.messages
    found = CASES[name](row, small)
    assert ps.counters.messages == before
    expected = CASES[name](TABLE.sum(0), TABLE.T @ TABLE)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    assert ps.counters.messages - before <= 1, "what they are made of"


def test_refused(ps: dv.Session) -> None:
    small = ps.array(TABLE).T @ ps.array(TABLE)
    with pytest.raises(NotImplementedError, match="would have 3 axes"):
        np.stack([small, small])
    with pytest.raises(ValueError, match="dimension"):
        np.concatenate([small, small[0]])
    with pytest.raises(NotImplementedError, match="would have 3 axes"):
        np.dstack([ps.zeros(3), ps.zeros(3)])
    with pytest.raises(ValueError, match="two sessions"), dv.local(1, in_process=True) as other:
        np.append(ps.zeros(3), other.zeros(3))
