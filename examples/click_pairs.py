"""Predict clicks that depend on pairs of keys, with three models over one stream.

    python -m examples.click_pairs --picture pairs.svg

Each hour brings impressions with new users. A click depends on hidden weights of user, ad and site,
and on how well hidden vectors of each two of them agree. A linear model (FTRL) learns the weights
alone. A factorization machine learns vectors of frequent keys, and a field-aware one a vector for
each column of the partner. Each model predicts an hour, and then learns from it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from distvec.spark import PSContext
from distvec.spark.ml.online import FTRLClassifier
from distvec.spark.ml.online_factorization import OnlineFMClassifier
from examples.click_through import area, draw

COLUMNS = ["user", "ad", "site"]
WEIGHT, LENGTH, COMMON = 0.5, 3, -1.0
"""Standard deviation of hidden weights, length of hidden vectors, common part of all margins."""
FTRL = {"featuresCol": COLUMNS, "labelCol": "click", "stepSize": 0.1, "l1": 0.02, "batchSize": 512}
FACTORS = {
    **FTRL, "factorSize": 4, "factorStepSize": 0.1, "initStd": 0.1, "admitFactors": 3, "seed": 1,
}  # fmt: skip
MODELS = {
    "FTRL, linear": FTRLClassifier(**FTRL),
    "factorization machine": OnlineFMClassifier(**FACTORS),
    "field-aware machine": OnlineFMClassifier(**FACTORS, numFields=len(COLUMNS)),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate hours of clicks, train the models on them, and print a line per hour."""
    options = parse(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with PSContext.get_or_create(spark, servers=2):
            curves = learn(spark, options)
    finally:
        spark.stop()
    if options.json:
        options.json.write_text(json.dumps({"rows": options.rows, "auc": curves}, indent=1) + "\n")
    if options.picture:
        draw(options.picture, curves)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=int, default=12, help="number of batches of the stream")
    parser.add_argument("--rows", type=int, default=10_000, help="impressions per hour")
    parser.add_argument("--users", type=int, default=300, help="users; each hour adds a tenth")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated data")
    parser.add_argument("--picture", type=Path, help="write a plot of the AUC to this file")
    parser.add_argument("--json", type=Path, help="write the AUC of each hour to this file")
    return parser.parse_args(arguments)


def learn(spark: SparkSession, options: argparse.Namespace) -> dict[str, list[float]]:
    """Train on one hour after the other; return the AUC of each hour before it is learned."""
    trainings = {name: estimator.streaming() for name, estimator in MODELS.items()}
    curves: dict[str, list[float]] = {"best possible": [], **{name: [] for name in MODELS}}
    for hour in range(options.hours):
        table, best = hour_of_clicks(hour, options)
        frame = spark.createDataFrame(table).coalesce(2).cache()
        curves["best possible"].append(best)
        for name, training in trainings.items():
            training(frame, hour)  # as stream.writeStream.foreachBatch(training) does
            curves[name].append(training.progress.auc)
        frame.unpersist()
        found = "  ".join(f"{name} {curve[-1]:.4f}" for name, curve in curves.items())
        print(f"hour {hour:3}  AUC  {found}")
    for name, training in trainings.items():
        model = training.model
        factors = getattr(model, "numFactors", 0)
        print(f"{name}: {model.numFeatures:,} keys, {factors:,} with factors")
    return curves


def hour_of_clicks(hour: int, options: argparse.Namespace) -> tuple[pa.Table, float]:
    """Generate the impressions of an hour, and the AUC of the hidden weights and vectors."""
    rng = np.random.default_rng((options.seed, hour))
    users = options.users + options.users * hour // 10
    counts = dict(zip(COLUMNS, (users, 60, 20), strict=True))
    margins, total, columns = np.full(options.rows, COMMON), 0.0, {}
    for place, (name, count) in enumerate(counts.items()):
        chosen = (count * rng.random(options.rows) ** 2).astype(np.int64)  # low ones are frequent
        hidden = np.random.default_rng((options.seed, 0, place))
        vectors = hidden.normal(size=(10_000, LENGTH + 1))[chosen]
        margins += WEIGHT * vectors[:, 0] - 0.5 * np.square(vectors[:, 1:]).sum(axis=1)
        total = total + vectors[:, 1:]
        columns[name] = np.char.add(name[0], chosen.astype(str))
    margins += 0.5 * np.square(total).sum(axis=1)  # so what is added in all is that of the pairs
    clicks = (rng.random(options.rows) < 1 / (1 + np.exp(-margins))).astype(np.int32)
    table: Any = pa.table({**columns, "click": clicks})
    return table, area(margins, clicks)


if __name__ == "__main__":
    main()
