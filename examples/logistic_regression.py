"""Train sparse logistic regression on Spark with three solvers, and compare them.

    python -m examples.logistic_regression                  is a line of code SciPy's or PySpark's?
    python -m examples.logistic_regression --data FILE.svm  your own LIBSVM file (also .bz2 or .gz)

Spark tasks hold the rows. Weights, gradients and the history of the solvers stay on the parameter
servers. The program prints a table, and writes ``convergence.png``, ``results.json`` and Spark's
own messages (``spark.log``) to the folder ``--output``.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    """Load the rows, train with each solver, and report."""
    options = parse(arguments)
    started = time.perf_counter()
    print("distvec: logistic regression on Spark, with the weights on parameter servers")
    if options.data is None:
        print("Task: is a line of Python code SciPy's (label 1) or PySpark's (label 0)?")
    survey = None
    if options.data is not None:
        survey = libsvm.survey(options.data, options.positive_label)
        say(started, f"{options.data} has {sum(survey.labels.values()):,} rows")
    say(started, f"starting Spark ({options.master}) and {options.servers} servers ...")
    spark = start_spark(options.master, options.output / "spark.log")
    try:
        with PSContext.get_or_create(spark, servers=options.servers) as ps:
            say(started, "reading the rows, up to a minute ...")
            train, test = load(spark, options, survey)
            runs = train_all(train, test, ps, options, started)
    finally:
        spark.stop()
    report.plot(runs, options.output / "convergence.png")
    report.write_json(runs, options.output / "results.json", options=vars_of(options))
    say(started, "done")
    print(f"\nResults on the held-out rows:\n\n{report.table(runs)}\n")
    for ended in runs:
        if not ended.converged:
            print(f"{ended.solver} did not converge: {ended.message}")
    print(explanation(options))


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
        runs = []
        for name, penalty, solver, fun in plan(loss, ps, options):
            runs.append(run(name, penalty, solver, fun, ps, test))
            say(started, f"{name}: {runs[-1].iterations} iterations, {runs[-1].seconds:.1f} s")
        return runs


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="FILE.svm", help="train on a LIBSVM file instead")
    add("--positive-label", type=float, help="label of class 1, if labels are not {0,1} or {-1,1}")
    add("--rows", type=count, default=160_000, help="number of source lines, approximately")
    add("--servers", type=count, default=2, help="number of parameter servers")
    add("--l2", type=penalty, default=1e-5, help="weight of the L2 penalty, for L-BFGS and SGD")
    add("--l1", type=penalty, default=1e-5, help="weight of the L1 penalty, for OWL-QN")
    add("--tolerance", type=penalty, default=1e-5, help="stop at this gradient norm")
    add("--iterations", type=count, default=300, help="limit of iterations for each solver")
    add("--output", type=Path, default=Path("build/demo"), help="folder for the results")
    add("--master", default="local[2]", help="Spark master")
    options = parser.parse_args(arguments)
    if options.positive_label is not None and options.data is None:
        parser.error("--positive-label is for --data FILE.svm, which is not given")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output {options.output}: {error.strerror}")
    return options


def count(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1, 2, 3, ...")
    return int(text)


def penalty(text: str) -> float:
    """Parse a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number, 0 or more")
    return value


def start_spark(master: str, log: Path) -> SparkSession:
    """Start Spark with room for the cached rows; its messages go to the file ``log``."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("distvec: logistic regression")
        .master(master)
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    try:
        with standard_error_in(log):  # the Java process that starts here keeps this file
            return builder.getOrCreate()
    except Exception:
        print(log.read_text(), file=sys.stderr)
        raise


@contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    """Redirect the standard error of this process, and of processes that it starts, to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def load(
    spark: SparkSession, options: argparse.Namespace, survey: libsvm.Survey | None
) -> tuple[DataFrame, DataFrame]:
    """Return rows ``label, features`` to train on, and a fifth that is held out by a hash."""
    if survey is not None:
        train, test = libsvm.read(spark, options.data, survey.features, options.positive_label)
        check_split(train, test, f"--data {options.data}")
        return train, test
    train, test = source_corpus.split(source_corpus.source_lines(spark, options.rows))
    check_split(train, test, f"--rows {options.rows}")
    return source_corpus.features(train), source_corpus.features(test)


def check_split(train: DataFrame, test: DataFrame, option: str) -> None:
    """Raise SystemExit if one part lacks a class, so that it cannot train or measure a model."""
    for part, rows in (("rows to train on", train), ("held-out rows", test)):
        found = sorted(row["label"] for row in rows.select("label").distinct().collect())
        if len(found) < 2:
            labels = ", ".join(f"{label:g}" for label in found) or "none"
            raise SystemExit(
                f"{option}: the {part} have too few labels ({labels}), but two are needed; a "
                "fifth of the rows is held out by chance, so give more rows"
            )


def plan(loss: LogisticLoss, ps: PSContext, options: argparse.Namespace) -> list[tuple[Any, ...]]:
    """Return name, penalty in words, solver and objective of each run."""
    limits = {"max_iterations": options.iterations, "gradient_tolerance": options.tolerance}
    step = 1.0 / largest_curvature(loss, ps)
    return [
        ("L-BFGS", f"L2 {options.l2:g}", LBFGS(history=10, **limits), loss),
        ("OWL-QN", f"L1 {options.l1:g}", OWLQN(l1=options.l1, **limits), loss.with_l2(0.0)),
        (
            "SGD",
            f"L2 {options.l2:g}",
            SGD(step_size=step, momentum=0.9, nesterov=True, **limits),
            loss,
        ),
    ]


def largest_curvature(loss: LogisticLoss, ps: PSContext, rounds: int = 8) -> float:
    """Estimate the largest eigenvalue of the Hessian at 0; its inverse is a safe step size.

    The Hessian of this loss is largest at 0. The power method needs only differences of gradients,
    and all vectors stay on the servers.
    """
    small = 1e-3  # margins stay so small that the Hessian hardly differs from the one at 0
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
    name: str, penalty: str, solver: Any, fun: LogisticLoss, ps: PSContext, test: DataFrame
) -> report.Run:
    """Train once, with a progress bar in a terminal, and measure the model on held-out rows."""
    first = ps.counters.messages
    began = time.perf_counter()
    with tqdm(desc=name, unit=" iterations", disable=None, leave=False) as bar:

        def show(state: Any) -> None:
            told = f"objective {state.value:.6f}, gradient norm {state.gradient_norm:.1e}"
            bar.set_postfix_str(told, refresh=False)
            bar.update(state.iteration - bar.n)

        result = solver.minimize(fun, ps.zeros(fun.dimension), callback=show)
    seconds = time.perf_counter() - began
    messages = ps.counters.messages - first
    auc, accuracy = held_out(test, fun.model(result.x))
    return report.Run(
        solver=name,
        penalty=penalty,
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
    """Return AUC and accuracy. Tasks pull the weights that they need; rows stay in Spark."""
    scored = model.margins(test).select("label", "margin").cache()
    auc = BinaryClassificationEvaluator(rawPredictionCol="margin", labelCol="label").evaluate(
        scored
    )
    right = (F.col("margin") > 0) == (F.col("label") > 0)
    accuracy = scored.agg(F.avg(right.cast("double"))).first()[0]
    scored.unpersist()
    return auc, accuracy


def vars_of(options: argparse.Namespace) -> dict[str, object]:
    """Return the options in a form for JSON."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
    }


def explanation(options: argparse.Namespace) -> str:
    """Explain the table to a newcomer, and say how to continue."""
    python = os.path.relpath(sys.executable)
    return f"""\
AUC is 1 for a perfect order of the rows, and 0.5 for a random one. "non-zero" counts the weights
that are not 0: an L1 penalty removes most of them. "requests/iter" is the number of requests from
the driver to each server per iteration.

Written to {options.output}: convergence.png, results.json, spark.log (Spark's own messages)
Next: train on your own rows:    {python} -m examples.logistic_regression --data FILE.svm
      write your own program:    docs/tutorials/logistic_regression.md"""


def say(started: float, text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[{time.perf_counter() - started:6.1f} s] {text}", flush=True)


if __name__ == "__main__":
    main()
