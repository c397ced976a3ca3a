"""A whole minimisation by L-BFGS, ten pairs: on servers, by SciPy, by Breeze under Spark's MLlib.

The objective is a diagonal quadratic, whose own time is taken off on all sides: what is left is
the optimizer. On the servers a lazy objective has no time of its own, as it runs in the passes of
the optimizer. So there it is run apart: the trial point is made first (the optimizer's work), then
value and gradient, with a stopwatch around them. That costs us two messages and five vectors read
or written more than a user pays, who has all fused; the user's case is timed as a whole.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize

import distvec as dv
from benchmarks.breeze import Breeze, BreezeMissing, Minimisation
from benchmarks.harness import Ratio, Report, Timing, main, speed_up
from optim import LBFGS

HISTORY = 10
ITERATIONS = 20
SERVERS = 2
HEAP = "8g"
GOALS = {"SciPy": "at least 8", "Breeze": "at least 5"}

Runs = dict[str, list[Minimisation]]


class DiagonalQuadratic:
    """sum c_i (x_i - t)^2 / 2; c, of shape (n,), evenly spaced from 1 to 1000.

    The minimum is at distance 1 from the start, 0: from further away Breeze's line search gives up
    at the first iteration. Evaluations are timed; ``apart`` says how, see above.
    """

    def __init__(self, curvature: Any, *, apart: bool = True) -> None:
        self._curvature = curvature
        self._target = 1.0 / len(curvature) ** 0.5
        self._apart = apart
        self.seconds = 0.0

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Value and gradient."""
        lazy = isinstance(x, dv.DistArray)
        if lazy and self._apart:
            x.persist()
        began = time.perf_counter()
        value, gradient = self._at(x)
        if lazy and self._apart:
            dv.evaluate(value, gradient)
        self.seconds += time.perf_counter() - began
        return value, gradient

    def _at(self, x: Any) -> tuple[Any, Any]:
        d = x - self._target  # gone before anything is evaluated, so never stored
        gradient = self._curvature * d
        return 0.5 * (d @ gradient), gradient


def measure(options: argparse.Namespace) -> Report:
    """All sides in turn, after one run each that does not count."""
    n = 1_000_000 if options.quick else 10_000_000
    curvature = np.linspace(1.0, 1000.0, n)
    facts: dict[str, object] = {}
    with ExitStack() as stack:
        ps = stack.enter_context(dv.local(servers=SERVERS))
        cases = on_servers(ps, curvature) | {"SciPy": lambda: by_scipy(curvature)}
        try:
            breeze = stack.enter_context(Breeze(HEAP))
        except BreezeMissing as error:
            facts["Breeze"] = f"not measured: {error}"
        else:
            cases["Breeze"] = lambda: breeze.quadratic(n, iterations=ITERATIONS, history=HISTORY)
        runs = in_turn(cases, repeat=1 if options.quick else 3)
    for name, done in runs.items():
        last = done[-1]
        facts[f"{name}: end"] = (
            f"{last.value:.6e}, {last.iterations} iterations, {last.evaluations} evaluations"
        )
    title = f"minimisation by L-BFGS, m = {HISTORY}, n = {n:.0e}, {SERVERS} servers, per iteration"
    return Report(title, *compared(runs), facts)


def on_servers(ps: dv.Session, curvature: np.ndarray) -> dict[str, Callable[[], Minimisation]]:
    """Ours, with the objective apart and fused."""
    there, x0 = ps.array(curvature), ps.zeros(len(curvature)).persist()
    solver = LBFGS(
        history=HISTORY, max_iterations=ITERATIONS, gradient_tolerance=0.0, value_tolerance=0.0
    )

    def run(*, apart: bool) -> Minimisation:
        f = DiagonalQuadratic(there, apart=apart)
        return timed(lambda: solver.minimize(f, x0), f)

    return {"distvec": lambda: run(apart=True), "distvec, fused": lambda: run(apart=False)}


def by_scipy(curvature: np.ndarray) -> Minimisation:
    """SciPy's L-BFGS-B without bounds."""
    f, x0 = DiagonalQuadratic(curvature), np.zeros(len(curvature))
    options = {"maxcor": HISTORY, "maxiter": ITERATIONS, "ftol": 0.0, "gtol": 0.0}
    return timed(lambda: minimize(f, x0, jac=True, method="L-BFGS-B", options=options), f)


def timed(run: Callable[[], OptimizeResult], f: DiagonalQuadratic) -> Minimisation:
    """How long ``run`` took, and ``f`` in it."""
    began = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - began
    return Minimisation(
        result.nit, result.nfev, float(result.fun), seconds, f.seconds, str(result.message)
    )


def in_turn(cases: dict[str, Callable[[], Minimisation]], repeat: int) -> Runs:
    """The cases one after the other, ``repeat`` times over and once before to warm up."""
    runs: Runs = {name: [] for name in cases}
    for round_ in range(1 + repeat):
        for name, run in cases.items():
            done = run()
            if done.iterations != ITERATIONS:
                raise RuntimeError(f"{name} stopped after {done.iterations}: {done.reason}")
            if round_:
                runs[name].append(done)
    return runs


def compared(runs: Runs) -> tuple[list[Timing], list[Ratio]]:
    """Times of an iteration, without the objective and with it, and the ratios of both."""
    own = {
        name: Timing(
            f"{name}, without the objective", [run.own_seconds for run in done], ITERATIONS
        )
        for name, done in runs.items()
        if name != "distvec, fused"  # where the two cannot be told apart
    }
    whole = {
        name: Timing(f"{name}, with the objective", [run.seconds for run in done], ITERATIONS)
        for name, done in runs.items()
    }
    ratios = []
    for peer, goal in GOALS.items():
        if peer in runs:
            ratios += [
                Ratio(f"speed over {peer}, without", speed_up(own["distvec"], own[peer]), goal),
                Ratio(f"speed over {peer}, with", speed_up(whole["distvec, fused"], whole[peer])),
            ]
    return [*own.values(), *whole.values()], ratios


if __name__ == "__main__":
    main(__doc__, measure)
