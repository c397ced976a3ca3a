"""Compare lockstep (BSP), bounded staleness (SSP) and asynchronous (ASP) SGD in Spark tasks.

    python -m examples.bounded_staleness

The model is a sparse logistic regression on generated rows. Each task goes through its rows in
batches. It pulls the weights of the next batch while it computes, and pushes a step per batch.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import SparkSession
from scipy.sparse import csr_array

from distvec.spark import PSContext, run

FEATURES, NONZEROS = 50_000, 20

Row = tuple[float, np.ndarray]
"""A label, -1 or 1, and the indices of the features whose value is 1."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with each kind of staleness, and print a line for each."""
    options = parse(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{options.workers}]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with PSContext.get_or_create(spark, servers=2) as ps:
            seeds = spark.sparkContext.parallelize(range(options.workers), options.workers)
            rows = seeds.flatMap(lambda seed: made_up(seed, options.rows // options.workers))
            for name, staleness in (("BSP", 0), ("SSP", 4), ("ASP", None)):
                w, began = ps.zeros(FEATURES), time.perf_counter()
                losses = run(trainer(options.clocks), rows, w, staleness=staleness)
                seconds, nonzero = time.perf_counter() - began, np.count_nonzero(w.numpy())
                print(f"{name}: loss {np.mean(losses):.4f}, {nonzero:,} weights, {seconds:.1f} s")
    finally:
        spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="number of tasks that train")
    parser.add_argument("--rows", type=int, default=20_000, help="number of rows in total")
    parser.add_argument("--clocks", type=int, default=200, help="number of batches per worker")
    return parser.parse_args(arguments)


def made_up(seed: int, count: int) -> Iterator[Row]:
    """Generate rows whose labels follow from hidden weights; low indices are frequent."""
    rng = np.random.default_rng(seed)
    hidden = np.random.default_rng(0).normal(size=FEATURES)
    for _ in range(count):
        columns = np.unique((FEATURES * rng.random(NONZEROS) ** 4).astype(int))
        yield float(np.sign(hidden[columns].sum() + 0.1 * rng.normal())), columns


class Batch(NamedTuple):
    """A batch of rows: their labels, the features that occur, and a matrix over these features."""

    labels: np.ndarray
    columns: np.ndarray
    x: csr_array

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Batch:
        """Build a batch from ``rows``."""
        columns, places = np.unique(
            np.concatenate([found for _, found in rows]), return_inverse=True
        )
        ends = np.cumsum([0] + [len(found) for _, found in rows])
        x = csr_array((np.ones(len(places)), places, ends), shape=(len(rows), len(columns)))
        return cls(np.array([label for label, _ in rows]), columns, x)

    def loss(self, weights: np.ndarray) -> float:
        """Return the mean logistic loss for the weights of ``columns``."""
        return float(np.logaddexp(0.0, -self.labels * (self.x @ weights)).mean())

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """Return the gradient of the loss for the weights of ``columns``."""
        slope = -self.labels / (1.0 + np.exp(self.labels * (self.x @ weights)))
        return np.asarray(self.x.T @ slope / len(self.labels))


def trainer(clocks: int, batch_size: int = 200, step: float = 2.0) -> Callable[..., float]:
    """Return a function that trains one batch per clock, and returns the loss on all its rows."""

    def train(worker: Any, w: Any) -> float:
        batches = in_batches(worker.rows, batch_size)
        order = (batches[clock % len(batches)] for clock in range(worker.now, clocks))
        for batch, weights in worker.prefetch(w, order, lambda batch: batch.columns):
            w.push(batch.columns, -step * batch.gradient(weights))
            worker.clock()
        return float(np.mean([batch.loss(w.pull(batch.columns)) for batch in batches]))

    return train


def in_batches(rows: Iterable[Row], size: int) -> list[Batch]:
    """Split the rows into batches of ``size`` rows, in their order."""
    known = list(rows)
    return [Batch.of(known[start : start + size]) for start in range(0, len(known), size)]


if __name__ == "__main__":
    main()
