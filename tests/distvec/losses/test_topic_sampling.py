"""Sampling of topics: exact counts, the right distribution, and topics that are there."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln

from distvec.losses.rows import Rows
from distvec.losses.topic_sampling import (
    Tokens,
    TopicSampling,
    _fill_aliases,
    draw_first,
    sweep_tokens,
)


def log_likelihood(counts, documents, prior, concentration):
    """Of words and topics together (Griffiths, Steyvers: Finding scientific topics, 2004)."""
    size = len(counts) * concentration
    of_topics = gammaln(counts + concentration).sum() - gammaln(counts.sum(axis=0) + size).sum()
    of_documents = gammaln(documents + prior).sum()
    return of_topics + of_documents - gammaln((documents + prior).sum(axis=1)).sum()


def document_counts(tokens, topics, count):
    """The topics of the tokens of each document."""
    found = np.zeros((tokens.ends.size - 1, count))
    np.add.at(found, (np.repeat(np.arange(len(found)), np.diff(tokens.ends)), topics), 1.0)
    return found


def source(number):
    """Seeds a sweep."""
    return np.uint64(np.random.SeedSequence([7, number]).generate_state(1, np.uint64)[0])


class Chain:
    """The sweeps of one partition."""

    def __init__(self, tokens, words, prior, concentration):
        self.tokens, self.prior = tokens, np.array(prior)
        self.smoothing = concentration, words * concentration
        self.counts = np.zeros((words, self.prior.size), np.int32)
        self.topics = np.zeros(tokens.words.size, np.int32)
        draw_first(tokens.words, source(0), self.counts, self.topics)

    def sweep(self, number, weights=None):
        """Draw all topics once."""
        totals = self.counts.sum(axis=0, dtype=np.int64)
        if weights is None:
            weights = (self.counts + self.smoothing[0]) / (totals + self.smoothing[1])
        parts = weights.astype(np.float32), source(number), self.counts, totals, self.topics
        sweep_tokens(*self.tokens, self.prior, *self.smoothing, *parts)
        assert (totals == self.counts.sum(axis=0)).all()

    @property
    def log_likelihood(self):
        """Of words and topics."""
        documents = document_counts(self.tokens, self.topics, self.prior.size)
        return log_likelihood(self.counts, documents, self.prior, self.smoothing[0])


def test_each_assignment_comes_as_often_as_it_is_probable():
    tokens = Tokens(np.array([0, 0, 1, 1, 2], np.int32), np.array([0, 3, 5]))
    prior, concentration, sweeps = (0.3, 0.5), 0.2, 60_000
    assignments = np.array([*itertools.product(range(2), repeat=5)])
    logs = []
    for topics in assignments:
        counts = np.zeros((3, 2))
        np.add.at(counts, (tokens.words, topics), 1.0)
        documents = document_counts(tokens, topics, 2)
        logs.append(log_likelihood(counts, documents, np.array(prior), concentration))
    expected = np.exp(logs - np.max(logs))
    expected /= expected.sum()
    chain, found = Chain(tokens, 3, prior, concentration), np.zeros(32)
    # The words' proposals do not follow the state here, so the chain has this very distribution.
    weights = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0]])
    for number in range(1, sweeps + 1):
        chain.sweep(number, weights)
        found[int("".join(map(str, chain.topics)), 2)] += 1.0
    # Ten standard deviations of independent draws: sweeps that follow one another are not.
    assert (abs(found / sweeps - expected) < 10.0 * np.sqrt(expected / sweeps)).all()


@given(st.integers(1, 60), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_counts_stay_those_of_the_topics(documents, count, seed):
    rng = np.random.default_rng(seed)
    tokens = Tokens.of(Rows(rng.poisson(0.4, (documents, 11)).astype(float), np.zeros(documents)))
    prior = rng.gamma(1.0, 1.0, count) + 0.01
    chain = Chain(tokens, 11, prior, 0.1)
    for number in range(1, 4):
        expected = np.zeros_like(chain.counts)
        np.add.at(expected, (tokens.words, chain.topics), 1)
        assert (chain.counts == expected).all()
        chain.sweep(number)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40))
def test_tables_draw_by_weight(values):
    weights = np.array([values], np.float32)
    chances, others = np.empty_like(weights), np.empty(weights.shape, np.int32)
    _fill_aliases(weights, chances, others)
    assert ((chances >= 0.0) & (chances <= 1.0)).all()
    found = chances[0].astype(float)
    np.add.at(found, others[0], 1.0 - chances[0].astype(float))
    expected = weights[0] / weights[0].sum(dtype=float) * len(values)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5 * len(values))


@pytest.mark.parametrize("is_dense", [False, True])
def test_tokens_are_the_counts(is_dense):
    counts = np.array([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    tokens = Tokens.of(Rows(counts if is_dense else sp.csr_array(counts), np.zeros(3)))
    assert tokens.words.tolist() == [0, 0, 2, 1, 1, 1]
    assert tokens.ends.tolist() == [0, 3, 3, 6]


def planted(rng, documents, count):
    """Documents each of which has the words of one topic, of ten words."""
    which = rng.integers(count, size=documents)
    words = which[:, None] * 10 + rng.integers(10, size=(documents, 20))
    counts = np.zeros((documents, count * 10))
    np.add.at(counts, (np.arange(documents)[:, None], words), 1.0)
    return counts


def test_topics_that_are_there_are_found():
    counts = planted(np.random.default_rng(0), 150, 4)
    chain = Chain(Tokens.of(Rows(counts, np.zeros(150))), 40, [0.1] * 4, 0.01)
    before = chain.log_likelihood
    for number in range(1, 101):
        chain.sweep(number)
    assert chain.log_likelihood > before
    # Nearly all tokens of each block of words have one topic, another one by block.
    blocks = chain.counts.reshape(4, 10, 4).sum(axis=1)
    assert (blocks.max(axis=1) > 0.99 * blocks.sum(axis=1)).all()
    assert sorted(blocks.argmax(axis=1)) == [0, 1, 2, 3]


class Arrays:
    """A state in memory, to a partition."""

    def __init__(self, state, words, partition, features):
        self.state, self.words = state, words
        self.partition, self.features = partition, features

    def __call__(self, number, places=None):
        """As ``TaskArrays``."""
        if number == 0:
            return self.state[places]
        return self.state[: self.words].sum(axis=0, dtype=np.int64)


def test_partitions_change_their_part_of_the_state_alone():
    rng = np.random.default_rng(3)
    parts = [rng.poisson(0.5, (12, 8)).astype(float) for _ in range(2)]
    features = [np.arange(8), np.array([0, 2, 3, 5, 6, 7, 9, 11])]
    tokens = [Tokens.of(Rows(one, np.zeros(12))) for one in parts]
    lengths = [-(-one.words.size // 3) for one in tokens]
    loss = TopicSampling(12, (12, 12 + lengths[0]), (0.1,) * 3, 0.1, seed=5)
    state = np.zeros((12 + sum(lengths), 3), np.int32)
    for sweep in range(4):
        of_sweep = TopicSampling(*(getattr(loss, name) for name in loss.__match_args__[:-1]), sweep)
        after = state.copy()
        for number in range(2):
            task = Arrays(state, 12, number, features[number])
            places, changes = of_sweep.advance(tokens[number], task)
            assert (np.diff(places) > 0).all()
            again = of_sweep.advance(tokens[number], task)
            assert (again[1] == changes).all()
            after[places] += changes
        state = after
        expected = np.zeros((12, 3))
        for number, first in enumerate(loss.firsts):
            own = state[first : first + lengths[number]].ravel()[: tokens[number].words.size]
            np.add.at(expected, (features[number][tokens[number].words], own), 1.0)
        assert (state[:12] == expected).all()
