"""Group FTRL beside the problem that defines it, solved by SciPy, and what its zeros are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from optim.stochastic.ftrl import GroupFTRL

Array = npt.NDArray[np.float64]


class Leader:
    """Steps of a row, and what the next one is to be the minimum of, as its definition says."""

    def __init__(self, solver: GroupFTRL, gradients: Array) -> None:
        self.solver = solver
        x = np.zeros((1, gradients.shape[1]))
        memory = solver.init_memory(x)
        self.steps: list[tuple[Array, Array, Array]] = []
        squares = np.zeros_like(x)
        for k, gradient in enumerate(gradients):
            g = gradient[None]
            root, squares = np.sqrt(squares), squares + g * g
            self.steps.append((g[0], x[0], (np.sqrt(squares) - root)[0] / solver.step_size))
            x, memory = solver.update(memory, x, g, k)
        self.x = x[0]

    def smooth(self, x: Array) -> tuple[float, Array]:
        """Linear in the sum of gradients, and near to all points so far; with its gradient."""
        weight = self.solver.l2 + self.solver.beta / self.solver.step_size
        value, slope = 0.5 * weight * float(x @ x), weight * x
        for g, at, sigma in self.steps:
            value += float(g @ x + 0.5 * np.sum(sigma * (x - at) ** 2))
            slope = slope + g + sigma * (x - at)
        return value, slope

    def objective(self, x: Array) -> float:
        """The same with the penalties: l1, and l21 on the length of the row."""
        group = self.solver.l21 * len(x) ** 0.5 * float(np.linalg.norm(x))
        return self.smooth(x)[0] + self.solver.l1 * float(np.abs(x).sum()) + group

    def minimum(self) -> Array:
        """Where it is least, by SciPy: of what is above 0 and below, the length nearly as it is."""
        k, w = len(self.x), self.solver.l21 * len(self.x) ** 0.5

        def split(both: Array) -> tuple[float, Array]:
            x = both[:k] - both[k:]
            length = np.sqrt(x @ x + 1e-20)
            value, slope = self.smooth(x)
            slope = slope + w * x / length
            pair = np.concatenate([slope, -slope]) + self.solver.l1
            return value + w * length + self.solver.l1 * float(both.sum()), pair

        starts = np.concatenate([np.maximum(-self.smooth(0 * self.x)[1], 0)] * 2)
        starts[k:] = np.maximum(self.smooth(0 * self.x)[1], 0)
        options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10}
        bounds, best = [(0, None)] * 2 * k, starts
        for _ in range(3):  # a search may end early, at a bound
            best = minimize(
                split, best, jac=True, method="L-BFGS-B", bounds=bounds, options=options
            ).x
        found: Array = best[:k] - best[k:]
        return found if self.objective(found) < self.objective(0 * found) else 0 * found


signs = st.lists(st.tuples(*[st.sampled_from([-1.0, 1.0])] * 2), min_size=1, max_size=5)
sizes = st.lists(st.floats(0.1, 3), min_size=5, max_size=5)
weights = st.tuples(st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.5]), st.floats(0, 1.5))


@settings(max_examples=25, deadline=None)
@given(signs, sizes, weights)
@example([(1.0, 1.0), (1.0, 1.0)], [1.0] * 5, (0.3, 0.0, 0.0))  # where one search ends early
def test_each_step_is_the_minimum_where_columns_have_equal_step_sizes(signs, sizes, weights):
    l1, l2, l21 = weights
    solver = GroupFTRL(step_size=0.5, beta=0.7, l1=l1, l2=l2, l21=l21)
    leader = Leader(solver, np.array(signs) * np.array(sizes[: len(signs)])[:, None])
    best = leader.minimum()
    assert leader.objective(leader.x) <= leader.objective(best) + 1e-9
    np.testing.assert_allclose(leader.x, best, atol=1e-4)


rows = st.lists(st.tuples(*[st.floats(-2, 2)] * 2), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(rows, weights)
def test_rows_and_coordinates_are_zero_where_those_of_the_minimum_are(gradients, weights):
    l1, l2, l21 = weights
    leader = Leader(GroupFTRL(step_size=0.5, beta=0.7, l1=l1, l2=l2, l21=l21), np.array(gradients))
    best = leader.minimum()
    if leader.x.any():
        assert leader.objective(best) <= leader.objective(leader.x) + 1e-9
        assert np.all(leader.x * best >= -1e-6)
    else:
        np.testing.assert_allclose(best, 0, atol=1e-4)


@pytest.mark.parametrize("columns", [1, 3, 8])
def test_a_step_is_that_of_the_published_implementation(columns):
    """By hand: what l1 leaves of z, shortened, over the roots of the squares and twice its l2."""
    draw = np.random.default_rng(columns)
    l1, l2, l21, alpha = 0.1, 0.25, 0.8, 0.5
    solver = GroupFTRL(step_size=alpha, beta=1e-300, l1=l1, l2=2 * l2, l21=l21)
    x = np.zeros((6, columns))
    memory, z, n = solver.init_memory(x), np.zeros_like(x), np.zeros_like(x)
    expected, zero_rows = x, 0
    for k in range(6):
        g = draw.normal(size=x.shape)
        x, memory = solver.update(memory, x, g, k)
        z += g - (np.sqrt(n + g * g) - np.sqrt(n)) / alpha * expected
        n += g * g
        left = np.clip(z, -l1, l1) - z
        norms = np.sqrt((left**2).sum(1, keepdims=True))
        shortened = np.maximum(0, 1 - l21 * np.sqrt(columns) / np.maximum(norms, 1e-300))
        expected = left * shortened / (np.sqrt(n) / alpha + 2 * l2)
        np.testing.assert_allclose(x, expected, rtol=1e-12, atol=1e-15)
        zero_rows += int((~x.any(1)).sum())
    assert zero_rows
