"""Predict clicks with FTRL on hashed features of a structured stream, as an estimator.

    python -m examples.click_through --picture auc.png

Each hour brings a file of impressions with new users and new ads. The stream gives the files to the
model one after the other. The model first predicts each row, and then learns from it. The weights
are on parameter servers, under hashes of "user=u17" and "ad=a4". The clicks follow hidden weights,
so the program also prints the best possible AUC.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession

from distvec.spark import PSContext
from distvec.spark.ml.online import FTRLClassifier

SCHEMA = "user string, ad string, site string, click int, chance double"
FEATURES = {"user": 1.0, "ad": 0.8, "site": 0.5}
"""The columns, and the standard deviation of their hidden weights."""
COMMON = -1.5
"""The common part of all margins: about one click in five impressions."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate hours of clicks, learn from them as a stream, and print a line per hour."""
    options = parse(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
            PSContext.get_or_create(spark, servers=2),
        ):
            folder = Path(directory)
            best = [write_hour(folder / "clicks", hour, options) for hour in range(options.hours)]
            found = learn(spark, folder)
            for hour, (done, most) in enumerate(zip(found, best, strict=True)):
                print(f"hour {hour:3}  {done}  (best possible {most:.4f})")
            print(f"{found[-1].keys:,} weights after {found[-1].rows:,} rows")
            if options.picture:
                curves = {"FTRL, predicted before learning": [done.auc for done in found]}
                draw(options.picture, {"best possible: the hidden weights": best, **curves})
    finally:
        spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=int, default=24, help="number of files in the stream")
    parser.add_argument("--rows", type=int, default=20_000, help="impressions per hour")
    parser.add_argument(
        "--users", type=int, default=2_000, help="users in the first hour; each hour adds a tenth"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated data")
    parser.add_argument("--picture", type=Path, help="write a plot of the AUC to this file")
    return parser.parse_args(arguments)


def learn(spark: SparkSession, folder: Path) -> list[Any]:
    """Train on the files of ``folder / "clicks"``, oldest first; return the progress of each."""
    estimator = FTRLClassifier(
        featuresCol=list(FEATURES), labelCol="click", stepSize=0.2, l1=0.1, maxBytes=1 << 28
    )
    training = estimator.streaming()
    found: list[Any] = []

    def one_file(rows: DataFrame, batch: int) -> None:
        training(rows.coalesce(2), batch)
        found.append(training.progress)

    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(str(folder / "clicks"))
        .writeStream.foreachBatch(one_file)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def write_hour(folder: Path, hour: int, options: argparse.Namespace) -> float:
    """Write a file of impressions, and return the AUC of the hidden weights."""
    rng = np.random.default_rng((options.seed, hour))
    users = options.users + options.users * hour // 10
    counts = {"user": users, "ad": users // 4, "site": 50}
    margins, columns = np.full(options.rows, COMMON), {}
    for name, count in counts.items():
        chosen = (count * rng.random(options.rows) ** 2).astype(
            np.int64
        )  # low numbers are frequent
        place = list(counts).index(name)
        planted = np.random.default_rng((options.seed, 0, place)).normal(size=count)
        margins += FEATURES[name] * planted[chosen]
        columns[name] = np.char.add(name[0], chosen.astype(str))
    chance = 1 / (1 + np.exp(-margins))
    clicks = (rng.random(options.rows) < chance).astype(np.int32)
    folder.mkdir(exist_ok=True)
    table = pa.table({**columns, "click": clicks, "chance": chance})
    parquet.write_table(table, folder / f"hour-{hour:04}.parquet")
    return area(chance, clicks)


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the AUC: the chance that a click has a higher score than another impression."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(len(scores))
    clicks = labels == 1
    count = clicks.sum()
    wins = ranks[clicks].sum() - count * (count - 1) / 2
    return float(wins / (count * (len(scores) - count)))


def draw(path: Path, curves: Mapping[str, Sequence[float]]) -> None:
    """Plot the AUC of each hour, the best possible one first."""
    if find_spec("matplotlib") is None:
        print("no plot: it needs matplotlib, pip install 'distvec[plot]'")
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (name, curve) in enumerate(curves.items()):
        style = {"marker": "."} if number else {"color": "0.6"}
        axes.plot(curve, label=name, **style)
    axes.set(xlabel="hour", ylabel="AUC")
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"AUC over time: {path}")


if __name__ == "__main__":
    main()
