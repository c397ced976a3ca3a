"""Programs that mix results with NumPy arrays, with sizes below and above the client's limits.

Few counts, and few elements ``x[i]`` for an index array of NumPy, are kept by the client; more stay
on the servers. A program as typed works on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.array.collectives import counting
from distvec.array.indexing import getitem

LIMIT = 24


def changed(x: Any, change: Callable[[Any], Any]) -> Any:
    """A copy in floats of ``x`` after a statement."""
    copy = x * 1.0
    change(copy)
    return copy


def add_in_place(x: Any, y: Any) -> Any:
    x = x * 1.0
    x += y
    x[1:] -= y[1:]
    return x


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "operators": lambda x, y: [x + y, y - x, y / (1 + x), x**2 * y, x // 2, divmod(x, 3)[1] + y],
    "lists": lambda x, y: [x + y.tolist(), np.maximum(y.tolist(), x)],
    "comparisons": lambda x, y: [x > y, y > x, x == y, (x != y).any(), np.isin(np.arange(9), x)],
    "in place": add_in_place,
    "assignment to NumPy": lambda x, y: [
        changed(y, lambda z: z.__setitem__(slice(None), x)),
        changed(y, lambda z: z.__setitem__(slice(3), x[:3])),
        changed(y, lambda z: z.__setitem__(np.asarray(x > 1), 0)),
    ],
    "assignment": lambda x, y: [
        changed(x, lambda z: z.__setitem__(y > 0.5, 0)),
        changed(x, lambda z: z.__setitem__(slice(1, None, 2), y[1::2])),
        changed(x, lambda z: z.__setitem__(np.arange(len(y))[::2], y[::2])),
        changed(x, lambda z: np.add.at(z, np.array([0, 1, 1]), 0.5)),
        changed(x, lambda z: np.put(z, [0, 1], [5, 6])),
    ],
    "where": lambda x, y: [np.where(x > y, x, y), np.where(y > 0.5, x, 0), np.where(x > 1, y, -1)],
    "ufuncs": lambda x, y: [np.maximum(y, x), np.hypot(x, y), np.clip(x, 0, y), np.minimum(x, 2)],
    "products": lambda x, y: [x @ y, y @ x, np.dot(y, x), np.vdot(x, y), np.inner(x, y)],
    "matrices": lambda x, y: [np.stack([y, 2 * y]) @ x, x @ np.stack([y, 2 * y], axis=1)],
    "einsum": lambda x, y: [np.einsum("i,i->", x, y), np.outer(x[:4], y[:3])],
    "reductions": lambda x, y: [x.sum(), (x * y).max(), np.argmax(x - y), np.linalg.norm(x - y)],
    "averages": lambda x, y: [np.average(y, weights=x + 1), np.average(x, weights=y + 1)],
    "comparing": lambda x, y: [np.allclose(x, y), np.array_equal(x, y), np.array_equal(y, y + x)],
    "joined": lambda x, y: [np.concatenate([x, y]), np.stack([x, y]), np.column_stack([y, x])],
    "ordered": lambda x, y: [np.sort(x), np.argsort(x, stable=True), np.cumsum(x) + y, x[::-1] - y],
    "indexed": lambda x, y: [
        x[np.arange(len(y))[::-1]],
        x[y > 0.5],
        x[2:-1] * y[2:-1],
        x[0] + y[0],
    ],
    "index of NumPy": lambda x, y: [y[x % 7], y[x > 1], y[np.flatnonzero(x)], y[np.argmax(x)]],
    "taken": lambda x, y: [np.take(y, x % 7), np.take(x, np.arange(len(y))), np.searchsorted(y, x)],
    "counted": lambda x, y: [np.bincount(x, weights=y), np.histogram(x, 4, (0, 8), weights=y)[0]],
    "chosen": lambda x, y: [np.select([x > 1, y > 0.5], [x, y], 0), np.interp(y, np.sort(y), x)],
    "shapes": lambda x, y: [x.reshape(2, -1) + y.reshape(2, -1), x.reshape(-1, 2) @ np.ones(2)],
    "testing": lambda x, y: np.testing.assert_allclose(x, np.asarray(x) + 0 * y),
    "Python": lambda x, y: [x.tolist(), [float(one) for one in x], int(x[1]), len(x), y[int(x[0])]],
}


def flat(found: Any) -> np.ndarray:
    parts = found if isinstance(found, list) else [found]
    return np.concatenate([np.ravel(np.asarray(one, dtype=np.float64)) for one in parts])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_works_below_and_above(
    sessions: dict[int, dv.Session], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MOST_KEPT", LIMIT)
    monkeypatch.setattr(getitem, "FEW", LIMIT)
    program, session = PROGRAMS[name], sessions[2]

    @settings(max_examples=6)
    @given(
        half=st.sampled_from((LIMIT // 2 - 1, LIMIT // 2, LIMIT // 2 + 1)), seed=st.integers(0, 9)
    )
    def check(half: int, seed: int) -> None:
        size, rng = 2 * half, np.random.default_rng(seed)
        numbers, table = rng.integers(0, size, 3 * size), rng.integers(0, 9, 100)
        places, y = rng.integers(0, 100, size), rng.random(size)
        results = {
            "counts": (
                np.bincount(numbers, minlength=size),
                np.bincount(session.array(numbers), minlength=size),
            ),
            "elements": (table[places], session.array(table)[places]),
        }
        for expected, found in results.values():
            assert found.node.on_client == (size <= LIMIT)
            np.testing.assert_allclose(flat(program(found, y)), flat(program(expected, y)))

    check()


def test_histograms_of_numpy_take_elements_of_servers(ps: dv.Session) -> None:
    rng = np.random.default_rng(0)
    numbers, weights = rng.integers(0, 9, 5000), rng.standard_normal(5000)
    i, w = ps.array(numbers), ps.array(weights)
    for found, expected in ((np.ones(10), np.ones(10)), (np.zeros(10, "f4"), np.zeros(10, "f4"))):
        np.add.at(found, i, w)
        np.add.at(expected, numbers, weights)
        np.testing.assert_allclose(found, expected, rtol=1e-4 if found.dtype == "f4" else 1e-12)
    counts = np.zeros(9, np.int64)
    np.add.at(counts, i, 2)
    assert counts.tolist() == (2 * np.bincount(numbers, minlength=9)).tolist()
    with pytest.raises(IndexError, match="index 8 is out of bounds for axis 0 with size 5"):
        np.add.at(np.zeros(5), i, w)
    with pytest.raises(TypeError, match="the first argument is a ndarray on the client"):
        np.multiply.at(np.ones(9), i, w)
