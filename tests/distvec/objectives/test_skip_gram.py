"""Skip-gram beside plain formulas, one pair after the other, and on texts with known neighbours."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.objectives.skip_gram import SkipGram, Text


@st.composite
def texts(draw):
    """Sentences of numbers of words, empty ones among them."""
    words = draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**32 - 1))
    lengths = draw(st.lists(st.integers(0, 12), max_size=6))
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, words, sum(lengths)).astype(np.int32)
    counts = np.bincount(numbers, minlength=words) + 1
    return Text(numbers, np.cumsum(lengths, dtype=np.int64)), counts, rng


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def descend(batch, vectors, negative):
    """The formulas of negative sampling; drawn words that are neighbours do not count there."""
    found, loss, pairs = vectors.copy(), 0.0, 0
    for place, (start, end) in enumerate(zip(batch.starts, batch.ends, strict=True)):
        near = [k for k in range(start, end) if k != place]
        if not near:
            continue
        own, change = found[batch.words[place]], np.zeros(vectors.shape[1])
        drawn = np.take(batch.drawn, place * negative + np.arange(negative), mode="wrap")
        others = [(batch.contexts[k], 1, 1.0) for k in near]
        others += [(word, sum(batch.contexts[k] != word for k in near), 0.0) for word in drawn]
        for row, count, label in others:
            chance = sigmoid(own @ found[row])
            loss -= count * np.log(chance if label else 1.0 - chance)
            slope = batch.rate * count * (label - chance)
            change += slope * found[row]
            found[row] = found[row] + slope * own
        found[batch.words[place]] = own + change
        pairs += len(near)
    return found - vectors, loss, pairs


@settings(deadline=None)
@given(texts(), st.integers(1, 4), st.integers(1, 7), st.integers(1, 30), st.booleans())
def test_steps_are_those_of_the_formulas(given, window, negative, size, is_symmetric):
    text, counts, rng = given
    problem = SkipGram(
        counts,
        window=window,
        negative=negative,
        sample=0.2,
        batch_size=size,
        is_symmetric=is_symmetric,
        epochs=2,
        step_size=0.05,
    )
    table = 0.5 * rng.normal(size=(problem.rows, 5))
    for batch in problem.batches(text):
        before = table[batch.rows]
        found = problem.train(batch, before.copy())
        changes, loss, pairs = descend(batch, before, negative)
        np.testing.assert_allclose(found.changes, changes, rtol=1e-12, atol=1e-12)
        assert found.loss == pytest.approx(loss, rel=1e-11)
        assert found.pairs == pairs
        table[batch.rows] += found.changes


def descend_tree(batch, vectors):
    """The formulas of hierarchical softmax."""
    found, loss, pairs = vectors.copy(), 0.0, 0
    for place, (start, end) in enumerate(zip(batch.starts, batch.ends, strict=True)):
        for near in range(start, end):
            if near == place:
                continue
            own, change = found[batch.words[near]], np.zeros(vectors.shape[1])
            link = batch.links[batch.words[place]]
            while link >= 0:
                node, is_second = divmod(link, 2)
                chance = sigmoid(own @ found[node])
                loss -= np.log(1.0 - chance if is_second else chance)
                slope = batch.rate * (1 - is_second - chance)
                change += slope * found[node]
                found[node] = found[node] + slope * own
                link = batch.links[node]
            found[batch.words[near]] = own + change
            pairs += 1
    return found - vectors, loss, pairs


@settings(deadline=None)
@given(texts(), st.integers(1, 4), st.integers(1, 30))
def test_steps_in_a_tree_are_those_of_the_formulas(given, window, size):
    text, counts, rng = given
    problem = SkipGram(counts, window, 0, sample=0.2, batch_size=size, epochs=2, step_size=0.05)
    table = 0.5 * rng.normal(size=(problem.rows, 5))
    for batch in problem.batches(text):
        assert (np.diff(batch.rows) > 0).all()
        before = table[batch.rows]
        found = problem.train(batch, before.copy())
        changes, loss, pairs = descend_tree(batch, before)
        np.testing.assert_allclose(found.changes, changes, rtol=1e-12, atol=1e-12)
        assert found.loss == pytest.approx(loss, rel=1e-11)
        assert found.pairs == pairs
        table[batch.rows] += found.changes


@given(texts())
def test_ways_in_a_batch_are_those_in_the_whole_tree(given):
    text, counts, _ = given
    problem = SkipGram(counts, negative=0, sample=0.0, batch_size=5)

    def way(links, rows, leaf):
        found, link = [], links[leaf]
        while link >= 0:
            found.append((rows[link >> 1], link & 1))
            link = links[link >> 1]
        return found

    whole = problem._links, np.arange(problem.rows)
    for batch in problem.batches(text):
        for leaf in batch.words:
            assert way(batch.links, batch.rows, leaf) == way(*whole, batch.rows[leaf])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_the_ways_to_words_are_the_shortest_by_their_counts(counts):
    links = SkipGram(np.array(counts), negative=0)._links
    assert sorted(links.tolist()) == [-1, *range(2 * len(counts), 2 * links.size)]
    lengths = []
    for word in range(len(counts)):
        lengths.append(0)
        while (word := links[word] >> 1) >= 0:
            lengths[-1] += 1
    heap, least = sorted(counts), 0
    while len(heap) > 1:
        heapq.heappush(heap, both := heapq.heappop(heap) + heapq.heappop(heap))
        least += both
    assert np.dot(lengths, counts) == least


@settings(deadline=None)
@given(texts(), st.integers(1, 4), st.integers(1, 30), st.integers(1, 3))
def test_batches_contain_all_places_and_windows_stay_in_sentences(given, window, size, workers):
    text, counts, _ = given
    problem = SkipGram(counts, window=window, sample=0.0, batch_size=size, epochs=2, step_size=1.0)
    batches = list(problem.batches(text, 0, workers))
    each = problem.batches_per_epoch(text.words.size, workers)
    assert len(batches) == 2 * each
    for epoch in range(2):
        place = 0
        for batch in batches[epoch * each :][:each]:
            assert (np.diff(batch.rows) > 0).all()
            own = batch.rows[batch.words]
            assert (own == text.words[place : place + own.size]).all()
            assert (batch.rows[batch.contexts] == own + len(counts)).all()
            sentence = np.searchsorted(text.ends, place + np.arange(own.size), side="right")
            for k, (start, end) in enumerate(zip(batch.starts, batch.ends, strict=True)):
                assert start <= k < end
                assert k - start <= window
                assert end - 1 - k <= window
                assert (sentence[start:end] == sentence[k]).all()
            place += own.size
        assert place == text.words.size
    rates = [batch.rate for batch in batches]
    assert rates == sorted(rates, reverse=True)


@given(texts(), st.integers(0, 3), st.integers(0, 5), st.sampled_from([0, 5]))
def test_a_batch_depends_on_seed_rank_and_number_alone(given, rank, begin, negative):
    text, counts, _ = given
    problem = SkipGram(counts, negative=negative, batch_size=7, epochs=2, seed=3)
    whole = list(problem.batches(text, rank))
    for one, other in zip(whole[begin:], problem.batches(text, rank, begin=begin), strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def test_frequent_words_are_left_out_and_drawn_by_the_power_of_their_counts():
    counts = np.array([8000, 1900, 100])
    text = Text(np.repeat(np.arange(3, dtype=np.int32), counts), np.array([10_000]))
    problem = SkipGram(counts, sample=0.01, batch_size=10_000, epochs=20, negative=1)
    kept, drawn = np.zeros(3), np.zeros(3)
    for batch in problem.batches(text):
        kept += np.bincount(batch.rows[batch.words], minlength=3)
        drawn += np.bincount(batch.rows[batch.drawn] - 3, minlength=3)
    shares = counts / counts.sum()
    chances = np.minimum((np.sqrt(shares / 0.01) + 1) * 0.01 / shares, 1.0)
    np.testing.assert_allclose(kept / (20 * counts), chances, atol=0.01)
    np.testing.assert_allclose(drawn / drawn.sum(), counts**0.75 / (counts**0.75).sum(), atol=0.02)


def corpus(clusters, words, sentences, seed=0):
    """Sentences of words of one cluster, some words strays."""
    rng = np.random.default_rng(seed)
    cluster = np.where(
        rng.random((sentences, 12)) < 0.2,
        rng.integers(clusters, size=(sentences, 12)),
        rng.integers(clusters, size=(sentences, 1)),
    )
    frequency = 1.0 / np.sqrt(np.arange(1, words + 1))
    return cluster * words + rng.choice(words, cluster.shape, p=frequency / frequency.sum())


def purity(vectors, words, nearest=5):
    """The share of the nearest words, by angle, that are in the same cluster."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    angles = unit @ unit.T
    np.fill_diagonal(angles, -np.inf)
    found = np.argsort(-angles, axis=1)[:, :nearest] // words
    return float((found == np.arange(len(vectors))[:, None] // words).mean())


@pytest.mark.parametrize("negative", [0, 5])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_neighbours_are_of_the_same_cluster_for_any_number_of_workers(workers, negative):
    sentences = corpus(6, 20, 4000).astype(np.int32)
    counts = np.bincount(sentences.ravel(), minlength=120)
    problem = SkipGram(counts, negative=negative, sample=0.0, epochs=4, batch_size=4000)
    parts = [sentences[rank::workers] for rank in range(workers)]
    loops = [
        problem.batches(Text(one.ravel(), np.cumsum(np.full(len(one), 12))), rank, workers)
        for rank, one in enumerate(parts)
    ]
    table = np.zeros((240, 16), np.float32)
    table[:120] = np.random.default_rng(0).uniform(-0.5, 0.5, (120, 16)) / 16
    for batches in zip(*loops, strict=True):  # in lockstep
        found = [problem.train(one, table[one.rows], workers) for one in batches]
        for one, made in zip(batches, found, strict=True):
            table[one.rows] += made.changes
    assert np.isfinite(table).all()
    assert purity(table[:120], 20) > 0.95
