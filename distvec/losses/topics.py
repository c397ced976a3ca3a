"""Latent Dirichlet allocation by variational Bayes: what documents say of topics, and a step.

Documents are rows, counts of words are features. The method is that of Hoffman, Blei, Bach: Online
learning for latent Dirichlet allocation, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy import special

from distvec.losses.loss import Arrays, Loss, Parameter, Sums
from distvec.losses.row_losses import sum_once_rounded
from distvec.losses.rows import Floats, Rows, blocks
from distvec.losses.topic_loops import (
    add_statistics,
    document_bounds,
    infer_topics,
    topic_rates,
)

_EXACT_BITS = 52
"""Sums of so many bits are exact in float64, with one to spare for what is rounded up."""


def unit_of(most: float) -> float:
    """The power of two whose multiples have exact sums up to ``most``."""
    return math.ldexp(1.0, math.frexp(most)[1] - _EXACT_BITS)


@dataclass(frozen=True)
class Topics(Loss):
    """The documents' part of the evidence lower bound of ``count`` topics, negated.

    The parameters are ``words``, with the parameters of the topics' Dirichlet distributions over
    words, and ``priors``: their sums, and below them the concentrations of topics in documents.

    ``sums`` has no gradient but what a step needs, in the shapes of the parameters: the tokens of
    each word that belong to each topic, and in the last row the sum of ``E log`` of the documents'
    shares. Both are sums of rounded numbers, which are exact in any order: ``tokens`` and
    ``documents`` are at least those of all rows together. The weight is the number of documents
    that have words.
    """

    count: int
    tokens: float = 1.0
    documents: int = 1
    tolerance: float = 1e-3
    """Mean change of a document's parameters at which its inference ends."""
    most: int = 100
    """Steps of this inference."""
    _needs_labels: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        row = (self.count,)
        return (
            Parameter("words", row=row, takes_intercept=False),
            Parameter("priors", rows=2, row=row),
        )

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        tokens, logs = np.zeros((rows.columns, self.count)), np.zeros((2, self.count))
        unit, log_unit = unit_of(self.tokens), self._log_unit(arrays[1][1])
        bounds, documents = [], 0
        for found in self._inferred(rows, arrays):
            add_statistics(*found.elements, found.rates, found.gammas, unit, tokens)
            some, each = found.bounds()
            logs[1] += (np.rint(some / log_unit) * log_unit).sum(axis=0)
            bounds += each.tolist()
            documents += len(each)
        return Sums(-sum_once_rounded(bounds), float(documents), (tokens, logs))

    def _log_unit(self, prior: Floats) -> float:
        """``E log`` of a share is below zero by at most so much a document."""
        most = 1.0 / float(prior.min()) + math.log(self.tokens + float(prior.sum()) + 1.0) + 2.0
        return unit_of(self.documents * most)

    def weight(self, rows: Rows) -> float:
        return float(np.count_nonzero(_tokens(rows)))

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """The parameters of each document's distribution over topics; without words, zeros."""
        found = np.zeros((len(rows), self.count))
        for some in self._inferred(rows, arrays):
            found[some.places] = some.gammas
        return found

    def probabilities(self, scores: Floats) -> Floats:
        sums = scores.sum(axis=1, keepdims=True)
        found: Floats = np.divide(scores, sums, out=np.zeros_like(scores), where=sums > 0.0)
        return found

    def predictions(self, scores: Floats) -> Floats:
        found: Floats = scores.argmax(axis=1).astype(np.float64)
        return found

    def _inferred(self, rows: Rows, arrays: Arrays) -> Iterator[_Documents]:
        """Documents with words, some at a time."""
        used = np.flatnonzero(_tokens(rows))
        if not used.size:
            return
        table, priors = (np.ascontiguousarray(one, np.float64) for one in arrays)
        rates = np.empty_like(table)
        topic_rates(table, priors[0], rates)
        for part in blocks(used.size):
            places = used[part]
            matrix = sp.csr_array(rows.matrix[places])
            elements = matrix.data.astype(np.float64), matrix.indices, matrix.indptr
            gammas = np.empty((places.size, self.count))
            infer_topics(*elements, rates, priors[1], self.tolerance, self.most, gammas)
            yield _Documents(places, elements, rates, priors[1], gammas)


class _Documents(NamedTuple):
    """Some documents, and the parameters of their distributions over topics."""

    places: Any
    elements: tuple[Any, Any, Any]
    rates: Floats
    prior: Floats
    gammas: Floats

    def bounds(self) -> tuple[Floats, Floats]:
        """``E log`` of their shares, and their parts of the bound."""
        logs, bounds = np.empty_like(self.gammas), np.empty(len(self.gammas))
        document_bounds(*self.elements, self.rates, self.prior, self.gammas, logs, bounds)
        return logs, bounds


@dataclass(frozen=True)
class DocumentBounds(Topics):
    """The same; the scores of a document are its part of the bound, and its number of tokens."""

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        found = np.zeros((len(rows), 2))
        found[:, 1] = _tokens(rows)
        for some in self._inferred(rows, arrays):
            found[some.places, 0] = some.bounds()[1]
        return found


def _tokens(rows: Rows) -> Floats:
    return np.asarray(rows.matrix.sum(axis=1), np.float64).ravel()


def topics_bound(words: Any, totals: Floats, concentration: float) -> float:
    """The topics' part of the evidence lower bound.

    ``words`` has a row for each word, also on the servers; ``totals`` are the sums of its columns.
    """
    size = len(words)
    logs = special.psi(words) - special.psi(totals)
    inner = (concentration - words) * logs + special.gammaln(words)
    outer = special.gammaln(size * concentration) - special.gammaln(totals)
    constant = size * totals.size * special.gammaln(concentration)
    return float(inner.sum()) + float(outer.sum()) - float(constant)


def better_concentrations(prior: Floats, logs: Floats, documents: float, weight: float) -> Floats:
    """Newton's step for the concentrations of topics in documents, shortened by ``weight``.

    ``logs`` is the mean of ``E log`` of the documents' shares. A step out of the positive numbers
    is left out (Huang: Maximum likelihood estimation of Dirichlet distribution parameters, 2005).
    """
    total = float(prior.sum())
    slopes = documents * (special.psi(total) - special.psi(prior) + logs)
    diagonal = -documents * special.polygamma(1, prior)
    common = documents * float(special.polygamma(1, total))
    shift = (slopes / diagonal).sum() / (1.0 / common + (1.0 / diagonal).sum())
    moved: Floats = prior - weight * (slopes - shift) / diagonal
    return moved if (moved > 0.0).all() else prior
