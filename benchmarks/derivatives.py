"""Value and gradient by ``distvec.value_and_grad``, by hand, by NumPy, and by torch's autograd.

Four functions: logistic loss of a table, a quadratic whose matrix has three diagonals, Rosenbrock's
chain, a logarithmic barrier; each over n elements. Building the graph is timed with its evaluation.
Ours run on two servers, NumPy and torch in this process. What a gradient is to cost beside one by
hand is nothing but the building of the graph.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main, not_measured

SERVERS = 2
LENGTHS = (10**3, 10**4, 10**5, 10**6, 10**7)
QUICK_LENGTHS = (10**3, 10**5)
COLUMNS = 10
MOST, FEWEST = 30, 5
WARM_UP = 8
"""So often, that servers have compiled what they compile beside the first runs."""

Data = dict[str, Any]
SIDES = ("distvec", "distvec, by hand", "NumPy, by hand", "torch")


class Problem(NamedTuple):
    """A function of ``(m, data, x)``, where m is NumPy or torch, and the pair by hand."""

    value: Callable[[Any, Data, Any], Any]
    by_hand: Callable[[Data, Any], tuple[Any, Any]]
    columns: int = 0
    """Of the table; x has as many elements then."""


# --- the functions --------------------------------------------------------------------------------


def logistic(m: Any, a: Data, x: Any) -> Any:
    """The sum over the rows of a table."""
    margins = a["y"] * (a["T"] @ x)
    return m.sum(m.logaddexp(a["zero"], -margins))


def logistic_by_hand(a: Data, x: Any) -> tuple[Any, Any]:
    """With its slopes."""
    margins = a["y"] * (a["T"] @ x)
    return np.sum(np.logaddexp(0, -margins)), a["T"].T @ (-a["y"] * expit(-margins))


def tridiagonal(m: Any, a: Data, x: Any) -> Any:
    """``x' A x / 2 - c' x``."""
    return 0.5 * m.sum(a["d"] * x**2) + m.sum(a["e"] * x[1:] * x[:-1]) - a["c"] @ x


def tridiagonal_by_hand(a: Data, x: Any) -> tuple[Any, Any]:
    """``A x - c``."""
    gradient = a["d"] * x - a["c"]
    gradient[1:] += a["e"] * x[:-1]
    gradient[:-1] += a["e"] * x[1:]
    return tridiagonal(np, a, x), gradient


def rosenbrock(m: Any, a: Data, x: Any) -> Any:
    """The chain of n elements."""
    return m.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_by_hand(a: Data, x: Any) -> tuple[Any, Any]:
    """Both sweeps use the residuals."""
    r = x[1:] - x[:-1] ** 2
    gradient = np.zeros_like(x)
    gradient[:-1] = -400 * r * x[:-1] - 2 * (1 - x[:-1])
    gradient[1:] += 200 * r
    return np.sum(100 * r**2 + (1 - x[:-1]) ** 2), gradient


def barrier(m: Any, a: Data, x: Any) -> Any:
    """A linear function in the box between 0 and 2."""
    return a["c"] @ x - 0.1 * m.sum(m.log(x) + m.log(2 - x))


def barrier_by_hand(a: Data, x: Any) -> tuple[Any, Any]:
    """Two divisions an element."""
    return barrier(np, a, x), a["c"] - 0.1 / x + 0.1 / (2 - x)


PROBLEMS = {
    "logistic": Problem(logistic, logistic_by_hand, COLUMNS),
    "tridiagonal": Problem(tridiagonal, tridiagonal_by_hand),
    "Rosenbrock": Problem(rosenbrock, rosenbrock_by_hand),
    "log barrier": Problem(barrier, barrier_by_hand),
}


def inputs(problem: Problem, n: int) -> tuple[Data, np.ndarray]:
    """NumPy's arrays, of n elements but for the table, which has n in all; and x."""
    rng = np.random.default_rng(0)
    if problem.columns:
        rows = n // problem.columns
        table = rng.standard_normal((rows, problem.columns))
        data = {"T": table, "y": rng.choice([-1.0, 1.0], rows), "zero": np.zeros(())}
        return data, rng.standard_normal(problem.columns)
    data = {name: rng.uniform(0.5, 1.5, n - (name == "e")) for name in "cde"}
    return data, rng.uniform(0.5, 1.5, n)


# --- measuring ------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> Report:
    """Each function at each length, all sides in turn."""
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    os.environ["OMP_WAIT_POLICY"] = "passive"  # torch's threads would take the servers' cores
    tables, ratios, facts = [], [], {}
    with dv.local(servers=SERVERS) as ps:
        for name, problem in PROBLEMS.items():
            found = {n: timed(ps, problem, n) for n in lengths}
            tables.append(table(name, found))
            ratios += judged(name, found)
            facts[f"{name}: messages and sweeps, by hand the same"] = cost(ps, problem, lengths[0])
    title = f"value and gradient of functions of n elements, {SERVERS} servers"
    return Report(title, [], ratios, facts | not_measured("torch"), tables)


def timed(ps: dv.Session, problem: Problem, n: int) -> dict[str, Timing]:
    """Seconds for value and gradient, by side."""
    data, x = inputs(problem, n)
    there, x_there = {name: ps.array(one) for name, one in data.items()}, ps.array(x)
    differentiated = dv.value_and_grad(lambda x: problem.value(np, there, x))

    def evaluated(value: Any, gradient: Any) -> float:
        dv.evaluate(value, gradient)
        return float(value)

    cases = [
        Case(SIDES[0], lambda: evaluated(*differentiated(x_there))),
        Case(SIDES[1], lambda: evaluated(*problem.by_hand(there, x_there))),
        Case(SIDES[2], lambda: problem.by_hand(data, x)),
        *by_torch(problem, data, x),
    ]
    return interleaved(cases, repeat=min(max(FEWEST, 3 * 10**6 // n), MOST), warm_up=WARM_UP)


def by_torch(problem: Problem, data: Data, x: np.ndarray) -> list[Case]:
    """Torch's autograd, where there is torch."""
    try:
        import torch
    except ImportError:
        return []
    torch.set_num_threads(SERVERS)
    tensors = {name: torch.from_numpy(one) for name, one in data.items()}

    def run() -> float:
        point = torch.from_numpy(x).requires_grad_()
        value = problem.value(torch, tensors, point)
        value.backward()
        return value.item()

    return [Case(SIDES[3], run)]


def cost(ps: dv.Session, problem: Problem, n: int) -> str:
    """What the plans say; ``RuntimeError`` if they say another thing of what is by hand."""
    data, x = inputs(problem, n)
    there, point = {name: ps.array(one) for name, one in data.items()}, ps.array(x)
    counted = []
    for pair in (
        dv.value_and_grad(lambda x: problem.value(np, there, x)),
        lambda x: problem.by_hand(there, x),
    ):
        plan = ps.plan(*pair(point))
        counted.append((plan.messages, plan.sweeps, plan.vectors_read, plan.vectors_written))
    if counted[0] != counted[1]:
        raise RuntimeError(f"{counted[0]} by value_and_grad, {counted[1]} by hand")
    return f"{counted[0][0]}, {counted[0][1]}"


# --- judging --------------------------------------------------------------------------------------


def table(name: str, found: dict[int, dict[str, Timing]]) -> Table:
    """Medians in milliseconds, a row for each length."""
    rows = {
        f"n = {n:.0e}": [1e3 * by[side].median if side in by else None for side in SIDES]
        for n, by in found.items()
    }
    return Table(f"{name}, ms", SIDES, rows)


def judged(name: str, found: dict[int, dict[str, Timing]]) -> list[Ratio]:
    """Beside by hand, at the least and the greatest length."""
    ends = (min(found), max(found))
    return [
        Ratio(
            f"{name}, n = {n:.0e}: time over that by hand",
            found[n][SIDES[0]].median / found[n][SIDES[1]].median,
            "under 1.5" if n == min(found) else "under 1.1",
        )
        for n in ends
    ]


if __name__ == "__main__":
    main(__doc__, measure)
