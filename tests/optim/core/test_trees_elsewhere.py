"""Parameters in several arrays on servers and in PyTorch: the paths, and what they cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv
from optim import (
    LBFGS,
    OWLQN,
    Adam,
    FiniteSum,
    L1Norm,
    ProjectedQuasiNewton,
    ProximalGradient,
    check_gradient,
)
from optim.core.arrays import fetch, max_norm, vdot
from optim.core.trees import as_start
from tests.optim.registry import START, Case, cases, ill_conditioned
from tests.optim.trees import Cut, arrays_in, cosh_of, joined

CUT = Cut(((4,), (4, 2)), lambda p: {"w": p[0], "V": p[1]})
ROWS = 600


@pytest.fixture(scope="module")
def ps() -> Iterator[dv.Session]:
    with dv.local(servers=2, in_process=True) as session:
        yield session


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_same_path_on_servers(ps: dv.Session, case: Case) -> None:
    solver = case.make(max_iterations=6)
    ours = solver.minimize(ill_conditioned, START)
    theirs = solver.minimize(cosh_of(CUT, ps.array), CUT.of(START, ps.array))
    assert all(isinstance(leaf, dv.DistArray) for leaf in arrays_in(theirs.x))
    assert (theirs.nit, theirs.nfev, theirs.outcome) == (ours.nit, ours.nfev, ours.outcome)
    for one, other in zip(ours.history, theirs.history, strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-9)
    np.testing.assert_allclose(joined(theirs.x), ours.x, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_same_path_on_tensors(case: Case) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    solver = case.make(max_iterations=6)
    ours = solver.minimize(ill_conditioned, START)
    theirs = solver.minimize(cosh_of(CUT, torch.tensor), CUT.of(START, torch.tensor))
    assert all(isinstance(leaf, torch.Tensor) for leaf in arrays_in(theirs.x))
    np.testing.assert_allclose(joined(theirs.x), ours.x, rtol=1e-6, atol=1e-7)


def quadratic_on_servers(ps: dv.Session) -> tuple[Any, Any, Any]:
    """x.(a x)/2 - b.x over a vector and a table, in a dict; and over one vector of all elements."""
    rng = np.random.default_rng(0)
    a, b = np.linspace(1.0, 10.0, ROWS * 4), rng.standard_normal(ROWS * 4)
    cut = Cut(((ROWS,), (ROWS, 3)), lambda p: {"w": p[0], "V": p[1]})
    table_a, table_b = cut.of(a, ps.array), cut.of(b, ps.array)
    whole_a, whole_b = ps.array(a), ps.array(b)

    def of_pieces(x: Any) -> Any:
        value, gradient = 0.0, {}
        for name, part in x.items():
            slope = table_a[name] * part
            value = value + 0.5 * vdot(part, slope) - vdot(table_b[name], part)
            gradient[name] = slope - table_b[name]
        return value, gradient

    def of_one(x: Any) -> Any:
        slope = whole_a * x
        return 0.5 * (x @ slope) - whole_b @ x, slope - whole_b

    return of_pieces, of_one, cut


def messages_of(ps: dv.Session, states: Iterator[Any]) -> list[int]:
    """Of each iteration."""
    counts = [ps.counters.messages for _ in states]
    return [after - before for before, after in itertools.pairwise(counts)]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_as_many_messages_as_on_one_vector(ps: dv.Session, case: Case) -> None:
    """Whatever is pending, in arrays of whatever lengths, goes in one message."""
    of_pieces, of_one, cut = quadratic_on_servers(ps)
    solver, zeros = case.make(max_iterations=4), np.zeros(ROWS * 4)
    several = messages_of(ps, solver.iterations(of_pieces, cut.of(zeros, ps.array)))
    single = messages_of(ps, solver.iterations(of_one, ps.array(zeros)))
    if case.cls is ProjectedQuasiNewton:  # rounding decides which inner products cancel
        assert sum(several) <= 1.1 * sum(single)
    else:
        assert several == single


def test_an_iteration_of_lbfgs_is_three_messages(ps: dv.Session) -> None:
    """One that reads what the trial is worth, and two for the direction; no pairs at first."""
    of_pieces, _, cut = quadratic_on_servers(ps)
    states = LBFGS(max_iterations=8).iterations(of_pieces, cut.of(np.zeros(ROWS * 4), ps.array))
    assert messages_of(ps, states) == [2] + [3] * 7


def test_reductions_over_several_arrays_are_one_message(ps: dv.Session) -> None:
    x = as_start({"w": ps.array(np.arange(-5.0, 95.0)), "V": ps.array(np.ones((30, 3)))})
    ps.counters.reset()
    y = 2.0 * x + 1.0
    assert fetch(vdot(x, y), max_norm(y), also=(x, y)) == (
        pytest.approx(vdot_of(np.arange(-5.0, 95.0), np.ones(90))),
        189.0,
    )
    assert ps.counters.messages == 1


def vdot_of(*parts: np.ndarray) -> float:
    return float(sum(part @ (2.0 * part + 1.0) for part in parts))


def test_arrays_of_two_libraries_are_refused(ps: dv.Session) -> None:
    with pytest.raises(TypeError, match="x0 must hold arrays of one library, got"):
        LBFGS().minimize(cosh_of(CUT), {"w": np.zeros(4), "V": ps.zeros((4, 2))})


def test_gradient_checks_on_servers(ps: dv.Session) -> None:
    fun, x = cosh_of(CUT, ps.array), CUT.of(START / 3.0, ps.array)
    assert check_gradient(fun, x)

    def wrong(x: Any) -> Any:
        value, gradient = fun(x)
        return value, {"w": gradient["w"], "V": 2.0 * gradient["V"]}

    names = [one.direction for one in check_gradient(wrong, x).derivatives if not one.ok]
    assert names[0] == "x['V'][0, 0]"


def test_batches_and_penalties_on_servers(ps: dv.Session) -> None:
    fun = cosh_of(CUT, ps.array)
    start = CUT.of(START, ps.array)
    sum_of_two = FiniteSum(lambda x, i: fun(x), 2)
    ours = Adam(step_size=0.1, max_iterations=6).minimize(ill_conditioned, START)
    theirs = Adam(step_size=0.1, max_iterations=6).minimize(sum_of_two, start)
    np.testing.assert_allclose(joined(theirs.x), ours.x, atol=1e-9)
    penalty = {"w": 0.3, "V": np.array([0.1, 0.0])}  # a weight for each column
    weights = np.r_[np.full(4, 0.3), np.tile([0.1, 0.0], 4)]
    found = OWLQN(l1=penalty, max_iterations=6).minimize(fun, start)
    alone = OWLQN(l1=weights, max_iterations=6).minimize(ill_conditioned, START)
    np.testing.assert_allclose(joined(found.x), alone.x, atol=1e-8)
    each = {"w": L1Norm(0.3), "V": L1Norm(ps.array(np.tile([0.1, 0.0], (4, 1))))}
    found = ProximalGradient(penalty=each, max_iterations=6).minimize(fun, start)
    alone = ProximalGradient(penalty=L1Norm(weights), max_iterations=6).minimize(
        ill_conditioned, START
    )
    np.testing.assert_allclose(joined(found.x), alone.x, atol=1e-8)
