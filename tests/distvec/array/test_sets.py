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
