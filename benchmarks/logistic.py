"""Sparse logistic regression, against MLlib's LogisticRegression: time to given distances above
the optimum, and time per iteration.

A distance is relative: (objective - optimum) / optimum. The optimum is found once by a long run of
ours; its gradient and the strong convexity that the penalty gives bound how far off it is. Both get
the same cached DataFrame and read it in each fit, both are L-BFGS with a history of 10, without
intercept. MLlib's time is that of a whole fit that stops after the first
iteration whose objective is near enough (it tells the objective of each); ours is that of a whole
fit until that iterate. One neutral function, neither's own, evaluates what both found.

The rows are such as texts have, and uniformly random ones; and those of texts once more with
``standardization``, MLlib's default. MLlib divides features by their standard deviations in any
case, and takes many more iterations where the penalty is not of these. Where rows cannot touch most
of the features, ours leaves out those that they do not (``compact``); the result has all.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks import sparse_rows
from benchmarks.harness import Ratio, Report, Table, Timing, main, speed_up
from benchmarks.logistic_fits import (
    LEVELS,
    PENALTY,
    Problem,
    Seconds,
    above,
    check_not_below,
    check_same,
    first_within,
    fit_mllib,
    optimum_of,
    time_mllib,
    time_ours,
)
from benchmarks.spark import start_spark
from benchmarks.sparse_rows import NONZEROS, RCV1, text_rows
from distvec.spark import PSContext

SERVERS = SLOTS = 2


class Kind(NamedTuple):
    """What to fit."""

    rows: Callable[[SparkSession, int, int], DataFrame]
    standardization: bool = False


KINDS: Mapping[str, Kind] = {
    "texts": Kind(sparse_rows.texts),
    "texts, standardized": Kind(sparse_rows.texts, standardization=True),
    "uniform": Kind(sparse_rows.synthetic),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--kinds", choices=list(KINDS), nargs="+", default=list(KINDS))
    parser.add_argument("--repeat", type=int, default=2, help="trainings of each")
    parser.add_argument("--most", type=int, default=300, help="iterations of MLlib")
    parser.add_argument("--dtype", default="float64", help="of our rows and vectors")
    parser.add_argument("--driver-memory", default="8g", help="MLlib's vectors are in the driver")


def measure(options: argparse.Namespace) -> Report:
    """MLlib and ours in turn, in the same Spark."""
    rows, features, repeat = options.rows, options.features, options.repeat
    if options.quick:
        rows, features, repeat = min(rows, 5000), min(features, 20_000), 1
    timings: list[Timing] = []
    ratios: list[Ratio] = []
    facts: dict[str, object] = {}
    tables: list[Table] = []
    spark = start_spark(SLOTS, driver_memory=options.driver_memory)
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps:
            for name in options.kinds:
                kind = KINDS[name]
                data = kind.rows(spark, rows, features).cache()
                data.count()
                # Of the words that there are most occur in no text.
                compact = kind.rows is sparse_rows.texts or rows * NONZEROS < features
                own = (options.dtype, compact, options.most)
                problem = Problem(data, ps, kind.standardization, *own)
                part = compared(name, problem, repeat)
                timings += part.timings
                ratios += part.ratios
                facts |= part.facts
                tables += part.tables
                data.unpersist(blocking=True)
    finally:
        spark.stop()
    tables.append(likeness(features))
    title = f"logistic regression, {rows:,} rows over {features:,} features, penalty {PENALTY:g}"
    return Report(title, timings, ratios, facts, tables)


def compared(kind: str, problem: Problem, repeat: int) -> Report:
    """Both on one kind of rows."""
    optimum = optimum_of(problem)
    long, model = fit_mllib(problem, problem.most)
    history = model.summary.objectiveHistory
    check_same("MLlib's", problem, history[-1], model.coefficients.toArray())
    check_not_below(min(history), optimum)
    needed = {one: first_within(history, optimum, one) for one in LEVELS}
    ours, mllib = Seconds(), Seconds()
    iterations: dict[float, int] = {}
    for number in range(repeat):
        gc.collect()
        time_mllib(problem, needed, mllib)
        gc.collect()
        iterations = time_ours(problem, optimum, ours, check=number == 0)
    facts: dict[str, object] = {
        f"{kind}: optimum": f"{optimum.value:.12f}, relative error at most {optimum.within:.0e}",
        f"{kind}: MLlib, {len(history) - 1} iterations": (
            f"{long:.1f} s, {above(history[-1], optimum):.1e} above"
        ),
        f"{kind}: features in our vectors": f"{'those that occur' if problem.compact else 'all'}",
    }
    counts = {f"within {one:g}": [iterations[one], needed[one]] for one in LEVELS}
    table = Table(f"{kind}: iterations", ["distvec", "MLlib"], counts)
    timings = dict(timings_of(kind, ours, mllib))
    ratios = list(ratios_of(kind, timings))
    return Report(kind, list(timings.values()), ratios, facts, [table])


def timings_of(kind: str, ours: Seconds, mllib: Seconds) -> Iterator[tuple[str, Timing]]:
    """What was timed, by name."""
    for who, seconds in (("distvec", ours), ("MLlib", mllib)):
        named = {f"within {level:g}": times for level, times in seconds.levels.items() if times}
        named |= {"per iteration": seconds.iteration, "no iteration": seconds.reading}
        for what, times in named.items():
            name = f"{kind}: {who}, {what}"
            yield name, Timing(name, times)


def ratios_of(kind: str, timings: dict[str, Timing]) -> Iterator[Ratio]:
    """How many times as fast as MLlib, where both got there."""
    for what in (*(f"within {level:g}" for level in LEVELS), "per iteration"):
        ours, mllib = (timings.get(f"{kind}: {who}, {what}") for who in ("distvec", "MLlib"))
        if ours is not None and mllib is not None:
            yield Ratio(f"{kind}: speed over MLlib, {what}", speed_up(ours, mllib))


def likeness(features: int) -> Table:
    """What the rows of texts are like, beside real ones."""
    rows = [text_rows(0, 1500, size)[1] for size in (47_236, features)]
    found = [sparse_rows.statistics(one) for one in rows]
    columns = ["RCV1", "made, as many features", f"made, {features:,}"]
    figures = {name: [value, *(one[name] for one in found)] for name, value in RCV1.items()}
    return Table("1500 rows of texts", columns, figures)


if __name__ == "__main__":
    main(__doc__, measure, configure)
