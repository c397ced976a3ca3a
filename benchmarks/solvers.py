"""Evaluations that L-BFGS needs on standard test problems: optim's, SciPy's and Breeze's.

All keep ten pairs, start at the same points and run on the same objectives, with tolerances so
tight that none of them stops early. Counted are the evaluations until the first value within 1e-8
of the minimum that the run ends in, relative where that is above 1; within 2000 evaluations or not
at all. Problems that all solve, ending in the same minimum, add to the sums.

A start that differs by a percent may take far more or fewer steps, so one start says little: the
problems that all solve are run from random starts near the standard ones too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.breeze import Breeze, BreezeMissing
from benchmarks.harness import Ratio, Report, Table, main
from benchmarks.test_problems import Objective, Problem, problems
from optim import LBFGS, LBFGSB, ConjugateGradient, GradientDescent, HagerZhang, TruncatedNewton

HISTORY = 10
GAP = 1e-8
LIMIT = 2000
MOVED = 5
OURS = "optim"

Minimise = Callable[[Objective, np.ndarray], object]
Runs = dict[str, "Run"]


@dataclass(frozen=True)
class Run:
    """The values that a solver saw on a problem, one for each evaluation, up to the limit."""

    problem: Problem
    values: list[float]

    @property
    def best(self) -> float:
        """The lowest of them."""
        return min(self.values)

    @property
    def minimum(self) -> float | None:
        """The known minimum that the run ended in; None if it got near none."""
        near = min(self.problem.minima, key=lambda known: abs(known - self.best))
        return near if abs(self.best - near) <= _gap(near) else None

    @property
    def evaluations(self) -> int | None:
        """How many it took to get there; None if it did not."""
        if self.minimum is None:
            return None
        target = self.minimum + _gap(self.minimum)
        return next(i for i, value in enumerate(self.values, start=1) if value <= target)


def _gap(minimum: float) -> float:
    return GAP * max(1.0, abs(minimum))


def configure(parser: argparse.ArgumentParser) -> None:
    """The options beside the harness's."""
    parser.add_argument("--others", action="store_true", help="the other solvers of optim too")
    parser.add_argument(
        "--moved", type=int, default=MOVED, metavar="N", help=f"moved starts of each ({MOVED})"
    )


def measure(options: argparse.Namespace) -> Report:
    """Every solver on every problem."""
    chosen = [p for p in problems().values() if not options.quick or len(p.start) <= 3]
    facts: dict[str, object] = {}
    with ExitStack() as stack:
        solvers = ours_and_scipys()
        try:
            solvers["Breeze"] = by_breeze(stack.enter_context(Breeze()))
        except BreezeMissing as error:
            facts["Breeze"] = f"not measured: {error}"
        runs = run_all(solvers, chosen)
        solved = [p for p in chosen if solved_alike(runs[p.name])]
        moved = run_all(solvers, all_moved(solved, 1 if options.quick else options.moved))
    ratios = []
    for starts, done in (("standard starts", runs), ("moved starts", moved)):
        if done:
            compared_here, sums = compared(done, solvers, starts)
            ratios += compared_here
            facts |= sums
    facts |= shortcomings(runs, solvers)
    tables = [evaluation_table("evaluations of L-BFGS, and the lowest value", runs, values=True)]
    if options.others:
        others = run_all(other_solvers(), chosen)
        tables.append(evaluation_table("evaluations of optim's other solvers", others))
    title = f"L-BFGS, m = {HISTORY}, on {len(chosen)} problems: evaluations to the minimum"
    return Report(title, [], ratios, facts, tables)


def all_moved(chosen: Iterable[Problem], times: int) -> list[Problem]:
    """The problems so many times over, each coordinate of the start moved by up to 1 percent.

    A coordinate below 0.1 moves by up to 0.001. The moves are the same in every run.
    """
    rng = np.random.default_rng(0)
    moved = []
    for round_ in range(1, times + 1):
        for problem in chosen:
            x = problem.x0
            x += 0.01 * np.maximum(np.abs(x), 0.1) * rng.uniform(-1.0, 1.0, x.size)
            moved.append(replace(problem, name=f"{problem.name}, {round_}", start=tuple(x)))
    return moved


def ours_and_scipys() -> dict[str, Minimise]:
    """The two in this process, by name."""
    return {OURS: _of(LBFGS, history=HISTORY), "SciPy": by_scipy}


def by_scipy(objective: Objective, x0: np.ndarray) -> object:
    """SciPy's L-BFGS-B without bounds."""
    options = {"maxcor": HISTORY, "maxiter": LIMIT, "maxfun": LIMIT, "ftol": 0.0, "gtol": 0.0}
    return minimize(objective, x0, jac=True, method="L-BFGS-B", options=options)


def by_breeze(breeze: Breeze) -> Minimise:
    """Breeze's L-BFGS, which knows no limit of evaluations: it may spend more, uncounted."""
    return partial(breeze.minimize, max_iterations=LIMIT, history=HISTORY, tolerance=0.0)


def other_solvers() -> dict[str, Minimise]:
    """The other solvers for smooth deterministic objectives, by name."""
    return {
        "L-BFGS, Hager-Zhang": _of(LBFGS, history=HISTORY, search=HagerZhang()),
        "L-BFGS-B": _of(LBFGSB),
        "conjugate gradients": _of(ConjugateGradient),
        "truncated Newton": _of(TruncatedNewton),
        "gradient descent": _of(GradientDescent),
    }


def _of(solver: Callable[..., Any], **options: Any) -> Minimise:
    """A solver of optim that only ends where it is stationary, stalls or meets the limit."""
    tight = {"gradient_tolerance": 1e-30, "value_tolerance": 0.0, "max_iterations": LIMIT}
    minimise: Minimise = solver(max_evaluations=LIMIT, **tight, **options).minimize
    return minimise


def run_all(solvers: Mapping[str, Minimise], chosen: Iterable[Problem]) -> dict[str, Runs]:
    """Each solver on each problem, by the names of the problem and of the solver."""
    return {
        problem.name: {name: run(minimise, problem) for name, minimise in solvers.items()}
        for problem in chosen
    }


def run(minimise: Minimise, problem: Problem) -> Run:
    """A solver on a problem, with the values recorded by the objective itself."""
    values: list[float] = []

    def recorded(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = problem.objective(x)
        values.append(value)
        return value, gradient

    minimise(recorded, problem.x0)
    return Run(problem, values[:LIMIT])


def solved_alike(runs: Runs) -> bool:
    """Whether all of them end in the same minimum."""
    minima = {r.minimum for r in runs.values()}
    return len(minima) == 1 and None not in minima


def compared(
    runs: Mapping[str, Runs], solvers: Iterable[str], starts: str
) -> tuple[list[Ratio], dict[str, object]]:
    """The sums over what all solve alike, ours by the others', and who needs fewer how often."""
    alike = [of for of in runs.values() if solved_alike(of)]
    solved = [{name: r.evaluations or 0 for name, r in of.items()} for of in alike]
    sums = {name: sum(of[name] for of in solved) for name in solvers}
    text = ", ".join(f"{name} {total}" for name, total in sums.items())
    facts: dict[str, object] = {f"{starts}: sums over the {len(solved)} that all solve": text}
    ratios = []
    for peer in sums:
        if peer != OURS:
            ratios.append(Ratio(f"{starts}: {OURS} / {peer}", sums[OURS] / sums[peer], "at most 1"))
            fewer = sum(of[OURS] < of[peer] for of in solved)
            more = sum(of[OURS] > of[peer] for of in solved)
            facts[f"{starts}: {OURS} needs fewer than {peer}"] = f"on {fewer}, more on {more}"
    return ratios, facts


def shortcomings(runs: Mapping[str, Runs], solvers: Iterable[str]) -> dict[str, object]:
    """Who solves how many and fails on what, and where they end in different minima."""
    facts: dict[str, object] = {}
    for solver in solvers:
        failed = [name for name, of in runs.items() if of[solver].minimum is None]
        fails = f"; not {', '.join(failed)}" if failed else ""
        facts[f"{solver} solves"] = f"{len(runs) - len(failed)} of {len(runs)}{fails}"
    for name, of in runs.items():
        minima = {solver: r.minimum for solver, r in of.items() if r.minimum is not None}
        if len(set(minima.values())) > 1:
            ends = ", ".join(f"{solver} {minimum:.3g}" for solver, minimum in minima.items())
            facts[f"different minima of {name}"] = ends
    return facts


def evaluation_table(name: str, runs: Mapping[str, Runs], *, values: bool = False) -> Table:
    """Evaluations by problem and solver, none where it failed; perhaps the lowest values too."""
    solvers = list(next(iter(runs.values())))
    rows: dict[str, list[float | None]] = {}
    for problem, of in runs.items():
        rows[problem] = [r.evaluations for r in of.values()]
        rows[problem] += [r.best for r in of.values()] if values else []
    columns = [*solvers, *(f"{solver}: value" for solver in solvers if values)]
    return Table(name, columns, rows)


if __name__ == "__main__":
    main(__doc__, measure, configure)
