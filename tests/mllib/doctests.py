"""The examples in the docstrings of pyspark's classes, run with ours in their place."""

from __future__ import annotations

import ast
import doctest
import tempfile
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.mllib.sources import INSTALLED, MODULES, change_imports, ours
from tests.quick_start import QUICK_START

CLASSES = (
    ("classification", "LogisticRegression"),
    ("classification", "LinearSVC"),
    ("classification", "FMClassifier"),
    ("classification", "GBTClassifier"),
    ("classification", "OneVsRest"),
    ("regression", "LinearRegression"),
    ("regression", "GeneralizedLinearRegression"),
    ("regression", "AFTSurvivalRegression"),
    ("regression", "FMRegressor"),
    ("regression", "GBTRegressor"),
    ("clustering", "KMeans"),
    ("clustering", "GaussianMixture"),
    ("clustering", "LDA"),
    ("feature", "PCA"),
    ("feature", "Word2Vec"),
    ("recommendation", "ALS"),
    ("tuning", "CrossValidator"),
    ("tuning", "TrainValidationSplit"),
)


def _examples(module: str, name: str) -> list[doctest.Example]:
    tree = ast.parse((INSTALLED / f"ml/{module}.py").read_text())
    (found,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
    examples = doctest.DocTestParser().get_examples(ast.get_docstring(found) or "")
    for one in examples:
        one.source = change_imports(one.source)
    return examples


@cache
def session() -> SparkSession:
    """One session for all classes, as pyspark's own doctests have it."""
    return SparkSession.builder.master("local[2]").config(*QUICK_START).getOrCreate()


class _Runner(doctest.DocTestRunner):
    """Keeps the text of each failure by the number of its example."""

    def __init__(self) -> None:
        super().__init__(verbose=False, optionflags=doctest.ELLIPSIS)
        self.failed: dict[int, str] = {}

    def _number(self, test: doctest.DocTest, example: doctest.Example) -> int:
        return [one is example for one in test.examples].index(True)

    def report_failure(self, out: Any, test: Any, example: Any, got: str) -> None:
        text = self._checker.output_difference(example, got, self.optionflags)  # type: ignore[attr-defined]
        self.failed[self._number(test, example)] = f"{example.source}{text}"

    def report_unexpected_exception(self, out: Any, test: Any, example: Any, info: Any) -> None:
        text = f"{example.source}{info[1]!r}"
        self.failed[self._number(test, example)] = text


@cache
def failures(module: str, name: str) -> dict[int, str]:
    """The failures of a class by example."""
    spark = session()
    globals_ = dict(vars(import_module(f"pyspark.ml.{module}")))
    for other in MODULES:
        own = vars(import_module(f"distvec.spark.ml.{other}"))
        globals_ |= {one: own[one] for one in globals_ if ours(other, one)}
    globals_ |= {"spark": spark, "sc": spark.sparkContext, "temp_path": tempfile.mkdtemp()}
    examples = _examples(module, name)
    runner = _Runner()
    with np.printoptions(legacy="1.13"):  # as pyspark's own modules run them
        runner.run(doctest.DocTest(examples, globals_, name, None, None, None), out=lambda _: None)
    return runner.failed


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        pytest.param(module, name, number, id=f"{name}-{number}")
        for module, name in CLASSES
        for number in range(len(_examples(module, name)))
    ],
)
def test_example(module, name, number):
    """The example prints what the docstring says."""
    text = failures(module, name).get(number)
    if text:
        pytest.fail(text, pytrace=False)
