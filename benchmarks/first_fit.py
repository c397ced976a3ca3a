"""The first fit of a Spark and later ones, beside MLlib's, over few and many partitions.

Each library has a Spark of its own, a new process: one fit in it, cold, then one for each number of
partitions. All are ten iterations of L-BFGS over the same Parquet files, one for each partition.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.ml import classification as mllib
from pyspark.ml.feature import HashingTF
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import Ratio, Report, Table, main
from benchmarks.processes import processor_seconds_by_kind
from benchmarks.spark import start_spark
from distvec.losses import Logistic
from distvec.spark import Objective, PSContext
from distvec.spark.ml.classification import LogisticRegression
from distvec.spark.objectives.evaluator import Evaluator
from optim import SquaredL2Norm

SLOTS = 2
PARTITIONS = (4, 1, 40, 200)
ITERATIONS = 10
PENALTY = 1e-3
DENSE, SPARSE = "dense", "sparse"
OBJECTIVE, ESTIMATOR, MLLIB = "Objective", "LogisticRegression", "MLlib"
_FEATURES = 50
_WORDS, _HASHED = 20, 1 << 17
_LONGEST_SECONDS = 900.0
_ONE_FILE_A_PARTITION = "1g"


@dataclass
class Fit:
    """Seconds of one fit and of its stages; of an ``Objective`` alone these are known."""

    servers: float | None = None
    """From a Spark that is ready until the servers are."""
    read: float | None = None
    first_value: float | None = None
    """From there until the first evaluation has ended."""
    iterations: float | None = None
    whole: float = 0.0
    value: float = 0.0
    """The objective in the end."""
    processor: dict[str, float] = field(default_factory=dict)
    """Processor time of all of it, by kind of process."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=PARTITIONS, help="the first are fitted cold"
    )
    parser.add_argument("--kinds", nargs="+", default=(DENSE,), help="of rows: dense, sparse")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)


def measure(options: argparse.Namespace) -> Report:
    """All in turn, each in a process of its own; of the repetitions, the fastest fit counts."""
    if options.run:
        who, *paths = options.run
        print(json.dumps([vars(one) for one in in_this_process(who, paths)]))
        sys.exit()
    rows, partitions, repeat = options.rows, options.partitions, options.repeat
    if options.quick:
        rows, partitions, repeat = 2000, (2, 8), 1
    found: dict[tuple[str, str], list[list[Fit]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        say(f"writing {rows:,} rows in {', '.join(map(str, partitions))} partitions")
        files = write(folder, options.kinds, rows, partitions)
        for turn in range(repeat):
            for kind in options.kinds:
                paths = [files[kind, number] for number in partitions]
                for who in WHO:
                    say(f"{turn + 1} of {repeat}, {kind} rows: {who}, a new Spark")
                    fits = in_new_process(who, paths)
                    say("  " + ", ".join(f"{fit.whole:.1f} s" for fit in fits))
                    found.setdefault((kind, who), []).append(fits)
    best = {
        key: [min(same, key=lambda fit: fit.whole) for same in zip(*runs, strict=True)]
        for key, runs in found.items()
    }
    return report(best, rows, partitions, options.kinds)


def say(text: str) -> None:
    """How far it is."""
    print(text, file=sys.stderr, flush=True)


def report(
    best: Mapping[tuple[str, str], Sequence[Fit]],
    rows: int,
    partitions: Sequence[int],
    kinds: Sequence[str],
) -> Report:
    """A table for each kind of rows and of fit, and how often ours takes MLlib's time."""
    tables, ratios, apart = [], [], 0.0
    names = [f"first, {partitions[0]} partitions", *(f"{one} partitions" for one in partitions)]
    for kind in kinds:
        peers = best[kind, MLLIB]
        for who in (OBJECTIVE, ESTIMATOR):
            for name, ours, peer in zip(names, best[kind, who], peers, strict=True):
                ratios.append(Ratio(f"{kind}, {name}: {who} of MLlib's", ours.whole / peer.whole))
                apart = max(apart, abs(ours.value / peer.value - 1.0))
        stages: dict[str, list[float | None]] = {}
        for name, *fits in zip(names, *(best[kind, who] for who in WHO), strict=True):
            own = fits[0]
            parts = [own.servers, own.read, own.first_value, own.iterations]
            stages[name] = [*parts, *(one.whole for one in fits)]
        columns = ("servers", "read", "first value", "iterations", *WHO)
        tables.append(Table(f"{kind} rows: seconds", columns, stages))
        processor: dict[str, list[float | None]] = {}
        for which in (0, 1):
            for who in WHO:
                times = best[kind, who][which].processor
                processor[f"{('first', 'second')[which]}, {who}"] = [*times.values()]
        processes = [*peers[0].processor]
        tables.append(Table(f"{kind} rows: processor seconds of a fit", processes, processor))
    facts = {
        "dense rows": f"{rows:,} x {_FEATURES}",
        "sparse rows": f"{rows:,} with at most {_WORDS} non-zeros, {_HASHED:,} features",
        "objectives in the end differ by": f"{apart:.1e}, relative",
    }
    title = f"logistic regression, {ITERATIONS} iterations, local[{SLOTS}], 2 servers"
    return Report(title, [], ratios, facts, tables)


def write(
    folder: str, kinds: Sequence[str], rows: int, partitions: Sequence[int]
) -> dict[tuple[str, int], str]:
    """The rows as Parquet, by kind and number of partitions."""
    spark = start_spark(SLOTS)
    paths = {}
    for kind in kinds:
        for number in partitions:
            path = paths[kind, number] = f"{folder}/{kind}-{number}"
            {DENSE: dense, SPARSE: sparse}[kind](spark, rows, number).write.parquet(path)
    spark.stop()
    return paths


def in_new_process(who: str, paths: Sequence[str]) -> list[Fit]:
    """A first fit, and one for each path, in a new process."""
    environment = dict(os.environ)
    # An installed package has its bytecode.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_fit", "--run", who, *paths],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_LONGEST_SECONDS,
        env=environment,
    )
    return [Fit(**fit) for fit in json.loads(ended.stdout.splitlines()[-1])]


def in_this_process(who: str, paths: Sequence[str]) -> list[Fit]:
    """The same in a Spark that is started here."""
    spark = start_spark(SLOTS)
    spark.conf.set("spark.sql.files.openCostInBytes", _ONE_FILE_A_PARTITION)
    try:
        frames = [spark.read.parquet(path) for path in (paths[0], *paths)]
        return [_with_processor_time(WHO[who], spark, frame) for frame in frames]
    finally:
        if who != MLLIB:
            PSContext.active().stop()
        spark.stop()


def _with_processor_time(
    run: Callable[[SparkSession, DataFrame], Fit], spark: SparkSession, data: DataFrame
) -> Fit:
    before = processor_seconds_by_kind()
    fit = run(spark, data)
    after = processor_seconds_by_kind()
    fit.processor = {kind: after[kind] - before[kind] for kind in before}
    return fit


def dense(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    """Of 50 features each, as ml vectors."""
    numbers = ", ".join(f"{_noise(f'id, {k}')}" for k in range(_FEATURES))
    plain = spark.range(0, rows, 1, partitions).selectExpr(
        f"array({numbers}) as x", f"{_noise('id, -1')} as noise"
    )
    label = F.expr("cast(x[0] - x[1] + 0.5 * x[2] + noise > 0 as double)")
    return plain.select(label.alias("label"), array_to_vector(F.col("x")).alias("features"))


def sparse(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    """Of hashed words, the first of which are frequent, as sparse ml vectors."""
    words = ", ".join(
        f"cast(exp(12 * pmod(xxhash64(id, {k}), 100003) / 100003) as string)" for k in range(_WORDS)
    )
    plain = spark.range(0, rows, 1, partitions).selectExpr(
        f"array({words}) as words", f"{_noise('id, -1')} as noise"
    )
    label = F.expr("cast(array_contains(words, '1.0') or noise > 0.5 as double)")
    hashed = HashingTF(inputCol="words", outputCol="features", numFeatures=_HASHED)
    return hashed.transform(plain).select(label.alias("label"), "features")


def _noise(numbers: str) -> str:
    """SQL for a number in [-1, 1) made of others."""
    return f"(pmod(xxhash64({numbers}), 200000) / 100000 - 1)"


def fit_objective(spark: SparkSession, data: DataFrame) -> Fit:
    """By L-BFGS on parameter servers."""
    evaluated: list[float] = []
    sums = Evaluator.sums

    def noted(*args: object, **options: object) -> object:
        found = sums(*args, **options)  # type: ignore[arg-type]
        evaluated.append(time.perf_counter())
        return found

    Evaluator.sums = noted  # type: ignore[method-assign, assignment]
    try:
        began = time.perf_counter()
        PSContext.get_or_create(spark, servers=2)
        served = time.perf_counter()
        penalty = SquaredL2Norm(PENALTY)
        objective = Objective(data, loss=Logistic(), penalty=penalty, intercept=True)
        read = time.perf_counter()
        result = objective.minimize(
            max_iterations=ITERATIONS, gradient_tolerance=0.0, value_tolerance=0.0
        )
        ended = time.perf_counter()
        objective.close()
    finally:
        Evaluator.sums = sums  # type: ignore[method-assign]
    return Fit(
        served - began,
        read - served,
        evaluated[0] - read,
        ended - evaluated[0],
        ended - began,
        float(result.fun),
    )


def fit_estimator(_: SparkSession, data: DataFrame) -> Fit:
    """By the class of ours that has MLlib's name and parameters."""
    return _fit_by(LogisticRegression, data)


def fit_mllib(_: SparkSession, data: DataFrame) -> Fit:
    """By MLlib."""
    return _fit_by(mllib.LogisticRegression, data)


def _fit_by(estimator: Any, data: DataFrame) -> Fit:
    began = time.perf_counter()
    model = estimator(maxIter=ITERATIONS, regParam=PENALTY, tol=0.0, standardization=False).fit(
        data
    )
    whole = time.perf_counter() - began
    return Fit(whole=whole, value=float(model.summary.objectiveHistory[-1]))


WHO = {OBJECTIVE: fit_objective, ESTIMATOR: fit_estimator, MLLIB: fit_mllib}


if __name__ == "__main__":
    main(__doc__, measure, configure)
