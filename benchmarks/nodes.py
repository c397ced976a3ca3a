"""What it costs to write an expression down, and to evaluate it for the first time.

Client time per node built, nothing evaluated: each node is new (another scalar), so that interning
finds no earlier one. Then expressions whose form neither the session nor its servers have met, the
same once more, and NumPy: a new form is planned, encoded, decoded, verified, and gets a kernel. At
last a process that imports the package and computes one inner product.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.harness import (
    Case,
    Ratio,
    Report,
    Table,
    interleaved,
    main,
    nothing_compiled,
    seconds_of,
    speed_up,
)
from ps_backend import kernels

NODES = 50  # of one expression: shorter than what is flushed on its own
EXPRESSIONS = 40


def measure(options: argparse.Namespace) -> Report:
    """Vector nodes and rank-0 nodes, beside NumPy doing the work on 1000 elements."""
    with dv.local(servers=2, in_process=True) as ps:
        x = ps.array(np.ones(1000))
        s = x @ x
        a = np.ones(1000)
        scalars = itertools.count(1.0)

        def chain(start: dv.DistArray | np.ndarray) -> None:
            for _ in range(EXPRESSIONS):
                value = start
                for scalar in itertools.islice(scalars, NODES):
                    value = value + scalar

        count = NODES * EXPRESSIONS
        timings = interleaved(
            [
                Case("vector node", lambda: chain(x), operations=count),
                Case("rank-0 node", lambda: chain(s), operations=count),
                Case("NumPy, n = 1000", lambda: chain(a), operations=count),
            ],
            repeat=3 if options.quick else 15,
        )
    per_node = timings["vector node"].median / count
    tables = list(first_runs(1 if options.quick else 9))
    rows = np.array([row for table in tables for row in table.rows.values()])
    starts = interleaved(
        [Case(name, partial(start, code)) for name, code in STARTS.items()],
        repeat=1 if options.quick else 9,
    )
    ratios = [
        Ratio("us per vector node", per_node * 1e6, "under 20"),
        Ratio(
            "time over NumPy's operation",
            1 / speed_up(timings["vector node"], timings["NumPy, n = 1000"]),
        ),
        Ratio("us of a new form, median", float(np.median(rows[:, 1] - rows[:, 2])), "under 300"),
    ]
    measured = [*timings.values(), *starts.values()]
    return Report("building expression nodes, and first runs", measured, ratios, tables=tables)


STARTS = {
    "a process that imports NumPy": "import numpy",
    "a process that imports distvec": "import distvec",
    "the same, and a dot in process": (
        "import distvec as dv, numpy as np\n"
        "x = dv.local(in_process=True).array(np.ones(1000))\n"
        "float(x @ x)"
    ),
}


def start(code: str) -> None:
    """Run ``code`` in a new process."""
    subprocess.run([sys.executable, "-c", code], check=True)


def first_runs(repeat: int) -> Iterator[Table]:
    """Microseconds of each form, the least of so many sessions: by length of the arrays."""
    columns = ["NumPy", "first", "again", "first, server process", "again, server process"]
    for length in (1_000, 10_000, 100_000):
        random = np.random.default_rng(1)
        host = [*random.random((3, length)), random.random((length, 8))]
        best = np.full((len(FORMS), len(columns)), np.inf)
        for _ in range(repeat):
            forget_kernels()
            with dv.local(servers=1, in_process=True) as ps:
                times = [times_in(ps, host)]
            with nothing_compiled(), dv.local(servers=1) as ps:
                times.append(times_in(ps, host))
            numpy = [[seconds_of(partial(form, *host))] for form in FORMS.values()]
            best = np.minimum(best, np.hstack([numpy, *times]))
        rows = {name: list(1e6 * row) for name, row in zip(FORMS, best, strict=True)}
        yield Table(f"microseconds of a run, n = {length:,}", columns, rows)


def times_in(ps: dv.Session, host: list[np.ndarray]) -> list[list[float]]:
    """Seconds of the first run and of the next one, by form."""
    arrays: list[Any] = [ps.array(values).persist() for values in host]

    def run(form: Callable[..., Any]) -> None:
        results = form(*arrays)
        dv.evaluate(*results if isinstance(results, tuple) else (results,))

    return [[seconds_of(partial(run, form)) for _ in range(2)] for form in FORMS.values()]


def forget_kernels() -> None:
    """Let the servers in this process compile as new ones do."""
    for _, remembered in kernels._REMEMBERED:
        remembered.cache_clear()


def conjugate_gradient(p: Any, r: Any, x: Any) -> tuple[Any, ...]:
    """One iteration for a diagonal matrix."""
    q = 2.5 * p
    step = (r @ r) / (p @ q)
    rest = r - step * q
    return x + step * p, rest, rest + (rest @ rest) / (r @ r) * p


def two_loops(g: Any, a: Any, b: Any) -> Any:
    """The direction of L-BFGS with two pairs."""
    pairs = [(a, b), (b - a, a + b)]
    direction, kept = g, []
    for s, y in pairs:
        rho = 1.0 / (s @ y)
        kept.append((s, y, rho, rho * (s @ direction)))
        direction = direction - kept[-1][3] * y
    for s, y, rho, alpha in reversed(kept):
        direction = direction + (alpha - rho * (y @ direction)) * s
    return direction


LINE = np.linspace(0.0, 1.0, 8)
FORMS: dict[str, Callable[..., Any]] = {
    "dot": lambda x, y, z, t: x @ y,
    "norm of a difference": lambda x, y, z, t: np.linalg.norm(x - y),
    "three sums": lambda x, y, z, t: (x.sum(), (x * y).sum(), x.max()),
    "five dots": lambda x, y, z, t: (x @ y, x @ z, y @ z, x @ x, y @ y),
    "mean and variance": lambda x, y, z, t: (x.mean(), x.var()),
    "axpy": lambda x, y, z, t: 2.0 * x + y,
    "three vectors combined": lambda x, y, z, t: 2.0 * x - 0.5 * y + 0.25 * z,
    "chain of 5": lambda x, y, z, t: np.exp(-x) * y + np.sqrt(abs(z)),
    "chain of 12": lambda x, y, z, t: np.tanh(
        ((x + y) * z - x / 2.0) * y + np.sin(x) * np.cos(y) - z * z * 0.5
    ),
    "soft threshold": lambda x, y, z, t: np.sign(x - y) * np.maximum(abs(x - y) - 0.01, 0.0),
    "logistic loss": lambda x, y, z, t: np.logaddexp(0.0, -y * x).sum() + 0.5 * (z @ z),
    "where": lambda x, y, z, t: np.where(x > 0.5, y, z),
    "count": lambda x, y, z, t: ((x > 0.5) & (y < 0.3)).sum(),
    "clip": lambda x, y, z, t: np.clip(x, 0.2, 0.8),
    "argmax": lambda x, y, z, t: (x * y).argmax(),
    "conjugate gradients": lambda x, y, z, t: conjugate_gradient(x, y, z),
    "two loops of L-BFGS": lambda x, y, z, t: two_loops(x, y, z),
    "differences": lambda x, y, z, t: x[1:] - x[:-1],
    "stencil": lambda x, y, z, t: x[2:] - 2.0 * x[1:-1] + x[:-2],
    "every other": lambda x, y, z, t: x[::2].sum(),
    "roll": lambda x, y, z, t: np.roll(x, 1) + x,
    "concatenate": lambda x, y, z, t: np.concatenate([x, y]),
    "table @ vector": lambda x, y, z, t: t @ LINE,
    "vector @ table": lambda x, y, z, t: x @ t,
    "sums of rows": lambda x, y, z, t: (t * t).sum(1),
    "means of columns": lambda x, y, z, t: t.mean(0),
    "Gram matrix": lambda x, y, z, t: t.T @ t,
    "cumsum": lambda x, y, z, t: np.cumsum(2.0 * x),
    "sort": lambda x, y, z, t: np.sort(x + y),
    "selection": lambda x, y, z, t: x[x > 0.5],
}


if __name__ == "__main__":
    main(__doc__, measure)
