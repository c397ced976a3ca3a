"""Projections: against the variational inequality, against sorting, and what messages they cost."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from optim import Box, Hyperplane, L1Ball, L2Ball, NonNegative, Simplex
from tests.optim.lazy_array import LazyNamespace

NORMAL = np.array([1.0, -2.0, 0.0, 0.5, 3.0])
SETS = [
    Box(-1.0, 2.0),
    Box(np.array([-1.0, -np.inf, 0.0, 0.0, 5.0]), np.array([1.0, 0.0, np.inf, 0.0, 7.0])),
    Box(lower=0.5),
    NonNegative(),
    Simplex(),
    Simplex(total=10.0),
    L1Ball(),
    L1Ball(radius=0.01),
    L2Ball(radius=2.0),
    Hyperplane(NORMAL, 1.5),
]
every_set = pytest.mark.parametrize("project", SETS, ids=lambda s: repr(s)[:40])
vectors = arrays(np.float64, 5, elements=st.floats(-1e3, 1e3))


def members(project, rng):
    """Points of the set made without its projection: the five-dimensional sets of SETS."""
    raw = rng.normal(size=(20, 5)) * 10.0 ** rng.uniform(-2.0, 2.0, (20, 1))
    if isinstance(project, Box):
        return np.clip(raw, project.lower, project.upper)
    if isinstance(project, NonNegative):
        return np.abs(raw)
    if isinstance(project, Simplex):
        return project.total * np.abs(raw) / np.abs(raw).sum(axis=1, keepdims=True)
    if isinstance(project, L1Ball):
        return project.radius * raw / np.maximum(np.abs(raw).sum(axis=1, keepdims=True), 1.0)
    if isinstance(project, L2Ball):
        return project.radius * raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1.0)
    through = NORMAL * project.offset / (NORMAL @ NORMAL)
    return through + raw - np.outer(raw @ NORMAL / (NORMAL @ NORMAL), NORMAL)


@every_set
@settings(max_examples=60, deadline=None)
@given(x=vectors, seed=st.integers(0, 10**6))
def test_nearest_point(project, x, seed):
    """p is the projection if it is inside and (x - p) . (z - p) <= 0 for all z inside."""
    p = project(x)
    assert project.value(p) == 0.0
    for z in members(project, np.random.default_rng(seed)):
        assert project.value(z) == 0.0
        size = np.linalg.norm(x) + np.linalg.norm(z) + 10.0
        assert (x - p) @ (z - p) <= 1e-12 * size * size


@every_set
@settings(max_examples=40, deadline=None)
@given(x=vectors, y=vectors)
def test_idempotent_and_not_expansive(project, x, y):
    p, q = project(x), project(y)
    scale = 1e-12 * (1.0 + np.abs(x).max() + np.abs(y).max())
    np.testing.assert_allclose(project(p), p, rtol=0.0, atol=scale)
    assert np.linalg.norm(p - q) <= np.linalg.norm(x - y) + 10.0 * scale


@every_set
def test_outside_the_value_is_infinite(project):
    assert project.value(np.array([-4.0, 9.0, -9.0, 9.0, 9.0])) == np.inf
    assert project.value(np.full(5, np.nan)) == np.inf


def sorted_simplex(x, total):
    """J. Duchi et al., Efficient projections onto the l1-ball, ICML 2008, figure 1."""
    u = np.sort(x)[::-1]
    thresholds = (np.cumsum(u) - total) / np.arange(1, x.size + 1)
    return np.maximum(x - thresholds[np.nonzero(u > thresholds)[0][-1]], 0.0)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 300),
    scale=st.floats(1e-3, 1e3),
    total=st.floats(1e-3, 1e3),
    ties=st.booleans(),
)
def test_simplex_against_sorting(seed, n, scale, total, ties):
    x = np.random.default_rng(seed).standard_cauchy(n) * scale
    x = np.round(x) if ties else x
    p = Simplex(total)(x)
    assert p.sum() == pytest.approx(total, rel=1e-11)
    assert p.min() >= 0.0
    np.testing.assert_allclose(p, sorted_simplex(x, total), atol=1e-12 * (np.abs(x).max() + total))


def test_a_small_total_beside_large_elements_keeps_its_digits():
    p = Simplex(1e-6)(np.array([1e9, 1e9, 3.0]))
    np.testing.assert_allclose(p, [5e-7, 5e-7, 0.0], rtol=1e-12)


@pytest.mark.parametrize("n", [10, 10**5])
@pytest.mark.parametrize("project", [Simplex(), L1Ball(), Simplex(1000.0)], ids=repr)
@pytest.mark.parametrize("spread", ["normal", "standard_cauchy", "exponential"])
def test_few_messages_whatever_the_length(n, project, spread):
    xp = LazyNamespace()
    x = 10.0 * getattr(np.random.default_rng(0), spread)(size=n)
    p = project(xp.array(x))
    assert 2 <= xp.messages <= 12
    np.testing.assert_allclose(p.compute(), project(x), atol=1e-12)


def test_sets_without_a_threshold_cost_no_message():
    xp = LazyNamespace()
    x = xp.array(np.linspace(-3.0, 3.0, 5))
    plane = Hyperplane(xp.array(NORMAL))
    assert xp.messages == 1  # that the normal is not 0
    for project in (Box(0.0, 1.0), NonNegative(), L2Ball(2.0), plane):
        assert project(x).pending
    assert xp.messages == 1


@every_set
def test_other_libraries_and_float32(project):
    x = np.array([-4.0, 2.5, 0.1, 3.0, -0.2])
    like = {
        name: strict.asarray(bound.tolist(), dtype=strict.float32)
        for name, bound in vars(project).items()
        if isinstance(bound, np.ndarray)
    }
    p = type(project)(**{**vars(project), **like})(strict.asarray(x, dtype=strict.float32))
    assert p.dtype == strict.float32
    np.testing.assert_allclose(np.asarray(p), project(x), rtol=1e-5, atol=1e-6)
    xp = LazyNamespace()
    lazy = {
        name: xp.array(bound)
        for name, bound in vars(project).items()
        if isinstance(bound, np.ndarray)
    }
    p = type(project)(**{**vars(project), **lazy})(xp.array(x))
    np.testing.assert_array_equal(p.compute(), project(x))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Box(2.0, 1.0), ValueError, "lower exceeds upper by 1.0"),
        (lambda: Box(np.zeros(2), np.array([1.0, -3.0])), ValueError, "exceeds upper by 3.0"),
        (lambda: Box(np.nan, 1.0), ValueError, "not a number"),
        (lambda: Box([0.0], [1.0]), TypeError, r"Box\(lower\).*got list; .*numpy.asarray\(lower\)"),
        (lambda: Simplex(0.0), ValueError, r"Simplex\(total=0.0\): must be a positive"),
        (lambda: L1Ball(-1.0), ValueError, r"L1Ball\(radius=-1.0\)"),
        (lambda: L2Ball(np.inf), ValueError, r"L2Ball\(radius=inf\)"),
        (lambda: Hyperplane(np.zeros(3)), ValueError, "not all 0"),
    ],
)
def test_refusals_speak(make, error, message):
    with pytest.raises(error, match=message):
        make()
