"""Minibatches of rows in Spark, beside the same in one process and scikit-learn's SGDClassifier.

Problems, step sizes and what a pass is are those of ``benchmarks.stochastic``: passes over the data
until the objective is 1e-3 above its optimum, relative. The rows are in two partitions, which tasks
that stay evaluate; weights and gradients are on servers. ``messages a batch``: of the driver to
the busiest server, for as many rows as a batch has. A step is a program and a question, of SVRG
two; what looks at all rows is one question for all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from threadpoolctl import threadpool_limits

from benchmarks.harness import Report, Table, main
from benchmarks.spark import start_spark
from benchmarks.stochastic import GAP, L2, PEER, RECIPES, Problem, passes, passes_of_peer
from distvec.losses import Logistic
from distvec.spark import Objective, PSContext
from optim import ElasticNet

SERVERS = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside, metavar="FOLDER")
    parser.add_argument("--passes", type=float, default=50.0, help="at most")
    parser.add_argument("--sets", nargs="*", default=list(RECIPES), choices=list(RECIPES))


def measure(options: argparse.Namespace) -> Report:
    """Each data set that is there."""
    paths = {name: options.data / name / "train.svm.bz2" for name in options.sets}
    problems = {name: Problem.read(path) for name, path in paths.items() if path.exists()}
    problems = problems or {"rcv1_vw": Problem.made()}
    most = 1.0 if options.quick else options.passes
    spark = start_spark(2)
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps, threadpool_limits(1):
            tables = [
                _table(name, problem, _frame(spark, problem), ps, most)
                for name, problem in problems.items()
            ]
    finally:
        spark.stop()
    title = f"passes over the data until the objective is {GAP:g} above its optimum, relative"
    return Report(f"{title}: l2 = {L2:g}", [], [], tables=tables)


def _table(name: str, problem: Problem, rows: DataFrame, ps: PSContext, most: float) -> Table:
    found: dict[str, list[float | None]] = {}
    options: dict[str, Any] = {"penalty": ElasticNet(0.0, L2), "ps": ps}
    with Objective(rows, loss=Logistic(), **options) as objective:
        objective(objective.start())  # the tasks begin
        for solver, recipe in RECIPES[name].items():
            batches = objective.minibatches(recipe.batch)
            steps = Steps(ps)
            run = problem.until(steps.counted(passes(problem, recipe, batches)), most)
            done = (run.passes or most) * batches.batches_per_epoch
            row = [run.passes, run.gap, run.seconds, steps.messages / done]
            found[f"{solver}, batches of {recipe.batch}"] = row
    peer = problem.until(passes_of_peer(problem, 0), most)
    found[PEER] = [peer.passes, peer.gap, peer.seconds, None]
    shape = f"{problem.rows.shape[0]:,} rows of {problem.rows.shape[1]:,} features"
    columns = ["passes", "gap at the end", "seconds", "messages a batch"]
    return Table(f"{problem.name}: {shape}", columns, found)


class Steps:
    """Messages to the busiest server, of a run without the looks at it."""

    def __init__(self, ps: PSContext) -> None:
        self._ps = ps
        self.messages = 0

    def counted(self, points: Iterator[tuple[float, Any]]) -> Iterator[tuple[float, Any]]:
        """The same points."""
        before = self._ps.counters.messages
        for point in points:
            self.messages += self._ps.counters.messages - before
            yield point
            before = self._ps.counters.messages


def _frame(spark: SparkSession, problem: Problem) -> DataFrame:
    x, size = problem.rows, problem.rows.shape[1]
    rows = [
        (Vectors.sparse(size, x.indices[a:b].tolist(), x.data[a:b].tolist()), float(label))
        for a, b, label in zip(x.indptr, x.indptr[1:], problem.labels, strict=False)
    ]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), ["features", "label"])


if __name__ == "__main__":
    main(__doc__, measure, configure)
