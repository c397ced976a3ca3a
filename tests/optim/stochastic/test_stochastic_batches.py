"""Objectives with batches: replayable sampling, and which point is returned."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from optim import (
    FTRL,
    LBFGS,
    SAG,
    SGD,
    SVRG,
    AdaDelta,
    AdaGrad,
    Adam,
    AdamW,
    FiniteSum,
    Minibatches,
    Outcome,
    RMSProp,
    minimize,
)
from tests.optim.reference_data import Logistic, load, optimum

SOLVERS = [
    SGD(step_size=0.1, momentum=0.5),
    AdaGrad(step_size=1.0),
    AdaDelta(step_size=20.0),
    RMSProp(step_size=0.05),
    Adam(step_size=0.1),
    AdamW(step_size=0.1, weight_decay=1e-4),
    FTRL(step_size=1.0),
    SVRG(step_size=0.1),
]
ROWS = np.random.default_rng(0).normal(size=(103, 5))
TARGETS = ROWS @ np.arange(5.0) + 0.3 * np.random.default_rng(1).normal(size=103)
BEST = np.linalg.lstsq(ROWS, TARGETS)[0]


def squares(x, rows, targets):
    """Half the mean squared residual."""
    residual = rows @ x - targets
    return 0.5 * residual @ residual / targets.size, rows.T @ residual / targets.size


def minibatches(**options):
    return Minibatches.of(squares, ROWS, TARGETS, **{"batch_size": 10, **options})


def whole(x):
    return squares(x, ROWS, TARGETS)[0]


def terms(count=10, **options):
    """The first 100 rows as a sum of equally large terms."""
    size = 100 // count

    def term(x, i):
        part = slice(i * size, (i + 1) * size)
        return squares(x, ROWS[part], TARGETS[part])

    return FiniteSum(term, count, **options)


def ids(solver):
    return type(solver).__name__


class TestSampling:
    @given(
        count=st.integers(1, 40),
        size=st.integers(1, 40),
        seed=st.integers(0, 2**32),
        shuffle=st.booleans(),
        drop_last=st.booleans(),
    )
    def test_each_epoch_sees_each_item_once(self, count, size, seed, shuffle, drop_last):
        size = min(size, count)
        objective = Minibatches(lambda x, i: (0.0, x), count, size, shuffle, drop_last, seed)
        for epoch in range(3):
            first = epoch * objective.batches_per_epoch
            batches = [objective.indices(first + j) for j in range(objective.batches_per_epoch)]
            seen = np.concatenate(batches)
            assert len(set(seen)) == seen.size
            assert seen.size == (count - count % size if drop_last else count)
            assert all(batch.size == size for batch in batches[:-1])

    def test_a_batch_depends_on_seed_and_number_alone(self):
        forward = [minibatches().indices(k) for k in range(50)]
        objective = minibatches()
        for k in reversed(range(50)):
            np.testing.assert_array_equal(objective.indices(k), forward[k])
        other = [minibatches(seed=1).indices(k) for k in range(50)]
        assert any(np.any(a != b) for a, b in itertools.zip_longest(forward[:10], other[:10]))
        assert any(np.any(a != b) for a, b in zip(forward[:10], forward[11:21], strict=True))

    def test_without_shuffling_batches_are_slices(self):
        objective = minibatches(shuffle=False)
        for k in (0, 11, 22):
            np.testing.assert_array_equal(objective.indices(k), np.arange(10))
        np.testing.assert_array_equal(objective.indices(21), [100, 101, 102])

    def test_terms_come_once_in_each_epoch(self):
        objective = FiniteSum(lambda x, i: (0.0, x), 7, seed=3)
        epochs = [[objective.order.number(7 * e + j) for j in range(7)] for e in range(4)]
        assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
        assert len(set(map(tuple, epochs))) > 1

    def test_the_whole_objective_is_the_mean(self):
        x = np.ones(5)
        for objective in (minibatches(), terms()):
            rows = 103 if isinstance(objective, Minibatches) else 100
            value, gradient = objective(x)
            expected = squares(x, ROWS[:rows], TARGETS[:rows])
            assert value == pytest.approx(expected[0])
            np.testing.assert_allclose(gradient, expected[1])

    def test_sparse_rows_and_further_arguments(self):
        def scaled(x, rows, targets, factor):
            value, gradient = squares(x, rows, targets)
            return factor * value, factor * gradient

        objective = Minibatches.of(scaled, csr_array(ROWS), TARGETS, batch_size=10)
        solver = SGD(step_size=0.05, max_iterations=10)
        result = solver.minimize(objective, np.zeros(5), args=(2.0,))
        expected = replace(solver, step_size=0.1).minimize(minibatches(), np.zeros(5))
        np.testing.assert_allclose(result.x, expected.x)

    def test_deterministic_solvers_see_the_whole(self):
        np.testing.assert_allclose(LBFGS().minimize(minibatches(), np.zeros(5)).x, BEST, rtol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS, ids=ids)
class TestWhichPointIsReturned:
    def test_the_lowest_of_the_whole_objective_at_ends_of_epochs(self, solver):
        solver = replace(solver, max_iterations=30 * 11 + 4)
        every = 11 * solver.full_every
        result = solver.minimize(minibatches(), np.zeros(5))
        iterates = [state.x for state in solver.iterations(minibatches(), np.zeros(5))]
        ends = [*iterates[::every], iterates[-1]]
        assert result.fun == min(whole(x) for x in ends)
        assert result.fun == whole(result.x)
        np.testing.assert_array_equal(result.jac, squares(result.x, ROWS, TARGETS)[1])
        assert result.fun < whole(BEST) + 0.01

    def test_never_worse_than_the_start(self, solver):
        """Steps far too large, from a good start: its batches' values prove nothing."""
        solver = replace(solver, step_size=50.0, max_iterations=40)
        result = solver.minimize(minibatches(), BEST)
        assert result.fun <= whole(BEST)

    def test_a_resumed_run_sees_the_same_batches(self, solver):
        solver = replace(solver, max_iterations=40)
        unbroken = list(solver.iterations(minibatches(), np.zeros(5)))
        rest = list(solver.iterations(minibatches(), unbroken[17]))
        for one, other in zip(unbroken[17:], rest, strict=True):
            np.testing.assert_array_equal(one.x, other.x)
            assert one.evaluations == other.evaluations
        np.testing.assert_array_equal(
            solver.minimize(minibatches(), resume=unbroken[17]).x,
            solver.minimize(minibatches(), np.zeros(5)).x,
        )

    @pytest.mark.parametrize("limit", [1, 2, 3, 12, 13, 14, 30])
    def test_the_limit_of_evaluations_is_kept(self, solver, limit):
        calls = []

        def counted(x, rows, targets):
            calls.append(targets.size)
            return squares(x, rows, targets)

        objective = Minibatches.of(counted, ROWS, TARGETS, batch_size=10)
        solver = replace(solver, max_evaluations=limit)
        result = solver.minimize(objective, np.zeros(5))
        assert result.outcome is Outcome.LIMIT_EVALUATIONS
        assert limit - 1 <= len(calls) == result.nfev <= limit

    def test_the_mean_if_wanted(self, solver):
        solver = replace(solver, average=True, max_iterations=25)
        result = solver.minimize(minibatches(), np.zeros(5))
        iterates = [state.x for state in solver.iterations(minibatches(), np.zeros(5))]
        np.testing.assert_allclose(result.x, np.mean(iterates[1:], axis=0))
        assert result.fun == whole(result.x)

    def test_window_watches_the_whole_objective(self, solver):
        solver = replace(solver, window=44, value_tolerance=1e-3, max_iterations=3000)
        result = solver.minimize(minibatches(), np.zeros(5))
        assert result.outcome is Outcome.CONVERGED_VALUE
        assert result.nit % 11 == 0
        assert result.fun < whole(BEST) + 0.05


@pytest.mark.parametrize("solver", [s for s in SOLVERS if not isinstance(s, SVRG)], ids=ids)
def test_the_last_point_without_looks_at_the_whole(solver):
    solver = replace(solver, full_every=0, max_iterations=25)
    result = solver.minimize(minibatches(), np.zeros(5))
    last = list(solver.iterations(minibatches(), np.zeros(5)))[-1]
    np.testing.assert_array_equal(result.x, last.x)
    assert result.fun == whole(last.x)
    assert result.nfev == 27


def test_divergence_returns_the_best_finite_point():
    result = SGD(step_size=1e6, max_iterations=2000).minimize(minibatches(), np.zeros(5))
    assert result.outcome is Outcome.NOT_FINITE
    np.testing.assert_array_equal(result.x, 0.0)
    assert result.fun == whole(np.zeros(5))
    blind = SGD(step_size=1e6, max_iterations=2000, full_every=0)
    assert np.all(np.isfinite(blind.minimize(minibatches(), np.zeros(5)).x))


@pytest.mark.parametrize(
    "solver", [SAG(step_size=0.1, max_iterations=600), SVRG(step_size=0.2, max_iterations=600)]
)
def test_variance_reduction_converges_linearly_where_sgd_does_not(solver):
    objective = terms()
    best = np.linalg.lstsq(ROWS[:100], TARGETS[:100])[0]
    result = solver.minimize(objective, np.zeros(5))
    np.testing.assert_allclose(result.x, best, rtol=1e-7)
    plain = SGD(step_size=solver.step_size, max_iterations=600, full_every=0)
    stuck = plain.minimize(objective, np.zeros(5))
    assert np.linalg.norm(stuck.x - best) > 1e5 * np.linalg.norm(result.x - best)


@pytest.mark.parametrize(
    ("solver", "above"),
    [(SVRG(step_size=0.6), 1e-6), (AdaGrad(step_size=0.5), 1e-3)],
    ids=["SVRG", "AdaGrad"],
)
def test_logistic_regression_on_real_data(solver, above):
    rows, labels = load("heart_scale")
    best = optimum("heart_scale", "logistic_l2", 1e-2)["optimum_value"]

    def loss(w, rows, labels):
        return Logistic(rows, labels, 1e-2)(w)

    objective = Minibatches.of(loss, rows, labels, batch_size=27)
    solver = replace(solver, max_iterations=60 * objective.batches_per_epoch)
    result = solver.minimize(objective, np.zeros(rows.shape[1]))
    assert result.fun == pytest.approx(loss(result.x, rows, labels)[0], rel=1e-12)
    assert 0.0 <= result.fun / best - 1.0 + 1e-12 < above


def test_sag_keeps_one_gradient_per_term_and_their_sum():
    solver = SAG(step_size=0.1, max_iterations=37)
    objective = terms(seed=5)
    states = list(solver.iterations(objective, np.zeros(5)))
    table = states[-1].memory.vectors
    latest = {objective.order.number(k): states[k].x for k in range(37)}
    assert table.gradients.keys() == latest.keys() == set(range(10))
    for i, x in latest.items():
        np.testing.assert_array_equal(table.gradients[i], objective.fun(x, i)[1])
    np.testing.assert_allclose(table.total, sum(table.gradients.values()), atol=1e-12)


def test_sag_with_a_penalty_reaches_the_ridge_solution():
    rows, targets = ROWS[:100], TARGETS[:100]
    ridge = np.linalg.solve(rows.T @ rows / 100 + 0.5 * np.eye(5), rows.T @ targets / 100)
    result = SAG(step_size=0.1, l2=0.5, max_iterations=600).minimize(terms(), np.zeros(5))
    np.testing.assert_allclose(result.x, ridge, rtol=1e-8)
    assert result.fun == pytest.approx(terms()(ridge)[0] + 0.25 * ridge @ ridge)


def test_svrg_takes_its_snapshots_at_ends_of_epochs():
    states = list(SVRG(step_size=0.1, max_iterations=45).iterations(terms(), np.zeros(5)))
    for k, state in enumerate(states):
        snapshot, gradient = state.memory.vectors
        at = states[k - k % 20].x
        np.testing.assert_array_equal(snapshot, at)
        np.testing.assert_allclose(gradient, terms()(at)[1])
    assert states[-1].evaluations == 3 + 2 * 43


def test_through_minimize():
    options = {"step_size": 0.1, "max_iterations": 200}
    result = minimize(terms(), np.zeros(5), method="SAG", options=options)
    assert result.fun < terms()(np.zeros(5))[0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: minibatches(batch_size=0), ValueError, "between 1 and count=103"),
        (lambda: minibatches(batch_size=104), ValueError, "batch_size=104"),
        (lambda: minibatches(seed=-1), ValueError, r"Minibatches\(seed=-1\)"),
        (lambda: FiniteSum(squares, 0), ValueError, r"FiniteSum\(count=0\)"),
        (lambda: FiniteSum(3.0, 1), TypeError, "fun must be callable, got float"),
        (
            lambda: Minibatches.of(squares, ROWS, TARGETS[:3], batch_size=2),
            ValueError,
            r"equally many rows, got \[103, 3\]",
        ),
        (lambda: Minibatches.of(squares, batch_size=2), ValueError, "no arrays"),
        (lambda: SAG().minimize(minibatches(), np.zeros(5)), TypeError, r"give FiniteSum"),
        (
            lambda: SGD(gradient_tolerance=1e-3).minimize(minibatches(), np.zeros(5)),
            ValueError,
            "use value_tolerance and window",
        ),
        (
            lambda: SGD().minimize(minibatches(), np.zeros(5), jac=lambda x: x),
            ValueError,
            "leave jac out",
        ),
    ],
)
def test_refusals_speak(make, error, message):
    with pytest.raises(error, match=message):
        make()
