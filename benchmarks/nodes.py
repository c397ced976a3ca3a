"""What it costs to write an expression down: client time per node built, nothing evaluated.

Each node is new (another scalar), so that interning finds no earlier one.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, interleaved, main, speed_up

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
    ratios = [
        Ratio("us per vector node", per_node * 1e6, "under 20"),
        Ratio(
            "time over NumPy's operation",
            1 / speed_up(timings["vector node"], timings["NumPy, n = 1000"]),
        ),
    ]
    return Report("building expression nodes", list(timings.values()), ratios)


if __name__ == "__main__":
    main(__doc__, measure)
