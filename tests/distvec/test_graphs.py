"""Algorithms on graphs of edges in memory, beside SciPy and definitions; bad input."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csgraph

from distvec.graphs import Graph


class Case(NamedTuple):
    """Edges with any ids, and the same graph as tables over its vertices."""

    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    ids: np.ndarray
    links: np.ndarray
    """The least weight from row to column; infinite without an edge."""

    @property
    def mutual(self):
        """Which vertices have an edge between them."""
        found = np.isfinite(self.links) | np.isfinite(self.links.T)
        np.fill_diagonal(found, False)
        return found

    def graph(self, **options):
        return Graph(self.source, self.target, self.weight, **options)


def make_case(seed):
    """Loops, repeated edges and weights of 0 among others."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 25), rng.integers(1, 60)
    numbers = np.unique(rng.integers(-(2**63), 2**63 - 1, n))
    names = numbers if seed % 2 else numbers.astype(str)
    names = np.sort(names)
    ends = rng.integers(0, names.size, (2, m))
    weight = rng.choice([0.0, 0.25, 1.0, 3.5], m)
    used = np.unique(ends)
    links = np.full((names.size, names.size), np.inf)
    np.minimum.at(links, tuple(ends), weight)
    return Case(*names[ends], weight, names[used], links[np.ix_(used, used)])


CASES = st.integers(0, 2**32 - 1).map(make_case)


def solve_pagerank(links, jumps, damping):
    """The shares by a dense linear system."""
    weights = np.where(np.isfinite(links), links, 0.0)
    sums = weights.sum(axis=1, keepdims=True)
    moves = np.where(sums > 0.0, weights / np.where(sums > 0.0, sums, 1.0), jumps)
    return np.linalg.solve(np.eye(len(jumps)) - damping * moves.T, (1.0 - damping) * jumps)


def peel(mutual):
    """Core numbers: the vertex with the fewest neighbours left goes first."""
    left, core, k = np.ones(len(mutual), bool), np.zeros(len(mutual), int), 0
    while left.any():
        degrees = np.where(left, (mutual & left).sum(axis=1), len(mutual))
        k = max(k, degrees.min())
        core[degrees.argmin()] = k
        left[degrees.argmin()] = False
    return core


def spread_labels(mutual, steps):
    """Label propagation by its definition."""
    labels = np.arange(len(mutual))
    for _ in range(steps):
        new = labels.copy()
        for v, row in enumerate(mutual):
            counts = Counter(labels[row].tolist())
            new[v] = min(counts, key=lambda one, c=counts: (-c[one], one), default=labels[v])
        labels = new
    return labels


@given(CASES, st.sampled_from([0.0, 0.5, 0.85]), st.booleans())
def test_pagerank_solves_its_linear_system(case, damping, is_personal):
    size = len(case.ids)
    jumps, wanted = np.full(size, 1.0 / size), None
    if is_personal:
        wanted = {case.ids[0].item(): 1.0, case.ids[-1].item(): 2.0}
        jumps = np.zeros(size)
        jumps[[0, -1]] = np.array(list(wanted.values()) * 2)[[0, -1]]
        jumps /= jumps.sum()
    found = case.graph().pagerank(damping=damping, personalization=wanted, tolerance=1e-12)
    assert (found.ids == case.ids).all()
    assert np.abs(found.values - solve_pagerank(case.links, jumps, damping)).sum() < 2e-12


@given(CASES)
def test_paths_and_components_are_those_of_scipy(case):
    source = case.ids[0].item()
    links = np.where(case.links == 0.0, 1e-300, case.links)  # SciPy takes 0 for no edge
    expected = csgraph.dijkstra(csgraph.csgraph_from_dense(links, np.inf), indices=0)
    assert np.allclose(case.graph().shortest_paths(source).values, expected)
    _, parts = csgraph.connected_components(sp.csr_array(case.mutual))
    firsts = np.unique(parts, return_index=True)[1]
    assert (case.graph().connected_components().values == case.ids[firsts[parts]]).all()


@given(CASES, st.integers(0, 4))
def test_cores_triangles_and_labels_are_those_of_definitions(case, steps):
    mutual, graph = case.mutual, case.graph()
    assert (graph.k_core().values == peel(mutual)).all()
    triangles = np.linalg.matrix_power(mutual.astype(int), 3).diagonal() // 2
    assert (graph.triangle_count().values == triangles).all()
    labels = graph.label_propagation(max_iterations=steps).values
    assert (labels == case.ids[spread_labels(mutual, steps)]).all()


@pytest.mark.parametrize("seed", range(4))
def test_servers_and_the_order_of_edges_change_no_bit(sessions, seed):
    case = make_case(seed)
    order = np.random.default_rng(seed).permutation(len(case.weight))
    shuffled = case._replace(**{k: getattr(case, k)[order] for k in ("source", "target", "weight")})
    source = case.ids[:2].tolist()
    calls = {
        "pagerank": {},
        "connected_components": {},
        "label_propagation": {},
        "k_core": {},
        "shortest_paths": {"source": source},
        "triangle_count": {},
    }
    for name, given_ in calls.items():
        in_memory = getattr(case.graph(), name)(**given_).values
        bits = set()
        for servers in (1, 3):
            graph = shuffled.graph(session=sessions[servers])
            values = getattr(graph, name)(**given_).values
            bits.add(values.tobytes())
            if values.dtype.kind == "f":
                assert np.allclose(values, in_memory, rtol=1e-14)
            else:
                assert (values == in_memory).all()
        assert len(bits) == 1, name


def test_a_long_path_takes_few_steps(monkeypatch):
    order = np.random.default_rng(0).permutation(2000)
    graph, steps = Graph(order[:-1], order[1:]), []
    stepper = graph._stepper

    def counted(*args):
        step = stepper(*args)
        return lambda values: steps.append(values) or step(values)

    monkeypatch.setattr(graph, "_stepper", counted)
    assert not graph.connected_components().values.any()
    assert len(steps) < 20


def test_a_vertex_far_from_all_others_keeps_what_it_has():
    graph = Graph([5, 5], [5, 5], [2.0, 1.0])
    assert repr(graph) == "<Graph of 1 vertices and 2 edges>"
    assert graph.pagerank().values.tolist() == [1.0]
    assert graph.connected_components().values.tolist() == [5]
    assert graph.label_propagation().values.tolist() == [5]
    assert graph.k_core().values.tolist() == [0]
    assert graph.triangle_count().values.tolist() == [0]
    assert graph.shortest_paths(5).values.tolist() == [0.0]


@pytest.mark.parametrize(
    ("given_", "error", "message"),
    [
        (([], []), ValueError, "has no edges"),
        (([1, 2], [3]), ValueError, r"have the lengths \(2, 1, 2\)"),
        (([1.0, np.nan], [2.0, 3.0]), TypeError, "drop missing ones"),
        (([1, None], [2, 3]), TypeError, "dtype object"),
        ((["a"], [3]), TypeError, "two kinds"),
        ((np.array([2**63], np.uint64), [3]), ValueError, "below 2"),
        (([1], [2], [-1.0]), ValueError, "0 or more, got -1.0"),
        (([1], [2], [np.nan]), ValueError, "finite"),
    ],
)
def test_bad_edges_are_refused(given_, error, message):
    with pytest.raises(error, match=message):
        Graph(*given_)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.shortest_paths(7), "source: the graph has no vertex 7"),
        (lambda g: g.shortest_paths("a"), "source: the graph has no vertex 'a'"),
        (lambda g: g.shortest_paths([]), "source=.*must be an id"),
        (lambda g: g.pagerank(damping=1.0), "damping=1.0; must be at least 0 and below 1"),
        (lambda g: g.pagerank(tolerance=0.0), "tolerance=0.0"),
        (lambda g: g.pagerank(personalization={7: 1.0}), "personalization: the graph has no ver"),
        (lambda g: g.pagerank(personalization={1: -1.0}), "personalization=.*not all 0"),
        (lambda g: g.pagerank(personalization={}), "personalization=.*not all 0"),
        (lambda g: g.label_propagation(max_iterations=-1), "max_iterations=-1"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(Graph([1, 2], [2, 3]))
