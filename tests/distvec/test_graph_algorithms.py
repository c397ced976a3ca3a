"""Algorithms on graphs, written once for NumPy: edges are integer arrays, there or on servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import distvec as dv


def page_rank(source: Any, target: Any, n: int, like: Any, *, damping: float = 0.85) -> Any:
    """The share of each of ``n`` pages, after 15 steps; ``like``: an array of theirs."""
    degree = np.bincount(source, minlength=n)
    rank = np.zeros_like(like) + 1 / n
    for _ in range(15):
        share = np.where(degree > 0, rank / np.maximum(degree, 1), 0.0)
        arrived = np.bincount(target, weights=share[source], minlength=n)
        lost = np.where(degree > 0, 0.0, rank).sum()
        rank = (1 - damping + damping * lost) / n + damping * arrived
    return rank


def components(source: Any, target: Any, nodes: Any) -> Any:
    """The least node that each of ``nodes``, all there are, is connected to: pointer jumping."""
    label = nodes.copy()
    while True:
        old = label.copy()
        least = np.minimum(label[source], label[target])
        np.minimum.at(label, label[source], least)
        np.minimum.at(label, label[target], least)
        label = np.minimum(label, label[label])
        if bool((label == old).all()):
            return label


def edges(rng: np.random.Generator, n: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, n, count), rng.integers(0, n, count)


@pytest.mark.parametrize("n", [50, 17_000])
def test_page_rank(sessions: dict[int, dv.Session], n: int) -> None:
    source, target = edges(np.random.default_rng(0), n, 3 * n)
    expected = page_rank(source, target, n, np.zeros(n))
    bits = set()
    for servers in (1, 3):
        ps = sessions[servers]
        found = page_rank(ps.array(source), ps.array(target), n, ps.zeros(n)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        bits.add(found.tobytes())
    assert len(bits) == 1
    if n == 50:
        links = np.zeros((n, n))
        np.add.at(links, (target, source), 1.0)
        total = links.sum(0)
        links = np.where(total > 0, links / np.maximum(total, 1), 1 / n)
        exact = np.linalg.solve(np.eye(n) - 0.85 * links, np.full(n, 0.15 / n))
        np.testing.assert_allclose(expected, exact, rtol=1e-2)


def test_a_step_of_page_rank_evaluates_nothing(ps: dv.Session) -> None:
    n = 20_000
    source, target = edges(np.random.default_rng(0), n, 3 * n)
    i, j = ps.array(source), ps.array(target)
    rank = page_rank(i, j, n, ps.zeros(n)).persist()
    assert ps.implicit_evaluations == 2  # the greatest of source and of target, once each
    degree = np.bincount(i, minlength=n)
    dv.evaluate(degree)
    ps.counters.reset()
    with ps.strict():
        share = rank / np.maximum(degree, 1)
        arrived = np.bincount(j, weights=share[i], minlength=n)
        rank = (0.15 + 0.85 * arrived) / n
    rank.persist()
    assert ps.counters.messages <= 4 and ps.counters.phases == 2


def test_connected_components(sessions: dict[int, dv.Session]) -> None:
    n = 3000
    source, target = edges(np.random.default_rng(1), n, 2000)
    graph = coo_array((np.ones(len(source)), (source, target)), shape=(n, n))
    _, found = connected_components(graph, directed=False)
    expected = np.unique(found, return_index=True)[1][found]
    np.testing.assert_array_equal(components(source, target, np.arange(n)), expected)
    for servers in (1, 2, 7):
        ps = sessions[servers]
        found = components(ps.array(source), ps.array(target), ps.arange(n))
        np.testing.assert_array_equal(found.numpy(), expected)


def test_labels_are_counted_by_class_and_one_hot(ps: dv.Session) -> None:
    labels = np.random.default_rng(2).integers(0, 5, 4000)
    weights = np.random.default_rng(3).random(4000)

    def means(labels: Any, weights: Any, hot: Any) -> tuple[Any, Any]:
        counts = np.bincount(labels, minlength=5)
        hot[np.arange(len(hot)), labels] = 1.0
        return np.bincount(labels, weights=weights, minlength=5) / counts, hot.sum(axis=0)

    ours = means(ps.array(labels), ps.array(weights), ps.zeros((4000, 5)))
    for found, expected in zip(ours, means(labels, weights, np.zeros((4000, 5))), strict=True):
        np.testing.assert_allclose(found.numpy(), expected)
