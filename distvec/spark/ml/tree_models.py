"""The models of boosted trees, and their rows in MLlib's files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml.classification import (
    ProbabilisticClassificationModel,
    _GBTClassifierParams,
)
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vector, Vectors
from pyspark.ml.regression import RegressionModel, _GBTRegressorParams
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from distvec.losses.rows import Floats
from distvec.losses.trees import (
    ABSOLUTE,
    BITS,
    CATEGORICAL,
    FEATURE,
    GAIN,
    LEFT,
    LOGISTIC,
    MISSING_LEFT,
    NODE_COLUMNS,
    OUTPUT,
    RIGHT,
    ROWS,
    SCALE,
    SLOT,
    SOFTMAX,
    SQUARED,
    THRESHOLD,
    VALUE,
    WEIGHT,
    WORDS,
    LeafNumbers,
    Nodes,
    Stages,
    Trees,
    sigmoid,
    softmax,
)
from distvec.objectives.tree_growth import Ensemble
from distvec.spark.ml.models import MARGIN, ServerModel, argmax
from distvec.spark.ml.tree_params import OWN_PARAMS, TreeParams
from distvec.spark.objectives.model import Model
from ps_backend.arguments import check_choice


@dataclass(frozen=True, eq=False, repr=False)
class Tree:
    """One tree of a model; ``model.trees`` has them.

    Parameters
    ----------
    nodes : array
        All nodes of the model.
    root : int
        The first one of this tree.
    """

    nodes: Nodes
    root: int

    def __repr__(self) -> str:
        return f"Tree: depth={self.depth}, numNodes={self.numNodes}"

    @property
    def numNodes(self) -> int:
        """The number of nodes."""
        return len(self._walk())

    @property
    def depth(self) -> int:
        """The number of splits on the longest way to a leaf."""
        return max(depth for _, depth in self._walk())

    @property
    def weight(self) -> float:
        """The factor of the values of its leaves."""
        return float(self.nodes[self.root, SCALE])

    @property
    def toDebugString(self) -> str:
        """All splits and leaves."""
        lines = []
        waiting = [(self.root, 1, "")]
        while waiting:
            node, depth, condition = waiting.pop()
            indent = " " * depth
            if condition:
                lines.append(f"{indent}{condition}")
            row = self.nodes[node]
            if row[LEFT] < 0.0:
                lines.append(f"{indent} Predict: {row[VALUE]:.17g}")
            else:
                is_left, is_right = _conditions(row)
                waiting.append((int(row[RIGHT]), depth + 1, f"Else ({is_right})"))
                waiting.append((int(row[LEFT]), depth + 1, f"If ({is_left})"))
        return "\n".join(lines)

    def _walk(self) -> list[tuple[int, int]]:
        """All nodes with their depths, level by level."""
        found = [(self.root, 0)]
        for node, depth in found:
            if self.nodes[node, LEFT] >= 0.0:
                found += [(int(k), depth + 1) for k in self.nodes[node, [LEFT, RIGHT]]]
        return found


def _conditions(row: Floats) -> tuple[str, str]:
    name = f"feature {int(row[FEATURE])}"
    if row[CATEGORICAL]:
        known = "{" + ",".join(f"{one:.1f}" for one in _categories(row)) + "}"
        left, right = f"{name} in {known}", f"{name} not in {known}"
    else:
        left, right = f"{name} <= {row[THRESHOLD]:.17g}", f"{name} > {row[THRESHOLD]:.17g}"
    if row[MISSING_LEFT]:
        return f"{left} or missing", right
    return left, right


def _categories(row: Floats) -> list[int]:
    words = row[SLOT + 1 :].astype(np.int64)
    return [k for k in range(WORDS * BITS) if words[k // BITS] >> (k % BITS) & 1]


_NODE = (
    "id int, prediction double, impurity double, impurityStats array<double>, rawCount bigint, "
    "gain double, leftChild int, rightChild int, "
    "split struct<featureIndex int, leftCategoriesOrThreshold array<double>, numCategories int>"
)
_SCHEMA = f"treeID int, nodeData struct<{_NODE}>, missingLeft boolean"
"""MLlib's, with a last column that MLlib does not read."""


class _TreeModel(ServerModel, TreeParams):
    """Both models."""

    _own_params: ClassVar[frozenset[str]] = OWN_PARAMS
    _kind_in_mllib: ClassVar[str]
    _ensemble: Ensemble | None = None

    @property
    def _nodes(self) -> Nodes:
        return np.asarray(self._local().arrays[1], np.float64)

    @property
    def _trees(self) -> Trees:
        loss = self.fitted.loss
        assert isinstance(loss, Trees)
        return loss

    @property
    def _linear(self) -> Floats:
        raise AttributeError(f"{type(self).__name__} has no coefficients")

    @property
    def trees(self) -> list[Tree]:
        """The trees; of several classes one for each class and round."""
        nodes = self._nodes
        return [Tree(nodes, root) for root in np.flatnonzero(nodes[:, OUTPUT] >= 0.0).tolist()]

    @property
    def getNumTrees(self) -> int:
        """The number of trees."""
        return len(self.trees)

    @property
    def treeWeights(self) -> list[float]:
        """The factor of each tree: 1 for the first, which has the start, then ``stepSize``."""
        return [tree.weight for tree in self.trees]

    @property
    def totalNumNodes(self) -> int:
        """The number of nodes of all trees."""
        return len(self._nodes)

    @property
    def featureImportances(self) -> Vector:
        """The share of each feature in the gains of all splits."""
        nodes = self._nodes
        inner = nodes[nodes[:, LEFT] >= 0.0]
        gains = np.bincount(inner[:, FEATURE].astype(int), inner[:, GAIN], self.numFeatures)
        used = np.flatnonzero(gains)
        return Vectors.sparse(self.numFeatures, used, gains[used] / (gains.sum() or 1.0))

    @property
    def toDebugString(self) -> str:
        """All trees as text."""
        parts = [f"  Tree {k} (weight {one.weight}):\n{one.toDebugString}"
                 for k, one in enumerate(self.trees)]  # fmt: skip
        return "\n".join([repr(self), *parts]) + "\n"

    def predictLeaf(self, value: Vector) -> Vector:
        """Return the leaf of each tree for one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            The place of the leaf in its tree, counted from the left.
        """
        row = np.asarray(value.toArray())[None]
        return Vectors.dense(self._asked(LeafNumbers).margins(row)[0])

    def _asked(self, kind: type[Trees]) -> Model:
        """The same trees, asked another question."""
        known = self._local()
        loss = kind(self._trees.kind, self._trees.outputs, self._trees.count)
        return Model(known.x, loss=loss, intercept=False, features=known.columns)

    def evaluateEachIteration(self, dataset: DataFrame) -> list[float]:
        """Return the mean loss after each round.

        Parameters
        ----------
        dataset : DataFrame
            Rows with labels, and weights if the model was fitted with weights.

        Returns
        -------
        list of float
            A mean for each round, in MLlib's scale: of two classes twice the negative
            log-likelihood.
        """
        return self._evaluate_rounds(dataset, self._trees.kind)

    def _evaluate_rounds(self, dataset: DataFrame, kind: str) -> list[float]:
        outputs = self._trees.outputs
        label = F.col(self.getOrDefault("labelCol")).cast("double")
        weight = F.lit(1.0)
        if self.isDefined("weightCol") and self.getOrDefault("weightCol"):
            weight = F.col(self.getOrDefault("weightCol")).cast("double")
        found = self._asked(Stages).margins(dataset, output=MARGIN, features=self._features)
        losses = []
        for number in range(self.getNumTrees // outputs):
            margins = [F.col(MARGIN)[number * outputs + k] for k in range(outputs)]
            losses.append(F.sum(weight * _loss_of(kind, margins, label)) / F.sum(weight))
        row: Any = found.agg(*losses).first()
        return [float(one) for one in row]

    def _transform(self, dataset: DataFrame) -> DataFrame:
        found = super()._transform(dataset)
        if name := self.getOrDefault("leafCol"):
            leaves = self._asked(LeafNumbers)
            found = leaves.margins(found, output=name, features=self._features)
            found = found.withColumn(name, array_to_vector(F.col(name)))
        return found

    def _runs_in_jvm(self, dataset: DataFrame) -> bool:
        return False

    def _attributes(self) -> dict[str, Any]:
        return {"kind": self._trees.kind, "outputs": self._trees.outputs}

    def _metadata(self) -> dict[str, Any]:
        return {"numFeatures": self.numFeatures, "numTrees": self.getNumTrees}

    def _check_in_mllib(self) -> None:
        nodes = self._nodes
        if self._trees.outputs > 1 or (nodes[:, MISSING_LEFT] != 0.0).any():
            raise NotImplementedError(
                "MLlib's trees have two classes at most, and no side for missing values; leave "
                "format() out"
            )

    def _in_mllib(self) -> Any:
        raise NotImplementedError(
            'trees become MLlib\'s by files: model.write().format("mllib").save(path), then load '
            "path with the class of pyspark.ml"
        )

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        raise NotImplementedError(
            f"MLlib's trees are read from files: model.save(path), then {cls.__name__}.load(path)"
        )

    def _frames(self, session: SparkSession) -> dict[str, DataFrame]:
        # MLlib's margins of two classes are half of the logarithms of odds.
        unit = 0.5 if self._trees.kind == LOGISTIC else 1.0
        nodes, trees, metadata = [], [], json.dumps(_tree_metadata(self, session))
        for number, tree in enumerate(self.trees):
            trees.append((number, metadata, tree.weight))
            nodes += [(number, *one) for one in _in_mllib(tree, unit)]
        return {
            "treesMetadata": session.createDataFrame(trees, "_1 int, _2 string, _3 double"),
            "data": session.createDataFrame(nodes, _SCHEMA),
        }

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        own = metadata.get("attributes") or {"kind": cls._kind_in_mllib, "outputs": 1}
        kind, outputs = own["kind"], own["outputs"]
        frame = session.read.parquet(os.path.join(path, "data"))
        weights = session.read.parquet(os.path.join(path, "treesMetadata")).orderBy("_1").collect()
        rows = frame.orderBy("treeID", "nodeData.id").collect()
        nodes = np.zeros((len(rows), NODE_COLUMNS))
        nodes[:, [OUTPUT, SLOT]] = -1.0
        root = 0
        for k, (node, row) in enumerate(zip(nodes, rows, strict=True)):
            if row.nodeData.id == 0:
                root = k
                node[[OUTPUT, SCALE]] = row.treeID % outputs, weights[row.treeID]["_3"]
            _read_node(node, row.nodeData, root, 2.0 if kind == LOGISTIC else 1.0)
            node[MISSING_LEFT] = row["missingLeft"] if "missingLeft" in frame.columns else 0.0
        x = {"features": np.arange(metadata["numFeatures"], dtype=np.float64), "nodes": nodes}
        return cls(Model(x, loss=Trees(kind, outputs, len(nodes)), intercept=False))


def _tree_metadata(model: _TreeModel, session: SparkSession) -> dict[str, Any]:
    """Of one tree, as MLlib reads it."""
    return {
        "class": "org.apache.spark.ml.regression.DecisionTreeRegressionModel",
        "timestamp": 0,
        "sparkVersion": session.version,
        "uid": f"dtr_{model.uid}",
        "paramMap": {"maxDepth": model.getOrDefault("maxDepth")},
        "defaultParamMap": {"impurity": "variance"},
    }


def _in_mllib(tree: Tree, unit: float) -> list[tuple[tuple[Any, ...], bool]]:
    """The nodes of a tree as rows of MLlib's file, and whether missing values go left."""
    places = {node: k for k, (node, _) in enumerate(tree._walk())}
    found = []
    for node, k in places.items():
        row = tree.nodes[node]
        value, weight = unit * float(row[VALUE]), float(row[WEIGHT])
        is_leaf, is_set = row[LEFT] < 0.0, bool(row[CATEGORICAL])
        chosen = [float(one) for one in _categories(row)] if is_set else [float(row[THRESHOLD])]
        split = (-1, [], -1) if is_leaf else (int(row[FEATURE]), chosen, 256 if is_set else -1)
        gain = float(row[GAIN]) / weight if weight and not is_leaf else -1.0
        children = (-1, -1) if is_leaf else [places[int(one)] for one in row[[LEFT, RIGHT]]]
        stats = [weight, weight * value, weight * value * value]
        data = (k, value, 0.0, stats, int(row[ROWS]), gain, *children, split)
        found.append((data, bool(row[MISSING_LEFT])))
    return found


def _read_node(node: Floats, data: Any, root: int, unit: float) -> None:
    """Write a row of MLlib's file into its node; ``root`` is the first one of the tree."""
    node[[VALUE, ROWS, WEIGHT]] = unit * data.prediction, data.rawCount, data.impurityStats[0]
    node[[FEATURE, LEFT, RIGHT]] = -1.0
    if data.leftChild < 0:
        return
    node[[LEFT, RIGHT]] = root + data.leftChild, root + data.rightChild
    node[[FEATURE, GAIN]] = data.split.featureIndex, data.gain * data.impurityStats[0]
    chosen = data.split.leftCategoriesOrThreshold
    if data.split.numCategories < 0:
        node[THRESHOLD] = chosen[0]
        return
    node[CATEGORICAL] = 1.0
    for category in map(int, chosen):
        node[SLOT + 1 + category // BITS] += 2.0 ** (category % BITS)


def _loss_of(kind: str, margins: Sequence[Column], label: Column) -> Column:
    if kind == LOGISTIC:
        far = F.when(label > 0.0, -margins[0]).otherwise(margins[0])
        return 2.0 * (F.greatest(far, F.lit(0.0)) + F.log1p(F.exp(-F.abs(far))))
    if kind == SOFTMAX:
        most = F.greatest(*margins)
        total = sum((F.exp(one - most) for one in margins), F.lit(0.0))
        return F.log(total) + most - F.array(*margins)[label.cast("int")]
    far = F.abs(margins[0] - label)
    return far * far if kind == SQUARED else far


class GBTClassificationModel(_TreeModel, _GBTClassifierParams, ProbabilisticClassificationModel):
    """Fitted trees for classes; ``GBTClassifier.fit`` makes them.

    Parameters
    ----------
    fitted : Model, optional
        The trees.

    Notes
    -----
    ``rawPrediction`` of two classes is minus and plus half of the logarithm of the odds, as in
    MLlib.

    Examples
    --------
    >>> from distvec.spark.ml.classification import GBTClassifier
    >>> model = GBTClassifier(maxIter=5, maxDepth=2).fit(train)
    >>> model.numClasses, model.getNumTrees, model.trees[0].depth
    (2, 5, 1)
    """

    _module = "distvec.spark.ml.classification"
    _kind_in_mllib: ClassVar[str] = LOGISTIC

    @property
    def numClasses(self) -> int:
        """The number of classes."""
        return max(2, self._trees.outputs)

    def __repr__(self) -> str:
        return (
            f"GBTClassificationModel: uid={self.uid}, numTrees={self.getNumTrees}, "
            f"numClasses={self.numClasses}, numFeatures={self.numFeatures}"
        )

    def predict(self, value: Vector) -> float:
        """Predict the class of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The class.
        """
        scores = self.predictProbability(value).toArray()
        if self.isSet("thresholds"):
            with np.errstate(divide="ignore"):
                scores = scores / np.array(self.getThresholds())
        return float(scores.argmax())

    def predictRaw(self, value: Vector) -> Vector:
        """Return the margins of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            A margin for each class.
        """
        margins = self._margins(value)
        if self._trees.kind == LOGISTIC:
            margins = np.array([-0.5, 0.5]) * margins
        return Vectors.dense(margins)

    def predictProbability(self, value: Vector) -> Vector:
        """Return the probabilities of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            A probability for each class.
        """
        margins = self._margins(value)
        if self._trees.kind == SOFTMAX:
            return Vectors.dense(softmax(margins))
        positive = float(sigmoid(margins)[0])
        return Vectors.dense([1.0 - positive, positive])

    def _outputs(self) -> dict[str, Column]:
        margin = F.col(MARGIN)
        if self._trees.kind == LOGISTIC:
            positive = 1.0 / (1.0 + F.exp(-margin))
            raw, probability = F.array(-0.5 * margin, 0.5 * margin), F.array(1 - positive, positive)
        else:
            terms = F.transform(margin, lambda one: F.exp(one - F.array_max(margin)))
            total = F.aggregate(terms, F.lit(0.0), lambda one, other: one + other)
            raw, probability = margin, F.transform(terms, lambda one: one / total)
        thresholds = self.getThresholds() if self.isSet("thresholds") else ()
        return {
            self.getRawPredictionCol(): array_to_vector(raw),
            self.getProbabilityCol(): array_to_vector(probability),
            self.getPredictionCol(): argmax(probability if thresholds else raw, thresholds),
        }


class GBTRegressionModel(_TreeModel, _GBTRegressorParams, RegressionModel[Vector]):
    """Fitted trees for numbers; ``GBTRegressor.fit`` makes them.

    Parameters
    ----------
    fitted : Model, optional
        The trees.

    Examples
    --------
    >>> from distvec.spark.ml.regression import GBTRegressor
    >>> model = GBTRegressor(maxIter=5, maxDepth=2).fit(train)
    >>> model.transform(train).columns
    ['label', 'features', 'prediction']
    """

    _module = "distvec.spark.ml.regression"
    _kind_in_mllib: ClassVar[str] = SQUARED

    def __repr__(self) -> str:
        return (
            f"GBTRegressionModel: uid={self.uid}, numTrees={self.getNumTrees}, "
            f"numFeatures={self.numFeatures}"
        )

    def predict(self, value: Vector) -> float:
        """Predict the label of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The prediction.
        """
        return float(self._margins(value)[0])

    def evaluateEachIteration(self, dataset: DataFrame, loss: str | None = None) -> list[float]:
        """Return the mean loss after each round.

        Parameters
        ----------
        dataset : DataFrame
            Rows with labels, and weights if the model was fitted with weights.
        loss : {"squared", "absolute"}, optional
            The loss. By default the one that the trees were fitted to.

        Returns
        -------
        list of float
            A mean for each round.
        """
        kind = self._trees.kind if loss is None else loss.lower()
        check_choice(kind, (SQUARED, ABSOLUTE), "loss")
        return self._evaluate_rounds(dataset, kind)

    def _outputs(self) -> dict[str, Column]:
        return {self.getPredictionCol(): F.col(MARGIN)}
