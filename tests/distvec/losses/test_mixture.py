"""Steps of expectation maximization, beside the formula and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from distvec.losses.mixture import Mixture, Normals, arrays_of, normals_in, normals_of
from distvec.losses.rows import Rows


def drawn(seed, k, d):
    """Some distributions, and rows."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(k, d, d))
    shares = rng.random(k) + 0.1
    normals = Normals(
        shares / shares.sum(), 3 * rng.normal(size=(k, d)), roots @ roots.transpose(0, 2, 1)
    )
    return normals, 3 * rng.normal(size=(40, d)), rng.random(40)


@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 5), st.booleans(), st.booleans())
def test_a_step_is_that_of_the_formula(seed, k, d, weighted, sparse):
    normals, x, weights = drawn(seed, k, d)
    weights = weights if weighted else None
    rows = Rows(sp.csr_array(x) if sparse else x, np.zeros(len(x)), weights)
    center = x.mean(axis=0)
    loss, arrays = Mixture(k, d), arrays_of(normals, center)
    found = loss.sums(rows, arrays, intercept=True)
    logs = np.array([
        np.log(share) + np.atleast_1d(multivariate_normal(mean, covariance).logpdf(x))
        for share, mean, covariance in zip(*normals, strict=True)
    ]).T  # fmt: skip
    c = np.ones(len(x)) if weights is None else weights
    costs = np.logaddexp.reduce(logs, axis=1)
    assert np.isclose(found.value, -(c * costs).sum(), rtol=1e-9, atol=1e-9)
    shares = np.exp(logs - costs[:, None])
    assert np.allclose(loss.scores(rows, arrays, intercept=True), logs, rtol=1e-7, atol=1e-7)
    assert np.allclose(loss.probabilities(logs), shares)
    moved = normals_of(found.gradients, center, normals)
    sizes = c @ shares
    assert np.allclose(moved.shares, sizes / c.sum(), atol=1e-7)
    for j in np.flatnonzero(sizes > 1e-3):
        mean = (c * shares[:, j]) @ x / sizes[j]
        far = x - mean
        assert np.allclose(moved.means[j], mean, atol=1e-6)
        covariance = (far * (c * shares[:, j])[:, None]).T @ far / sizes[j]
        assert np.allclose(moved.covariances[j], covariance, atol=1e-5 * (1 + x.var()))


@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 5))
def test_parameters_say_what_the_distributions_are(seed, k, d):
    normals, x, _ = drawn(seed, k, d)
    again = normals_in(arrays_of(normals, x.mean(axis=0)))
    for one, other in zip(again, normals, strict=True):
        assert np.allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())


def test_flat_components_have_a_density_on_their_subspace():
    flat = Normals(np.ones(1), np.zeros((1, 2)), np.diag([4.0, 0.0])[None])
    rows = Rows(np.array([[2.0, 0.0], [0.0, 7.0]]), np.zeros(2))
    logs = Mixture(1, 2).scores(rows, arrays_of(flat, np.zeros(2)), intercept=True)[:, 0]
    constant = -np.log(2.0) - np.log(2.0 * np.pi)
    assert np.allclose(logs, [constant - 0.5, constant])
    assert np.allclose(normals_in(arrays_of(flat, np.zeros(2))).covariances, flat.covariances)
    point = flat._replace(covariances=np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="component 0 of the mixture has the covariance 0"):
        arrays_of(point, np.zeros(2))
