"""Topics of documents, beside scikit-learn and the formulas."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from sklearn.decomposition import LatentDirichletAllocation

import distvec.sklearn as ours
from distvec.losses.rows import Rows
from distvec.losses.topic_loops import digamma, exp_digamma
from distvec.losses.topics import (
    DocumentBounds,
    Topics,
    better_concentrations,
    topics_bound,
)


class Start(np.random.RandomState):
    """Draws the given topics, and documents that are equal in all topics."""

    def __init__(self, words):
        super().__init__(0)
        self.words = words

    def gamma(self, shape, scale, size):
        return self.words.T.copy() if size == self.words.T.shape else np.ones(size)


class Case:
    """Documents, of which some are empty, and topics; as many documents as topics never."""

    def __init__(self, seed, documents, words, topics):
        rng = np.random.default_rng(seed)
        self.counts = rng.poisson(1.0, (documents, words)).astype(float)
        self.counts[rng.random(documents) < 0.2] = 0.0
        self.words = rng.gamma(2.0, 1.0, (words, topics)) + 0.1
        self.prior = np.full(topics, float(rng.uniform(0.05, 1.0)))
        self.concentration = float(rng.uniform(0.05, 1.0))

    def arrays(self, words=None):
        words = self.words if words is None else words
        return words, np.vstack([words.sum(axis=0), self.prior])

    def loss(self, kind=Topics, **options):
        tokens = max(self.counts.sum(), 1.0)
        return kind(self.prior.size, tokens, len(self.counts), **options)

    def scikit(self, kind=LatentDirichletAllocation, **options):
        return kind(
            self.prior.size,
            doc_topic_prior=self.prior[0],
            topic_word_prior=self.concentration,
            random_state=Start(self.words),
            **options,
        )


cases = st.builds(
    Case, st.integers(0, 999), st.integers(8, 16), st.integers(1, 30), st.integers(1, 7)
)


@given(st.floats(1e-6, 1e6))
def test_digamma_is_that_of_scipy(x):
    assert np.isclose(digamma(x), special.psi(x), rtol=1e-11, atol=1e-11)
    assert np.isclose(exp_digamma(x), np.exp(special.psi(x)), rtol=1e-11, atol=0.0)


@settings(max_examples=30)
@given(cases, st.booleans(), st.integers(1, 3))
def test_steps_over_all_documents_are_those_of_scikit_learn(case, is_sparse, steps):
    matrix = sp.csr_array(case.counts) if is_sparse else case.counts
    rows = Rows(matrix, np.zeros(len(case.counts)))
    expected = case.scikit(max_iter=steps, evaluate_every=-1).fit(case.counts)
    loss, words = case.loss(), case.words
    for _ in range(steps):
        found = loss.sums(rows, case.arrays(words), intercept=False)
        words = case.concentration + found.gradients[0]
    assert np.allclose(words, expected.components_.T, rtol=1e-6, atol=1e-6)
    shares = loss.probabilities(loss.scores(rows, case.arrays(words), intercept=False))
    used = case.counts.any(axis=1)
    assert np.allclose(shares[used], expected.transform(case.counts[used]), atol=1e-6)
    assert not shares[~used].any() and found.weight == used.sum() == loss.weight(rows)


@settings(max_examples=20)
@given(cases, st.sampled_from(["batch", "online"]), st.sampled_from([None, 2]))
def test_the_estimator_is_that_of_scikit_learn(case, method, jobs):
    given = {"max_iter": 2, "learning_method": method, "batch_size": 8, "learning_offset": 2.0}
    expected = case.scikit(**given).fit(case.counts)
    found = case.scikit(**given, n_jobs=jobs, kind=ours.LatentDirichletAllocation).fit(case.counts)
    assert np.allclose(found.components_, expected.components_, rtol=1e-6, atol=1e-6)
    assert np.isclose(found.score(case.counts), expected.score(case.counts), rtol=1e-6)


@given(cases)
def test_bounds_are_those_of_scikit_learn(case):
    rows = Rows(sp.csr_array(case.counts), np.zeros(len(case.counts)))
    expected = case.scikit(max_iter=1, evaluate_every=-1).fit(case.counts)
    words = np.ascontiguousarray(expected.components_.T)
    arrays = case.arrays(words)
    scores = case.loss(DocumentBounds).scores(rows, arrays, intercept=False)
    found = scores[:, 0].sum() + topics_bound(words, arrays[1][0], case.concentration)
    assert np.isclose(found, expected.score(case.counts), rtol=1e-6)
    assert (scores[:, 1] == case.counts.sum(axis=1)).all()
    sums = case.loss().sums(rows, arrays, intercept=False)
    assert np.isclose(-sums.value, scores[:, 0].sum(), rtol=1e-12, atol=1e-9)


@given(cases, st.randoms(use_true_random=False))
def test_sums_have_the_same_bits_for_any_parts_of_the_documents(case, random):
    order = list(range(len(case.counts)))
    random.shuffle(order)
    ends = sorted(random.randrange(len(order) + 1) for _ in range(3))
    loss, arrays = case.loss(), case.arrays()
    rows = Rows(sp.csr_array(case.counts), np.zeros(len(order)))
    whole = loss.sums(rows, arrays, intercept=False).gradients
    parts = [
        loss.sums(rows.take(np.array(some, np.int64)), arrays, intercept=False).gradients
        for some in (order[: ends[0]], order[ends[0] : ends[1]], order[ends[1] :])
    ]
    for one, *others in zip(whole, *parts, strict=True):
        assert (one == sum(others)).all()


@given(cases)
def test_all_tokens_belong_to_topics(case):
    rows = Rows(sp.csr_array(case.counts), np.zeros(len(case.counts)))
    found = case.loss().sums(rows, case.arrays(), intercept=False)
    assert np.allclose(found.gradients[0].sum(axis=1), case.counts.sum(axis=0))


@given(st.integers(0, 999), st.integers(2, 6))
def test_concentrations_are_found_by_newton_steps(seed, topics):
    rng = np.random.default_rng(seed)
    expected = rng.uniform(0.2, 3.0, topics)
    logs = special.psi(expected) - special.psi(expected.sum())
    found = expected * rng.uniform(0.8, 1.2, topics)
    for _ in range(40):
        found = better_concentrations(found, logs, 10.0, 1.0)
    assert np.allclose(found, expected, rtol=1e-6)
    assert (better_concentrations(expected, logs - 1e6, 10.0, 1.0) > 0.0).all()


@pytest.mark.parametrize("documents", [0, 1])
def test_no_words_are_no_topics(documents):
    rows = Rows(sp.csr_array((documents, 3)), np.zeros(documents))
    arrays = np.ones((3, 2)), np.ones((2, 2))
    found = Topics(2).sums(rows, arrays, intercept=False)
    assert found.value == found.weight == 0.0 and not found.gradients[0].any()
    assert not Topics(2).scores(rows, arrays, intercept=False).any()
