"""Sets: what two arrays have in common, and what one of them alone has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv

FUNCTIONS = (np.intersect1d, np.union1d, np.setdiff1d, np.setxor1d)


@settings(max_examples=30)
@given(
    servers=st.sampled_from((1, 2, 3, 7)),
    function=st.sampled_from(FUNCTIONS),
    dtypes=st.sampled_from((("i8", "i8"), ("u1", "i4"), ("f8", "f4"), ("f8", "i8"))),
    counts=st.sampled_from(((3000, 2000), (1, 1500), (2000, 0), (0, 5), (1030, 3))),
    apart=st.booleans(),
    on_client=st.sampled_from((None, 0, 1)),
    seed=st.integers(0, 9),
)
def test_as_numpy(
    sessions: dict[int, dv.Session], servers: int, function: Any, dtypes: tuple[str, str],
    counts: tuple[int, int], apart: bool, on_client: int | None, seed: int,
) -> None:  # fmt: skip
    rng, session = np.random.default_rng(seed), sessions[servers]
    hosts = [
        rng.integers(0, 250, count).astype(kind) for count, kind in zip(counts, dtypes, strict=True)
    ]
    if apart:
        hosts[1] = hosts[1] // 300 + 251 if dtypes[1] != "u1" else hosts[1]
    ours: list[Any] = [
        host if k == on_client else session.array(host) for k, host in enumerate(hosts)
    ]
    found, expected = function(*ours), function(*hosts)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    "dtypes", [("i4", "i8"), ("f4", "f8"), ("i8", "f4"), ("?", "i8"), ("u8", "i8")]
)
@pytest.mark.parametrize("also", [False, True])
def test_what_both_have_is_of_their_common_dtype(
    ps: dv.Session, dtypes: tuple[str, str], also: bool
) -> None:
    a, b = np.array([0, 1, 5]).astype(dtypes[0]), np.array([1, 5, 9]).astype(dtypes[1])
    found = np.intersect1d(ps.array(a), ps.array(b), return_indices=also)
    expected = np.intersect1d(a, b, return_indices=also)
    common, of_numpy = (found[0], expected[0]) if also else (found, expected)
    assert common.dtype == of_numpy.dtype
    np.testing.assert_array_equal(common.numpy(), of_numpy)


SIGNED = np.array([0, -1, 1 - 2**63, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1], np.int64)
UNSIGNED = np.array([0, 2**53 + 1, 2**63, 2**64 - 1, 2**64 - 2, 2**63 + 1], np.uint64)


@pytest.mark.parametrize("tested_on_client", [False, True])
@pytest.mark.parametrize("more", [0, 20])
@pytest.mark.parametrize(("a", "b"), [(SIGNED, UNSIGNED), (UNSIGNED, SIGNED)])
def test_large_integers_are_compared_as_integers(
    ps: dv.Session, a: Any, b: Any, more: int, tested_on_client: bool
) -> None:
    """Signed and unsigned ones have float64 in common, which does not tell them apart."""
    b = np.concatenate((b, np.arange(100, 100 + more, dtype=b.dtype)))
    expected = [one in set(b.tolist()) for one in a.tolist()]
    found = np.isin(ps.array(a), b if tested_on_client else ps.array(b))
    assert found.tolist() == expected
    _, ours, theirs = np.intersect1d(ps.array(a), ps.array(b), return_indices=True)
    assert a[ours.numpy()].tolist() == sorted(one for one in a.tolist() if one in b.tolist())
    assert b[theirs.numpy()].tolist() == a[ours.numpy()].tolist()
    assert np.setdiff1d(ps.array(a), ps.array(b)).tolist() == sorted(
        one for one, among in zip(a.tolist(), expected, strict=True) if not among
    )


def test_where_what_both_have_is_first(ps: dv.Session) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 90, 3000), rng.integers(50, 200, 2000)
    found = np.intersect1d(ps.array(a), ps.array(b), return_indices=True)
    for ours, theirs in zip(found, np.intersect1d(a, b, return_indices=True), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize("assume_unique", [False, True])
def test_what_is_unique_already(ps: dv.Session, assume_unique: bool) -> None:
    a, b = np.random.default_rng(0).permutation(3000), np.arange(0, 5000, 7)
    for function in (np.intersect1d, np.setdiff1d, np.setxor1d):
        found = function(ps.array(a), ps.array(b), assume_unique=assume_unique)
        np.testing.assert_array_equal(found.numpy(), function(a, b, assume_unique=assume_unique))
