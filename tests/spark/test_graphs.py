"""Graphs of DataFrames: the results of the graph in memory, cost, faults, bad input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from distvec import graphs
from distvec.spark.graphs import Graph
from distvec.spark.objectives import graphs as jobs

RNG = np.random.default_rng(3)
ENDS = RNG.integers(0, 60, (2, 150)) * 3 - 50
WEIGHTS = RNG.choice([0.0, 0.3, 1.0, 2.5], ENDS.shape[1])
CALLS = {
    "pagerank": {},
    "connected_components": {},
    "label_propagation": {},
    "k_core": {},
    "shortest_paths": {"source": ENDS[0, :2].tolist()},
    "triangle_count": {},
}


def frame_of(spark, source, target, weights=WEIGHTS):
    return spark.createDataFrame(pa.table({"src": source, "dst": target, "w": weights}))


@pytest.fixture(scope="module")
def edges(spark):
    return frame_of(spark, *ENDS)


def values_of(frame):
    """Ids and values."""
    return [column.to_numpy(zero_copy_only=False) for column in frame.toArrow().columns]


def test_results_are_those_of_the_graph_in_memory(ps, edges):
    expected = graphs.Graph(*ENDS, WEIGHTS)
    with Graph(edges, weight="w", partitions=1) as one, Graph(edges, weight="w") as two:
        for name, given in CALLS.items():
            found = getattr(one, name)(**given)
            assert found.columns[0] == "id"
            ids, values = values_of(found)
            ids_in_memory, in_memory = getattr(expected, name)(**given)
            assert (ids == ids_in_memory).all()
            if name == "pagerank":
                assert np.abs(values - in_memory).sum() < 1e-14
            else:
                assert (values == in_memory).all()
            if values.dtype.kind == "f":
                assert values_of(getattr(two, name)(**given))[1].tobytes() == values.tobytes()


def test_ids_may_be_strings(ps, spark):
    names = np.array([f"v{k}" for k in range(200)])[ENDS]
    expected = graphs.Graph(*names)
    with Graph(frame_of(spark, *names), partitions=2) as graph:
        ids, components = values_of(graph.connected_components())
        assert (ids.astype(str) == expected.ids).all()
        assert (components.astype(str) == expected.connected_components().values).all()
        jumps = {ids[3]: 1.0}
        shares = values_of(graph.pagerank(personalization=jumps))[1]
        assert np.abs(shares - expected.pagerank(personalization=jumps).values).sum() < 1e-14
        with pytest.raises(ValueError, match="source: the graph has no vertex 'x'"):
            graph.shortest_paths("x")
        with pytest.raises(ValueError, match="the ids of the graph are string"):
            graph.shortest_paths(7)


def test_a_step_costs_the_driver_few_messages_and_no_vector(ps, edges, monkeypatch):
    advance, steps, used = jobs.Evaluator.advance, [], []
    monkeypatch.setattr(jobs.Evaluator, "advance", lambda *a: steps.append(a) or advance(*a))
    with Graph(edges, partitions=2) as graph:
        for digits in (4, 8):
            steps.clear()
            ps.counters.reset()
            graph.pagerank(damping=0.1, tolerance=10.0**-digits)
            used.append(ps.counters.snapshot() | {"steps": len(steps)})
    more = {name: used[1][name] - used[0][name] for name in used[0]}
    # The question; what follows from the answers; and the products that the next one is about. Two
    # more, should tasks end that waited for too long.
    assert more["steps"] >= 4
    assert more["messages"] <= 5 * more["steps"]
    assert more["bytes_received"] < 1500 * more["steps"]


def test_lost_servers_cost_time_alone(ps, edges, kill, monkeypatch):
    advance, calls = jobs.Evaluator.advance, []

    def advance_and_kill(*args):
        calls.append(args)
        if len(calls) == 3:
            for pid in ps.server_pids:
                kill(pid)
        return advance(*args)

    with Graph(edges, partitions=2) as graph:
        expected = values_of(graph.k_core())[1]
        monkeypatch.setattr(jobs.Evaluator, "advance", advance_and_kill)
        with pytest.warns(RuntimeWarning, match="core starts again"):
            assert (values_of(graph.k_core())[1] == expected).all()


def test_bad_edges_are_refused(ps, spark, edges):
    nothing = edges.limit(0)
    with pytest.raises(ValueError, match="the graph has no edges"):
        Graph(nothing)
    with pytest.raises(ValueError, match="has the weight -1"):
        Graph(spark.createDataFrame([(1, 2, -1.0)], ["src", "dst", "w"]), weight="w")
    with pytest.raises(ValueError, match="an edge has a null id"):
        Graph(spark.createDataFrame([(1, None)], "src long, dst long"))
    with pytest.raises(TypeError, match=r"are columns of double and bigint.*cast\('long'\)"):
        Graph(edges.withColumn("src", edges.src.cast("double")))
    with pytest.raises(TypeError, match=r"edges is list; .*distvec\.graphs\.Graph"):
        Graph([(1, 2)])
    with pytest.raises(ValueError, match="partitions=0"):
        Graph(edges, partitions=0)
    with Graph(spark.createDataFrame([(5, 5)], ["src", "dst"])) as loop:
        assert values_of(loop.triangle_count())[1].tolist() == [0]
        assert values_of(loop.connected_components())[1].tolist() == [5]
