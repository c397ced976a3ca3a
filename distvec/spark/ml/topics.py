"""Latent Dirichlet allocation with the names and Params of ``pyspark.ml.clustering``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml.base import Estimator
from pyspark.ml.base import Model as SparkModel
from pyspark.ml.clustering import _LDAParams
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import DenseMatrix, DenseVector, MatrixUDT, Vector, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    StructField,
    StructType,
)

from distvec import DistArray
from distvec.losses.loss import PROBABILITIES
from distvec.losses.rows import Floats
from distvec.losses.topics import DocumentBounds, Topics, topics_bound
from distvec.spark.context import PSContext
from distvec.spark.ml.files import frame_of
from distvec.spark.ml.fits import RowsEstimator
from distvec.spark.ml.models import ServerModel, in_memory
from distvec.spark.ml.params import (
    CheckpointParams,
    HasFeatures,
    Range,
    SettableParams,
    at_least,
    one_of,
)
from distvec.spark.objectives.model import Model, topics_in_mllib
from distvec.spark.objectives.objective import Objective
from distvec.spark.objectives.topics import TopicsProblem, fit_topics, sample_topics
from ps_backend.durability.stores import open_store

__all__ = ("LDA", "LDAModel", "LocalLDAModel")

_MODULE = "distvec.spark.ml.clustering"
_ONLINE, _EM, _SAMPLING = "online", "em", "sampling"
_SPREAD = 30.0
"""Of the random start: so many standard deviations from 1 to 0, as of Gamma(100, 1/100)."""


class _TopicParams(_LDAParams, HasFeatures):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "k": at_least(2),
        "maxIter": at_least(0),
        "optimizer": one_of(_ONLINE, _EM, _SAMPLING),
        "learningOffset": Range(lambda x: 0.0 < x < float("inf"), "finite and above 0"),
        "learningDecay": at_least(0.0),
        "subsamplingRate": Range(lambda x: 0.0 < x <= 1.0, "above 0 and 1 at most"),
        "docConcentration": Range(lambda some: min(some, default=0.0) > 0.0, "above 0"),
        "topicConcentration": Range(lambda x: 0.0 < x < float("inf"), "finite and above 0"),
    }

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(seed=0)


class LDA(RowsEstimator, CheckpointParams, _TopicParams, Estimator[Any]):
    """Latent Dirichlet allocation, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.clustering.LDA``, by name. ``featuresCol`` may also be a list of
        columns of numbers, or the name of an array column. ``seed`` is 0 by default, and
        ``optimizer`` may also be "sampling".

    Notes
    -----
    Rows are documents, features are counts of words. The parameters of the topics are a table on
    the servers. An iteration is one request to the resident tasks, which pull the rows of their
    words, and push as many.

    ``optimizer="online"`` is variational Bayes. A step infers the topics of a batch of documents,
    and moves the topics towards them. A batch has ``subsamplingRate`` of the documents, drawn
    without replacement, so ``1 / subsamplingRate`` steps use each document once. Step ``t`` has the
    weight ``(learningOffset + t) ** -learningDecay``. With ``learningDecay=0`` and
    ``subsamplingRate=1`` that is variational Bayes in batches, as in scikit-learn. The model is the
    same, bit by bit, for any number of partitions and servers. A fit with ``initialModel`` starts
    from the topics and concentrations of a model.

    ``optimizer="sampling"`` draws a topic for each token in each of ``maxIter`` sweeps, given the
    topics of all other tokens; some hundred sweeps are usual. Counts are whole numbers. The cost of
    a token does not grow with ``k``. The concentrations stay as they are given. The model is the
    same, bit by bit, for any number of servers; other partitions draw otherwise.

    With ``checkpointDir`` the state is kept there every ``checkpointInterval`` iterations, and the
    same fit goes on from it after a crash. If a server is lost, the fit goes on from there, too, or
    starts again. ``verbose`` shows a progress bar, in steps with the mean bound of a document.
    ``optimizer="em"`` is refused. ``keepLastCheckpoint`` has no effect.

    References
    ----------
    M. Hoffman, D. Blei, F. Bach, "Online learning for latent Dirichlet allocation", 2010.
    J. Yuan et al., "LightLDA: big topic models on modest computer clusters", 2015.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from distvec.spark.ml.clustering import LDA
    >>> counts = [[4.0, 3.0, 0.0, 0.0], [0.0, 0.0, 5.0, 2.0], [2.0, 5.0, 0.0, 0.0]]
    >>> documents = spark.createDataFrame([(Vectors.dense(one),) for one in counts], ["features"])
    >>> model = LDA(k=2, subsamplingRate=1.0, learningDecay=0.0, seed=3).fit(documents)
    >>> sorted(sorted(row.termIndices) for row in model.describeTopics(2).collect())
    [[0, 1], [2, 3]]
    """

    _module = _MODULE
    _own_params: ClassVar[frozenset[str]] = RowsEstimator._own_params | {"checkpointDir"}

    def _data_key(self) -> tuple[Any, ...]:
        return (str(self._features),)

    def _objective(self, dataset: DataFrame) -> Objective:
        if self.getOptimizer().lower() == _EM:
            raise NotImplementedError(
                "optimizer='em' is not available; use 'sampling', or 'online' with "
                "subsamplingRate=1 and learningDecay=0 for steps over all documents"
            )
        return Objective(
            dataset,
            loss=Topics(self.getK()),
            features=self._features,
            label=None,
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> LocalLDAModel:
        ps, k = objective.ps, self.getK()
        shape, seed = (objective.data.size, k), self.getSeed()
        given: Model | None = self._given("initialModel")
        if given is not None:
            if self._samples:
                raise ValueError("optimizer='sampling' takes no initialModel; leave it out")
            _check_start(given, shape)

        def start() -> DistArray:
            if given is not None:
                words = given.arrays[0]
                return words.copy() if isinstance(words, DistArray) else ps.array(words)
            drawn: Any = ps.random.normal(size=shape, seed=seed)
            # The cube root of such a Gamma distribution is nearly normal (Wilson, Hilferty, 1931).
            found: DistArray = (1.0 - 1.0 / _SPREAD**2 + drawn / _SPREAD) ** 3
            return found

        concentration = self._given("topicConcentration")
        problem = TopicsProblem(
            concentration=1.0 / k if concentration is None else concentration,
            prior=self._prior() if given is None else np.asarray(given.arrays[1])[1],
            is_prior_fixed=not self.getOptimizeDocConcentration(),
            iterations=self.getMaxIter(),
            fraction=self.getSubsamplingRate(),
            offset=self.getLearningOffset(),
            decay=self.getLearningDecay(),
            seed=seed,
            initial=() if given is None else tuple(np.asarray(given.arrays[1])[0].tolist()),
        )
        place, interval = self._given("checkpointDir"), self.getCheckpointInterval()
        kept = (place, interval) if place and interval > 0 else None  # MLlib's -1 keeps none
        shown = self.getOrDefault("verbose")
        if self._samples:
            found = sample_topics(ps, objective.data, problem, kept, progress=shown)
        else:
            found = fit_topics(ps, objective.data, problem, start, kept, progress=shown)
        fitted = _model_of(found.words, found.prior, self._features)
        made = LocalLDAModel(in_memory(fitted), problem.concentration)
        model = self._copyValues(made._resetUid(self.uid))
        # MLlib's model has none of these, and needs none.
        if not self.getLearningDecay():
            model.clear(model.learningDecay)
        if self._samples:
            model.clear(model.optimizer)
        return model

    @property
    def _samples(self) -> bool:
        return self.getOptimizer().lower() == _SAMPLING

    def _check_in_mllib(self) -> None:
        if not self.getLearningDecay():
            raise NotImplementedError("MLlib has no learningDecay=0; leave format() out")
        if self._samples:
            raise NotImplementedError("MLlib has no optimizer='sampling'; leave format() out")

    def _prior(self) -> Floats:
        """The concentrations of topics in documents."""
        k, given = self.getK(), self._given("docConcentration")
        if given is None:
            return np.full(k, 1.0 / k)
        if len(given) not in (1, k):
            raise ValueError(
                f"docConcentration has {len(given)} numbers; must be one, or k={k} of them"
            )
        return np.broadcast_to(np.asarray(given, np.float64), k).copy()


def _check_start(given: Model, shape: tuple[int, int]) -> None:
    if not isinstance(given.loss, Topics) or given.arrays[0].shape != shape:
        raise ValueError(
            f"initialModel={given} does not fit {shape[0]:,} words and k={shape[1]}; it must be an "
            "LDAModel with as many"
        )


def _model_of(words: Any, prior: Floats, features: str | list[str] = "features") -> Model:
    """``words`` has the parameters of the topics, a column each."""
    sums = np.asarray(words.sum(axis=0))
    arrays = {"words": words, "priors": np.vstack([sums, prior])}
    if isinstance(words, DistArray):
        arrays["priors"] = words.session.array(arrays["priors"])
    return Model(arrays, loss=Topics(prior.size), features=features)


class LDAModel(SettableParams, ServerModel, _TopicParams, SparkModel):
    """Topics, which are distributions over words, and their concentrations in documents.

    Parameters
    ----------
    fitted : Model, optional
        The parameters of the topics, and their concentrations in documents.
    concentration : float, optional
        The concentration of words in topics.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from distvec.spark.ml.clustering import LDA, LDAModel
    >>> documents = spark.createDataFrame([(Vectors.dense(2.0, 1.0),)], ["features"])
    >>> isinstance(LDA(k=2, maxIter=1).fit(documents), LDAModel)
    True
    """

    _module = _MODULE

    def __init__(self, fitted: Model | None = None, concentration: float = 0.0) -> None:
        super().__init__(fitted)
        self._concentration = concentration

    def isDistributed(self) -> bool:
        """Return whether the model keeps the documents that it was fitted to.

        Returns
        -------
        bool
            False.
        """
        return False

    def vocabSize(self) -> int:
        """Return the number of words.

        Returns
        -------
        int
            The number of features.
        """
        return self.numFeatures

    def topicsMatrix(self) -> DenseMatrix:
        """Return the parameters of the topics' Dirichlet distributions over words.

        Returns
        -------
        DenseMatrix
            A column for each topic; it is not normalized.

        Raises
        ------
        ValueError
            If the model is on the servers.
        """
        table = np.asarray(self._local().arrays[0], np.float64)
        words, topics = table.shape
        return DenseMatrix(words, topics, table.ravel(order="F"))

    def estimatedDocConcentration(self) -> Vector:
        """Return the concentrations of topics in documents.

        Returns
        -------
        Vector
            Those given, or the estimated ones after a fit with ``optimizeDocConcentration``.
        """
        return DenseVector(self._priors[1])

    def describeTopics(self, maxTermsPerTopic: int = 10) -> DataFrame:
        """Return the words of the greatest weight in each topic.

        Parameters
        ----------
        maxTermsPerTopic : int, default 10
            Number of words.

        Returns
        -------
        DataFrame
            Columns ``topic``, ``termIndices`` and ``termWeights``, which are probabilities, the
            greatest first.
        """
        if maxTermsPerTopic < 1:
            raise ValueError(f"maxTermsPerTopic={maxTermsPerTopic}; must be 1 or more")
        words, rows = self.fitted.arrays[0], []
        for topic, total in enumerate(self._priors[0]):
            column = np.asarray(words[:, topic])
            first = np.argsort(-column, kind="stable")[:maxTermsPerTopic]
            rows.append((topic, first.tolist(), (column[first] / total).tolist()))
        fields = [
            StructField("topic", IntegerType(), False),
            StructField("termIndices", ArrayType(IntegerType(), False)),
            StructField("termWeights", ArrayType(DoubleType(), False)),
        ]
        return SparkSession.active().createDataFrame(rows, StructType(fields))

    def logLikelihood(self, dataset: DataFrame) -> float:
        """Return a lower bound of the log-likelihood of documents.

        Parameters
        ----------
        dataset : DataFrame
            The documents.

        Returns
        -------
        float
            The evidence lower bound.
        """
        return self._bound(dataset)[0]

    def logPerplexity(self, dataset: DataFrame) -> float:
        """Return an upper bound of the log-perplexity of documents; lower is better.

        Parameters
        ----------
        dataset : DataFrame
            The documents.

        Returns
        -------
        float
            Minus ``logLikelihood`` divided by the number of tokens.
        """
        bound, tokens = self._bound(dataset)
        return -bound / tokens

    def _bound(self, dataset: DataFrame) -> tuple[float, float]:
        """The lower bound, and the number of tokens. One Spark job."""
        fitted = self.fitted
        of_documents = Model(fitted.x, loss=DocumentBounds(len(self._priors[0])))
        output = f"bounds_{self.uid}"
        found = of_documents.margins(dataset, output=output, features=self._features)
        sums = found.select(F.sum(F.col(output)[0]), F.sum(F.col(output)[1])).first()
        bound, tokens = (one or 0.0 for one in sums)
        return bound + topics_bound(fitted.arrays[0], self._priors[0], self._concentration), tokens

    @property
    def _priors(self) -> Floats:
        """The sums of the topics' parameters, and below them the concentrations of topics."""
        return np.asarray(self.fitted.arrays[1], np.float64)

    def __repr__(self) -> str:
        known = "" if self._fitted is None else f", k={self.getK()}, numFeatures={self.numFeatures}"
        return f"{type(self).__name__}: uid={self.uid}{known}"

    def _transform(self, dataset: DataFrame) -> DataFrame:
        output = self.getTopicDistributionCol()
        if not output:
            return dataset
        found = self.fitted.add_columns(dataset, {output: PROBABILITIES}, self._features)
        return found.withColumn(output, array_to_vector(F.col(output)))


class LocalLDAModel(LDAModel):
    """Topics without the documents that they were fitted to; ``LDA.fit`` makes them.

    Parameters
    ----------
    fitted : Model, optional
        The parameters of the topics, and their concentrations in documents.
    concentration : float, optional
        The concentration of words in topics.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from distvec.spark.ml.clustering import LDA
    >>> counts = [[4.0, 3.0, 0.0, 0.0], [0.0, 0.0, 5.0, 2.0], [2.0, 5.0, 0.0, 0.0]]
    >>> documents = spark.createDataFrame([(Vectors.dense(one),) for one in counts], ["features"])
    >>> model = LDA(k=2, subsamplingRate=1.0, learningDecay=0.0, seed=3).fit(documents)
    >>> model.vocabSize(), model.isDistributed()
    (4, False)
    >>> model.transform(documents).first().topicDistribution.toArray().argmax() in (0, 1)
    True
    """

    def _in_mllib(self) -> SparkModel:
        made: Any = topics_in_mllib(self.topicsMatrix(), self._priors[1], self._concentration)
        return made  # type: ignore[no-any-return]

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        return cls._made_of(attributes).fitted

    @classmethod
    def _made_of(cls, attributes: Any) -> Self:
        if isinstance(attributes, SparkModel):
            made: Any = attributes
            words, prior = made.topicsMatrix(), made.estimatedDocConcentration()
            concentration = made._call_java("getEffectiveTopicConcentration")
        else:
            words, prior = attributes.topicsMatrix, attributes.docConcentration
            concentration = attributes.topicConcentration
        return cls(_model_of(words.toArray(), prior.toArray()), concentration)

    def _attributes(self) -> dict[str, Any]:
        return {"topics": len(self._priors[0]), "concentration": self._concentration}

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        if not metadata.get("onServers"):
            return super()._from_data(session, path, metadata)
        known, ps = metadata["attributes"], PSContext.get_or_create(session)
        place = open_store(os.path.join(path, "data")).url
        fitted = Model.load(place, ps, loss=Topics(known["topics"]))
        return cls(in_memory(fitted), known["concentration"])

    def _data(self, session: SparkSession) -> DataFrame:
        return frame_of(
            session,
            vocabSize=(IntegerType(), self.vocabSize()),
            topicsMatrix=(MatrixUDT(), self.topicsMatrix()),
            docConcentration=(VectorUDT(), self.estimatedDocConcentration()),
            topicConcentration=(DoubleType(), self._concentration),
            gammaShape=(DoubleType(), 100.0),
        )
