"""Regressions with the names and Params of ``pyspark.ml.regression``."""

from __future__ import annotations

from distvec.spark.ml.linear import (
    LinearRegression,
    LinearRegressionModel,
    LinearRegressionSummary,
    LinearRegressionTrainingSummary,
)

__all__ = ("LinearRegression", "LinearRegressionModel")

_SUMMARIES = (LinearRegressionSummary, LinearRegressionTrainingSummary)
"""Of models; users import them for their types."""
