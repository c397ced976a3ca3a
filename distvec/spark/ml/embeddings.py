"""The word vectors of ``pyspark.ml.feature``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from pyspark.ml import Model as SparkModel
from pyspark.ml import feature
from pyspark.ml.base import Estimator
from pyspark.ml.feature import _Word2VecParams
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import Vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.wrapper import JavaWrapper
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from distvec.losses.rows import Ints
from distvec.objectives.skip_gram import SkipGram
from distvec.spark.context import PSContext
from distvec.spark.data.columns import find_column
from distvec.spark.data.dataset import FrameStandIn
from distvec.spark.ml.files import Saved
from distvec.spark.ml.fits import SharingEstimator
from distvec.spark.ml.models import LOCAL_PARAMETERS, no_parameters
from distvec.spark.ml.params import KeywordParams, Range, SettableParams, at_least
from distvec.spark.objectives.embeddings import Sentences, embed
from distvec.spark.objectives.word_vectors import WordVectors, means

_SEED = 0


class _VectorParams(KeywordParams, _Word2VecParams):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "vectorSize": at_least(1),
        "minCount": at_least(0),
        "numPartitions": at_least(1),
        "stepSize": Range(lambda x: 0.0 < x < math.inf, "finite and above 0"),
        "maxIter": at_least(0),
        "windowSize": at_least(1),
        "maxSentenceLength": at_least(1),
    }


class Word2Vec(SharingEstimator, _VectorParams, Estimator[Any]):
    """Word vectors with the Params of MLlib's class, by hierarchical softmax or negative sampling.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.feature.Word2Vec``, by name. ``negative`` (0): words drawn at a
        place; 0 means hierarchical softmax, as in MLlib. ``sample`` (0): words with a larger share
        of the text are left out at times; 0 keeps all. ``batchSize`` (10,000): words of a step, of
        all partitions together. ``seed`` is 0 by default.

    Notes
    -----
    Two tables of float32 are on the servers: vectors of words, and of the nodes of their Huffman
    tree or of words as neighbours. A task for each of ``numPartitions`` pulls the rows of its next
    words, trains them one place after the other, and pushes the changes: two requests a step and
    server. A step costs ``2 * u * (8 + 4 * vectorSize)`` bytes a task, with ``u`` rows: the rows
    of the words and of all nodes above them; or both tables' rows of the words, and rows of about
    1000 words drawn for the step. Words are drawn by the power 3/4 of their count.

    Tasks proceed in lockstep: a repeated fit of the same partitions has the same bits, for any
    number of servers. Other numbers of partitions give other vectors of about the same quality.
    More partitions are faster. If a server is lost, the fit starts again.

    Negative sampling takes less time for a pass, and needs more passes over small texts.
    ``verbose`` shows a progress bar.

    References
    ----------
    T. Mikolov et al., "Distributed representations of words and phrases and their
    compositionality", 2013. S. Ji et al., "Parallelizing word2vec in shared and distributed
    memory", 2016.

    Examples
    --------
    >>> from distvec.spark.ml.feature import Word2Vec
    >>> words = spark.createDataFrame([("a b a c".split(),), ("a b".split(),)], ["words"])
    >>> model = Word2Vec(vectorSize=4, minCount=1, inputCol="words", outputCol="mean").fit(words)
    >>> model.getVectors().count(), model.transform(words).first().mean.size
    (3, 4)
    """

    _module: ClassVar[str] = "distvec.spark.ml.feature"

    negative: Param[int] = Param(
        Params._dummy(),
        "negative",
        "number of words that are drawn at a place; 0: hierarchical softmax (>= 0)",
        TypeConverters.toInt,
    )
    sample: Param[float] = Param(
        Params._dummy(),
        "sample",
        "words with a larger share of the text are left out at times; 0 keeps all (>= 0)",
        TypeConverters.toFloat,
    )
    batchSize: Param[int] = Param(
        Params._dummy(),
        "batchSize",
        "number of words of a step, of all partitions together (>= 1)",
        TypeConverters.toInt,
    )

    _own_params: ClassVar[frozenset[str]] = SharingEstimator._own_params | {
        "negative",
        "sample",
        "batchSize",
    }
    _ranges: ClassVar[Mapping[str, Range]] = {
        "negative": at_least(0),
        "sample": at_least(0.0),
        "batchSize": at_least(1),
    }

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(seed=_SEED, negative=0, sample=0.0, batchSize=10_000)

    def _data_key(self) -> tuple[Any, ...]:
        names = "inputCol", "minCount", "maxSentenceLength", "numPartitions"
        return tuple(self.getOrDefault(name) for name in names)

    def _objective(self, dataset: DataFrame | FrameStandIn) -> Sentences:
        if isinstance(dataset, FrameStandIn):
            raise NotImplementedError(
                "Word2Vec trains in long tasks, which a fit through Spark Connect cannot start; "
                "use a classic SparkSession, or pyspark.ml.feature.Word2Vec"
            )
        return Sentences(
            dataset.select(_sentences(dataset, self.getInputCol()).alias("words")),
            self.getMinCount(),
            self.getMaxSentenceLength(),
            self.getNumPartitions(),
        )

    def _train(self, objective: Sentences, dataset: DataFrame) -> Word2VecModel:
        words, counts = objective.vocabulary
        problem = self._problem(counts)
        ps = PSContext.get_or_create(dataset.sparkSession)
        shown, size = self.getOrDefault("verbose"), self.getVectorSize()
        found = embed(ps, objective.rows, problem, size, progress=shown)
        vectors = found.table[: len(words)]
        kept = vectors.numpy() if vectors.size <= LOCAL_PARAMETERS else vectors
        model = self._copyValues(Word2VecModel(WordVectors(words, kept))._resetUid(self.uid))
        model._history = found.history
        return model

    def _problem(self, counts: Ints) -> SkipGram:
        """What is trained on words with these counts."""
        return SkipGram(
            counts,
            window=self.getWindowSize(),
            negative=self.getOrDefault("negative"),
            sample=self.getOrDefault("sample"),
            step_size=self.getStepSize(),
            epochs=self.getMaxIter(),
            batch_size=self.getOrDefault("batchSize"),
            seed=self.getSeed(),
        )


def _sentences(data: DataFrame, name: str) -> Column:
    column, kind = find_column(data, name, "inputCol")
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StringType):
        raise TypeError(
            f"inputCol={name!r} is a column of {kind.simpleString()}; it must be array<string>: "
            "split texts by pyspark.ml.feature.Tokenizer"
        )
    return column


class Word2VecModel(SettableParams, _VectorParams, Saved, SparkModel):
    """Vectors of words; ``Word2Vec.fit`` makes them.

    Parameters
    ----------
    known : WordVectors, optional
        The words and their vectors.

    Notes
    -----
    Vectors of more than 16 million numbers stay on the servers: keep the model for as long as you
    use the frames that it makes.

    Examples
    --------
    >>> from distvec.spark.ml.feature import Word2Vec
    >>> words = spark.createDataFrame([("a b a c".split(),), ("a b".split(),)], ["words"])
    >>> model = Word2Vec(vectorSize=4, minCount=1, inputCol="words", outputCol="mean").fit(words)
    >>> sorted(word for word, _ in model.findSynonymsArray("a", 2))
    ['b', 'c']
    """

    _module: ClassVar[str] = "distvec.spark.ml.feature"
    _own_params: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, known: WordVectors | None = None) -> None:
        super().__init__()
        self._maybe = known
        self._history: list[float] = []

    @property
    def _known(self) -> WordVectors:
        if self._maybe is None:
            raise no_parameters(self)
        return self._maybe

    @property
    def lossHistory(self) -> list[float]:
        """The mean loss of a pair of words in each epoch; empty for a model that was loaded."""
        return list(self._history)

    def getVectors(self) -> DataFrame:
        """Return the words and their vectors.

        Returns
        -------
        DataFrame
            The columns ``word`` and ``vector``, the most frequent word first. Lazy.
        """
        frame = self._known.frame(_session())
        return frame.withColumn("vector", array_to_vector(F.col("vector").cast("array<double>")))

    def findSynonyms(self, word: str | Vector, num: int) -> DataFrame:
        """Find the words with the most similar vectors.

        Parameters
        ----------
        word : str or Vector
            A word, which is not among the answers, or a vector.
        num : int
            Number of words.

        Returns
        -------
        DataFrame
            The columns ``word`` and ``similarity``, a cosine, which descends.

        Raises
        ------
        ValueError
            If the word is unknown, ``num`` is not positive, or the vector has another size.
        """
        return _session().createDataFrame(
            self.findSynonymsArray(word, num), "word string, similarity double"
        )

    def findSynonymsArray(self, word: str | Vector, num: int) -> list[tuple[str, float]]:
        """Find the words with the most similar vectors.

        Parameters
        ----------
        word : str or Vector
            A word, which is not among the answers, or a vector.
        num : int
            Number of words.

        Returns
        -------
        list of (str, float)
            Words and cosines, which descend.

        Raises
        ------
        ValueError
            If the word is unknown, ``num`` is not positive, or the vector has another size.
        """
        if num < 1:
            raise ValueError(f"Number of similar words should > 0, but num={num}")
        known = self._known
        if isinstance(word, str):
            return known.similar(known.of(word), num, known.place(word))
        vector = np.asarray(word.toArray() if isinstance(word, Vector) else word, np.float64)
        columns = known.vectors.shape[1]
        if vector.shape != (columns,):
            raise ValueError(f"the vector has shape {vector.shape}; the model's have ({columns},)")
        return known.similar(vector, num, None)

    def to_mllib(self) -> feature.Word2VecModel:
        """Return the same model as MLlib's class.

        Returns
        -------
        Word2VecModel
            The model of ``pyspark.ml.feature``. Its vectors are in the driver.
        """
        gateway: Any = _session().sparkContext._gateway
        jvm, words = gateway.jvm, self._known.words.to_pylist()
        used = set().union(*words)
        separator = next(one for one in map(chr, range(1, 0xD800)) if one not in used)
        # Words cross at once, with one more: empty ones at the end would be lost.
        pattern = jvm.java.util.regex.Pattern
        split = pattern.compile(separator, pattern.LITERAL)
        stream = split.splitAsStream(separator.join([*words, "end"]))
        listed = jvm.PythonUtils.toSeq(stream.toList().subList(0, len(words)))
        same = getattr(getattr(jvm.scala, "$less$colon$less$"), "MODULE$").refl()
        index = listed.zipWithIndex().toMap(same)
        values = np.asarray(self._known.vectors, ">f4").tobytes()
        vectors = gateway.new_array(jvm.float, len(values) // 4)
        jvm.java.nio.ByteBuffer.wrap(bytearray(values)).asFloatBuffer().get(vectors)
        made = jvm.org.apache.spark.mllib.feature.Word2VecModel(index, vectors)
        java = JavaWrapper._new_java_obj(self._jvm_name(), self.uid, made)
        found = feature.Word2VecModel(java)
        self._copyValues(found)._transfer_params_to_java()  # which transform() does not do
        return found

    @classmethod
    def from_mllib(cls, model: Any) -> Self:
        """Make a model of one that MLlib has fitted.

        Parameters
        ----------
        model : Word2VecModel
            A model of ``pyspark.ml.feature``.

        Returns
        -------
        Word2VecModel
            A model with the same vectors and Params.
        """
        frame = model.getVectors()
        arrays = frame.withColumn("vector", vector_to_array(F.col("vector"), "float32"))
        copied: Self = model._copyValues(cls(_vectors_of(arrays))._resetUid(model.uid))
        return copied

    def __repr__(self) -> str:
        words, columns = self._known.vectors.shape
        return f"Word2VecModel: uid={self.uid}, numWords={words}, vectorSize={columns}"

    def _transform(self, dataset: DataFrame) -> DataFrame:
        sentences = _sentences(dataset, self.getInputCol())
        found = means(dataset, self._known, sentences)
        return dataset.withColumn(self.getOutputCol(), array_to_vector(found))

    def _data(self, session: SparkSession) -> DataFrame:
        return self._known.frame(session)

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        return cls(_vectors_of(session.read.parquet(os.path.join(path, "data"))))


def _session() -> SparkSession:
    found = SparkSession.getActiveSession()
    if found is None:
        raise RuntimeError("there is no SparkSession; create one")
    return found


def _vectors_of(frame: DataFrame) -> WordVectors:
    """Words and vectors as MLlib has them."""
    found = frame.toArrow()
    words = found.column("word").cast(pa.string()).combine_chunks()
    lists = found.column("vector").combine_chunks()
    columns = len(lists.values) // max(len(words), 1)
    vectors = lists.flatten().to_numpy().astype(np.float32).reshape(len(words), columns)
    return WordVectors(words, vectors)
