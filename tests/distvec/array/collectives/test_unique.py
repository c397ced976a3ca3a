"""``np.unique`` and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing.strategies import dtypes, lengths, vectors

SERVERS = st.sampled_from((1, 2, 3, 7))
WELL_SORTED = dtypes().filter(lambda name: name != "float16")
"""NumPy 2.4 sorts float16 wrongly on some processors."""
VECTORS = st.tuples(lengths(), WELL_SORTED).flatmap(lambda drawn: vectors(*drawn))

rng = np.random.default_rng(7)


def assert_same(ours: Any, expected: Any) -> None:
    for one, other in zip(ours, expected, strict=True):
        found = one.numpy()
        assert found.shape == other.shape
        assert found.dtype == other.dtype
        np.testing.assert_array_equal(found, other)


@settings(max_examples=30)
@given(SERVERS, VECTORS, st.booleans())
def test_vectors_as_numpy(
    sessions: dict[int, dv.Session], servers: int, x: np.ndarray, equal_nan: bool
) -> None:
    there = sessions[servers].array(x)
    everything: Any = {"return_index": True, "return_inverse": True, "return_counts": True}
    expected = np.unique(x, equal_nan=equal_nan, **everything)
    assert_same(np.unique(there, equal_nan=equal_nan, **everything), expected)
    assert_same([np.unique(there, equal_nan=equal_nan)], expected[:1])
    assert_same(
        np.unique(there, equal_nan=equal_nan, return_counts=True), (expected[0], expected[3])
    )


@settings(max_examples=15)
@given(SERVERS, VECTORS)
def test_of_the_array_api(sessions: dict[int, dv.Session], servers: int, x: np.ndarray) -> None:
    there = sessions[servers].array(x)
    assert_same(np.unique_all(there), np.unique_all(x))
    found = np.unique_counts(there)
    assert found._fields == ("values", "counts")
    assert_same(found, np.unique_counts(x))
    inverse = np.unique_inverse(there)
    assert_same(inverse[:1], np.unique_inverse(x)[:1])
    np.testing.assert_array_equal(inverse.values.numpy()[inverse.inverse_indices.numpy()], x)
    assert_same([np.unique_values(there)], [np.unique(x, equal_nan=False)])


def test_halves(ps: dv.Session) -> None:
    x = np.resize(np.array([-0.0, -1, -2, 0, np.nan], np.float16), 3000)
    found = np.unique(ps.array(x), return_counts=True)
    wide = np.unique(x.astype(np.float32), return_counts=True)
    assert_same(found, (wide[0].astype(np.float16), wide[1]))


@pytest.mark.parametrize("rows", [0, 1, 1024, 3000])
def test_tables_and_their_rows(ps: dv.Session, rows: int) -> None:
    x = rng.integers(0, 4, (rows, 3))
    there = ps.array(x)
    everything: Any = {"return_index": True, "return_inverse": True, "return_counts": True}
    assert_same(np.unique(there, **everything), np.unique(x, **everything))
    assert_same(np.unique(there, axis=0, **everything), np.unique(x, axis=0, **everything))
    with pytest.raises(NotImplementedError, match=r"for columns write numpy\.unique\(x\.T"):
        np.unique(there, axis=1)


def test_what_the_client_keeps(ps: dv.Session) -> None:
    x = rng.integers(0, 3, (3000, 40))
    most = ps.array(x).sum(axis=0) % 7
    assert np.unique(most).numpy().tolist() == np.unique(x.sum(axis=0) % 7).tolist()


def test_the_result_is_a_selection_of_which_reductions_are_lazy(ps: dv.Session) -> None:
    x = rng.integers(0, 50, 1 << 16)
    there = ps.array(x)
    ps.counters.reset()
    total = np.unique(there).sum()
    assert ps.counters.messages == 0
    assert int(total) == np.unique(x).sum()
    assert ps.counters.messages_per_server == [2, 2]
    ps.counters.reset()
    assert len(np.unique(there)) == 50
    assert ps.counters.messages_per_server == [2, 2]
    ps.counters.reset()
    values = np.unique(there).numpy()
    assert values.tolist() == list(range(50))
    assert ps.counters.messages_per_server[0] <= 6
