"""The loop: limits, callbacks, progress, best point, and what it refuses."""

from __future__ import annotations

import dataclasses
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import (
    ADMM,
    LBFGS,
    LBFGSB,
    OWLQN,
    SGD,
    Box,
    ConjugateGradient,
    GradientDescent,
    Outcome,
    ProjectedQuasiNewton,
    ProximalGradient,
    SpectralProjectedGradient,
    TruncatedNewton,
)
from tests.optim.problems import breeze_start, quadratic, rosenbrock

SOLVERS = [
    LBFGS(),
    LBFGSB(),
    OWLQN(l1=1e-3),
    ConjugateGradient(),
    TruncatedNewton(),
    SGD(step_size=1e-4),
    GradientDescent(),
    SpectralProjectedGradient(projection=Box()),
    ProjectedQuasiNewton(projection=Box()),
    ProximalGradient(penalty=Box()),
    ADMM(penalty=Box()),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
class TestEverySolver:
    def test_iterations_begin_with_the_start_and_end_with_an_outcome(self, solver):
        solver = dataclasses.replace(solver, max_iterations=5)
        states = list(solver.iterations(rosenbrock, breeze_start(4)))
        assert [state.iteration for state in states] == [0, 1, 2, 3, 4, 5]
        np.testing.assert_array_equal(states[0].x, breeze_start(4))
        assert [state.outcome for state in states[:-1]] == [None] * 5
        assert states[-1].outcome is Outcome.LIMIT_ITERATIONS

    def test_each_evaluation_is_counted_and_none_repeated(self, solver):
        seen = []

        def fun(x):
            seen.append(x.tobytes())
            return rosenbrock(x)

        result = dataclasses.replace(solver, max_iterations=30).minimize(fun, breeze_start(4))
        assert result.nfev == result.njev == len(seen)
        # OWL-QN may come back to a corner of its orthants, where only zeros are left.
        again = {x for x in seen if seen.count(x) > 1}
        assert again <= ({bytes(32)} if isinstance(solver, OWLQN) else set())
        assert result.history[-1].evaluations == result.nfev
        assert len(result.history) == result.nit + 1

    @pytest.mark.parametrize("limit", [1, 2, 7, 20])
    def test_limit_of_evaluations_is_exact(self, solver, limit):
        solver = dataclasses.replace(solver, max_evaluations=limit)
        result = solver.minimize(rosenbrock, breeze_start(10))
        assert result.outcome is Outcome.LIMIT_EVALUATIONS
        assert result.nfev == limit
        assert not result.success

    def test_limit_of_time(self, solver):
        solver = dataclasses.replace(solver, max_seconds=0.0)
        result = solver.minimize(rosenbrock, breeze_start(4))
        assert (result.outcome, result.nit) == (Outcome.LIMIT_TIME, 0)

    def test_not_finite_at_the_start(self, solver):
        for value, gradient in ((np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan)):
            result = solver.minimize(lambda x, v=value, g=gradient: (v, g * x), np.ones(3))
            assert result.outcome is Outcome.NOT_FINITE_AT_START
            assert result.nit == 0
            np.testing.assert_array_equal(result.x, 1.0)

    def test_callback_stops(self, solver):
        for stop in (lambda state: state.iteration == 3, _raise_at_3):
            result = solver.minimize(rosenbrock, breeze_start(4), callback=stop)
            assert result.outcome is Outcome.STOPPED_BY_CALLBACK
            assert result.nit == 3

    def test_callback_sees_each_iteration_and_its_answer_none_goes_on(self, solver):
        seen = []
        solver = dataclasses.replace(solver, max_iterations=4)
        solver.minimize(rosenbrock, breeze_start(4), callback=lambda s: seen.append(s.iteration))
        assert seen == [1, 2, 3, 4]

    def test_start_is_not_modified_and_integers_are_fine(self, solver):
        x0 = np.array([5, -2])
        result = solver.minimize(quadratic, x0)
        np.testing.assert_array_equal(x0, [5, -2])
        assert result.x.dtype == np.float64

    def test_runs_are_repeatable(self, solver):
        first, second = (solver.minimize(rosenbrock, breeze_start(10)) for _ in range(2))
        np.testing.assert_array_equal(first.x, second.x)
        assert [r.value for r in first.history] == [r.value for r in second.history]

    def test_an_objective_may_reuse_its_buffer(self, solver):
        buffer = np.empty(10)

        def fun(x):
            value, buffer[:] = rosenbrock(x)
            return value, buffer

        result = solver.minimize(fun, breeze_start(10))
        expected = solver.minimize(rosenbrock, breeze_start(10))
        np.testing.assert_array_equal(result.x, expected.x)

    @settings(max_examples=15, deadline=None)
    @given(seed=st.integers(0, 10**6))
    def test_best_point_is_returned(self, solver, seed):
        x0 = np.random.default_rng(seed).normal(size=6) * 3.0
        result = dataclasses.replace(solver, max_iterations=40).minimize(rosenbrock, x0)
        values = [record.value for record in result.history]
        assert result.fun <= min(values) + 1e-14 * abs(min(values))
        assert result.fun <= values[0]
        smooth, _ = rosenbrock(result.x)
        l1 = getattr(solver, "l1", 0.0)
        assert result.fun == pytest.approx(smooth + l1 * np.abs(result.x).sum(), rel=1e-12)

    def test_frozen(self, solver):
        with pytest.raises(dataclasses.FrozenInstanceError):
            solver.max_iterations = 3


def _raise_at_3(state):
    if state.iteration == 3:
        raise StopIteration


def test_errors_of_the_objective_pass_through():
    def fun(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        LBFGS().minimize(fun, np.ones(2))


def test_a_stall_without_a_step_adds_no_record():
    seen = []
    result = LBFGS().minimize(
        lambda x: (x @ x, -2.0 * x), np.ones(3), callback=lambda s: seen.append(s.iteration)
    )
    assert result.outcome is Outcome.STALLED
    assert len(result.history) == result.nit + 1 == len(seen) + 1


def test_limit_of_time_between_iterations():
    def slow(x):
        time.monotonic()
        return rosenbrock(x)

    result = LBFGS(max_seconds=1e-9).minimize(slow, breeze_start(4))
    assert result.outcome is Outcome.LIMIT_TIME


def test_progress_as_a_bar_and_as_a_callable(capsys):
    LBFGS().minimize(quadratic, np.zeros(2), progress=True)
    shown = capsys.readouterr().err
    assert "value=" in shown
    assert "gradient=" in shown
    seen = []
    result = LBFGS().minimize(quadratic, np.zeros(2), progress=lambda s: seen.append(s.value))
    assert seen == [record.value for record in result.history]


def test_progress_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.warns(UserWarning, match="pip install tqdm"):
        assert LBFGS().minimize(quadratic, np.zeros(2), progress=True).success


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (1.0, TypeError, r"must return the pair \(value, gradient\), but returned float"),
        ((1.0,), TypeError, "tuple of length 1"),
        ((1.0, [1.0, 1.0]), TypeError, "must be an array like x, got list"),
        ((1.0, np.ones(3)), ValueError, r"shape \(3,\), but x has \(2,\)"),
        ((np.ones(2), np.ones(2)), TypeError, r"must be one number, but has shape \(2,\)"),
        (("one", np.ones(2)), TypeError, "must be one number, but has type str"),
    ],
)
def test_what_fun_returns_is_checked(returned, error, message):
    with pytest.raises(error, match=message):
        LBFGS().minimize(lambda x: returned, np.ones(2))


@pytest.mark.parametrize(
    ("x0", "error", "message"),
    [
        (np.ones((2, 0)), ValueError, r"at least one element, but has shape \(2, 0\)"),
        (1.0, ValueError, r"shape \(\)"),
        ([], ValueError, "at least one element"),
        ([1j], TypeError, "complex128"),
        (["a"], TypeError, "real numbers"),
    ],
)
def test_x0_is_checked(x0, error, message):
    with pytest.raises(error, match=message):
        LBFGS().minimize(quadratic, x0)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match=r"LBFGS\(history=-1\)"):
        LBFGS(history=-1)
    with pytest.raises(ValueError, match=r"SGD\(step_size=nan\)"):
        SGD(step_size=float("nan"))


def test_every_outcome_has_its_own_sentence():
    sentences = {outcome.sentence for outcome in Outcome}
    assert len(sentences) == len(Outcome)
    assert [outcome.value for outcome in Outcome] == list(range(len(Outcome)))


def test_a_result_prints_on_a_screen():
    assert len(repr(LBFGS().minimize(rosenbrock, breeze_start(4)))) < 800
