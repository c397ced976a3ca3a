"""Compiled loops of topic models: topics of documents, and what these say of the words.

``counts``, ``words`` and ``ends`` are documents as CSR. ``rates`` has for each of their words
``exp E log`` of its probability in each topic, and ``gammas`` for each document the parameters of a
Dirichlet distribution over topics. ``exp E log`` of a share is ``exp psi(gamma)``, up to a factor
that all topics of a document have in common, and that cancels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from distvec.losses.compiled import njit

_LEAST = 8.0
"""The series of ``_shifted`` has some 13 digits from here on."""
_TINY = 1e-100
"""Divides for a word that no topic has."""


@njit(cache=True, nogil=True, error_model="numpy")
def _shifted(x: float) -> Any:
    """``a, b`` with ``psi(x) = log(a) - b``: the series of ``exp psi`` about ``x - 1/2``."""
    above, below = 0.0, 1.0
    while x < _LEAST:  # above / below is the sum of 1 / x
        above = above * x + below
        below *= x
        x += 1.0
    y = x - 0.5
    z = 1.0 / (y * y)
    a = -0.020734675824368137
    a = a * z + 0.007365033269308669
    a = a * z - 0.0039535574489730305
    a = a * z + 0.003552482914462081
    a = a * z - 0.006423611111111111
    a = a * z + 0.041666666666666664
    return y * (a * z + 1.0), above / below


@njit(cache=True, nogil=True, error_model="numpy")
def exp_digamma(x: float) -> float:
    """``exp psi(x)`` of a positive number."""
    growth, shift = _shifted(x)
    return float(growth * math.exp(-shift))


@njit(cache=True, nogil=True, error_model="numpy")
def digamma(x: float) -> float:
    """``psi(x)`` of a positive number."""
    growth, shift = _shifted(x)
    return float(math.log(growth) - shift)


@njit(cache=True, nogil=True, error_model="numpy")
def topic_rates(table: Any, totals: Any, rates: Any) -> None:
    """``exp E log`` of the probability of each word, for Dirichlet parameters and their sums."""
    factors = np.empty(totals.size)
    for k in range(totals.size):
        factors[k] = 1.0 / exp_digamma(totals[k])
    for word in range(len(table)):
        for k in range(totals.size):
            rates[word, k] = exp_digamma(table[word, k]) * factors[k]


@njit(cache=True, nogil=True, error_model="numpy")
def infer_topics(
    counts: Any, words: Any, ends: Any, rates: Any, prior: Any, tolerance: float, most: int,
    gammas: Any,
) -> None:  # fmt: skip
    """Fill ``gammas``: until a document's change by ``tolerance`` in the mean, or ``most`` times.

    Loops run over words or topics, and add nothing up across them: they are vectorized, with the
    same bits on all processors.
    """
    topics, longest = prior.size, 0
    for document in range(len(gammas)):
        longest = max(longest, ends[document + 1] - ends[document])
    table, across = np.empty((longest, topics)), np.empty((topics, longest))
    shares, sums, norms = np.empty(topics), np.empty(topics), np.empty(longest)
    for document in range(len(gammas)):
        start, gamma = ends[document], gammas[document]
        length = ends[document + 1] - start
        for word in range(length):
            for k in range(topics):
                rate = rates[words[start + word], k]
                table[word, k] = rate
                across[k, word] = rate
        for k in range(topics):
            gamma[k] = 1.0
            shares[k] = exp_digamma(1.0)
        for _ in range(most):
            for word in range(length):
                norms[word] = _TINY
            for k in range(topics):
                share, row = shares[k], across[k]
                for word in range(length):
                    norms[word] += share * row[word]
            for k in range(topics):
                sums[k] = 0.0
            for word in range(length):
                each, column = counts[start + word] / norms[word], table[word]
                for k in range(topics):
                    sums[k] += each * column[k]
            change = 0.0
            for k in range(topics):
                moved = prior[k] + shares[k] * sums[k]
                change += abs(moved - gamma[k])
                gamma[k] = moved
                shares[k] = exp_digamma(moved)
            if change < tolerance * topics:
                break


@njit(cache=True, nogil=True, error_model="numpy")
def add_statistics(
    counts: Any, words: Any, ends: Any, rates: Any, gammas: Any, unit: float, sums: Any
) -> None:
    """Add to ``sums`` by word how many of the documents' tokens belong to each topic.

    Each number is rounded to a multiple of ``unit`` first, so that the sums of all documents are
    exact, in any order.
    """
    topics = gammas.shape[1]
    shares, parts = np.empty(topics), np.empty(topics)
    for document in range(len(gammas)):
        for k in range(topics):
            shares[k] = exp_digamma(gammas[document, k])
        for place in range(ends[document], ends[document + 1]):
            word, norm = words[place], _TINY
            for k in range(topics):
                parts[k] = shares[k] * rates[word, k]
            for k in range(topics):
                norm += parts[k]
            each = counts[place] / (norm * unit)
            for k in range(topics):
                sums[word, k] += np.rint(each * parts[k]) * unit


@njit(cache=True, nogil=True, error_model="numpy")
def document_bounds(
    counts: Any, words: Any, ends: Any, rates: Any, prior: Any, gammas: Any, logs: Any, bounds: Any
) -> None:
    """Fill ``logs`` with ``E log`` of the documents' shares, ``bounds`` with their part of the
    evidence lower bound (Hoffman, Blei, Bach, 2010, equation 4).
    """
    topics = prior.size
    shares, constant = np.empty(topics), math.lgamma(prior.sum())
    for k in range(topics):
        constant -= math.lgamma(prior[k])
    for document in range(len(gammas)):
        total = gammas[document].sum()
        below, bound = digamma(total), constant - math.lgamma(total)
        for k in range(topics):
            gamma = gammas[document, k]
            log = digamma(gamma) - below
            logs[document, k] = log
            shares[k] = math.exp(log)
            bound += (prior[k] - gamma) * log + math.lgamma(gamma)
        for place in range(ends[document], ends[document + 1]):
            word, norm = words[place], _TINY
            for k in range(topics):
                norm += shares[k] * rates[word, k]
            bound += counts[place] * math.log(norm)
        bounds[document] = bound
