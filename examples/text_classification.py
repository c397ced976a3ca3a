"""Tell by a line of code which package it is from: multinomial regression on hashed n-grams.

    python -m examples.text_classification --packages numpy scipy pyspark

The lines are those of installed packages, so there is no download. A pipeline stage could tokenize
words; here each line becomes hashed n-grams of characters. ``initialModel`` starts the second fit,
with a weaker penalty, from the first one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from distvec.spark import PSContext
from distvec.spark.ml.classification import LogisticRegression
from examples import source_corpus


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit with two penalties, and print the accuracy on held-out lines."""
    options = parse(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with PSContext.get_or_create(spark, servers=2):
            lines = lines_of(spark, options.packages, options.files)
            train, test = map(source_corpus.features, source_corpus.split(lines))
            train, test = train.cache(), test.cache()
            print(f"{train.count():,} lines to train on, {test.count():,} held out")
            measure = MulticlassClassificationEvaluator(metricName="accuracy")
            model = None
            for strength in (1e-3, 1e-4):
                estimator = LogisticRegression(
                    family="multinomial",
                    regParam=strength,
                    standardization=False,
                    maxIter=options.iterations,
                )
                if model is not None:
                    estimator.setInitialModel(model)
                model = estimator.fit(train)
                accuracy = measure.evaluate(model.transform(test))
                steps = model.summary.totalIterations
                print(f"regParam {strength:g}: accuracy {accuracy:.3f}, {steps} iterations")
    finally:
        spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", nargs="+", default=["numpy", "scipy", "pyspark"])
    parser.add_argument("--files", type=int, default=40, help="files of each package")
    parser.add_argument("--iterations", type=int, default=50, help="limit of each fit")
    return parser.parse_args(arguments)


def lines_of(spark: SparkSession, packages: Sequence[str], files: int) -> DataFrame:
    """Return distinct lines as ``line, label``; lines of several packages are left out."""
    data = []
    for label, package in enumerate(packages):
        for path in source_corpus.python_files(package)[:files]:
            with open(path, encoding="utf-8", errors="replace") as file:
                data += [(one, float(label)) for one in source_corpus.stripped_lines(file.read())]
    lines = spark.createDataFrame(data, "line string, label double").groupBy("line")
    found = lines.agg(F.min("label").alias("label"), F.max("label").alias("highest"))
    return found.where("label = highest").select("line", "label").coalesce(2)


if __name__ == "__main__":
    main()
