"""Algorithms on graphs of edges in a DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegralType, StringType

from distvec.graphs import GraphAlgorithms
from distvec.losses.rows import Ints
from distvec.spark.context import PSContext
from distvec.spark.data.columns import find_column, number_column
from distvec.spark.jobs.application import is_connect
from distvec.spark.objectives.block_rounds import restart_if_lost
from distvec.spark.objectives.graphs import EdgeBlocks, GraphJobs
from optim.core.run import progress_bar

__all__ = ("Graph",)


class Graph(GraphAlgorithms[DataFrame]):
    """A graph of edges in a DataFrame.

    Parameters
    ----------
    edges : DataFrame
        One row for each edge.
    src : str, default "src"
        The column with the id of the vertex at which an edge begins: integers or strings.
    dst : str, default "dst"
        The column with the id of the vertex at which it ends.
    weight : str, optional
        The column of weights, 0 or more. By default all weights are 1.
    partitions : int, optional
        The number of partitions of the vertices. By default the parallelism of Spark.
    verbose : bool, default False
        Whether to show a progress bar.

    Raises
    ------
    TypeError
        If ``edges`` is no DataFrame, or ids are not integers or strings.
    ValueError
        If there are no edges, an id is null, or a weight is negative or not finite.

    See Also
    --------
    distvec.graphs.Graph : The same for edges in memory.

    Notes
    -----
    A repeated edge counts once, with the smallest of its weights. Loops count for PageRank only.
    Results have a column ``id``, ascending. They are bitwise identical for any number of partitions
    and servers.

    The edges stay in files on the executors until ``close``, by vertex. An algorithm keeps tasks
    that wait for the steps. In a step each task pulls the values of the neighbours of its vertices,
    and pushes the new values of its vertices. The ids of all vertices are in the memory of the
    driver and of the executors. If a server is lost, the algorithm starts again.

    Examples
    --------
    >>> from distvec.spark.graphs import Graph
    >>> edges = spark.createDataFrame([("a", "b"), ("b", "c"), ("c", "a"), ("e", "d")],
    ...                               ["src", "dst"])
    >>> with Graph(edges) as graph:
    ...     components = graph.connected_components()
    >>> [(row.id, row.component) for row in components.collect()]
    [('a', 'a'), ('b', 'a'), ('c', 'a'), ('d', 'd'), ('e', 'd')]
    """

    def __init__(
        self,
        edges: DataFrame,
        src: str = "src",
        dst: str = "dst",
        weight: str | None = None,
        *,
        partitions: int | None = None,
        verbose: bool = False,
    ) -> None:
        session: SparkSession | None = getattr(edges, "sparkSession", None)
        if session is None:
            raise TypeError(
                f"edges is {type(edges).__name__}; it must be a Spark DataFrame. For edges in "
                "memory use distvec.graphs.Graph(source, target)"
            )
        if is_connect(session):
            raise NotImplementedError(
                "a graph shuffles its edges, which a program with Spark Connect cannot; use a "
                "classic SparkSession"
            )
        found = [find_column(edges, *given) for given in ((src, "src"), (dst, "dst"))]
        kinds = [kind for _, kind in found]
        is_of_texts = isinstance(kinds[0], StringType)
        if not all(isinstance(one, StringType if is_of_texts else IntegralType) for one in kinds):
            raise TypeError(
                f"src={src!r} and dst={dst!r} are columns of {kinds[0].simpleString()} and "
                f"{kinds[1].simpleString()}; both must be integers, or both strings: "
                f"edges.withColumn({src!r}, F.col({src!r}).cast('long'))"
            )
        names = ("source", "target")
        columns = [
            one.cast("string" if is_of_texts else "long").alias(name)
            for (one, _), name in zip(found, names, strict=True)
        ]
        if weight is not None:
            columns.append(number_column(edges, weight, "weight"))
        if partitions is not None and partitions < 1:
            raise ValueError(f"partitions={partitions}; must be 1 or more")
        count = partitions or session.sparkContext.defaultParallelism
        self._spark, self._verbose = session, verbose
        self._jobs: GraphJobs | None = None
        self._blocks = EdgeBlocks(edges.select(*columns), count)

    def close(self) -> None:
        """Remove the edges from the executors; twice is harmless."""
        self._blocks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Graph of {self._size:,} vertices>"

    @property
    def _size(self) -> int:
        return len(self._blocks.ids)

    def _numbers_of(self, ids: Any, argument: str) -> Ints:
        known = self._blocks.ids
        try:
            found = pc.index_in(pa.array(list(ids), known.type), value_set=known)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"{argument}: the ids of the graph are {known.type}: {error}"
            ) from None
        if found.null_count:
            unknown = ids[found.is_null().index(True).as_py()]
            raise ValueError(f"{argument}: the graph has no vertex {unknown!r}")
        numbers: Ints = found.to_numpy().astype(np.int64)
        return numbers

    def _run(
        self,
        name: str,
        steps: int | None,
        work: Callable[[Callable[..., None]], Any],
        *,
        gives_ids: bool = False,
    ) -> DataFrame:
        ps = PSContext.get_or_create(self._spark)
        values = restart_if_lost(ps, partial(self._attempt, ps, steps, work), name)
        found = self._blocks.ids.take(pa.array(values)) if gives_ids else pa.array(values)
        return self._spark.createDataFrame(pa.table({"id": self._blocks.ids, name: found}))

    def _attempt(
        self, ps: PSContext, steps: int | None, work: Callable[[Callable[..., None]], Any]
    ) -> npt.NDArray[Any]:
        self._jobs = GraphJobs(ps, self._blocks)
        try:
            with progress_bar(steps, is_shown=self._verbose) as show:
                return np.asarray(work(show))
        finally:
            self._jobs.close()

    def _array(self, values: npt.NDArray[Any]) -> Any:
        return self._steps.ps.array(values)

    @property
    def _steps(self) -> GraphJobs:
        if self._jobs is None:
            raise RuntimeError("the steps of an algorithm are there while it runs")
        return self._jobs

    def _degrees(self, side: str) -> Any:
        return self._steps.degrees(side)

    def _outward_weights(self) -> Any:
        return self._steps.outward_weights()

    def _stepper(self, side: str, kind: str) -> Callable[[Any], Any]:
        return self._steps.stepper(side, kind)

    def _triangles(self) -> Any:
        return self._steps.triangles()
