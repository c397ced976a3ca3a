"""Sparse logistic regression in Spark, its vectors on parameter servers: three solvers compared.

    python -m examples.logistic_regression                  lines of SciPy against those of PySpark
    python -m examples.logistic_regression --data FILE.svm  a LIBSVM file (also .bz2 or .gz)

Spark tasks hold the rows; weights, gradient and history stay on the servers. Prints a table and
writes ``convergence.png`` and ``results.json``.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tqdm import tqdm

from distvec.spark import LogisticLoss, Model, PSContext
from examples import libsvm, report, source_corpus
from optim import LBFGS, OWLQN, SGD


def main(arguments: Sequence[str] | None = None) -> None:
    """Load, train thrice, report."""
    options = parse(arguments)
    started = time.perf_counter()
    survey = None
    if options.data is not None:
        survey = libsvm.survey(options.data, options.positive_label)
        say(started, f"{options.data} has {sum(survey.labels.values()):,} rows")
    spark = start_spark(options.master)
    try:
        with PSContext.get_or_create(spark, servers=options.servers) as ps:
            say(started, f"Spark ({options.master}) and {options.servers} servers are up")
            train, test = load(spark, options, survey)
            runs = train_all(train, test, ps, options, started)
    finally:
        spark.stop()
    print(f"\n{report.table(runs)}\n")
    for ended in runs:
        if not ended.converged:
            print(f"{ended.solver} did not converge: {ended.message}")
    report.plot(runs, options.output / "convergence.png")
    report.write_json(runs, options.output / "results.json", options=vars_of(options))
    say(started, f"plot and numbers are in {options.output}/")


def train_all(
    train: DataFrame,
    test: DataFrame,
    ps: PSContext,
    options: argparse.Namespace,
    started: float,
) -> list[report.Run]:
    """One run per solver, all on the same rows."""
    with LogisticLoss(
        train, features="features", label="label", l2=options.l2, mode="resident"
    ) as loss:
        test = test.cache()
        counts = f"{loss.rows:,} rows to train on, {test.count():,} held out"
        say(started, f"{counts}, {loss.dimension:,} features")
        return [run(*what, ps, test) for what in plan(loss, ps, options)]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="FILE.svm", help="train on a LIBSVM file instead")
    add("--positive-label", type=float, help="the label that counts as 1, if not {0,1} or {-1,1}")
    add("--rows", type=count, default=160_000, help="rows of the source corpus, about")
    add("--servers", type=count, default=2, help="parameter servers to start")
    add("--l2", type=penalty, default=1e-5, help="penalty l2/2 |w|^2 of L-BFGS and SGD")
    add("--l1", type=penalty, default=1e-5, help="penalty l1 |w|_1 of OWL-QN")
    add("--iterations", type=count, default=60, help="iterations at most, each solver")
    add("--output", type=Path, default=Path("build/demo"), help="folder for the results")
    add("--master", default="local[2]", help="Spark's master")
    options = parser.parse_args(arguments)
    if options.positive_label is not None and options.data is None:
        parser.error("--positive-label is for --data FILE.svm, which is not given")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output {options.output}: {error.strerror}")
    return options


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1, 2, 3, ...")
    return int(text)


def penalty(text: str) -> float:
    """A finite number from 0 on."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number, 0 or more")
    return value


def start_spark(master: str) -> SparkSession:
    """A quiet SparkSession with room for the cached rows, its workers run by this Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log = Path(__file__).resolve().with_name("log4j2.properties")
    return (
        SparkSession.builder.appName("distvec: logistic regression")
        .master(master)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log.as_uri()}")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def load(
    spark: SparkSession, options: argparse.Namespace, survey: libsvm.Survey | None
) -> tuple[DataFrame, DataFrame]:
    """Rows ``label, features`` to train on, and held-out ones: a fifth, always the same."""
    if survey is not None:
        train, test = libsvm.read(spark, options.data, survey.features, options.positive_label)
        check_split(train, test, f"--data {options.data}")
        return train, test
    train, test = source_corpus.split(source_corpus.source_lines(spark, options.rows))
    check_split(train, test, f"--rows {options.rows}")
    return source_corpus.features(train), source_corpus.features(test)


def check_split(train: DataFrame, test: DataFrame, option: str) -> None:
    """SystemExit if one part lacks a class: nothing to learn there, or nothing to measure."""
    for part, rows in (("rows to train on", train), ("held-out rows", test)):
        found = sorted(row["label"] for row in rows.select("label").distinct().collect())
        if len(found) < 2:
            labels = ", ".join(f"{label:g}" for label in found) or "none"
            raise SystemExit(
                f"{option}: the {part} have too few labels ({labels}) where two are needed; a "
                "fifth of the rows is held out by chance, so give more rows"
            )


def plan(loss: LogisticLoss, ps: PSContext, options: argparse.Namespace) -> list[tuple[Any, ...]]:
    """Name, objective in words, solver and function of each run."""
    limit = options.iterations
    with_l2 = f"loss + {options.l2:g}/2 |w|^2"
    with_l1 = f"loss + {options.l1:g} |w|_1"
    step = 1.0 / largest_curvature(loss, ps)
    sgd = SGD(step_size=step, momentum=0.9, nesterov=True, max_iterations=limit)
    return [
        ("L-BFGS", with_l2, LBFGS(history=10, max_iterations=limit), loss),
        ("OWL-QN", with_l1, OWLQN(l1=options.l1, max_iterations=limit), loss.with_l2(0.0)),
        ("SGD", with_l2, sgd, loss),
    ]


def largest_curvature(loss: LogisticLoss, ps: PSContext, rounds: int = 8) -> float:
    """Largest eigenvalue of the Hessian at 0, where it bounds all others: the step size's inverse.

    The power method on differences of gradients; no vector leaves the servers.
    """
    small = 1e-3  # margins stay so small that the Hessian is that of 0
    _, at_zero = loss(ps.zeros(loss.dimension))
    direction = ps.ones(loss.dimension) / math.sqrt(loss.dimension)
    curvature = 0.0
    for _ in range(rounds):
        _, gradient = loss(small * direction)
        image = (gradient - at_zero) / small
        curvature = float(np.linalg.norm(image))
        direction = image / curvature
    return curvature


def run(
    name: str, objective: str, solver: Any, fun: LogisticLoss, ps: PSContext, test: DataFrame
) -> report.Run:
    """Train once, with a bar, and score the held-out rows."""
    first = ps.counters.messages
    began = time.perf_counter()
    pause = 0.1 if sys.stderr.isatty() else 5.0  # a log takes no hundred lines
    with tqdm(total=solver.max_iterations, desc=name, unit="it", mininterval=pause) as bar:

        def show(state: Any) -> None:
            bar.set_postfix_str(
                f"value {state.value:.6f}, gradient {state.gradient_norm:.1e}, "
                f"messages {ps.counters.messages - first}",
                refresh=False,
            )
            bar.update(state.iteration - bar.n)

        result = solver.minimize(fun, ps.zeros(fun.dimension), callback=show)
    seconds = time.perf_counter() - began
    messages = ps.counters.messages - first
    auc, accuracy = held_out(test, fun.model(result.x))
    return report.Run(
        solver=name,
        objective=objective,
        value=float(result.fun),
        auc=auc,
        accuracy=accuracy,
        nonzeros=int((result.x != 0).sum()),
        iterations=result.nit,
        evaluations=result.nfev,
        messages=messages,
        seconds=seconds,
        converged=bool(result.success),
        message=result.message,
        history=[report.Progress(float(one.value), one.seconds) for one in result.history],
    )


def held_out(test: DataFrame, model: Model) -> tuple[float, float]:
    """AUC and accuracy; the tasks pull the weights they need, no row comes to the driver."""
    scored = model.margins(test).select("label", "margin").cache()
    auc = BinaryClassificationEvaluator(rawPredictionCol="margin", labelCol="label").evaluate(
        scored
    )
    right = (F.col("margin") > 0) == (F.col("label") > 0)
    accuracy = scored.agg(F.avg(right.cast("double"))).first()[0]
    scored.unpersist()
    return auc, accuracy


def vars_of(options: argparse.Namespace) -> dict[str, object]:
    """The options as JSON takes them."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
    }


def say(started: float, what: str) -> None:
    """A line with the seconds since the start."""
    print(f"[{time.perf_counter() - started:6.1f} s] {what}", flush=True)


if __name__ == "__main__":
    main()
