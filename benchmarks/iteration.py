"""An iteration of L-BFGS over rows in Spark, beside its data pass and its vectors alone.

Nobody can save the pass over the rows, or the vectors that an iteration moves. Both are measured in
the same run, in turn with iterations, by as many processes as there are tasks: the sums of the loss
without Spark and servers, and a copy of arrays as large as these vectors together, of which caches
hold as much. The vectors are the 4m + 3 of the direction (``benchmarks.direction``), one that its
norms read along, 3 of the step, 8 of what the trial is worth and of the newest pair, and 2 for each
way that weights and gradient take: pulled, pushed, added.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import pairwise

from pyspark.sql import SparkSession

from benchmarks import memory_speed, sparse_rows
from benchmarks.harness import Ratio, Report, Table, Timing, main
from benchmarks.logistic_fits import PENALTY
from benchmarks.memory_speed import Work
from benchmarks.spark import start_spark
from distvec.losses import Logistic
from distvec.spark import LogisticLoss, PSContext
from optim import LBFGS

SERVERS = TASKS = 2
HISTORY = 10
VECTORS = 4 * HISTORY + 15
"""Read or written in an iteration, each by all servers together."""

_SKIPPED = HISTORY + 2
"""The first iterations are not counted: histories are short."""
_KINDS = {
    "uniform": (sparse_rows.synthetic, sparse_rows.uniform_rows),
    "texts": (sparse_rows.texts, sparse_rows.text_rows),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3, help="fits")
    parser.add_argument("--kinds", nargs="+", choices=list(_KINDS), default=list(_KINDS))


def measure(options: argparse.Namespace) -> Report:
    """One kind of rows after the other."""
    if options.quick:
        options.rows, options.features, options.repeat = 5000, 20_000, 1
    seconds: dict[str, dict[str, list[float]]] = {}
    layouts: dict[str, object] = {}
    spark = start_spark(2 * TASKS, parallelism=TASKS)
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps:
            for kind in options.kinds:
                seconds[kind] = timed(spark, ps, kind, options, layouts)
    finally:
        spark.stop()
    found = {
        kind: {name: statistics.median(times) for name, times in named.items()}
        for kind, named in seconds.items()
    }
    ratios = [
        Ratio(f"{kind}: iteration over its pass and vectors alone", bound_ratio(times), "1.5")
        for kind, times in found.items()
    ]
    rows = {name: [1e3 * times[name] for times in found.values()] for name in _LINES}
    return Report(
        f"an iteration of L-BFGS, m = {HISTORY}, {options.rows:,} rows, {options.features:,} "
        f"features, {TASKS} tasks, {SERVERS} servers",
        [Timing(f"{kind}: iteration", named["iteration"]) for kind, named in seconds.items()],
        ratios,
        {"vectors moved in an iteration": f"{VECTORS}, and 6 between servers and tasks"} | layouts,
        [Table("ms", list(found), rows)],
    )


_LINES = ("iteration", "  of it evaluation", memory_speed.ALONE, "vectors at copy bandwidth")


def bound_ratio(times: dict[str, float]) -> float:
    """How many times as long as what nobody can save."""
    alone, vectors = times[memory_speed.ALONE], times["vectors at copy bandwidth"]
    return times["iteration"] / (alone + vectors)


def timed(
    spark: SparkSession,
    ps: PSContext,
    kind: str,
    options: argparse.Namespace,
    layouts: dict[str, object],
) -> dict[str, list[float]]:
    """Seconds of each, in turn; ``layouts`` learns how products go over the elements."""
    data, make = _KINDS[kind]
    seconds: dict[str, list[float]] = {}
    rows = data(spark, options.rows, options.features)
    compact = kind == "texts"
    with LogisticLoss(rows, l2=PENALTY, mode="resident", compact=compact, ps=ps) as loss:
        layouts |= {f"{kind}: partition {k}": said for k, said in loss.layouts.items()}
        moved = 8.0 * loss.dimension * (VECTORS + 2 * TASKS * 3)
        work = Work(Logistic(), make, options.rows, options.features, loss.dimension, moved)
        with memory_speed.processes(TASKS, work) as beside:
            for _ in range(options.repeat):
                fit(ps, loss, options.iterations, seconds)
                for _ in range(5):
                    found = beside()
                    seconds.setdefault(memory_speed.ALONE, []).append(found[memory_speed.ALONE])
                    copies = work.vectors_seconds(found, TASKS)
                    seconds.setdefault(_LINES[-1], []).append(copies)
    return seconds


def fit(
    ps: PSContext, loss: LogisticLoss, iterations: int, seconds: dict[str, list[float]]
) -> None:
    """Iterations with a full history, and the evaluation in each."""
    evaluations: list[float] = []

    def objective(w: object) -> object:
        began = time.perf_counter()
        found = loss(w)
        evaluations.append(time.perf_counter() - began)
        return found

    solver = LBFGS(
        max_iterations=_SKIPPED + iterations,
        history=HISTORY,
        gradient_tolerance=0.0,
        value_tolerance=0.0,
    )
    result = solver.minimize(objective, ps.zeros(loss.dimension))
    times = [record.seconds for record in result.history]
    steps = [b - a for a, b in pairwise(times)][_SKIPPED:]
    seconds.setdefault("iteration", []).extend(steps)
    seconds.setdefault("  of it evaluation", []).extend(evaluations[-len(steps) :])


if __name__ == "__main__":
    main(__doc__, measure, configure)
