"""Metrics of predictions, computed by Spark when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.ml.functions import vector_to_array
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Floats = npt.NDArray[np.float64]

_CURVE_POINTS = 1000
"""Points of a curve, as in MLlib; areas are those of the whole curve."""


class PredictionSummary:
    """Predictions for a DataFrame with labels, and the names of their columns.

    Parameters
    ----------
    predictions : DataFrame
        The output of ``transform``, with labels.
    columns : dict
        The names of the columns, by Param: ``labelCol``, ``predictionCol``, ``weightCol``,
        ``probabilityCol``, ``rawPredictionCol`` and ``featuresCol``.
    """

    def __init__(self, predictions: DataFrame, columns: dict[str, str]) -> None:
        self._predictions, self._columns = predictions, columns

    @property
    def predictions(self) -> DataFrame:
        """The output of ``transform``."""
        return self._predictions

    @property
    def predictionCol(self) -> str:
        """The column of predictions."""
        return self._columns["predictionCol"]

    @property
    def labelCol(self) -> str:
        """The column of labels."""
        return self._columns["labelCol"]

    @property
    def weightCol(self) -> str:
        """The column of weights; empty without weights."""
        return self._columns.get("weightCol", "")

    @property
    def featuresCol(self) -> str:
        """The column of features."""
        return self._columns["featuresCol"]

    @property
    def _label(self) -> Column:
        return F.col(self.labelCol).cast("double")

    @property
    def _prediction(self) -> Column:
        return F.col(self.predictionCol).cast("double")

    @property
    def _weight(self) -> Column:
        return F.col(self.weightCol).cast("double") if self.weightCol else F.lit(1.0)


class ClassificationSummary(PredictionSummary):
    """Metrics of a classifier on a DataFrame.

    Parameters
    ----------
    predictions : DataFrame
        The output of ``transform``, with labels.
    columns : dict
        The names of the columns, by Param.

    Notes
    -----
    The first metric runs one Spark job, which counts pairs of label and prediction; the first
    curve runs another.
    """

    @property
    def labels(self) -> list[float]:
        """The labels of the rows, ascending; arrays over labels have this order."""
        return _list(self._counts.labels)

    @property
    def truePositiveRateByLabel(self) -> list[float]:
        """The true positive rate of each label."""
        return _list(self._counts.recall)

    @property
    def falsePositiveRateByLabel(self) -> list[float]:
        """The false positive rate of each label."""
        return _list(self._counts.false_positive_rate)

    @property
    def precisionByLabel(self) -> list[float]:
        """The precision of each label."""
        return _list(self._counts.precision)

    @property
    def recallByLabel(self) -> list[float]:
        """The recall of each label."""
        return _list(self._counts.recall)

    def fMeasureByLabel(self, beta: float = 1.0) -> list[float]:
        """Return the F-measure of each label.

        Parameters
        ----------
        beta : float, default 1.0
            The weight of the recall.

        Returns
        -------
        list of float
            One for each label.
        """
        return _list(self._counts.f_measure(beta))

    @property
    def accuracy(self) -> float:
        """The share of correct predictions."""
        return self._counts.accuracy

    @property
    def weightedTruePositiveRate(self) -> float:
        """The mean true positive rate, weighted by the labels' shares."""
        return self.weightedRecall

    @property
    def weightedFalsePositiveRate(self) -> float:
        """The mean false positive rate, weighted by the labels' shares."""
        return self._counts.mean(self._counts.false_positive_rate)

    @property
    def weightedRecall(self) -> float:
        """The mean recall, weighted by the labels' shares."""
        return self._counts.mean(self._counts.recall)

    @property
    def weightedPrecision(self) -> float:
        """The mean precision, weighted by the labels' shares."""
        return self._counts.mean(self._counts.precision)

    def weightedFMeasure(self, beta: float = 1.0) -> float:
        """Return the mean F-measure, weighted by the labels' shares.

        Parameters
        ----------
        beta : float, default 1.0
            The weight of the recall.

        Returns
        -------
        float
            The mean.
        """
        return self._counts.mean(self._counts.f_measure(beta))

    @cached_property
    def _counts(self) -> Confusion:
        columns = self._label.alias("label"), self._prediction.alias("prediction")
        pairs = self._predictions.groupBy(*columns)
        return Confusion([tuple(row) for row in pairs.agg(F.sum(self._weight)).collect()])


class Confusion:
    """Weights by label and prediction, and rates of them; 0/0 is 0."""

    def __init__(self, pairs: npt.ArrayLike) -> None:
        table = np.array(pairs, np.float64).reshape(-1, 3)
        self.labels = np.unique(table[:, 0])
        names = np.unique(table[:, :2])
        counts = np.zeros((len(names), len(names)))
        rows, columns = np.searchsorted(names, table[:, 0]), np.searchsorted(names, table[:, 1])
        np.add.at(counts, (rows, columns), table[:, 2])
        own = np.searchsorted(names, self.labels)
        hits, labelled, predicted = counts.diagonal()[own], counts.sum(1)[own], counts.sum(0)[own]
        total = counts.sum()
        self.shares = _ratio(labelled, total)
        self.accuracy = float(_ratio(counts.trace(), total))
        self.recall = _ratio(hits, labelled)
        self.precision = _ratio(hits, predicted)
        self.false_positive_rate = _ratio(predicted - hits, total - labelled)

    def f_measure(self, beta: float) -> Floats:
        """By label, with the weight ``beta`` of the recall."""
        squared = beta * beta
        product = (1 + squared) * self.precision * self.recall
        found: Floats = _ratio(product, squared * self.precision + self.recall)
        return found

    def mean(self, by_label: Floats) -> float:
        """Of numbers by label, weighted by the labels' shares."""
        return float(by_label @ self.shares)


def _list(values: Floats) -> list[float]:
    return [float(one) for one in values]


def _ratio(above: Any, below: Any) -> Any:
    above, below = np.broadcast_arrays(np.float64(above), np.float64(below))
    return np.divide(above, below, out=np.zeros(above.shape), where=below != 0)


class BinaryClassificationSummary(ClassificationSummary):
    """Metrics of a classifier of two classes on a DataFrame, with curves over the threshold.

    Parameters
    ----------
    predictions : DataFrame
        The output of ``transform``, with labels.
    columns : dict
        The names of the columns, by Param.

    Notes
    -----
    Curves of more than 1,000 points are thinned to about 1,000. Areas belong to the whole curve.
    """

    @property
    def scoreCol(self) -> str:
        """The column of scores."""
        return self._columns.get("probabilityCol") or self._columns["rawPredictionCol"]

    @property
    def roc(self) -> DataFrame:
        """The ROC curve with the columns FPR and TPR, from (0, 0) to (1, 1)."""
        curve = self._curve
        points = np.column_stack([curve.false_positive_rate, curve.recall])[curve.shown]
        return self._frame(np.concatenate([[[0.0, 0.0]], points, [[1.0, 1.0]]]), "FPR", "TPR")

    @property
    def areaUnderROC(self) -> float:
        """The area under the ROC curve."""
        return self._curve.area_under_roc

    @property
    def pr(self) -> DataFrame:
        """The precision-recall curve, from recall 0."""
        curve = self._curve
        points = np.column_stack([curve.recall, curve.precision])[curve.shown]
        first = points[:1] * [0.0, 1.0]
        return self._frame(np.concatenate([first, points]), "recall", "precision")

    @property
    def fMeasureByThreshold(self) -> DataFrame:
        """The F-measure by threshold, with beta 1."""
        curve = self._curve
        product = 2 * curve.precision * curve.recall
        return self._by_threshold(_ratio(product, curve.precision + curve.recall), "F-Measure")

    @property
    def precisionByThreshold(self) -> DataFrame:
        """The precision by threshold."""
        return self._by_threshold(self._curve.precision, "precision")

    @property
    def recallByThreshold(self) -> DataFrame:
        """The recall by threshold."""
        return self._by_threshold(self._curve.recall, "recall")

    @cached_property
    def _curve(self) -> Curve:
        score = vector_to_array(F.col(self.scoreCol)).getItem(1)
        is_positive = self._label > 0.5
        weight = self._weight
        by_score = self._predictions.groupBy(score.alias("score")).agg(
            F.sum(F.when(is_positive, weight).otherwise(0.0)),
            F.sum(F.when(is_positive, 0.0).otherwise(weight)),
        )
        columns = by_score.toArrow().columns
        return Curve(*(np.asarray(one.to_numpy(), np.float64) for one in columns))

    def _by_threshold(self, values: Floats, name: str) -> DataFrame:
        points = np.column_stack([self._curve.thresholds, values])[self._curve.shown]
        return self._frame(points, "threshold", name)

    def _frame(self, points: Floats, *names: str) -> DataFrame:
        schema = ", ".join(f"`{name}` double" for name in names)
        return self._predictions.sparkSession.createDataFrame(points.tolist(), schema)


class Curve:
    """Rates at each threshold, from the highest score to the lowest."""

    def __init__(self, scores: Floats, positives: Floats, negatives: Floats) -> None:
        order = np.argsort(scores)[::-1]
        self.thresholds = scores[order]
        hits, false = np.cumsum(positives[order]), np.cumsum(negatives[order])
        self.recall = _ratio(hits, hits[-1:].sum())
        self.false_positive_rate = _ratio(false, false[-1:].sum())
        self.precision = np.where(hits + false == 0, 1.0, _ratio(hits, hits + false))
        step = max(1, len(order) // _CURVE_POINTS)
        last = len(order) - 1
        self.shown = np.unique(np.append(np.arange(step - 1, len(order), step), last))

    @property
    def area_under_roc(self) -> float:
        """The area of the recall over the false positive rate, from (0, 0) to (1, 1)."""
        x = np.concatenate([[0.0], self.false_positive_rate, [1.0]])
        return float(np.trapezoid(np.concatenate([[0.0], self.recall, [1.0]]), x))

    @property
    def area_under_pr(self) -> float:
        """The area of the precision over the recall, from recall 0."""
        precision = np.append(self.precision[:1], self.precision)
        return float(
            np.trapezoid(precision, np.append(np.zeros(self.recall[:1].size), self.recall))
        )


class ClusteringSummary:
    """Clusters of the training data, and predictions for it.

    Parameters
    ----------
    model : Model
        The model.
    dataset : DataFrame
        The training data.
    """

    def __init__(self, model: Any, dataset: DataFrame) -> None:
        self._model, self._dataset = model, dataset

    @property
    def k(self) -> int:
        """The number of clusters that the model was trained with."""
        found: int = self._model.getK()
        return found

    @property
    def predictionCol(self) -> str:
        """The column of predictions."""
        found: str = self._model.getPredictionCol()
        return found

    @property
    def featuresCol(self) -> str:
        """The column of features."""
        found: str = self._model.getFeaturesCol()
        return found

    @property
    def predictions(self) -> DataFrame:
        """The output of ``transform``."""
        found: DataFrame = self._model.transform(self._dataset)
        return found

    @property
    def cluster(self) -> DataFrame:
        """The predictions alone."""
        return self.predictions.select(self.predictionCol)


class Training(NamedTuple):
    """For the summary of a model that was just fitted."""

    dataset: DataFrame
    history: list[float]
    validation: list[float] | None = None
    """The mean loss of rows that were held out, if there were such."""


class TrainingSummary:
    """The course of a training; a part of training summaries."""

    _history: Sequence[float]

    @property
    def objectiveHistory(self) -> list[float]:
        """The objective at the start and after each iteration."""
        return list(self._history)

    @property
    def totalIterations(self) -> int:
        """The number of iterations."""
        return max(0, len(self._history) - 1)


class ValidatedSummary(TrainingSummary):
    """The course of a training, and the loss of rows that were held out."""

    _validation: Sequence[float] | None

    @property
    def validationHistory(self) -> list[float]:
        """The mean loss of the held-out rows after each epoch, or iteration without batches."""
        if self._validation is None:
            raise ValueError("no rows were held out; set validationIndicatorCol=")
        return list(self._validation)
