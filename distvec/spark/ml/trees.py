"""The estimators of boosted trees in ``pyspark.ml.classification`` and ``regression``."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pyspark.ml.classification import (
    ProbabilisticClassifier,
    _GBTClassifierParams,
)
from pyspark.ml.regression import Regressor, _GBTRegressorParams
from pyspark.sql import DataFrame

from distvec.losses.boosting import Boosting
from distvec.losses.trees import (
    ABSOLUTE,
    LOGISTIC,
    SOFTMAX,
    SQUARED,
    Trees,
)
from distvec.objectives.tree_splits import Growth
from distvec.spark.context import PSContext
from distvec.spark.data.columns import find_column
from distvec.spark.ml.fits import SharingEstimator
from distvec.spark.ml.models import kept
from distvec.spark.ml.params import Range, one_of
from distvec.spark.ml.tree_models import GBTClassificationModel, GBTRegressionModel
from distvec.spark.ml.tree_params import OWN_PARAMS, TreeParams, features_per_node
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.objective import Objective
from distvec.spark.objectives.trees import fit_trees


@dataclass(frozen=True)
class _OfClasses(Boosting):
    labels: ClassVar[str] = "classes"


class _TreeEstimator(SharingEstimator, TreeParams):
    """Both estimators."""

    _own_params: ClassVar[frozenset[str]] = OWN_PARAMS
    _loss: ClassVar[Boosting]

    def _data_key(self) -> tuple[Any, ...]:
        held_out = self._given("validationIndicatorCol")
        return str(self._features), self._weight, self.getOrDefault("labelCol"), held_out

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=self._loss,
            features=self._features,
            label=self.getOrDefault("labelCol"),
            weight=self._weight,
            event=self._given("validationIndicatorCol"),
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    @abstractmethod
    def _kind(self, objective: Objective) -> tuple[str, int]:
        """The kind of the trees, and the number of their outputs."""

    @abstractmethod
    def _model(self, fitted: Model) -> Any: ...

    def _train(self, objective: Objective, dataset: DataFrame) -> Any:
        kind, outputs = self._kind(objective)
        given = self.getOrDefault
        growth = Growth(
            kind,
            outputs,
            rounds=given("maxIter"),
            step_size=given("stepSize"),
            # MLlib's losses have the factor 2, and so have its steps, but not the first one.
            leaf_factor=2.0 if kind in (LOGISTIC, SQUARED) else 1.0,
            first_step=0.5 if kind in (LOGISTIC, SQUARED) else 1.0,
            max_depth=given("maxDepth"),
            max_leaves=given("numLeaves"),
            min_rows=given("minInstancesPerNode"),
            min_weight=given("minSumHessianInLeaf"),
            min_share=given("minWeightFractionPerNode"),
            min_gain=given("minInfoGain"),
            l2=given("lambdaL2"),
            row_share=given("subsamplingRate"),
            features_per_node=features_per_node(
                given("featureSubsetStrategy"), objective.data.size
            ),
            seed=given("seed"),
            patience=self._patience(kind) if self._given("validationIndicatorCol") else None,
            memory=given("maxMemoryInMB") << 20,
        )
        found = fit_trees(
            objective.ps,
            objective.data,
            growth,
            max_bins=given("maxBins"),
            categorical=self._categorical(dataset, objective.data.size),
            progress=given("verbose"),
        )
        features = np.arange(objective.data.size, dtype=np.float64)
        loss = Trees(kind, outputs, len(found.nodes))
        x = {"features": features, "nodes": found.nodes}
        model = self._model(kept(x, loss, self._features, intercept=False))
        made = self._copyValues(model._resetUid(self.uid))
        made._ensemble = found
        return made

    def _patience(self, kind: str) -> Any:
        """MLlib's rule: ends where the loss of rows held out falls too little."""
        tolerance, factor = self.getOrDefault("validationTol"), 2.0 if kind == LOGISTIC else 1.0

        def trees_to_keep(losses: list[float]) -> int:
            best, keep = math.inf, 0
            for number, loss in enumerate(losses, 1):
                loss *= factor
                if number > 1 and best - loss < tolerance * max(loss, 0.01):
                    return keep
                if loss < best:
                    best, keep = loss, number
            return 0

        return trees_to_keep

    def _categorical(self, dataset: DataFrame, features: int) -> list[int]:
        """The features with categories, ascending: those named, and those the column says."""
        found = set(self.getOrDefault("categoricalFeatures"))
        bad = [one for one in found if not 0 <= one < features]
        if bad:
            raise ValueError(
                f"categoricalFeatures has {bad[0]}; features are numbered from 0 to {features - 1}"
            )
        if isinstance(self._features, str) and isinstance(dataset, DataFrame):
            find_column(dataset, self._features, "featuresCol")
            fields = {one.name.lower(): one for one in dataset.schema.fields}
            field = fields.get(self._features.lower())
            attributes = (field.metadata if field else {}).get("ml_attr", {}).get("attrs", {})
            found |= {int(one["idx"]) for one in attributes.get("nominal", ())}
        return sorted(found)


class GBTClassifier(_TreeEstimator, _GBTClassifierParams, ProbabilisticClassifier):
    """Gradient boosted trees for two or more classes, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.classification.GBTClassifier``, by name. ``featuresCol`` may also
        be a list of columns of numbers, or the name of an array column. Further Params are
        ``numLeaves``, ``minSumHessianInLeaf``, ``lambdaL2`` and ``categoricalFeatures``.
        LightGBM's names ``numIterations``, ``learningRate``, ``maxBin``, ``minDataInLeaf``,
        ``minGainToSplit``, ``featureFraction``, ``baggingFraction`` and
        ``categoricalSlotIndexes`` set MLlib's Params.

    See Also
    --------
    distvec.spark.ml.regression.GBTRegressor : The same for numbers.

    Notes
    -----
    Trees minimize the logistic loss, or the softmax loss of more classes with a tree for each class
    and round, by Newton's steps. Features may be NaN or null: each split learns the side that such
    rows take. ``maxBins`` bins come from a sample of the rows.

    Tasks keep the rows in bins. Histograms are sums of integers, so the trees are the same to the
    bit for any number of partitions and servers. A level of all trees of a round is one question to
    the tasks.

    Rows for which ``validationIndicatorCol`` is true do not train. The fit ends as in MLlib when
    their loss falls by less than ``validationTol``. ``subsamplingRate`` draws equal rows together.
    ``minWeightFractionPerNode`` counts second derivatives. ``seed`` is 0 by default.
    ``cacheNodeIds`` and ``checkpointInterval`` have no effect.

    Examples
    --------
    >>> from distvec.spark.ml.classification import GBTClassifier
    >>> model = GBTClassifier(maxIter=5, maxDepth=2).fit(train)
    >>> model.transform(train).select("label", "prediction").show(2)
    +-----+----------+
    |label|prediction|
    +-----+----------+
    |  1.0|       1.0|
    |  0.0|       0.0|
    +-----+----------+
    only showing top 2 rows
    """

    _module = "distvec.spark.ml.classification"
    _ranges: ClassVar[Mapping[str, Range]] = {"lossType": one_of(LOGISTIC)}
    _loss: ClassVar[Boosting] = _OfClasses(LOGISTIC, 1)

    def _kind(self, objective: Objective) -> tuple[str, int]:
        classes = int(max(objective.data.labels)) + 1
        if self.isSet("thresholds") and len(self.getThresholds()) != max(2, classes):
            raise ValueError(
                f"thresholds has {len(self.getThresholds())} elements; the data has "
                f"{max(2, classes)} classes"
            )
        return (LOGISTIC, 1) if classes <= 2 else (SOFTMAX, classes)

    def _model(self, fitted: Model) -> GBTClassificationModel:
        return GBTClassificationModel(fitted)


class GBTRegressor(_TreeEstimator, _GBTRegressorParams, Regressor[Any]):
    """Gradient boosted trees for numbers, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.regression.GBTRegressor``, by name, and the
        further ones of ``GBTClassifier``.

    See Also
    --------
    distvec.spark.ml.classification.GBTClassifier : Notes on bins, missing values and histograms.

    Notes
    -----
    With ``lossType="absolute"``, steps are signs times the mean absolute error of the round, so
    that they suit labels of any size.

    Examples
    --------
    >>> from distvec.spark.ml.regression import GBTRegressor
    >>> model = GBTRegressor(maxIter=5, maxDepth=2).fit(train)
    >>> model.getNumTrees, model.treeWeights
    (5, [1.0, 0.1, 0.1, 0.1, 0.1])
    """

    _module = "distvec.spark.ml.regression"
    _ranges: ClassVar[Mapping[str, Range]] = {"lossType": one_of(SQUARED, ABSOLUTE)}
    _loss: ClassVar[Boosting] = Boosting(SQUARED, 1)

    def _kind(self, objective: Objective) -> tuple[str, int]:
        return self.getLossType().lower(), 1

    def _model(self, fitted: Model) -> GBTRegressionModel:
        return GBTRegressionModel(fitted)
