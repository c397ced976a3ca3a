"""Algorithms on graphs, for edges in memory; ``distvec.spark.graphs`` has the same of DataFrames.

Each algorithm is a loop over vectors with an element for each vertex. In a step each vertex
combines the values of its neighbours, which is all that the two classes do differently.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses import graph_steps
from distvec.losses.graph_steps import H_INDEX, LEAST, MODE, NEAREST, SUM, Edges, sort_edges
from distvec.losses.rows import Floats, Ints
from distvec.session import Session
from optim.core.run import progress_bar

__all__ = ("Graph", "VertexValues")

Array: TypeAlias = Any
"""One element for each vertex: of NumPy, or on servers."""

Show: TypeAlias = Callable[..., None]

Result = TypeVar("Result")

INWARD, MUTUAL = "inward", "mutual"
"""The neighbours of a vertex: those with an edge to it; or with an edge in any direction, without
itself."""


class GraphAlgorithms(ABC, Generic[Result]):
    """The algorithms, whatever the edges are in."""

    def pagerank(
        self,
        *,
        damping: float = 0.85,
        personalization: Mapping[Any, float] | None = None,
        tolerance: float = 1e-8,
    ) -> Result:
        """Return the share of visits of each vertex by a reader that follows edges at random.

        Parameters
        ----------
        damping : float, default 0.85
            The probability that the reader follows an edge, with a probability proportional to its
            weight, instead of a jump to any vertex.
        personalization : mapping of id to float, optional
            The probabilities of jumps are proportional to these numbers; 0 for other vertices. By
            default all vertices are equally probable. From a vertex without outgoing edges the
            reader always jumps.
        tolerance : float, default 1e-8
            The largest sum of the absolute errors of all shares.

        Returns
        -------
        DataFrame or VertexValues
            The column ``pagerank``, with the sum 1.

        Raises
        ------
        ValueError
            If an argument is out of range, or the graph has no such vertex.

        Notes
        -----
        In each step vertices send only the change of their share since they last sent. Changes
        that are too small to matter wait; they are not lost. The number of steps is at most
        ``log(tolerance * (1 - damping) / 2) / log(damping)``.

        References
        ----------
        F. McSherry, "A uniform approach to accelerated PageRank computation", 2005.
        """
        _check(0.0 <= damping < 1.0, "damping", damping, "at least 0 and below 1")
        _check(0.0 < tolerance < 1.0, "tolerance", tolerance, "between 0 and 1")
        start = self._jumps(personalization)
        enough = 0.5 * tolerance * (1.0 - damping)
        steps = 1 if damping == 0.0 else math.ceil(math.log(enough) / math.log(damping))
        return self._run("pagerank", steps, partial(self._pagerank, start, damping, enough))

    def _pagerank(self, start: Floats, damping: float, enough: float, show: Show) -> Array:
        weights = self._outward_weights()
        share = np.where(weights > 0.0, damping / np.where(weights > 0.0, weights, 1.0), 0.0)
        step = self._stepper(INWARD, SUM)
        residual = self._array(start)
        rank, left, number = residual * 0.0, 1.0, 0
        while left > enough:
            sent = np.where(residual > enough / self._size, residual, 0.0)
            rank = rank + sent
            residual = residual - sent + step(sent * share)
            left, number = float(residual.sum()), number + 1
            show(number, residual=left)
        # Jumps from vertices without edges lead where all jumps do, so they only scale the shares.
        rank = rank + residual
        return rank / rank.sum()

    def connected_components(self) -> Result:
        """Return the component of each vertex: vertices that edges connect, in any direction.

        Returns
        -------
        DataFrame or VertexValues
            The column ``component``: the smallest id of the component.

        Notes
        -----
        In each step a vertex takes the smallest number among its neighbours and passes it on to
        the vertex that its old number named. So the number of steps grows with the logarithm of the
        diameter.

        References
        ----------
        Y. Zhang, A. Azad, Z. Hu, "FastSV: A distributed-memory connected component algorithm with
        fast convergence", 2020.
        """
        return self._run("component", None, self._components, gives_ids=True)

    def _components(self, show: Show) -> Array:
        is_linked = self._degrees(MUTUAL) > 0
        step = self._stepper(MUTUAL, LEAST)
        label, changed, number = self._array(np.arange(self._size)), self._size, 0
        while changed:
            least: Array = np.where(is_linked, np.minimum(label, step(label)), label)
            new: Array = least.copy()
            np.minimum.at(new, label, least)
            new = np.minimum(new, new[new])
            changed, number = int(np.count_nonzero(new != label)), number + 1
            label = new
            show(number, changed=changed)
        return label

    def label_propagation(self, *, max_iterations: int = 5) -> Result:
        """Return the community of each vertex, by labels that spread to neighbours.

        Parameters
        ----------
        max_iterations : int, default 5
            The largest number of steps. Labels may alternate forever.

        Returns
        -------
        DataFrame or VertexValues
            The column ``label``: the id of one of the vertices of the community.

        Raises
        ------
        ValueError
            If ``max_iterations`` is negative.

        Notes
        -----
        Each vertex begins with its own label. In each step all vertices take the most frequent
        label of their neighbours, of several the smallest id. Directions and weights do not count.

        References
        ----------
        U. N. Raghavan, R. Albert, S. Kumara, "Near linear time algorithm to detect community
        structures in large-scale networks", 2007.
        """
        _check(max_iterations >= 0, "max_iterations", max_iterations, "0 or more")
        work = partial(self._labels, max_iterations)
        return self._run("label", max_iterations, work, gives_ids=True)

    def _labels(self, most: int, show: Show) -> Array:
        is_linked = self._degrees(MUTUAL) > 0
        step = self._stepper(MUTUAL, MODE)
        label, changed, number = self._array(np.arange(self._size)), 1, 0
        while changed and number < most:
            new = np.where(is_linked, step(label), label)
            changed, number = int(np.count_nonzero(new != label)), number + 1
            label = new
            show(number, changed=changed)
        return label

    def k_core(self) -> Result:
        """Return the core number of each vertex.

        The number is the largest ``k`` so that the vertex is in a part of the graph in which all
        vertices have ``k`` or more neighbours.

        Returns
        -------
        DataFrame or VertexValues
            The column ``core``.

        Notes
        -----
        Directions, loops and weights do not count. Each vertex begins with the number of its
        neighbours, and takes in each step the H-index of the numbers of its neighbours.

        References
        ----------
        L. Lü, T. Zhou, Q.-M. Zhang, H. E. Stanley, "The H-index of a network node and its relation
        to degree and coreness", 2016.
        """
        return self._run("core", None, self._cores)

    def _cores(self, show: Show) -> Array:
        core = self._degrees(MUTUAL)
        step = self._stepper(MUTUAL, H_INDEX)
        changed, number = 1, 0
        while changed:
            new = step(core)
            changed, number = int(np.count_nonzero(new != core)), number + 1
            core = new
            show(number, changed=changed)
        return core

    def shortest_paths(self, source: Any) -> Result:
        """Return the length of the shortest path to each vertex, along the edges.

        Parameters
        ----------
        source : id or sequence of ids
            The vertex at which paths begin. Of several the nearest one counts.

        Returns
        -------
        DataFrame or VertexValues
            The column ``distance``, infinite for vertices without a path. An edge is as long as its
            weight.

        Raises
        ------
        ValueError
            If the graph has no such vertex.

        Notes
        -----
        In step ``k`` the distances are right for paths of at most ``k`` edges (Bellman, Ford). So
        the number of steps is the largest number of edges of a shortest path, plus one.
        """
        given = source if isinstance(source, list | tuple | np.ndarray) else [source]
        _check(len(given) > 0, "source", source, "an id, or a list of ids")
        start = np.full(self._size, math.inf)
        start[self._numbers_of(given, "source")] = 0.0
        return self._run("distance", None, partial(self._distances, start))

    def _distances(self, start: Floats, show: Show) -> Array:
        has_edges = self._degrees(INWARD) > 0
        step = self._stepper(INWARD, NEAREST)
        distance, changed, number = self._array(start), 1, 0
        while changed:
            new = np.where(has_edges, np.minimum(distance, step(distance)), distance)
            changed, number = int(np.count_nonzero(new != distance)), number + 1
            distance = new
            show(number, changed=changed)
        return distance

    def triangle_count(self) -> Result:
        """Return the number of triangles that each vertex is a corner of.

        Returns
        -------
        DataFrame or VertexValues
            The column ``triangles``. Their sum is three times the number of triangles.

        Notes
        -----
        Directions, loops and weights do not count. Each edge leads from the vertex with fewer
        neighbours to the one with more; then the lists of both ends are intersected.

        References
        ----------
        T. Schank, D. Wagner, "Finding, counting and listing all triangles in large graphs, an
        experimental study", 2005.
        """
        return self._run("triangles", None, lambda show: self._triangles())

    def _jumps(self, personalization: Mapping[Any, float] | None) -> Floats:
        if personalization is None:
            return np.full(self._size, 1.0 / self._size)
        weights = np.fromiter(personalization.values(), np.float64, len(personalization))
        is_usable = bool(np.isfinite(weights).all() and (weights >= 0.0).all() and weights.sum())
        what = "mapping of ids to finite numbers of 0 and more, not all 0"
        _check(is_usable, "personalization", personalization, what)
        found = np.zeros(self._size)
        found[self._numbers_of(list(personalization), "personalization")] = weights
        shares: Floats = found / found.sum()
        return shares

    @property
    @abstractmethod
    def _size(self) -> int:
        """The number of vertices."""

    @abstractmethod
    def _numbers_of(self, ids: Any, argument: str) -> Ints:
        """The numbers of vertices, by their ids. ``ValueError`` if there are no such vertices."""

    @abstractmethod
    def _run(
        self,
        name: str,
        steps: int | None,
        work: Callable[[Show], Array],
        *,
        gives_ids: bool = False,
    ) -> Result:
        """What ``work`` computes, by vertex; ``gives_ids``: the numbers of vertices."""

    @abstractmethod
    def _array(self, values: npt.NDArray[Any]) -> Array:
        """An array of ``values``."""

    @abstractmethod
    def _degrees(self, side: str) -> Array:
        """The number of neighbours."""

    @abstractmethod
    def _outward_weights(self) -> Array:
        """The sums of the weights of the edges that leave each vertex."""

    @abstractmethod
    def _stepper(self, side: str, kind: str) -> Callable[[Array], Array]:
        """A function that combines the values of neighbours; 0 for vertices without any."""

    @abstractmethod
    def _triangles(self) -> Array:
        """The triangles at each vertex."""


def _check(is_allowed: bool, argument: str, value: object, allowed: str) -> None:
    if not is_allowed:
        raise ValueError(f"{argument}={value!r}; must be {allowed}")


class VertexValues(NamedTuple):
    """Hold the result of an algorithm.

    Parameters
    ----------
    ids : array, (n,)
        The ids of the vertices, ascending.
    values : array, (n,)
        The value of each vertex.

    Examples
    --------
    >>> from distvec.graphs import Graph
    >>> cores = Graph([1, 2, 3], [2, 3, 1]).k_core()
    >>> cores.values
    array([2, 2, 2])
    """

    ids: npt.NDArray[Any]
    values: npt.NDArray[Any]


class Graph(GraphAlgorithms[VertexValues]):
    """A graph of edges in the memory of this process.

    Parameters
    ----------
    source : array_like of int or str, (m,)
        The id of the vertex at which each edge begins.
    target : array_like of int or str, (m,)
        The id of the vertex at which it ends.
    weight : array_like of float, (m,), optional
        The weights of the edges, 0 or more. By default 1.
    session : Session, optional
        Vectors of vertices are on the servers of this session, as ``dv.local()``. By default they
        are NumPy arrays.
    verbose : bool, default False
        Whether to show a progress bar.

    Raises
    ------
    TypeError
        If ids are not integers or strings.
    ValueError
        If there are no edges, lengths differ, or a weight is negative or not finite.

    See Also
    --------
    distvec.spark.graphs.Graph : The same for a DataFrame of edges.

    Notes
    -----
    A repeated edge counts once, with the smallest of its weights. Loops count for PageRank only.
    Results are ordered by id. They are the same for any order of the edges and any number of
    servers.

    Examples
    --------
    >>> from distvec.graphs import Graph
    >>> graph = Graph(["a", "b", "c", "e"], ["b", "c", "a", "d"])
    >>> graph.connected_components().values
    array(['a', 'a', 'a', 'd', 'd'], dtype='<U1')
    >>> graph.shortest_paths("a").values
    array([ 0.,  1.,  2., inf, inf])
    """

    def __init__(
        self,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
        weight: npt.ArrayLike | None = None,
        *,
        session: Session | None = None,
        verbose: bool = False,
    ) -> None:
        ends = [_as_ids(one, name) for one, name in ((source, "source"), (target, "target"))]
        weights = np.ones(len(ends[0])) if weight is None else np.asarray(weight, np.float64)
        if not len(ends[0]) == len(ends[1]) == len(weights):
            sizes = len(ends[0]), len(ends[1]), len(weights)
            raise ValueError(f"source, target and weight have the lengths {sizes}; must be equal")
        if ends[0].dtype.kind != ends[1].dtype.kind:
            raise TypeError("source and target have ids of two kinds; both must be integers or str")
        if not len(weights):
            raise ValueError("the graph has no edges; it needs at least one")
        if not (np.isfinite(weights).all() and weights.min() >= 0.0):
            raise ValueError(f"weight: must be finite and 0 or more, got {weights.min()}")
        self.ids, numbers = np.unique(np.concatenate(ends), return_inverse=True)
        """The ids of the vertices, ascending."""
        source, target = np.split(numbers, 2)
        self._source, self._target, self._weights = source, target, weights
        self._session, self._verbose = session, verbose

    def __repr__(self) -> str:
        return f"<Graph of {self._size:,} vertices and {len(self._weights):,} edges>"

    @property
    def _size(self) -> int:
        return len(self.ids)

    def _numbers_of(self, ids: Any, argument: str) -> Ints:
        wanted = _as_ids(ids, argument)
        is_known = wanted.dtype.kind == self.ids.dtype.kind
        found = np.searchsorted(self.ids, wanted) if is_known else np.zeros(len(ids), np.int64)
        found = np.minimum(found, self._size - 1)
        unknown = wanted[self.ids[found] != wanted] if is_known else wanted
        if unknown.size:
            raise ValueError(f"{argument}: the graph has no vertex {unknown[0].item()!r}")
        return found

    def _run(
        self,
        name: str,
        steps: int | None,
        work: Callable[[Show], Array],
        *,
        gives_ids: bool = False,
    ) -> VertexValues:
        with progress_bar(steps, is_shown=self._verbose) as show:
            values = np.asarray(work(show))
        return VertexValues(self.ids, self.ids[values] if gives_ids else values)

    def _array(self, values: npt.NDArray[Any]) -> Array:
        return values if self._session is None else self._session.array(values)

    @cached_property
    def _inward(self) -> Edges:
        return sort_edges(self._target, self._source, self._weights)

    @cached_property
    def _mutual(self) -> Edges:
        ends = np.stack([self._source, self._target])[:, self._source != self._target]
        return sort_edges(ends.ravel(), ends[::-1].ravel(), np.ones(ends.size))

    def _edges(self, side: str) -> Edges:
        return self._inward if side == INWARD else self._mutual

    def _degrees(self, side: str) -> Array:
        return self._array(self._lengths(side))

    def _lengths(self, side: str) -> Ints:
        edges = self._edges(side)
        return self._at_all(edges.rows, np.diff(edges.starts))

    def _at_all(self, rows: Ints, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = np.zeros(self._size, values.dtype)
        found[rows] = values
        return found

    def _outward_weights(self) -> Array:
        edges = sort_edges(self._source, self._target, self._weights)
        sums = np.add.reduceat(edges.weights, edges.starts[:-1])
        return self._array(self._at_all(edges.rows, sums))

    def _stepper(self, side: str, kind: str) -> Callable[[Array], Array]:
        edges = self._edges(side)
        parts = edges.weights, edges.columns, edges.starts
        matrix = sp.csr_array(parts, shape=(edges.rows.size, self._size))

        def step(values: Array) -> Array:
            host = np.asarray(values)
            if not edges.rows.size:
                return self._array(np.zeros_like(host))
            return self._array(self._at_all(edges.rows, graph_steps.combine(kind, matrix, host)))

        return step

    def _triangles(self) -> Array:
        lengths, edges = self._lengths(MUTUAL), self._mutual
        upward = graph_steps.orient(edges, lengths[edges.columns], lengths[edges.rows])
        starts = np.append(0, np.cumsum(self._at_all(edges.rows, np.diff(upward.starts))))
        counts = np.zeros(self._size, np.int64)
        graph_steps.add_triangles(
            upward.rows,
            upward.starts,
            upward.columns,
            upward.columns,
            starts,
            upward.columns,
            counts,
        )
        return counts


def _as_ids(given: npt.ArrayLike, argument: str) -> npt.NDArray[Any]:
    ids = np.asarray(given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iuU"):
        raise TypeError(
            f"{argument} has the dtype {ids.dtype} and {ids.ndim} dimensions; ids must be a vector "
            "of integers or strings: drop missing ones, and convert with astype(int) or astype(str)"
        )
    if ids.dtype.kind == "u" and ids.size and ids.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{argument} has the id {ids.max()}; ids must be below 2**63")
    return ids.astype(np.int64) if ids.dtype.kind in "iu" else ids
