"""Random chains of what rearranges elements: NumPy's results, wherever the planner reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import distvec as dv
from tests.distvec.conftest import SERVER_COUNTS

LEAST, MOST = 12, 20_000
"""Rows that each link can take, and elements beyond which a chain ends."""


def _pairs(a: Any) -> Any:
    return a[: len(a) // 2 * 2].reshape(-1, 2) if a.ndim == 1 else a[:, ::-1]


LINKS: dict[str, Callable[[Any, int], Any]] = {
    "roll": lambda a, k: np.roll(a, k),
    "roll rows": lambda a, k: a + np.roll(a, k, axis=0),
    "flip": lambda a, k: np.flip(a, 0),
    "cut": lambda a, k: a[abs(k) :],
    "steps": lambda a, k: a[:: k or 2],
    "join": lambda a, k: np.concatenate([a, 2 * a[:7], a[::-1][:k]]),
    "pad": lambda a, k: np.pad(a, [(2, abs(k))] + [(0, 0)] * (a.ndim - 1), "symmetric"),
    "repeat": lambda a, k: np.repeat(a, 2, axis=0),
    "vector": lambda a, k: a.reshape(-1),
    "triples": lambda a, k: a.reshape(-1)[: a.size // 3 * 3].reshape(-1, 3),
    "pairs": lambda a, k: _pairs(a),
    "columns": lambda a, k: a.reshape(-1, order="F"),
    "delete": lambda a, k: np.delete(a, [k, 5], axis=0),
    "insert": lambda a, k: np.insert(a, [0, k], 7, axis=0),
    "diff": lambda a, k: np.diff(a, axis=0),
    "where": lambda a, k: np.where(a > k, a, -a),
    "smooth": lambda a, k: np.convolve(a.reshape(-1), [1.0, 2.0, k], "same"),
    "slope": lambda a, k: np.gradient(a, axis=0) * 2,
    "linear": lambda a, k: k * a + 1,
}
Chain = list[tuple[str, int]]


@settings(max_examples=40, deadline=None)
@given(
    servers=st.sampled_from(SERVER_COUNTS),
    length=st.sampled_from((30, 1100, 2500)),
    chain=st.lists(
        st.tuples(st.sampled_from([*LINKS]), st.integers(-3, 3)), min_size=2, max_size=6
    ),
)
def test_a_chain(servers: int, length: int, chain: Chain, sessions: dict[int, dv.Session]) -> None:
    values = np.arange(length) * 7.0 % 11 - 5
    found, expected = sessions[servers].array(values), values
    for name, k in chain:
        if len(expected) >= LEAST and expected.size <= MOST:
            found, expected = LINKS[name](found, k), LINKS[name](expected, k)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)
