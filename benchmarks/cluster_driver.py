"""What `benchmarks.cluster` runs on the host of Spark's driver: the iterations, between marks.

A mark is a line of JSON, to which who counts bytes answers with a line, so that the bytes of all
hosts between two marks are those of what ran.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
from pyspark.ml.classification import LogisticRegression
from pyspark.sql import DataFrame, SparkSession

from benchmarks.logistic_fits import PENALTY
from benchmarks.plain_pyspark import PlainLoss
from benchmarks.sparse_rows import NONZEROS, synthetic
from distvec.spark import LogisticLoss, PSContext
from optim import LBFGS

SERVERS = 2
HISTORY = 10
_SKIPPED = HISTORY
"""The first iterations are not counted: histories fill new memory, processes start, compilers run
beside them on the same cores."""

_UNENDING: dict[str, Any] = {
    "history": HISTORY,
    "gradient_tolerance": 0.0,
    "value_tolerance": 0.0,
}


def drive(
    spark: SparkSession, rows: int, features: int, iterations: int, others: list[str]
) -> None:
    """Ours, then each of the others, over the same rows.

    None of the others encrypts anything; ours does so after it has not, unless it is left out.
    """
    data = synthetic(spark, rows, features).cache()
    data.count()
    ours(spark, data, rows, features, iterations, tls=False)
    if "tls" in others:
        ours(spark, data, rows, features, iterations, tls=True)
    if "plain" in others:
        plain(data, rows, features, iterations)
    if "mllib" in others:
        mllib(data, iterations)


def ours(
    spark: SparkSession, data: DataFrame, rows: int, features: int, iterations: int, *, tls: bool
) -> None:
    """L-BFGS on servers, one on each worker's host, by tasks that stay."""
    compact = rows * NONZEROS < features  # leave out what no row touches
    with (
        PSContext.get_or_create(spark, servers=SERVERS, timeout=120.0, tls=tls) as ps,
        LogisticLoss(data, l2=PENALTY, mode="resident", compact=compact) as loss,
    ):
        hosts = {address.rpartition(":")[0] for address in ps.access.addresses}
        before = [0]

        def messages() -> int:
            since, before[0] = before[0], ps.counters.messages
            return before[0] - since

        name = "distvec, TLS" if tls else "distvec"
        _minimize(name, loss, ps.zeros(loss.dimension), iterations, messages=messages)
        _say(facts={"dimension": loss.dimension, "hosts of servers": len(hosts)})


def plain(data: DataFrame, rows: int, features: int, iterations: int) -> None:
    """The same solver on NumPy in the driver: a broadcast and a tree of sums per evaluation."""
    loss = PlainLoss(data, rows, features)
    _minimize("plain PySpark", loss, np.zeros(features), iterations)
    loss.blocks.unpersist()


def mllib(data: DataFrame, iterations: int) -> None:
    """A fit with the iterations that are counted, less one without them; the first is no use."""
    counts = {"MLlib, warm": 1, "MLlib, first": _SKIPPED, "MLlib": _SKIPPED + iterations}
    for name, count in counts.items():
        _say(begin=name)
        began = time.perf_counter()
        fit = LogisticRegression(
            maxIter=count,
            regParam=PENALTY,
            elasticNetParam=0.0,
            standardization=False,
            fitIntercept=False,
            tol=0.0,
        )
        fit.fit(data)
        _say(end=name, seconds=[time.perf_counter() - began], evaluations=count, messages=0)


def _minimize(name: str, fun: Any, x0: Any, iterations: int, messages: Any = None) -> None:
    """Marks around the last ``iterations`` of a run."""
    evaluated = 0

    def watch(state: Any) -> None:
        nonlocal evaluated
        if state.iteration == _SKIPPED:
            evaluated = state.evaluations
            if messages is not None:
                messages()
            _say(begin=name)

    solver = LBFGS(max_iterations=_SKIPPED + iterations, **_UNENDING)
    result = solver.minimize(fun, x0, callback=watch)
    times = [record.seconds for record in result.history]
    seconds = [b - a for a, b in pairwise(times)][_SKIPPED + 1 :]
    _say(
        end=name,
        seconds=seconds,
        evaluations=result.nfev - evaluated,
        messages=0 if messages is None else messages(),
    )


def _say(**message: Any) -> None:
    """And wait until it was heard."""
    print(json.dumps(message), flush=True)
    sys.stdin.readline()
