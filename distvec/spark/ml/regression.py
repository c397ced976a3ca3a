"""Regressions with the names and Params of ``pyspark.ml.regression``."""

from __future__ import annotations

from distvec.spark.ml.factorization import FMRegressionModel, FMRegressor
from distvec.spark.ml.generalized import (
    GeneralizedLinearRegression,
    GeneralizedLinearRegressionModel,
    GeneralizedLinearRegressionSummary,
    GeneralizedLinearRegressionTrainingSummary,
)
from distvec.spark.ml.linear import (
    LinearRegression,
    LinearRegressionModel,
    LinearRegressionSummary,
    LinearRegressionTrainingSummary,
)
from distvec.spark.ml.survival import AFTSurvivalRegression, AFTSurvivalRegressionModel
from distvec.spark.ml.tree_models import GBTRegressionModel
from distvec.spark.ml.trees import GBTRegressor

__all__ = (
    "AFTSurvivalRegression",
    "AFTSurvivalRegressionModel",
    "FMRegressionModel",
    "FMRegressor",
    "GBTRegressionModel",
    "GBTRegressor",
    "GeneralizedLinearRegression",
    "GeneralizedLinearRegressionModel",
    "LinearRegression",
    "LinearRegressionModel",
)

_SUMMARIES = (
    GeneralizedLinearRegressionSummary,
    GeneralizedLinearRegressionTrainingSummary,
    LinearRegressionSummary,
    LinearRegressionTrainingSummary,
)
"""Of models; users import them for their types."""
