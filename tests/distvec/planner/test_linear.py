"""Inner products of linear combinations: few messages, NumPy's results, digits guarded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import distvec as dv
from optim import LBFGS, OWLQN, SGD
from ps_backend.kernels.lowering import split

N = 2000


def two_loop(g: Any, pairs: Sequence[tuple[Any, Any, float]], gamma: float) -> Any:
    """The two-loop recursion as anybody would type it (Nocedal & Wright, algorithm 7.4)."""
    q, alphas = g, []
    for s, y, rho in reversed(pairs):
        alpha = rho * (s @ q)
        q = q - alpha * y
        alphas.append(alpha)
    r = gamma * q
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        beta = rho * (y @ r)
        r = r + (alpha - beta) * s
    return r


def history(m: int, scale: float = 1.0, spread: float = 1.0) -> list[tuple[Any, Any, float]]:
    """``m`` pairs of a quadratic; ``spread`` near 0 makes them nearly dependent."""
    rng = np.random.default_rng(m)
    curvature = np.linspace(1, 50, N)
    first = rng.standard_normal(N)
    steps = [scale * (first + spread * rng.standard_normal(N)) for _ in range(m)]
    return [(s, curvature * s, 1.0 / (s @ (curvature * s))) for s in steps]


def in_float32(pairs: Sequence[tuple[Any, Any, float]]) -> list[tuple[Any, Any, float]]:
    return [(s.astype(np.float32), y.astype(np.float32), float(rho)) for s, y, rho in pairs]


def widened(pairs: Sequence[tuple[Any, Any, float]]) -> list[tuple[Any, Any, float]]:
    return [(s.astype(np.float64), y.astype(np.float64), rho) for s, y, rho in pairs]


def on_servers(ps: dv.Session, pairs: Sequence[tuple[Any, Any, float]]) -> list[Any]:
    return [(ps.array(s), ps.array(y), rho) for s, y, rho in pairs]


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("m", [1, 2, 3, 5, 10, 20])
def test_two_loop_recursion_takes_two_messages(ps: dv.Session, m: int) -> None:
    pairs, g = history(m), np.random.default_rng(99).standard_normal(N)
    remote, gradient = on_servers(ps, pairs), ps.array(g)
    ps.counters.reset()
    direction = two_loop(gradient, remote, 0.05).persist()
    cost = ps.counters.snapshot()
    assert cost["messages"] == 2
    assert cost["vectors_read"] + cost["vectors_written"] <= 4 * m + 4
    assert relative_error(direction.numpy(), two_loop(g, pairs, 0.05)) < 1e-12


@pytest.mark.parametrize("m", range(1, 13))
def test_two_loop_recursion_in_float32(ps: dv.Session, m: int) -> None:
    pairs = in_float32(history(m))
    g = np.random.default_rng(99).standard_normal(N).astype(np.float32)
    remote, gradient = on_servers(ps, pairs), ps.array(g)
    ps.counters.reset()
    direction = two_loop(gradient, remote, 0.05).persist()
    cost = ps.counters.snapshot()
    assert direction.dtype == np.float32
    assert cost["messages"] == 2
    assert cost["vectors_read"] + cost["vectors_written"] <= 4 * m + 4
    exact = two_loop(g.astype(np.float64), widened(pairs), 0.05)
    assert relative_error(direction.numpy(), exact) < 1e-6


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_history_does_not_change_what_is_compiled(ps: dv.Session, dtype: str) -> None:
    compiled = set()
    for m in (4, 6, 9):
        pairs = [(s.astype(dtype), y.astype(dtype), float(rho)) for s, y, rho in history(m)]
        direction = two_loop(ps.array(pairs[0][0]), on_servers(ps, pairs), 0.05)
        sweeps = [sweep for program in ps.plan(direction).programs for sweep in program.sweeps]
        compiled.add(tuple(split(sweep.structure).rest for sweep in sweeps))
    assert len(compiled) == 1


@pytest.mark.parametrize("single", ["gradient", "history"])
def test_two_loop_recursion_over_both_dtypes(ps: dv.Session, single: str) -> None:
    """The result is float64, and as exact: widening float32 vectors loses nothing."""
    pairs, g = history(5), np.random.default_rng(99).standard_normal(N)
    if single == "history":
        pairs = [(s.astype(np.float32), y.astype(np.float32), rho) for s, y, rho in pairs]
    else:
        g = g.astype(np.float32)
    remote, gradient = on_servers(ps, pairs), ps.array(g)
    ps.counters.reset()
    direction = two_loop(gradient, remote, 0.05).persist()
    assert ps.counters.messages == 2
    expected = two_loop(g, pairs, 0.05)
    assert direction.dtype == expected.dtype == np.float64
    exact = two_loop(g.astype(np.float64), widened(pairs), 0.05)
    assert relative_error(direction.numpy(), exact) < 1e-12


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_next_direction_asks_only_for_new_products(ps: dv.Session, dtype: str) -> None:
    pairs = [(s.astype(dtype), y.astype(dtype), float(rho)) for s, y, rho in history(11)]
    remote = on_servers(ps, pairs)
    two_loop(ps.array(pairs[0][0]), remote[:10], 0.05).persist()
    direction = two_loop(ps.array(pairs[1][0]), remote[1:], 0.05)
    plan = ps.plan(direction)
    assert plan.messages == 2
    first = plan.programs[0].sweeps[0].structure
    assert len(first.reductions) <= 5 * 10 + 2, "20 with g, 30 with the new pair"
    exact = two_loop(pairs[1][0].astype(np.float64), widened(pairs[1:]), 0.05)
    assert relative_error(direction.numpy(), exact) < (1e-12 if dtype == "float64" else 1e-6)


def test_known_products_of_float32_are_kept_in_float64(ps: dv.Session) -> None:
    x, y = (v.astype(np.float32) for v in np.random.default_rng(4).standard_normal((2, N)))
    a, b = ps.array(x), ps.array(y)
    assert float(a @ b) == np.float32(x.astype(np.float64) @ y)
    ps.counters.reset()
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert float(b.astype(np.float64) @ a.astype(np.float64)) == pytest.approx(exact, rel=1e-14)
    assert ps.counters.messages == 0
    rounded = float((a * b).sum())
    assert ps.counters.messages == 1, "a sum of products that were rounded is another number"
    assert rounded == np.float32((x * y).astype(np.float64).sum())


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_norms_of_new_vectors_come_along(ps: dv.Session, dtype: str) -> None:
    x = (10 * np.random.default_rng(5).standard_normal(N)).astype(dtype)
    a = ps.array(x)
    moved = 3 * a + a
    dv.evaluate(moved, moved @ a)
    ps.counters.reset()
    assert float(moved @ moved) == pytest.approx(float((4 * x) @ (4 * x)), rel=1e-5)
    assert ps.counters.messages == 0


def test_the_products_of_a_stored_vector_are_its_own(ps: dv.Session) -> None:
    """Also where it is float64 and made of a float32 vector that is not stored."""
    a = ps.array(np.random.default_rng(5).standard_normal(N).astype(np.float32))
    wide = (3 * a + a).astype(np.float64)
    product = wide @ a.astype(np.float64)
    dv.evaluate(wide, product)
    ps.counters.reset()
    assert float(wide @ a.astype(np.float64)) == float(product)
    assert float(wide @ wide) == pytest.approx(4 * float(product), rel=1e-6)
    assert ps.counters.messages == 0


def test_rounded_vectors_are_not_seen_through_in_float64(ps: dv.Session) -> None:
    """What a user widens is the vector with its roundings, which a product in float64 shows."""

    def products(x: Any, xy: Any, y: Any, z: Any) -> list[Any]:
        wide = (x - xy * y).astype(np.float64)
        return [wide @ z, wide @ wide, np.linalg.norm(wide)]

    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((2, N)).astype(np.float32)
    z = rng.standard_normal(N)
    a, b, c = ps.array(x), ps.array(y), ps.array(z)
    got = products(a, a @ b, b, c)
    assert ps.plan(*got).messages == 2
    expected = products(x, np.float32(x.astype(np.float64) @ y), y, z)
    assert [float(scalar) for scalar in got] == pytest.approx(expected, rel=1e-12)


def test_widened_vectors_are_seen_through(ps: dv.Session) -> None:
    x, y = np.random.default_rng(6).standard_normal((2, N)).astype(np.float32)
    z = np.random.default_rng(7).standard_normal(N)
    a, b, c = ps.array(x), ps.array(y), ps.array(z)
    float(a @ a)
    norm = np.linalg.norm(a - (b @ c) * a)
    assert norm.dtype == np.float64
    (program,) = ps.plan(norm).programs
    assert len(program.sweeps[0].structure.reductions) == 1, "b @ c; a @ a is known"
    wide = x.astype(np.float64)
    assert float(norm) == pytest.approx(np.linalg.norm(wide - (y @ z) * wide), rel=1e-12)


def test_a_norm_in_float32_is_expanded(ps: dv.Session) -> None:
    x, y = np.random.default_rng(6).standard_normal((2, N)).astype(np.float32)
    a, b = ps.array(x), ps.array(y)
    norm = np.linalg.norm(a - (a @ b) / (b @ b) * b)
    assert ps.plan(norm).messages == 1
    on_host = x - (x @ y) / (y @ y) * y
    assert float(norm) == pytest.approx(float(np.linalg.norm(on_host)), rel=1e-5)


def test_a_sum_of_rounded_products_of_dependent_vectors(ps: dv.Session) -> None:
    x, y = np.random.default_rng(8).standard_normal((2, N)).astype(np.float32)
    a, b = ps.array(x), ps.array(y)
    got = float(((a - (a @ b) / (b @ b) * b) * a).sum())
    assert got == pytest.approx(float(((x - (x @ y) / (y @ y) * y) * x).sum()), rel=1e-5)


@pytest.mark.parametrize("spread", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_hard_histories(ps: dv.Session, spread: float, scale: float) -> None:
    """Nearly dependent pairs, at scales whose squares nearly leave the range of floats."""
    pairs, g = history(8, scale, spread), np.random.default_rng(7).standard_normal(N)
    direction = two_loop(ps.array(g), on_servers(ps, pairs), 0.05)
    assert relative_error(direction.numpy(), two_loop(g, pairs, 0.05)) < 1e-8


def test_cancellation_is_noticed_counted_and_mended(ps: dv.Session) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal(N), rng.standard_normal(N)
    x -= (x @ y) / (y @ y) * y * (1 - 1e-13)
    a, b = ps.array(x), ps.array(y)
    residual = a - ((a @ b) / (b @ b)) * b
    product = residual @ b
    host = x - ((x @ y) / (y @ y)) * y
    assert abs(float(product) - host @ y) <= 1e-12 * np.abs(host * y).sum()
    assert ps.cancellations == 1
    ps.cancellation_limit = np.inf
    again = float((ps.array(x) - ((a @ b) / (b @ b)) * b) @ b)
    assert abs(again - host @ y) <= 1e-10 * np.abs(x * y).sum(), "digits lost, as allowed"
    assert ps.cancellations == 1, "the bound is an option"


def test_products_that_cancel_together_are_computed_in_one_message(ps: dv.Session) -> None:
    rng = np.random.default_rng(3)
    vectors = []
    for _ in range(3):
        x, y = rng.standard_normal(N), rng.standard_normal(N)
        vectors.append((ps.array(x - (x @ y) / (y @ y) * y * (1 - 1e-13)), ps.array(y)))
    ps.counters.reset()
    residuals = [(a - ((a @ b) / (b @ b)) * b) @ b for a, b in vectors]
    float(residuals[0] + residuals[1] * residuals[2])
    assert ps.cancellations == 3
    assert ps.counters.messages == 2, "the products of stored vectors, and the three directly"


def test_what_needs_no_answer_is_not_expanded(ps: dv.Session) -> None:
    x, y = ps.array(np.ones(N)), ps.array(np.ones(N))
    plan = ps.plan((2 * x - 3 * y) @ (x + y))
    assert (plan.messages, plan.sweeps, plan.vectors_read) == (1, 1, 2)
    assert len(plan.programs[0].sweeps[0].structure.reductions) == 1


@pytest.mark.parametrize(
    ("dtypes", "tolerance"),
    [(("float64",), 1e-9), (("float32",), 1e-4), (("float32", "float64"), 1e-4)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
@given(data=st.data())
def test_random_programs_with_dependent_scalars(
    sessions: dict[int, dv.Session], data: st.DataObject, dtypes: Sequence[str], tolerance: float
) -> None:
    """Chains of updates whose coefficients come from inner products, as Gram-Schmidt takes them."""
    ps = sessions[data.draw(st.sampled_from((1, 3)))]
    count, length = data.draw(st.integers(1, 4)), data.draw(st.sampled_from((1, 7, 1500)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10)))
    host: list[Any] = [
        rng.standard_normal(length).astype(data.draw(st.sampled_from(dtypes))) for _ in range(count)
    ]
    remote = [ps.array(v) for v in host]
    bound = 1.0
    for _ in range(data.draw(st.integers(1, 8))):
        i, j, k = (data.draw(st.integers(0, len(host) - 1)) for _ in range(3))
        kind = data.draw(st.sampled_from(("update", "scale", "mix", "normalise")))

        def step(v: Sequence[Any], i: int = i, j: int = j, k: int = k, kind: str = kind) -> Any:
            match kind:
                case "update":
                    return v[i] - ((v[j] @ v[k]) / (1.0 + v[k] @ v[k])) * v[j]
                case "scale":
                    return -(v[i] @ v[j]) / (1.0 + v[i] @ v[i]) * v[k]
                case "mix":
                    return v[i] * 0.5 + v[j] / 4.0 - v[k]
            return v[i] / (1.0 + (v[i] @ v[i]))

        host.append(step(host))
        remote.append(step(remote))
        bound = max(bound, float(np.abs(host[-1]).max()))
    chosen = data.draw(st.lists(st.integers(0, len(host) - 1), min_size=1, max_size=3))
    dv.evaluate(*(remote[c] for c in chosen))
    for c in chosen:
        assert remote[c].dtype == host[c].dtype
        atol = tolerance * bound
        np.testing.assert_allclose(remote[c].numpy(), host[c], rtol=tolerance, atol=atol)


QUADRATIC_STEPS = [
    (LBFGS(max_iterations=12), 3),
    (OWLQN(l1=0.01, max_iterations=12), 5),
    (SGD(step_size=0.005, momentum=0.9, max_iterations=12), 1),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-8), ("float32", 1e-3)])
@pytest.mark.parametrize(("solver", "most"), QUADRATIC_STEPS, ids=lambda v: type(v).__name__)
def test_messages_of_an_iteration(
    ps: dv.Session, solver: Any, most: int, dtype: str, tolerance: float
) -> None:
    """Solvers that know nothing of servers, with an objective of one message riding along."""
    a = np.linspace(1, 100, N, dtype=dtype)
    b = np.random.default_rng(0).standard_normal(N).astype(dtype)
    records: list[tuple[int, int]] = []

    def quadratic(a: Any, b: Any) -> Any:
        return lambda x: (0.5 * (x @ (a * x)) - b @ x, a * x - b)

    result = solver.minimize(
        quadratic(ps.array(a), ps.array(b)),
        ps.zeros(N, dtype=dtype),
        callback=lambda state: records.append((ps.counters.messages, state.evaluations)),
    )
    for (before, first), (after, last) in itertools.pairwise(records):
        assert after - before <= most + (last - first - 1), "one more per extra trial"
    on_numpy = solver.minimize(quadratic(a, b), np.zeros(N, dtype))
    assert (result.nit, result.nfev) == (on_numpy.nit, on_numpy.nfev)
    for ours, theirs in zip(result.history, on_numpy.history, strict=True):
        assert ours.value == pytest.approx(theirs.value, rel=tolerance)
    assert result.x.dtype == dtype
    atol = tolerance * np.abs(on_numpy.x).max()
    np.testing.assert_allclose(result.x.numpy(), on_numpy.x, rtol=tolerance, atol=atol)


def test_remembered_products_do_not_grow_without_bound(ps: dv.Session) -> None:
    x = ps.array(np.ones(4))
    for k in range(700):
        float(x @ ps.array(np.full(4, float(k))))
    assert len(x.node.value.products) <= 512
    assert float(x @ x) == 4.0
