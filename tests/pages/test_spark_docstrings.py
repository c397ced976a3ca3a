"""The examples in docstrings that need Spark run, and print what they show.

They lie in a file of their own, so that one process of pytest-xdist starts a JVM for them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from distvec.spark import PSContext
from tests.pages import docstrings


@pytest.fixture(scope="module")
def train(spark: SparkSession) -> DataFrame:
    """Four rows of four features with labels 0 and 1."""
    rows = [
        (1.0, Vectors.sparse(4, {0: 1.0, 2: 2.0})),
        (0.0, Vectors.sparse(4, {1: 1.0})),
        (1.0, Vectors.sparse(4, {2: 1.0})),
        (0.0, Vectors.sparse(4, {1: 2.0, 3: 1.0})),
    ]
    return spark.createDataFrame(rows, ["label", "features"]).coalesce(1)


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    """Four rows of two columns of text, with labels 0 and 1."""
    rows = [
        ("a.com", "shoes", 1),
        ("a.com", "cars", 0),
        ("b.org", "shoes", 1),
        ("b.org", "cars", 0),
    ]
    return spark.createDataFrame(rows, ["site", "ad", "click"]).coalesce(1)


@pytest.mark.parametrize("name", docstrings.NEEDS_SPARK)
def test_the_example_runs(
    name: str,
    spark: SparkSession,
    train: DataFrame,
    clicks: DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a SparkSession ``spark``, a PSContext ``ps`` of two servers, and two DataFrames."""
    monkeypatch.chdir(tmp_path)
    ps = PSContext.get_or_create(spark, servers=2)
    docstrings.run(name, {"spark": spark, "ps": ps, "train": train, "clicks": clicks})
