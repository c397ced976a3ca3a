"""Vectors of the nodes of a graph by its edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pyspark.ml.param import Param, Params, TypeConverters

from distvec.losses.rows import Ints
from distvec.objectives.skip_gram import SkipGram
from distvec.spark.ml.embeddings import Word2Vec
from distvec.spark.ml.params import Range, at_least, between


class LINE(Word2Vec):
    """Vectors of nodes by the edges of an undirected graph (LINE).

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        ``order`` (2): nodes are similar if they have edges between them (1), or edges to the same
        nodes (2). ``inputCol``: the column of edges, arrays of two nodes as texts. The others as of
        ``Word2Vec``; ``windowSize``, ``sample`` and ``maxSentenceLength`` have no effect,
        ``minCount`` is 0 by default, and ``negative`` is 5 by default and not 0.

    See Also
    --------
    distvec.spark.walks.random_walks : Sentences of nodes, for DeepWalk and node2vec.

    Notes
    -----
    An edge is a sentence of two words for the trainer of ``Word2Vec``. Of the first order a
    node has one vector, of the second one it has another as a neighbour. The model is a
    ``Word2VecModel``. Edges are trained in their order, ``maxIter`` times, and not drawn: for other
    weights than 1 repeat them. To use both orders, fit two models and join the vectors.

    References
    ----------
    J. Tang et al., "LINE: large-scale information network embedding", 2015.

    Examples
    --------
    >>> from distvec.spark.ml.feature import LINE
    >>> edges = spark.createDataFrame([(["a", "b"],), (["b", "c"],)], ["edge"])
    >>> model = LINE(order=1, vectorSize=4, maxIter=5, inputCol="edge").fit(edges)
    >>> model.getVectors().count()
    3
    """

    order: Param[int] = Param(
        Params._dummy(),
        "order",
        "1: by edges between nodes; 2: by edges to the same nodes",
        TypeConverters.toInt,
    )

    _ranges: ClassVar[Mapping[str, Range]] = {"order": between(1, 2), "negative": at_least(1)}
    _is_in_mllib: ClassVar[bool] = False

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(order=2, minCount=0, negative=5)

    def _problem(self, counts: Ints) -> SkipGram:
        is_first = self.getOrDefault("order") == 1
        return replace(super()._problem(counts), window=1, sample=0.0, is_symmetric=is_first)
