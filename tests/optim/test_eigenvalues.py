"""Eigenvalues of symmetric operators, on NumPy's arrays and on servers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distvec as dv
from optim import largest_eigenpairs


def operator_with(values, rng):
    """A symmetric matrix with these eigenvalues."""
    turned, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    return (turned * values) @ turned.T


@given(
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0, 2.0000001, 7.0]), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(0, 4),
    st.integers(0, 99),
)
def test_eigenvalues_are_those_of_numpy(values, count, more, seed):
    """Also of multiplicity, of negative and zero ones, and where blocks fill the space."""
    rng = np.random.default_rng(seed)
    count = min(count, len(values))
    width = min(count + more, len(values))
    matrix = operator_with(np.array(values), rng)
    found = largest_eigenpairs(
        lambda table: matrix @ table, rng.normal(size=(len(values), width)), count
    )
    size = max(np.abs(values))
    assert found.converged and found.residual <= 1e-9 * size
    assert np.allclose(found.values, np.sort(values)[::-1][:count], atol=1e-8 * max(size, 1.0))
    assert np.allclose(found.vectors.T @ found.vectors, np.eye(count), atol=1e-10)


def test_bases_restart_and_stay_on_the_servers():
    rng = np.random.default_rng(0)
    matrix = operator_with(np.linspace(1.0, 2.0, 300), rng)
    start = rng.normal(size=(300, 6))
    expected = largest_eigenpairs(lambda table: matrix @ table, start, 3)
    assert expected.converged and expected.products > 2 * 8
    with dv.local(2, in_process=True) as ps:
        operator = ps.array(matrix)
        found = largest_eigenpairs(lambda table: operator @ table, ps.array(start), 3)
        assert isinstance(found.vectors, dv.DistArray)
        assert np.allclose(found.values, expected.values, rtol=1e-12)
        assert np.allclose(np.abs(found.vectors.numpy()), np.abs(expected.vectors), atol=1e-7)
        assert abs(found.products - expected.products) <= 1
    few = largest_eigenpairs(lambda table: matrix @ table, start, 3, max_products=2)
    assert not few.converged and few.products == 2 and few.residual > 0.0


def test_bad_starts_are_named():
    with pytest.raises(ValueError, match=r"shape \(3, 2\); it must be a table .* count=3 columns"):
        largest_eigenpairs(lambda table: table, np.ones((3, 2)), 3)
