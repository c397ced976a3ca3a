"""The first fit of a session and the second one, beside MLlib's, over few and many partitions.

Each pair of fits runs in a Spark of its own, a new process: ten iterations of L-BFGS over the same
Parquet files, one for each partition.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import HashingTF
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import Ratio, Report, Table, main
from benchmarks.spark import start_spark
from distvec.losses import Logistic
from distvec.spark import Objective, PSContext
from distvec.spark.objectives.evaluator import Evaluator
from optim import SquaredL2Norm

SLOTS = 2
PARTITIONS = (1, 4, 40, 200)
ITERATIONS = 10
PENALTY = 1e-3
DENSE, SPARSE = "dense", "sparse"
OURS, MLLIB = "distvec", "MLlib"
_FEATURES = 50
_WORDS, _HASHED = 20, 1 << 17
_LONGEST_SECONDS = 900.0
_ONE_FILE_A_PARTITION = "1g"


@dataclass
class Stages:
    """Seconds of each stage of one fit; the stages of ours that MLlib does not show are none."""

    servers: float | None = None
    """From a Spark that is ready until the servers are."""
    read: float | None = None
    first_value: float | None = None
    """From there until the first evaluation has ended."""
    iterations: float | None = None
    whole: float = 0.0
    value: float = 0.0
    """The objective in the end."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--kinds", nargs="+", default=(DENSE, SPARSE))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)


def measure(options: argparse.Namespace) -> Report:
    """All in turn, each in a process of its own; of the repetitions, the fastest fit counts."""
    if options.run:
        print(json.dumps([vars(one) for one in in_this_process(*options.run)]))
        sys.exit()
    rows, partitions, repeat = options.rows, options.partitions, options.repeat
    if options.quick:
        rows, partitions, repeat = 2000, (2, 8), 1
    found: dict[tuple[str, str, int, str], list[Stages]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = write(folder, options.kinds, rows, partitions)
        for _ in range(repeat):
            for (kind, number), path in files.items():
                for who in (OURS, MLLIB):
                    cold, warm = in_new_process(who, path)
                    found.setdefault((kind, "first fit", number, who), []).append(cold)
                    found.setdefault((kind, "second fit", number, who), []).append(warm)
    best = {key: min(runs, key=lambda run: run.whole) for key, runs in found.items()}
    return report(best, rows, partitions, options.kinds)


def report(
    best: Mapping[tuple[str, str, int, str], Stages],
    rows: int,
    partitions: tuple[int, ...],
    kinds: tuple[str, ...],
) -> Report:
    """A table for each kind of rows and of fit, and how often ours takes MLlib's time."""
    columns = ("servers", "read", "first value", "iterations", "whole", "MLlib, whole", "ratio")
    tables, ratios, apart = [], [], 0.0
    for kind in kinds:
        for which in ("first fit", "second fit"):
            lines: dict[str, list[float | None]] = {}
            for number in partitions:
                ours, mllib = (best[kind, which, number, who] for who in (OURS, MLLIB))
                ratio = ours.whole / mllib.whole
                stages = [ours.servers, ours.read, ours.first_value, ours.iterations, ours.whole]
                lines[f"{number} partitions"] = [*stages, mllib.whole, ratio]
                ratios.append(Ratio(f"{kind}, {number} partitions, {which}: of MLlib's", ratio))
                apart = max(apart, abs(ours.value / mllib.value - 1.0))
            tables.append(Table(f"{kind} rows, {which}: seconds", columns, lines))
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


def in_new_process(who: str, path: str) -> tuple[Stages, Stages]:
    """The first and the second fit in a new process."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_fit", "--run", who, path],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_LONGEST_SECONDS,
    )
    cold, warm = json.loads(ended.stdout.splitlines()[-1])
    return Stages(**cold), Stages(**warm)


def in_this_process(who: str, path: str) -> tuple[Stages, Stages]:
    """The same in a Spark that is started here."""
    spark = start_spark(SLOTS)
    spark.conf.set("spark.sql.files.openCostInBytes", _ONE_FILE_A_PARTITION)
    try:
        data = spark.read.parquet(path)
        fit = fit_ours if who == OURS else fit_mllib
        return fit(spark, data), fit(spark, data)
    finally:
        if who == OURS:
            PSContext.active().stop()
        spark.stop()


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


def fit_ours(spark: SparkSession, data: DataFrame) -> Stages:
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
    return Stages(
        served - began,
        read - served,
        evaluated[0] - read,
        ended - evaluated[0],
        ended - began,
        float(result.fun),
    )


def fit_mllib(_: SparkSession, data: DataFrame) -> Stages:
    """By MLlib, penalised the same."""
    began = time.perf_counter()
    model = LogisticRegression(
        maxIter=ITERATIONS, regParam=PENALTY, tol=0.0, standardization=False
    ).fit(data)
    whole = time.perf_counter() - began
    return Stages(whole=whole, value=float(model.summary.objectiveHistory[-1]))


if __name__ == "__main__":
    main(__doc__, measure, configure)
