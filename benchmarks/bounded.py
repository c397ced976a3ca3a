"""Evaluations that L-BFGS-B needs on bound-constrained CUTEst problems: optim's and SciPy's.

``--collection`` is a copy of https://github.com/GrattonToint/S2MPJ, whose Python problems are
read and not kept. All problems of the class B with at most 120 variables run from the standard
start and from moved ones. Both solvers keep ten pairs, with tolerances so tight that neither stops
early. Counted are the evaluations until the first value within 1e-8 of the lowest that either saw,
relative above 1; runs that both bring there are compared. The second ratio counts until the
projected gradient is at most 1e-5 of the one at the start.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize

from benchmarks.harness import Ratio, Report, Table, main
from optim import LBFGSB, Box

LIMIT = 700
SECONDS = 60.0
MOST_VARIABLES = 120
GAP = 1e-8
SMALL = 1e-5
INFINITE = 1e20


class Spent(Exception):
    """The evaluations or the seconds of a run are used up."""


@dataclass(frozen=True)
class Bounded:
    """A problem with its box and start."""

    name: str
    problem: Any
    lower: np.ndarray
    upper: np.ndarray
    start: np.ndarray


@dataclass
class Run:
    """What the objective gave: values and max norms of the projected gradient."""

    values: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def until(self, numbers: list[float], limit: float) -> int | None:
        """The count of evaluations until the first number that is not above the limit."""
        return next((i for i, number in enumerate(numbers, start=1) if number <= limit), None)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--collection", type=Path, required=True, metavar="PATH")
    parser.add_argument("--moved", type=int, default=2, metavar="N", help="moved starts of each")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")


def measure(options: argparse.Namespace) -> Report:
    """Both solvers on each problem."""
    solvers: dict[str, Callable[[Any, Bounded], object]] = {"optim": by_optim, "SciPy": by_scipy}
    rows: dict[str, list[float | None]] = {}
    by_value, by_slope = [], []
    for one in problems(options.collection, options.only, 0 if options.quick else options.moved):
        ours, theirs = (run(minimise, one) for minimise in solvers.values())
        lowest = min(np.nanmin(each.values, initial=np.inf) for each in (ours, theirs))
        limit = lowest + GAP * max(1.0, abs(lowest))
        counts = [each.until(each.values, limit) for each in (ours, theirs)]
        rows[one.name] = [*counts, *(min(each.values) for each in (ours, theirs))]
        if None in counts:
            continue
        by_value.append(counts)
        slopes = [
            each.until(each.norms, SMALL * max(1.0, each.norms[0])) for each in (ours, theirs)
        ]
        if None not in slopes:
            by_slope.append(slopes)
    ratios = [
        Ratio(f"evaluations of optim / SciPy until {text}, geometric mean", geometric_mean(pairs))
        for text, pairs in (("the minimum", by_value), ("small slopes", by_slope))
    ]
    facts = {"runs": len(rows), "both to the minimum": len(by_value), "slopes": len(by_slope)}
    columns = ["optim", "SciPy", "optim: value", "SciPy: value"]
    title = "L-BFGS-B, m = 10, on bound-constrained CUTEst problems"
    return Report(title, [], ratios, facts, [Table("evaluations", columns, rows)])


def geometric_mean(pairs: list[Any]) -> float:
    """Of the first of each pair divided by the second."""
    return float(np.exp(np.mean([np.log(a / b) for a, b in pairs])))


def problems(collection: Path, only: list[str], moved: int) -> Iterator[Bounded]:
    """The problems with bounds alone, from each start; moves are of up to 1 percent."""
    folder = collection / "python_problems"
    sys.path[:0] = [str(collection), str(folder)]
    for path in sorted(folder.glob("*.py")):
        if only and path.stem not in only:
            continue
        if not re.search(r'pbclass\s*=\s*"C-C.B', path.read_text()):
            continue
        problem = getattr(importlib.import_module(path.stem), path.stem)()
        if problem.n > MOST_VARIABLES:
            continue
        lower, upper = (np.ravel(end).astype(float) for end in (problem.xlower, problem.xupper))
        lower[lower <= -INFINITE], upper[upper >= INFINITE] = -np.inf, np.inf
        for number in range(1 + moved):
            x = np.ravel(problem.x0).astype(float)
            if number:
                moves = np.random.default_rng(number).uniform(-1.0, 1.0, x.size)
                x = x + 0.01 * np.maximum(np.abs(x), 0.1) * moves
            name = f"{path.stem}, {number}" if number else path.stem
            yield Bounded(name, problem, lower, upper, np.clip(x, lower, upper))


def run(minimise: Callable[[Any, Bounded], object], one: Bounded) -> Run:
    """A solver on a problem, until it ends or the limit is met."""
    seen, end = Run(), time.monotonic() + SECONDS

    def recorded(x: np.ndarray) -> tuple[float, np.ndarray]:
        if len(seen.values) >= LIMIT or time.monotonic() > end:
            raise Spent
        with np.errstate(all="ignore"):
            try:
                value, gradient = one.problem.fgx(np.reshape(x, (-1, 1)))
            except (ArithmeticError, ValueError):
                value, gradient = np.nan, np.full(x.size, np.nan)
        value, gradient = float(np.ravel(value)[0]), np.ravel(gradient).astype(float)
        seen.values.append(value)
        seen.norms.append(float(np.abs(np.clip(x - gradient, one.lower, one.upper) - x).max()))
        return value, gradient

    with suppress(Spent):
        minimise(recorded, one)
    return seen


def by_optim(objective: Any, one: Bounded) -> object:
    """Ours."""
    box = Box(one.lower, one.upper)
    solver = LBFGSB(bounds=box, gradient_tolerance=1e-30, max_iterations=LIMIT)
    return solver.minimize(objective, one.start)


def by_scipy(objective: Any, one: Bounded) -> object:
    """SciPy's."""
    return minimize(
        objective,
        one.start,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(one.lower, one.upper),
        options={"maxcor": 10, "maxiter": LIMIT, "maxfun": LIMIT, "ftol": 0.0, "gtol": 0.0},
    )


if __name__ == "__main__":
    main(__doc__, measure, configure)
