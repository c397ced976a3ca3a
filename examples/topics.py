"""Find the topics of functions in installed packages: latent Dirichlet allocation of docstrings.

    python -m examples.topics --packages numpy scipy --topics 12

A document is the docstring of a public function or class, so there is no download.
"""

from __future__ import annotations

import argparse
import ast
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.ml.feature import CountVectorizer, RegexTokenizer, StopWordsRemover
from pyspark.sql import SparkSession

from distvec.spark import PSContext
from distvec.spark.ml.clustering import LDA
from examples.source_corpus import python_files

SHORTEST = 300
"""Shorter docstrings are left out."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and print the first words of each topic."""
    options = parse(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with PSContext.get_or_create(spark, servers=2):
            texts = [
                (name, text)
                for package in options.packages
                for path in python_files(package)[: options.files]
                for name, text in docstrings(path)
            ]
            data = spark.createDataFrame(texts, ["name", "text"])
            split = RegexTokenizer(inputCol="text", outputCol="all", pattern="[^a-z]+")
            remove = StopWordsRemover(inputCol="all", outputCol="words")
            words = remove.transform(split.setMinTokenLength(4).transform(data))
            vectorizer = CountVectorizer(inputCol="words", outputCol="features", minDF=5, maxDF=0.3)
            counter = vectorizer.fit(words)
            documents = counter.transform(words).repartition(2).cache()
            batch = {"subsamplingRate": 1.0, "learningDecay": 0.0}
            lda = LDA(k=options.topics, maxIter=options.steps, seed=1, **batch)
            model = lda.fit(documents)
            print(f"{len(texts):,} docstrings, {model.vocabSize():,} words")
            for row in model.describeTopics(6).collect():
                print(f"{row.topic:3}", *(counter.vocabulary[one] for one in row.termIndices))
            print(f"perplexity of a word: {math.exp(model.logPerplexity(documents)):,.0f}")
    finally:
        spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", nargs="+", default=["numpy", "scipy"])
    parser.add_argument("--files", type=int, default=400, help="files of each package")
    parser.add_argument("--topics", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30, help="passes over the documents")
    return parser.parse_args(arguments)


def docstrings(path: str) -> Iterator[tuple[str, str]]:
    """Names and docstrings of the public functions and classes in a file."""
    tree = ast.parse(Path(path).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node) or ""
            if len(text) >= SHORTEST:
                yield node.name, text.lower()


if __name__ == "__main__":
    main()
