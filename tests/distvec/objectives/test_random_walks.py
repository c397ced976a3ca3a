"""Random walks beside the probabilities of their steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.objectives.random_walks import Neighbours


def graph(table):
    """The neighbours that a matrix of weights lists."""
    sources, targets = np.nonzero(table)
    return Neighbours.of(len(table), sources, targets, table[sources, targets])


def second_order(table, back, away):
    """The chance of ``z`` after ``x, y``, by the formula of node2vec."""
    weights = np.where(table[:, None, :] > 0, 1.0, away)  # of z beside x
    weights[np.arange(len(table)), :, np.arange(len(table))] = back
    weights = weights * table[None]
    return weights / weights.sum(axis=2, keepdims=True)


@pytest.mark.parametrize(("back", "away"), [(1.0, 1.0), (4.0, 0.25), (0.2, 2.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_have_the_chances_of_the_formula(back, away, weighted):
    rng = np.random.default_rng(1)
    table = np.triu(rng.random((6, 6)) < 0.6, 1) * (rng.random((6, 6)) + 0.2 if weighted else 1.0)
    table = table + table.T + np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    walks = graph(table).walks(
        np.repeat(np.arange(6), 1), 20_000, back=back, away=away, seed=3, number=0
    )
    x, y, z = (walks[:, k : 19_998 + k].ravel() for k in range(3))
    seen = np.zeros((6, 6, 6))
    np.add.at(seen, (x, y, z), 1.0)
    visits = seen.sum(axis=2)
    often = visits > 1000
    expected = second_order(table, back, away)
    assert np.abs(seen[often] / visits[often][:, None] - expected[often]).max() < 0.05


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 3))
def test_walks_follow_edges_and_depend_on_their_first_node(count, seed, length, number):
    table = np.random.default_rng(seed).random((count, count)) < 0.3
    neighbours, nodes = graph(table), np.arange(count)
    options = {"back": 2.0, "away": 0.5, "seed": seed, "number": number}
    walks = neighbours.walks(nodes, length, **options)
    for walk in walks.tolist():
        for one, other in pairwise(walk):
            assert table[one, other] if other >= 0 else one < 0 or not table[one].any()
    again = neighbours.walks(nodes[::-1].copy(), length, **options)
    assert (again[::-1] == walks).all()


def test_repeated_edges_add_up():
    sources, targets = np.array([0, 0, 0, 1]), np.array([1, 2, 1, 0])
    found = Neighbours.of(3, sources, targets, np.array([1.0, 2.0, 3.0, 1.0]))
    assert found.starts.tolist() == [0, 2, 3, 3]
    assert found.nodes.tolist() == [1, 2, 0]
    assert found.sums.tolist() == [4.0, 6.0, 1.0]
