"""The Params of boosted trees: MLlib's, LightGBM's names for them, and further ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pyspark.ml.param import Param, Params, TypeConverters

from distvec.spark.ml.files import Saved
from distvec.spark.ml.fits import SharingEstimator, _names
from distvec.spark.ml.params import HasFeatures, KeywordParams, Range, at_least, between, one_of

_ALIASES: Mapping[str, str] = {
    "numIterations": "maxIter",
    "learningRate": "stepSize",
    "maxBin": "maxBins",
    "minDataInLeaf": "minInstancesPerNode",
    "minGainToSplit": "minInfoGain",
    "featureFraction": "featureSubsetStrategy",
    "baggingFraction": "subsamplingRate",
    "categoricalSlotIndexes": "categoricalFeatures",
}
"""Names of LightGBM's Params for Spark, and those of MLlib."""


class OwnTreeParams(Params):
    """Params that MLlib's classes lack."""

    numLeaves: Param[int] = Param(
        Params._dummy(),
        "numLeaves",
        "largest number of leaves of a tree; 0 is no limit but maxDepth",
        typeConverter=TypeConverters.toInt,
    )
    minSumHessianInLeaf: Param[float] = Param(
        Params._dummy(),
        "minSumHessianInLeaf",
        "least sum of second derivatives of the loss in a leaf",
        typeConverter=TypeConverters.toFloat,
    )
    lambdaL2: Param[float] = Param(
        Params._dummy(),
        "lambdaL2",
        "l2 penalty of the values of leaves",
        typeConverter=TypeConverters.toFloat,
    )
    categoricalFeatures: Param[list[int]] = Param(
        Params._dummy(),
        "categoricalFeatures",
        "numbers of features with categories 0, 1, ..., beside those that the column says",
        typeConverter=TypeConverters.toListInt,
    )


OWN_PARAMS = SharingEstimator._own_params | Saved._own_params | _names(OwnTreeParams)


class TreeParams(KeywordParams, OwnTreeParams, HasFeatures):
    """Params of both estimators and their models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxDepth": between(0, 30),
        "maxBins": between(2, 65_000),
        "minInstancesPerNode": at_least(1),
        "minWeightFractionPerNode": Range(lambda x: 0.0 <= x < 0.5, "0 or more, below 0.5"),
        "minInfoGain": at_least(0.0),
        "maxMemoryInMB": at_least(1),
        "maxIter": at_least(1),
        "stepSize": Range(lambda x: 0.0 < x <= 1.0, "above 0 and at most 1"),
        "subsamplingRate": Range(lambda x: 0.0 < x <= 1.0, "above 0 and at most 1"),
        "featureSubsetStrategy": Range(
            lambda x: features_per_node(x, 10) >= 0,
            "'all', 'auto', 'onethird', 'sqrt', 'log2', a share in (0.0, 1.0], or a number",
        ),
        "validationTol": at_least(0.0),
        "impurity": one_of("variance"),
        "numLeaves": Range(lambda x: x == 0 or x >= 2, "0, or 2 or more"),
        "minSumHessianInLeaf": at_least(0.0),
        "lambdaL2": at_least(0.0),
    }

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(
            seed=0, numLeaves=0, minSumHessianInLeaf=0.0, lambdaL2=0.0, categoricalFeatures=[]
        )

    def setParams(self, *args: Any, **params: Any) -> Self:
        """Set Params by keywords, also by LightGBM's names.

        Parameters
        ----------
        *args
            Not allowed: Params are set by name.
        **params
            The Params. ``None`` leaves a Param as it is.

        Returns
        -------
        Params
            This object.
        """
        for name in set(_ALIASES) & set(params):
            value = params.pop(name)
            params[_ALIASES[name]] = str(float(value)) if name == "featureFraction" else value
        return super().setParams(*args, **params)


def features_per_node(strategy: str, features: int) -> int:
    """How many features a node may use; 0: all; -1: there is no such strategy."""
    known = {
        "all": 0,
        "auto": 0,
        "onethird": math.ceil(features / 3),
        "sqrt": math.ceil(math.sqrt(features)),
        "log2": max(1, math.ceil(math.log2(features))) if features else 0,
    }
    if strategy.lower() in known:
        return known[strategy.lower()]
    try:
        if strategy.isdigit():
            return int(strategy) or -1
        share = float(strategy)
    except ValueError:
        return -1
    return math.ceil(share * features) if 0.0 < share <= 1.0 else -1
