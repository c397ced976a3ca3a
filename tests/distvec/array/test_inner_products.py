"""Inner products of what servers have, what the client keeps, and small arrays of NumPy's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv

TABLE = np.random.default_rng(0).standard_normal((5, 3))
SMALL = np.random.default_rng(1).standard_normal((3, 3))


@pytest.fixture(scope="module")
def ps() -> Iterator[dv.Session]:
    with dv.local(servers=2, in_process=True) as session:
        yield session


def kept(ps: dv.Session, values: np.ndarray) -> Any:
    """``values`` as the client keeps them after a reduction: of rank 1 or 2."""
    return ps.array(np.eye(len(values))).T @ ps.array(values)


PAIRS = {
    "tables": (TABLE, TABLE + 1.0),
    "small tables": (SMALL, SMALL + 1.0),
    "rows": (SMALL[0], SMALL[1]),
}
FUNCTIONS: list[Callable[..., Any]] = [np.vdot, np.inner, np.linalg.vecdot]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("pair", PAIRS)
def test_wherever_the_operands_are(ps: dv.Session, function: Any, pair: str) -> None:
    x, y = PAIRS[pair]
    expected = function(x, y)
    places: list[Callable[..., Any]] = [ps.array, lambda v: kept(ps, v), lambda v: v]
    for first, second in itertools.product(places, repeat=2):
        one, other = first(x), second(y)
        local = [isinstance(v, np.ndarray) for v in (one, other)]
        if all(local) or (any(local) and x.ndim == 1):  # nothing says that such a vector is small
            continue
        found = function(one, other)
        assert found.shape == expected.shape
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-13)


def test_what_the_client_keeps_costs_no_message(ps: dv.Session) -> None:
    small = kept(ps, SMALL)
    dv.evaluate(small)
    before = ps.counters.messages
    assert float(np.vdot(small, small)) == pytest.approx(np.vdot(SMALL, SMALL))
    assert float(np.linalg.norm(small)) == pytest.approx(np.linalg.norm(SMALL))
    assert float(np.vdot(small, SMALL)) == pytest.approx(np.vdot(SMALL, SMALL))
    assert ps.counters.messages == before
