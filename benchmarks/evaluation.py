"""One evaluation of an objective by resident tasks, beside what its rows and its vectors take at
memory speed.

Nobody can save two passes over the rows (margins, then the gradient), the vector that each task
gets, the one that it gives, and the sum of these. Each is measured in the same run, in turn with
evaluations, by as many processes as there are tasks: dot products that read as many bytes as the
rows have, copies from and to shared memory, additions. What sparse rows cost beyond, for they read
and write vectors here and there, shows in the sums of the loss alone, in as many processes, without
Spark and servers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks import memory_speed, sparse_rows
from benchmarks.harness import Ratio, Report, Table, Timing, main
from benchmarks.losses import shelf
from benchmarks.memory_speed import Work
from benchmarks.spark import start_spark
from distvec.spark import Objective, PSContext

SERVERS = TASKS = 2
DENSE_COLUMNS = 100
_BATCH = 5000


class Kind(NamedTuple):
    """Rows to evaluate on."""

    data: Callable[[SparkSession, int, int], DataFrame]
    make: memory_speed.Make
    rows: int
    features: int


def dense(spark: SparkSession, rows: int, features: int) -> DataFrame:
    """Rows with no zeros: see ``dense_rows``."""

    def batches(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for number in part.column(0).to_pylist():
                labels, values = dense_rows(number, min(_BATCH, rows - number * _BATCH), features)
                starts = np.arange(labels.size + 1, dtype=np.int32) * features
                vectors = pa.ListArray.from_arrays(pa.array(starts), pa.array(values.ravel()))
                arrays = [pa.array(labels), vectors]
                yield pa.RecordBatch.from_arrays(arrays, names=["label", "features"])

    numbers = spark.range(0, -(-rows // _BATCH), 1, spark.sparkContext.defaultParallelism)
    return numbers.mapInArrow(batches, "label double, features array<double>")


def dense_rows(batch: int, count: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal values, and labels by the sign of the first."""
    values = np.random.default_rng([3, batch]).standard_normal((count, features))
    return (values[:, 0] > 0.0).astype(np.float64), values


KINDS: Mapping[str, Kind] = {
    "tiny": Kind(sparse_rows.synthetic, sparse_rows.uniform_rows, 200, 5000),
    "uniform": Kind(sparse_rows.synthetic, sparse_rows.uniform_rows, 100_000, 1_000_000),
    "texts": Kind(sparse_rows.texts, sparse_rows.text_rows, 100_000, 1_000_000),
    "dense": Kind(dense, dense_rows, 1_000_000, DENSE_COLUMNS),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--loss", default="Logistic", help="one of distvec.losses, of labels 0, 1")


def measure(options: argparse.Namespace) -> Report:
    """One kind of rows after the other."""
    repeat = 3 if options.quick else options.repeat
    seconds: dict[str, dict[str, list[float]]] = {}
    spark = start_spark(2 * TASKS, parallelism=TASKS)
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps:
            for name in options.kinds:
                kind = KINDS[name]
                if options.quick:
                    kind = kind._replace(
                        rows=min(kind.rows, 5000), features=min(kind.features, 20_000)
                    )
                seconds[name] = timed(spark, ps, kind, options.loss, repeat)
    finally:
        spark.stop()
    return report(seconds, options)


def timed(
    spark: SparkSession, ps: PSContext, kind: Kind, loss: str, repeat: int
) -> dict[str, list[float]]:
    """Seconds of evaluations and of all that is beside them, in turn."""
    data = kind.data(spark, kind.rows, kind.features)
    seconds: dict[str, list[float]] = {}
    compact = kind.data is sparse_rows.texts
    with Objective(data, loss=shelf()[loss](), compact=compact, ps=ps) as objective:
        dimension = len(objective.start())
        # In turn, as a task pulls no vector again that it has.
        points = cycle([ps.full(dimension, value).persist() for value in (0.0, 0.1)])
        work = Work(shelf()[loss](), kind.make, kind.rows, kind.features, dimension)
        with memory_speed.processes(TASKS, work) as beside:
            for number in range(1 + repeat):
                objective(next(points))  # the tasks may have ended, idle
                began = time.perf_counter()
                objective(next(points))
                times = {"evaluation": time.perf_counter() - began} | beside()
                if number:  # the first warms up
                    for name, time_ in times.items():
                        seconds.setdefault(name, []).append(time_)
    return seconds


def report(seconds: Mapping[str, dict[str, list[float]]], options: argparse.Namespace) -> Report:
    """Floors and evaluations side by side."""
    floors = {
        kind: sum(statistics.median(times[name]) for name in memory_speed.FLOOR)
        for kind, times in seconds.items()
    }
    found = {kind: statistics.median(times["evaluation"]) for kind, times in seconds.items()}
    lines: dict[str, list[float | None]] = {
        name: [statistics.median(times[name]) * 1e3 for times in seconds.values()]
        for name in next(iter(seconds.values()))
    }
    lines["at memory speed, in all"] = [floor * 1e3 for floor in floors.values()]
    return Report(
        f"value and gradient, {options.loss}, by {TASKS} tasks, on {SERVERS} servers",
        [Timing(f"{kind}: evaluation", times["evaluation"]) for kind, times in seconds.items()],
        [
            Ratio(f"{kind}: evaluation over memory speed", found[kind] / floors[kind], "1.5")
            for kind in seconds
        ],
        tables=[Table("ms", list(seconds), lines)],
    )


if __name__ == "__main__":
    main(__doc__, measure, configure)
