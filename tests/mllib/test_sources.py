"""The sources of pyspark's tests: changed imports."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the tests are those of pyspark")

from tests.mllib.sources import change_imports, write_pyspark_tests

BEFORE = """
from pyspark.ml.classification import (
    NaiveBayes,  # not ours
    LinearSVC as SVC,
)
from pyspark.ml.linalg import Vectors
from pyspark.ml.feature import (
    Binarizer,
)

def later():
    from pyspark.ml.clustering import KMeans
    from .classification import LinearSVC
"""
AFTER = """
from pyspark.ml.classification import NaiveBayes; from distvec.spark.ml.classification import LinearSVC as SVC
from pyspark.ml.linalg import Vectors
from pyspark.ml.feature import (
    Binarizer,
)

def later():
    from distvec.spark.ml.clustering import KMeans
    from .classification import LinearSVC
"""  # noqa: E501


def test_only_imports_of_our_classes_change():
    assert change_imports(BEFORE) == AFTER


def test_sources_come_with_pyspark_and_from_a_checkout(tmp_path):
    write_pyspark_tests(None, tmp_path / "installed")
    package = tmp_path / "installed/pyspark_ml_tests"
    assert "distvec.spark.ml.classification" in (package / "test_classification.py").read_text()
    parity = (package / "connect/test_parity_classification.py").read_text()
    assert "from pyspark_ml_tests.test_classification import" in parity
    checkout = tmp_path / "spark/python/pyspark/ml/tests"
    checkout.mkdir(parents=True)
    (checkout / "test_one.py").write_text(BEFORE)
    write_pyspark_tests(tmp_path / "spark", tmp_path / "written")
    assert (tmp_path / "written/pyspark_ml_tests/test_one.py").read_text() == AFTER
