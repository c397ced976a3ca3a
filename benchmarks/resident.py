"""One evaluation of a sparse logistic loss by tasks that stay, beside one by a Spark job.

On tiny data it is all overhead: the question to the tasks, their pulls and pushes, the answers, the
commit. An empty Spark job is timed in the same turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle

from pyspark.sql import SparkSession

from benchmarks.harness import Case, Ratio, Report, Timing, interleaved, main
from benchmarks.logistic import SERVERS
from benchmarks.spark import start_spark
from benchmarks.sparse_rows import NONZEROS, synthetic
from distvec import DistArray
from distvec.spark import LogisticLoss, PSContext

PARTITIONS = 2
TINY = (200, 5000)
_TINY_BATCH, _LARGE_BATCH = 20, 3


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=10)


def measure(options: argparse.Namespace) -> Report:
    """Both modes in turn, on tiny data and then on large."""
    large, repeat = (options.rows, options.features), options.repeat
    if options.quick:
        large, repeat = (5000, 20_000), 3
    # Jobs find their slots beside the resident tasks, which idle.
    spark = start_spark(2 * PARTITIONS, parallelism=PARTITIONS)
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps:
            timings = timed(spark, ps, "tiny", TINY, _TINY_BATCH, repeat)
            timings |= timed(spark, ps, "large", large, _LARGE_BATCH, repeat)
    finally:
        spark.stop()
    overhead = _each(timings["tiny data, resident"])
    ratios = [Ratio("overhead of a resident evaluation, ms", overhead * 1e3, "less than 3")]
    for name in ("tiny", "large"):
        resident, by_job = timings[f"{name} data, resident"], timings[f"{name} data, job"]
        ratios.append(Ratio(f"job over resident, {name} data", _each(by_job) / _each(resident)))
    facts = {
        f"{name} data": f"{rows:,} rows x {NONZEROS} non-zeros, {features:,} features"
        for name, (rows, features) in (("tiny", TINY), ("large", large))
    }
    title = f"one evaluation by {PARTITIONS} tasks: value and gradient, on {SERVERS} servers"
    return Report(title, list(timings.values()), ratios, facts)


def timed(
    spark: SparkSession,
    ps: PSContext,
    name: str,
    size: tuple[int, int],
    batch: int,
    repeat: int,
) -> dict[str, Timing]:
    """Evaluations in both modes, so many rows and features, ``batch`` of them a run."""
    with losses(spark, ps, *size) as (resident, by_job):
        # In turn, as a task pulls no vector again that it has.
        points = cycle([ps.full(resident.dimension, value).persist() for value in (0.0, 0.1)])
        empty = spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS)
        cases = [
            Case(
                f"{name} data, {mode}",
                _times(batch, loss, points),
                operations=batch,
                prepare=_times(1, loss, points),  # resident tasks may have ended, idle
            )
            for mode, loss in (("resident", resident), ("job", by_job))
        ]
        if size == TINY:
            cases.append(Case("empty Spark job", lambda: empty.map(abs).collect()))
        return interleaved(cases, repeat)


@contextmanager
def losses(
    spark: SparkSession, ps: PSContext, rows: int, features: int
) -> Iterator[tuple[LogisticLoss, LogisticLoss]]:
    """The same objective by resident tasks and by jobs."""
    data = synthetic(spark, rows, features).repartition(PARTITIONS)
    with (
        LogisticLoss(data, mode="resident", ps=ps) as resident,
        LogisticLoss(data, mode="job", ps=ps) as by_job,
    ):
        yield resident, by_job


def _times(count: int, loss: LogisticLoss, points: Iterator[DistArray]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            loss(next(points))

    return run


def _each(timing: Timing) -> float:
    return timing.median / timing.operations


if __name__ == "__main__":
    main(__doc__, measure, configure)
