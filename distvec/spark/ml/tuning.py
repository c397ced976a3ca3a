"""Model selection with the classes of ``pyspark.ml.tuning``: the same results with fewer passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from pyspark.ml import Estimator, Pipeline, PipelineModel, tuning
from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    Evaluator,
    MulticlassClassificationEvaluator,
    RegressionEvaluator,
)
from pyspark.ml.tuning import (
    CrossValidatorModel,
    ParamGridBuilder,
    TrainValidationSplitModel,
    _ValidatorSharedReadWrite,
)
from pyspark.ml.util import DefaultParamsReader, MLReader
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from distvec.losses.rows import Floats
from distvec.spark.data.columns import Columns, feature_names
from distvec.spark.ml.fits import ParamMap, RowsEstimator
from distvec.spark.ml.models import ServerModel
from distvec.spark.ml.summary import Confusion, Curve
from distvec.spark.objectives.validation import (
    CLASSES,
    CURVE,
    NUMBERS,
    Candidates,
    collect_sums,
)

__all__ = (
    "CrossValidator",
    "CrossValidatorModel",
    "ParamGridBuilder",
    "TrainValidationSplit",
    "TrainValidationSplitModel",
)


class CrossValidator(tuning.CrossValidator):
    """``pyspark.ml.tuning.CrossValidator`` with fewer passes over the data.

    Parameters
    ----------
    estimator : Estimator, optional
        The estimator.
    estimatorParamMaps : list of dict, optional
        The param maps to try.
    evaluator : Evaluator, optional
        The metric that judges models.
    numFolds : int, default 3
        The number of folds.
    seed : int, optional
        Seed of the random split.
    parallelism : int, default 1
        Threads, which only estimators of pyspark use.
    collectSubModels : bool, default False
        Whether the result has all models.
    foldCol : str, default ""
        The column with the number of each row's fold, instead of a random split.

    Notes
    -----
    With the same seed, pyspark's class gives the same folds, metrics, models and files. The rows of
    a fold are read once for all param maps, and one pass over its validation rows evaluates all
    models. This holds for estimators of ``distvec.spark.ml`` and the evaluators of two classes,
    several classes and regression. The estimator may be the last stage of a pipeline if the maps
    have no Params of other stages. Anything else runs as in pyspark.

    Areas under curves belong to the whole curve; MLlib's evaluator joins neighbors to ``numBins``
    scores. Curves of more than 32,768 scores in a partition are thinned.

    Examples
    --------
    >>> from pyspark.ml.evaluation import BinaryClassificationEvaluator
    >>> from distvec.spark.ml.classification import LogisticRegression
    >>> from distvec.spark.ml.tuning import CrossValidator, ParamGridBuilder
    >>> estimator = LogisticRegression()
    >>> maps = ParamGridBuilder().addGrid(estimator.regParam, [0.1, 10.0]).build()
    >>> validator = CrossValidator(
    ...     estimator=estimator,
    ...     estimatorParamMaps=maps,
    ...     evaluator=BinaryClassificationEvaluator(),
    ...     numFolds=2,
    ...     seed=1,
    ... )
    >>> len(validator.fit(train).avgMetrics)
    2
    """

    @classmethod
    def read(cls) -> Any:
        """Return a reader.

        Returns
        -------
        MLReader
            ``read().load(path)`` reads files of this class, and of pyspark's.
        """
        return _Reader(cls)

    def _fit(self, dataset: DataFrame) -> CrossValidatorModel:
        search = _Search.of(self)
        if search is None:
            return super()._fit(dataset)
        draws = f"{self.uid}_rand"
        drawn = dataset if self.getFoldCol() else _draw(dataset, self.getSeed(), draws)
        with _cached(dataset, drawn) as rows:
            folds = [search.run(*fold) for fold in self._split(rows, draws)]
            metrics = [fold.metrics for fold in folds]
            means, deviations = self._gen_avg_and_std_metrics(metrics)
            best = search.fit_best(rows.drop(draws), means)
        models: Any = [fold.models for fold in folds] if self.getCollectSubModels() else None
        return self._copyValues(CrossValidatorModel(best, means, models, deviations))

    def _split(self, rows: DataFrame, draws: str) -> Iterable[tuple[DataFrame, DataFrame]]:
        """The rows to fit and those to judge, by fold, as pyspark's ``_kFold`` has them."""
        if self.getFoldCol():
            return self._kFold(rows)
        share = 1.0 / self.getNumFolds()
        starts = (k * share for k in range(self.getNumFolds() + 1))
        inside = [(rows[draws] >= a) & (rows[draws] < b) for a, b in pairwise(starts)]
        return [(rows.filter(~one), rows.filter(one)) for one in inside]


class TrainValidationSplit(tuning.TrainValidationSplit):
    """``pyspark.ml.tuning.TrainValidationSplit`` with fewer passes over the data.

    Parameters
    ----------
    estimator : Estimator, optional
        The estimator.
    estimatorParamMaps : list of dict, optional
        The param maps to try.
    evaluator : Evaluator, optional
        The metric that judges models.
    trainRatio : float, default 0.75
        The share of the rows that models are fitted to.
    parallelism : int, default 1
        Threads, which only estimators of pyspark use.
    collectSubModels : bool, default False
        Whether the result has all models.
    seed : int, optional
        Seed of the random split.

    See Also
    --------
    CrossValidator : The same with several folds.

    Examples
    --------
    >>> from pyspark.ml.evaluation import BinaryClassificationEvaluator
    >>> from distvec.spark.ml.classification import LogisticRegression
    >>> from distvec.spark.ml.tuning import ParamGridBuilder, TrainValidationSplit
    >>> estimator = LogisticRegression()
    >>> maps = ParamGridBuilder().addGrid(estimator.regParam, [0.1, 10.0]).build()
    >>> split = TrainValidationSplit(
    ...     estimator=estimator,
    ...     estimatorParamMaps=maps,
    ...     evaluator=BinaryClassificationEvaluator(),
    ...     seed=1,
    ... )
    >>> len(split.fit(train).validationMetrics)
    2
    """

    @classmethod
    def read(cls) -> Any:
        """Return a reader.

        Returns
        -------
        MLReader
            ``read().load(path)`` reads files of this class, and of pyspark's.
        """
        return _Reader(cls)

    def _fit(self, dataset: DataFrame) -> TrainValidationSplitModel:
        search = _Search.of(self)
        if search is None:
            return super()._fit(dataset)
        draws = f"{self.uid}_rand"
        with _cached(dataset, _draw(dataset, self.getSeed(), draws)) as rows:
            is_validation = rows[draws] >= self.getTrainRatio()
            fold = search.run(rows.filter(~is_validation), rows.filter(is_validation))
            best = search.fit_best(rows.drop(draws), fold.metrics)
        models: Any = fold.models if self.getCollectSubModels() else None
        return self._copyValues(TrainValidationSplitModel(best, fold.metrics, models))


class _Reader(MLReader[Any]):
    """Reads files of a validator of this module, or of pyspark's."""

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """Read the directory ``path``."""
        session = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, session)
        # pyspark takes the files of classes of other packages for those that the JVM wrote.
        metadata["class"] = metadata["class"].replace("distvec.spark.", "pyspark.")
        _, estimator, evaluator, maps = _ValidatorSharedReadWrite.load(path, session, metadata)
        made = self._kind(estimator=estimator, estimatorParamMaps=maps, evaluator=evaluator)
        made._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(made, metadata, skipParams=["estimatorParamMaps"])
        return made


def _draw(dataset: DataFrame, seed: int, name: str) -> DataFrame:
    """With a column of random numbers.

    Spark draws others if the rows come from its cache, so this is before they go there.
    """
    return dataset.select("*", F.rand(seed).alias(name))


@contextmanager
def _cached(dataset: DataFrame, drawn: DataFrame) -> Iterator[DataFrame]:
    """``drawn`` in Spark's cache, for the folds, unless a user has cached ``dataset``."""
    is_cached = dataset.storageLevel.useMemory or dataset.storageLevel.useDisk
    if not is_cached:
        drawn.persist()
    try:
        yield drawn
    finally:
        if not is_cached:
            drawn.unpersist()


@dataclass
class _Fold:
    """The models of all param maps on one split of the rows, and their metrics."""

    models: list[Any]
    metrics: list[float]


@dataclass(frozen=True)
class _Search:
    """Param maps to try, and how to judge them."""

    whole: Estimator[Any]
    before: list[Any]
    """The stages of a pipeline before ``estimator``."""
    estimator: RowsEstimator
    maps: Sequence[ParamMap]
    evaluator: Evaluator

    @classmethod
    def of(cls, validator: Any) -> Self | None:
        """The search of a validator; None if its estimator is of another kind."""
        whole, maps = validator.getEstimator(), validator.getEstimatorParamMaps()
        before, estimator = [], whole
        if type(whole) is Pipeline and whole.getStages():
            *before, estimator = whole.getStages()
            if any(param.parent != estimator.uid for one in maps for param in one):
                return None
        if not isinstance(estimator, RowsEstimator):
            return None
        return cls(whole, before, estimator, maps, validator.getEvaluator())

    def run(self, train: DataFrame, validation: DataFrame) -> _Fold:
        """Fit and judge all param maps."""
        stages: list[Any] = []
        if self.before:
            pipeline = Pipeline(stages=self.before).fit(train)
            stages = pipeline.stages
            train, validation = pipeline.transform(train), pipeline.transform(validation)
        found = dict(self.estimator.fitMultiple(train, self.maps))
        models: list[Any] = [found[k] for k in range(len(self.maps))]
        metrics = _metrics(models, self.evaluator, validation)
        if self.before:
            models = [PipelineModel([*stages, one]) for one in models]
        return _Fold(models, metrics)

    def fit_best(self, dataset: DataFrame, metrics: Sequence[float]) -> Any:
        """The model of the best param map on all rows."""
        choose = np.argmax if self.evaluator.isLargerBetter() else np.argmin
        return self.whole.fit(dataset, self.maps[int(choose(metrics))])


def _metrics(models: Sequence[Any], evaluator: Evaluator, data: DataFrame) -> list[float]:
    """The metric of each model, in one pass if that is possible."""
    judge = None
    if not evaluator.hasParam("metricName") or evaluator.getOrDefault("metricName") != "logLoss":
        judge = _JUDGES.get(type(evaluator))
    candidates = None if judge is None else _candidates(models, judge, evaluator)
    if judge is None or candidates is None:
        return [evaluator.evaluate(one.transform(data)) for one in models]
    given: Any = evaluator
    weight = given.getWeightCol() if given.isDefined("weightCol") else None
    features = feature_names(models[0]._features)
    columns = Columns(features, given.getLabelCol(), weight or None)
    sums = collect_sums(data, columns, candidates, judge.kind)
    return [judge.metric(given, one) for one in sums]


def _candidates(models: Sequence[Any], judge: _Judge, evaluator: Evaluator) -> Candidates | None:
    """The models as one table; None if they do not fit into one, or for other columns."""
    tables, widths, decisions = [], [], []
    for one in models:
        decision = one._decision if isinstance(one, ServerModel) else None
        if (
            decision is None
            or not one.fitted.is_local
            or one.fitted.coordinates is not None
            or evaluator.getOrDefault(judge.column) != one.getOrDefault(judge.column)
            or one._features != models[0]._features
            or (judge.kind == CURVE and decision.threshold is None)
        ):
            return None
        coefficients = np.asarray(one.fitted.coefficients)
        widths.append(coefficients.shape[1] if coefficients.ndim == 2 else 0)
        intercepts = np.reshape(one.fitted.intercept, (1, -1))
        columns = coefficients.reshape(len(coefficients), -1)
        tables.append(np.concatenate([columns, intercepts]))
        decisions.append(decision)
    return Candidates(np.concatenate(tables, axis=1), tuple(widths), tuple(decisions))


@dataclass(frozen=True)
class _Judge:
    """How an evaluator's metric follows from sums over the rows."""

    kind: str
    column: str
    """The Param that names the column of a model which the evaluator reads."""
    metric: Callable[[Any, Floats], float]


def _area(evaluator: BinaryClassificationEvaluator, sums: Floats) -> float:
    curve, name = Curve(*sums.T), evaluator.getMetricName()
    return curve.area_under_roc if name == "areaUnderROC" else curve.area_under_pr


def _class_metric(evaluator: MulticlassClassificationEvaluator, sums: Floats) -> float:
    counts, name, beta = Confusion(sums), evaluator.getMetricName(), evaluator.getBeta()
    averages: Mapping[str, Callable[[], float]] = {
        "f1": lambda: counts.mean(counts.f_measure(1.0)),
        "accuracy": lambda: counts.accuracy,
        "hammingLoss": lambda: 1.0 - counts.accuracy,
        "weightedPrecision": lambda: counts.mean(counts.precision),
        "weightedRecall": lambda: counts.mean(counts.recall),
        "weightedTruePositiveRate": lambda: counts.mean(counts.recall),
        "weightedFalsePositiveRate": lambda: counts.mean(counts.false_positive_rate),
        "weightedFMeasure": lambda: counts.mean(counts.f_measure(beta)),
    }
    if name in averages:
        return float(averages[name]())
    by_label = {
        "precisionByLabel": counts.precision,
        "recallByLabel": counts.recall,
        "truePositiveRateByLabel": counts.recall,
        "falsePositiveRateByLabel": counts.false_positive_rate,
        "fMeasureByLabel": counts.f_measure(beta),
    }[name]
    return float(by_label[counts.labels == evaluator.getMetricLabel()].sum())


def _regression_metric(evaluator: RegressionEvaluator, sums: Floats) -> float:
    """As MLlib's ``RegressionMetrics`` has them."""
    ((total, squares, mean, spread, predicted, shifts, errors, absolute),) = sums
    name = evaluator.getMetricName()
    if name == "r2":
        if evaluator.getThroughOrigin():
            return float(1.0 - errors / (spread + total * mean**2))
        return float(1.0 - errors / (spread / (total - squares / total) * (total - 1.0)))
    return float(
        {
            "mse": errors / total,
            "rmse": np.sqrt(errors / total),
            "mae": absolute / total,
            "var": (shifts + total * (predicted - mean) ** 2) / total,
        }[name]
    )


_JUDGES: Mapping[type, _Judge] = {
    BinaryClassificationEvaluator: _Judge(CURVE, "rawPredictionCol", _area),
    MulticlassClassificationEvaluator: _Judge(CLASSES, "predictionCol", _class_metric),
    RegressionEvaluator: _Judge(NUMBERS, "predictionCol", _regression_metric),
}
