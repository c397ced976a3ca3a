"""L-BFGS, OWL-QN and SGD: on parameter servers, and the same in plain PySpark.

Plain PySpark broadcasts the weights, adds up dense gradients by ``treeReduce``, and runs the solver
on NumPy arrays in the driver. The solvers are the same code, so both take the same iterates; SGD's
steps, of ``BATCH`` rows a partition, are those of workers in lockstep (``distvec.spark.run``). The
plain one gets its rows as cached CSR blocks, one a partition, and what making them takes is no part
of its times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from pyspark import RDD
from pyspark.sql import DataFrame

from benchmarks.harness import Ratio, Report, Timing, main
from benchmarks.logistic import SERVERS, SLOTS
from benchmarks.logistic_fits import PENALTY
from benchmarks.spark import start_spark
from benchmarks.sparse_rows import NONZEROS, synthetic
from distvec.losses.classification import Logistic
from distvec.losses.rows import Rows
from distvec.spark import LogisticLoss, PSContext, run
from distvec.spark.loops.worker import LoopArray, Worker
from optim import LBFGS, OWLQN, GradientDescent

BATCH = 1000
STEP_SIZE = 0.5

_SKIPPED = 3
"""The first iterations are not counted: histories are short, processes start."""
_SGD_STEPS, _PLAIN_SGD_STEPS = 200, 20


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=2)


def measure(options: argparse.Namespace) -> Report:
    """Each solver here and there in turn."""
    rows, features, repeat = options.rows, options.features, options.repeat
    if options.quick:
        rows, features, repeat = min(rows, 5000), min(features, 20_000), 1
    spark = start_spark(SLOTS, driver_memory="8g")
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps:
            data = synthetic(spark, rows, features).cache()
            data.count()
            plain = PlainLoss(data, rows, features)
            compact = rows * NONZEROS < features  # leave out what no row touches
            with LogisticLoss(data, l2=PENALTY, mode="resident", compact=compact) as loss:
                return compared(ps, loss, plain, options.iterations, repeat)
    finally:
        spark.stop()


def compared(
    ps: PSContext, loss: LogisticLoss, plain: PlainLoss, iterations: int, repeat: int
) -> Report:
    """The times of an iteration, and how far apart both ended."""
    seconds: dict[str, list[float]] = {}
    facts: dict[str, object] = {}
    for _ in range(repeat):
        for name, make in solvers(iterations).items():
            ends = []
            for where, fun, x0 in (
                ("distvec", loss, ps.zeros(loss.dimension)),
                ("plain PySpark", plain, np.zeros(plain.size)),
            ):
                result = make().minimize(fun, x0)
                times = [record.seconds for record in result.history]
                steps = [b - a for a, b in pairwise(times)]
                seconds.setdefault(f"{name}, {where}", []).extend(steps[_SKIPPED:])
                ends.append(float(result.fun))
            facts[f"{name}: objective, distvec and plain"] = f"{ends[0]:.12f} {ends[1]:.12f}"
        seconds.setdefault("SGD, distvec", []).extend(sgd(ps, plain, _SGD_STEPS)[0])
        seconds.setdefault("SGD, plain PySpark", []).extend(plain.sgd(_PLAIN_SGD_STEPS)[0])
    ours, theirs = sgd(ps, plain, _SKIPPED + 2)[1], plain.sgd(_SKIPPED + 2)[1]
    facts["SGD: largest difference between the weights"] = f"{np.abs(ours - theirs).max():.1e}"
    facts["features in the vectors of distvec"] = f"{loss.dimension:,}"
    facts["rows of plain PySpark made in"] = f"{plain.seconds:.1f} s"
    timings = {name: Timing(name, values) for name, values in seconds.items()}
    title = f"one iteration, {loss.rows:,} rows x {NONZEROS} non-zeros, {plain.size:,} features"
    return Report(title, list(timings.values()), list(ratios(timings)), facts)


def ratios(timings: Mapping[str, Timing]) -> Iterator[Ratio]:
    """How many times as fast, by medians."""
    for name in (*solvers(1), "SGD"):
        ours = statistics.median(timings[f"{name}, distvec"].seconds)
        theirs = statistics.median(timings[f"{name}, plain PySpark"].seconds)
        yield Ratio(f"{name}: speed over plain PySpark", theirs / ours, "at least 10")


def solvers(iterations: int) -> Mapping[str, Callable[[], Any]]:
    """The solvers, which stop after so many iterations and not before."""
    limits: dict[str, Any] = {"max_iterations": iterations, "gradient_tolerance": 0.0}
    return {
        "L-BFGS": lambda: LBFGS(history=10, value_tolerance=0.0, **limits),
        "OWL-QN": lambda: OWLQN(l1=1e-6, history=10, value_tolerance=0.0, **limits),
        "gradient descent": lambda: GradientDescent(**limits),
    }


def sgd(ps: PSContext, plain: PlainLoss, steps: int) -> tuple[list[float], np.ndarray]:
    """Seconds of each step but the first of a worker, and the weights after all."""

    def train(worker: Worker, w: LoopArray) -> list[float]:
        (block,) = worker.rows
        times = []
        for batch in islice(_batches(block), steps):
            _, gradient = _sums(batch.rows, w.pull(batch.columns))
            w.push(batch.columns, -STEP_SIZE / (worker.size * BATCH) * gradient)
            worker.clock()
            times.append(time.perf_counter())
        return [b - a for a, b in pairwise(times)][_SKIPPED:]

    w = ps.zeros(plain.size)
    return run(train, plain.blocks, w, staleness=0)[0], w.numpy()


class Batch(NamedTuple):
    """Rows over the columns that they touch."""

    columns: np.ndarray
    rows: tuple[sp.csr_array, np.ndarray]


def _batches(block: tuple[sp.csr_array, np.ndarray]) -> Iterator[Batch]:
    matrix, labels = block
    made = []
    for low in range(0, len(labels), BATCH):
        part = matrix[low : low + BATCH]
        columns, local = np.unique(part.indices, return_inverse=True)
        parts = (part.data, local.astype(np.int32), part.indptr)
        rows = sp.csr_array(parts, shape=(part.shape[0], columns.size))
        made.append(Batch(columns, (rows, labels[low : low + BATCH])))
    return cycle(made)


class PlainLoss:
    """The same objective in plain PySpark: value and gradient as NumPy has them."""

    def __init__(self, data: DataFrame, rows: int, features: int) -> None:
        began = time.perf_counter()
        self.rows, self.size = rows, features
        self.blocks: RDD[Any] = data.rdd.mapPartitions(lambda part: [_block(part, features)])
        self.blocks = self.blocks.cache()
        self.blocks.count()
        self.seconds = time.perf_counter() - began
        """What making the blocks took."""

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """One Spark job, one broadcast."""
        shipped = self.blocks.context.broadcast(w)
        value, gradient = self.blocks.map(lambda block: _sums(block, shipped.value)).treeReduce(
            lambda a, b: (a[0] + b[0], a[1] + b[1])
        )
        shipped.destroy()
        value = value / self.rows + 0.5 * PENALTY * float(w @ w)
        return value, gradient / self.rows + PENALTY * w

    def sgd(self, steps: int) -> tuple[list[float], np.ndarray]:
        """Seconds of each step, and the weights after all."""
        w, times = np.zeros(self.size), [time.perf_counter()]
        partitions = self.blocks.getNumPartitions()
        for step in range(steps):
            shipped = self.blocks.context.broadcast(w)
            gradient = self.blocks.map(
                lambda block, step=step, shipped=shipped: _part_sums(block, step, shipped.value)
            ).treeReduce(np.add)
            shipped.destroy()
            w -= STEP_SIZE / (partitions * BATCH) * gradient
            times.append(time.perf_counter())
        return [b - a for a, b in pairwise(times)][_SKIPPED:], w


def _part_sums(block: tuple[sp.csr_array, np.ndarray], step: int, w: np.ndarray) -> np.ndarray:
    matrix, labels = block
    low = step * BATCH % (-(-len(labels) // BATCH) * BATCH)
    return _sums((matrix[low : low + BATCH], labels[low : low + BATCH]), w)[1]


def _block(rows: Iterator[Any], features: int) -> tuple[sp.csr_array, np.ndarray]:
    labels, indices, values = [], [], []
    for label, vector in rows:
        labels.append(2.0 * label - 1.0)
        indices.append(vector.indices)
        values.append(vector.values)
    starts = np.concatenate([[0], np.cumsum([len(part) for part in indices])]).astype(np.int32)
    parts = (np.concatenate(values), np.concatenate(indices), starts)
    return sp.csr_array(parts, shape=(len(labels), features)), np.array(labels)


def _sums(block: tuple[sp.csr_array, np.ndarray], w: np.ndarray) -> tuple[float, np.ndarray]:
    sums = Logistic().sums(Rows(*block), (w,), intercept=False)
    return sums.value, sums.gradients[0]


if __name__ == "__main__":
    main(__doc__, measure, configure)
