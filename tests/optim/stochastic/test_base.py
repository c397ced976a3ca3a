"""The stochastic solvers by themselves: Breeze's cases and traces, their papers, their refusals."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import (
    FTRL,
    SAG,
    SGD,
    SVRG,
    AdaDelta,
    AdaGrad,
    Adam,
    AdamW,
    Constant,
    Cosine,
    InversePower,
    Outcome,
    RMSProp,
    StepDecay,
    Warmup,
)
from tests.optim.problems import breeze_start, quadratic
from tests.optim.reference_data import DATA

SOLVERS = [
    SGD(step_size=0.01, momentum=0.9),
    AdaGrad(step_size=0.5, l1=0.1, l2=0.2),
    AdaDelta(),
    RMSProp(centered=True, momentum=0.9),
    Adam(step_size=0.1),
    AdamW(step_size=0.1),
    FTRL(l1=0.1, l2=0.1),
    SAG(step_size=0.01, l2=0.1),
    SVRG(step_size=0.01),
]


def ids(solver):
    return type(solver).__name__


def trace(case):
    """The iterations of a run of Breeze's."""
    path = DATA / "breeze_traces.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    entries = map(json.loads, path.read_text().splitlines())
    return next(entry["rows"] for entry in entries if entry["case"] == case)


class TestBreeze:
    @pytest.mark.parametrize("l2", [0.01, 0.7, 36.5, 999.0])
    def test_adagrad_with_l2(self, l2):
        solver = AdaGrad(step_size=1.0, l2=l2, max_iterations=1000)
        x = solver.minimize(quadratic, np.arange(10.0)).x
        assert np.linalg.norm(x - 3.0 / (l2 / 2.0 + 1.0)) / x.size < 2e-3

    @pytest.mark.parametrize("l1", [0.2, 1.0, 5.9, 6.1, 9.0])
    def test_adagrad_with_l1(self, l1):
        solver = AdaGrad(step_size=1.0, l1=l1, max_iterations=600)
        x = solver.minimize(quadratic, np.arange(10.0)).x
        expected = max(3.0 - l1 / 2.0, 0.0)
        assert np.linalg.norm(x - expected) / x.size < 1e-2
        if expected == 0.0:
            np.testing.assert_array_equal(x, 0.0)

    def test_sgd(self):
        solver = SGD(step_size=InversePower(1.0), max_iterations=100)
        assert np.linalg.norm(solver.minimize(quadratic, np.arange(10.0)).x - 3.0) < 1e-3

    def test_sag(self):
        x0 = np.arange(10.0)
        x = SAG(step_size=0.25, max_iterations=100).minimize(quadratic, x0).x
        assert np.linalg.norm(x - 3.0) < 1e-3
        x = SAG(step_size=0.25, l2=1.0, max_iterations=400).minimize(quadratic, x0).x
        assert np.linalg.norm(x - 2.0) / x.size < 3e-3

    @pytest.mark.parametrize(
        ("case", "solver"),
        [
            ("sgd_quad10_eta2_max100", SGD(step_size=InversePower(2.0))),
            # Breeze adds 1e-7 to the sum of squares before each root.
            (
                "adagrad_l1_lam1_d1e-7_eta1_max60",
                AdaGrad(step_size=1.0, l1=1.0, accumulator=1e-7, epsilon=1e-30),
            ),
        ],
    )
    def test_the_same_path(self, case, solver):
        rows = trace(case)
        solver = replace(solver, max_iterations=len(rows) - 1)
        for row, state in zip(rows, solver.iterations(quadratic, breeze_start(10)), strict=True):
            assert state.value == pytest.approx(row["f"], rel=1e-12, abs=1e-24)
            np.testing.assert_allclose(state.x[:6], row["x"], rtol=1e-12)

    def test_the_same_first_step_of_adadelta(self):
        """Later ones differ: Breeze's mean of squares counts each gradient twice but the first."""
        rows = trace("adadelta_rho.95_max60")
        state = list(AdaDelta(decay=0.95, max_iterations=1).iterations(quadratic, breeze_start(10)))
        np.testing.assert_allclose(state[1].x[:6], rows[1]["x"], rtol=1e-12)

    def test_the_same_path_of_sag_between_its_changes_of_the_step_size(self):
        """Breeze wastes the first step, sets the step size to 0.375, and changes it every 10."""
        rows = trace("sag_quad10_max60")[1:10]
        solver = SAG(step_size=0.375, max_iterations=len(rows) - 1)
        for row, state in zip(rows, solver.iterations(quadratic, breeze_start(10)), strict=True):
            np.testing.assert_allclose(state.x[:6], row["x"], rtol=1e-12)


class TestPapers:
    def test_ftrl_as_the_algorithm_box_says(self):
        """McMahan et al., algorithm 1, one coordinate and one number at a time."""
        alpha, beta, l1, l2 = 0.5, 0.7, 0.9, 0.3
        gradients = np.random.default_rng(0).normal(size=(60, 6)) * np.logspace(-1, 1, 6)

        def coordinate(seen):
            z = n = 0.0
            for g in seen:
                inside = abs(z) <= l1
                rate = (beta + math.sqrt(n)) / alpha + l2
                w = 0.0 if inside else -(z - math.copysign(l1, z)) / rate
                yield w
                sigma = (math.sqrt(n + g * g) - math.sqrt(n)) / alpha
                z, n = z + g - sigma * w, n + g * g

        expected = np.array([list(coordinate(column)) for column in gradients.T]).T
        solver = FTRL(step_size=alpha, beta=beta, l1=l1, l2=l2)
        x = np.zeros(6)
        memory = solver.init_memory(x)
        zeros = 0
        for k, (w, g) in enumerate(zip(expected, gradients, strict=True)):
            np.testing.assert_allclose(x, w, rtol=1e-12, atol=1e-14)
            np.testing.assert_array_equal(x == 0.0, w == 0.0)
            zeros += np.count_nonzero(x == 0.0)
            x, memory = solver.update(memory, x, g, k)
        assert 20 < zeros < 340, "some coordinates are held at 0, some not"

    @settings(max_examples=25)
    @given(seed=st.integers(0, 10**6), step=st.floats(0.01, 2.0), beta=st.floats(0.1, 2.0))
    def test_ftrl_without_penalties_is_adagrad(self, seed, step, beta):
        x0 = np.random.default_rng(seed).normal(size=5)
        ftrl = FTRL(step_size=step, beta=beta, max_iterations=20)
        adagrad = AdaGrad(step_size=step, epsilon=beta, max_iterations=20)
        pairs = zip(ftrl.iterations(quadratic, x0), adagrad.iterations(quadratic, x0), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-9, atol=1e-12)

    def test_ftrl_starts_at_x0_and_keeps_zeros(self):
        solver = FTRL(l1=100.0, l2=0.5)
        x0 = np.array([-2.0, 0.0, 3.0])
        x, _ = solver.update(solver.init_memory(x0), x0, np.zeros(3), 0)
        np.testing.assert_allclose(x, x0, rtol=1e-13)
        assert x[1] == 0.0

    @given(seed=st.integers(0, 10**6), l1=st.floats(0.0, 3.0), l2=st.floats(0.0, 3.0))
    def test_adagrads_update_is_the_minimum_it_stands_for(self, seed, l1, l2):
        """Of gradient @ y + penalty(y) + sum(h * (y - x)^2) / 2: no nearby y is lower."""
        rng = np.random.default_rng(seed)
        x, g, squares = rng.normal(size=4), rng.normal(size=4), rng.uniform(0.1, 4.0, size=4)
        solver = AdaGrad(step_size=0.7, l1=l1, l2=l2)
        new, (after,) = solver.update((squares,), x, g, 0)
        h = (np.sqrt(after) + 1e-10) / 0.7

        def lifted(y):
            return g * y + l1 * np.abs(y) + 0.5 * l2 * y * y + 0.5 * h * (y - x) ** 2

        for shift in (-1e-3, 1e-3):
            assert np.all(lifted(new + shift) >= lifted(new))

    def test_values_and_gradients_are_those_of_the_penalised_objective(self):
        weights = np.array([0.0, 7.0, 1.0])
        solver = AdaGrad(step_size=1.0, l1=weights, l2=0.5, max_iterations=2000)
        result = solver.minimize(quadratic, np.zeros(3))
        np.testing.assert_allclose(result.x, [6.0 / 2.5, 0.0, 5.0 / 2.5], atol=1e-8)
        penalty = weights @ np.abs(result.x) + 0.25 * result.x @ result.x
        assert result.fun == pytest.approx(quadratic(result.x)[0] + penalty)
        np.testing.assert_allclose(result.jac, 0.0, atol=1e-6)
        stops = replace(solver, gradient_tolerance=1e-3)
        assert stops.minimize(quadratic, np.zeros(3)).outcome is Outcome.CONVERGED_GRADIENT

    def test_adamw_decays_the_weights_and_not_the_gradient(self):
        flat = np.array([1.0, -2.0])
        solver = AdamW(step_size=0.1, weight_decay=0.5, max_iterations=1)
        first = list(solver.iterations(lambda x: (0.0, 0.0 * x), flat))[1].x
        np.testing.assert_allclose(first, 0.95 * flat)

    def test_centered_rmsprop_survives_a_constant_gradient(self):
        solver = RMSProp(centered=True, decay=0.5, max_iterations=200)
        result = solver.minimize(lambda x: (x @ np.full(3, 0.1), np.full(3, 0.1)), np.zeros(3))
        assert result.outcome is Outcome.LIMIT_ITERATIONS


@pytest.mark.parametrize("solver", SOLVERS, ids=ids)
class TestEverySolver:
    def test_gets_lower_and_returns_the_lowest(self, solver):
        result = replace(solver, max_iterations=200).minimize(quadratic, breeze_start(6))
        values = [record.value for record in result.history]
        assert result.fun == min(values) < values[0]

    def test_update_is_pure(self, solver):
        state = list(replace(solver, max_iterations=4).iterations(quadratic, breeze_start(6)))[-1]
        memory = state.memory.vectors
        before = pickle.dumps((memory, state.x, state.gradient))
        (x, one), (again, other) = (
            solver.update(memory, state.x, state.gradient, 4) for _ in range(2)
        )
        np.testing.assert_array_equal(x, again)
        assert pickle.dumps(one) == pickle.dumps(other)
        assert pickle.dumps((memory, state.x, state.gradient)) == before

    def test_a_resumed_run_is_the_same_run(self, solver):
        whole = list(replace(solver, max_iterations=9).iterations(quadratic, breeze_start(6)))
        state = pickle.loads(pickle.dumps(whole[4]))
        rest = list(replace(solver, max_iterations=9).iterations(quadratic, state))
        for one, other in zip(whole[4:], rest, strict=True):
            np.testing.assert_array_equal(one.x, other.x)
            assert (one.iteration, one.evaluations) == (other.iteration, other.evaluations)

    def test_keeps_the_dtype(self, solver):
        x0 = np.array([1.0, -2.0], dtype=np.float32)
        for state in replace(solver, max_iterations=3).iterations(quadratic, x0):
            assert state.x.dtype == np.float32

    def test_average_is_the_mean_of_the_iterates(self, solver):
        solver = replace(solver, average=True, max_iterations=30)
        result = solver.minimize(quadratic, breeze_start(6))
        iterates = [state.x for state in solver.iterations(quadratic, breeze_start(6))]
        np.testing.assert_allclose(result.x, np.mean(iterates[1:], axis=0), rtol=1e-12)
        assert result.nfev == 32

    def test_divergence_ends_at_the_best_finite_point(self, solver):
        def cliff(x):
            value, gradient = quadratic(x)
            return (np.nan if x[0] > -1.0 else value), gradient

        result = replace(solver, max_iterations=5000).minimize(cliff, breeze_start(6))
        assert result.outcome is Outcome.NOT_FINITE
        assert math.isfinite(result.fun)
        assert result.x[0] <= -1.0


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Cosine(2.0, 2), [2.0, 1.0, 0.0, 0.0]),
        (Cosine(2.0, 4, final=1.0), [2.0, 1.5 + 0.5 * math.cos(math.pi / 4), 1.5]),
        (Warmup(Cosine(2.0, 2), 2), [1.0, 1.0, 0.0]),
    ],
)
def test_schedules(schedule, expected):
    assert [schedule(k) for k in range(len(expected))] == pytest.approx(expected)
    states = list(Adam(step_size=schedule, max_iterations=2).iterations(quadratic, [0.0]))
    assert [state.step_size for state in states[1:]] == pytest.approx(expected[:2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(beta1=1.0), r"Adam\(beta1=1.0\): must be at least 0 and below 1"),
        (lambda: AdamW(beta2=1.5), r"AdamW\(beta2=1.5\)"),
        (lambda: AdaDelta(decay=-0.1), r"AdaDelta\(decay=-0.1\): must be 0 or more"),
        (lambda: RMSProp(epsilon=0.0), r"RMSProp\(epsilon=0.0\): must be a positive"),
        (lambda: AdaGrad(epsilon=0.0), "positive"),
        (lambda: FTRL(beta=0.0), "positive"),
        (lambda: SVRG(full_every=0), r"SVRG\(full_every=0\): must be 1 or more"),
        (lambda: SGD(window=5, full_every=0), "window compares values of the whole objective"),
        (lambda: Warmup(Constant(1.0), 0), r"Warmup\(iterations=0\): must be 1 or more"),
        (lambda: StepDecay(1.0, every=0), r"StepDecay\(every=0\)"),
        (lambda: Cosine(1.0, 0), r"Cosine\(iterations=0\)"),
    ],
)
def test_parameters_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_ftrl_refuses_schedules():
    with pytest.raises(TypeError, match="gradients shorten the steps already"):
        FTRL(step_size=InversePower(1.0))


def test_weights_of_the_penalty_are_checked():
    with pytest.raises(ValueError, match="l1"):
        AdaGrad(l1=np.array([1.0, -1.0])).minimize(quadratic, np.zeros(2))
