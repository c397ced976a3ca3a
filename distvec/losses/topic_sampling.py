"""Latent Dirichlet allocation by sampling: a topic for each token of the documents.

The state is a table of integers with a column for each topic. It has a row for each word, which
counts the word's tokens of each topic, and below these the topics of all tokens, one after another.
A sweep draws the topic of each token anew, given those of all others. Tasks know the changes of
other tasks from the sweep before: D. Newman et al., "Distributed algorithms for topic models",
2009. The draws are those of Metropolis and Hastings, at a cost that does not grow with the number
of topics: J. Yuan et al., "LightLDA: big topic models on modest computer clusters", 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses.compiled import njit
from distvec.losses.loss import Arrays, Parameter, StatefulLoss, Sums, TaskArrays
from distvec.losses.row_hashes import GOLDEN, mix
from distvec.losses.rows import Ints, Rows

_CYCLES = 4
"""Proposals of either kind to a token in a sweep."""

_mixed = njit(cache=True, nogil=True)(mix)


class Tokens(NamedTuple):
    """The tokens of some documents."""

    words: npt.NDArray[np.int32]
    """By token its word."""
    ends: Ints
    """Where documents end among the tokens, after a 0."""

    @classmethod
    def of(cls, rows: Rows) -> Tokens:
        """Rows of counts, which are whole numbers."""
        matrix = sp.csr_array(rows.matrix)
        counts = matrix.data.astype(np.int64)
        ends = np.append(0, np.cumsum(counts))[matrix.indptr]
        return cls(np.repeat(matrix.indices, counts).astype(np.int32), ends)


@dataclass(frozen=True)
class TopicSampling(StatefulLoss):
    """Sweeps over the tokens of all documents.

    The parameters are the state, and the number of tokens of each topic. The sums of a sweep are
    the changes of the state. Sweep 0 draws the first topics, from a state of zeros.
    """

    words: int
    firsts: tuple[int, ...]
    """By partition the first row of its tokens' topics."""
    prior: tuple[float, ...]
    """Concentrations of topics in documents."""
    concentration: float
    """Of words in topics."""
    seed: int
    sweep: int = 0
    _needs_labels: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """The number of topics."""
        return len(self.prior)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        row = (self.count,)
        return Parameter("state", rows=0, row=row), Parameter("totals", rows=self.count)

    def begin(self, rows: Rows, array: TaskArrays) -> Tokens:
        return Tokens.of(rows)

    def advance(self, state: Tokens, array: TaskArrays) -> tuple[Ints, npt.NDArray[np.int32]]:
        first, size = self.firsts[array.partition], state.words.size
        own = np.arange(first, first + -(-size // self.count))
        places = np.concatenate([array.features, own])
        before, used = array(0, places), array.features.size
        after = before.copy()
        counts, topics = after[:used], after[used:].reshape(-1)[:size]
        source = self._source(array.partition)
        if self.sweep == 0:
            draw_first(state.words, source, counts, topics)
        else:
            prior = np.array(self.prior)
            totals = array(1).astype(np.int64)
            smoothing = self.concentration, self.words * self.concentration
            weights = ((counts + smoothing[0]) / (totals + smoothing[1])).astype(np.float32)
            sweep_tokens(*state, prior, *smoothing, weights, source, counts, totals, topics)
        return places, after - before

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        raise NotImplementedError("sweeps minimize no loss; call LDA with optimizer='sampling'")

    def _source(self, partition: int) -> np.uint64:
        """Seeds the draws of a partition in this sweep."""
        entropy = np.random.SeedSequence([self.seed % 2**64, int(self.sweep), partition])
        return np.uint64(entropy.generate_state(1, np.uint64)[0])


@njit(cache=True, nogil=True)
def _uniform(source: Any, number: int) -> Any:
    """The draw of that number, in [0, 1)."""
    bits = _mixed(source + np.uint64(number) * GOLDEN)
    return (bits >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def draw_first(words: Any, source: Any, counts: Any, topics: Any) -> None:
    """Draw the topic of each token; ``counts`` and ``topics`` are zeros before."""
    count = counts.shape[1]
    for token in range(words.size):
        topic = int(_uniform(source, token) * count)
        topics[token] = topic
        counts[words[token], topic] += 1


@njit(cache=True, nogil=True)
def sweep_tokens(
    words: Any, ends: Any, prior: Any, concentration: float, concentrations: float, weights: Any,
    source: Any, counts: Any, totals: Any, topics: Any,
) -> None:  # fmt: skip
    """Draw the topics of all tokens anew; ``counts``, ``totals`` and ``topics`` follow.

    Topics are proposed in turns by the document, which draws one of its tokens or of the prior, and
    by the word, by its ``weights``. Where a document proposes, its shares cancel from the ratio
    that decides. The distribution is exact if the weights do not depend on the topics. Those of
    the state before the sweep do, by one token of many.
    """
    count = prior.size
    chances, others = np.empty(counts.shape, np.float32), np.empty(counts.shape, np.int32)
    _fill_aliases(weights, chances, others)
    shares, drawn = np.cumsum(prior), 0
    own = np.zeros(count, np.int64)
    for document in range(ends.size - 1):
        start, end = ends[document], ends[document + 1]
        for token in range(start, end):
            own[topics[token]] += 1
        for token in range(start, end):
            word, topic = words[token], topics[token]
            own[topic] -= 1
            counts[word, topic] -= 1
            totals[topic] -= 1
            rate = (counts[word, topic] + concentration) / (totals[topic] + concentrations)
            for _ in range(_CYCLES):
                place = _uniform(source, drawn) * (end - start + shares[-1])
                if place < end - start:
                    proposed = topics[start + int(place)]
                else:
                    place -= end - start
                    proposed = min(np.searchsorted(shares, place, "right"), count - 1)
                if proposed != topic:
                    other = (counts[word, proposed] + concentration) / (
                        totals[proposed] + concentrations
                    )
                    if _uniform(source, drawn + 1) * rate < other:
                        topic, rate = proposed, other
                        topics[token] = topic
                place = _uniform(source, drawn + 2) * count
                proposed = int(place)
                if place - proposed >= chances[word, proposed]:
                    proposed = others[word, proposed]
                if proposed != topic:
                    other = (counts[word, proposed] + concentration) / (
                        totals[proposed] + concentrations
                    )
                    ahead = (own[proposed] + prior[proposed]) * other * weights[word, topic]
                    behind = (own[topic] + prior[topic]) * rate * weights[word, proposed]
                    if _uniform(source, drawn + 3) * behind < ahead:
                        topic, rate = proposed, other
                        topics[token] = topic
                drawn += 4
            own[topic] += 1
            counts[word, topic] += 1
            totals[topic] += 1
        for token in range(start, end):
            own[topics[token]] = 0


@njit(cache=True, nogil=True)
def _fill_aliases(weights: Any, chances: Any, others: Any) -> None:
    """Tables to draw a topic of each word by its weights, in constant time.

    Topic ``k``, drawn evenly, is kept with the chance ``chances[k]``, else it is ``others[k]``: M.
    Vose, "A linear algorithm for generating random numbers with a given distribution", 1991.
    """
    count = weights.shape[1]
    small, large = np.empty(count, np.int64), np.empty(count, np.int64)
    left = np.empty(count)
    for word in range(len(weights)):
        total = 0.0
        for k in range(count):
            total += weights[word, k]
        below = above = 0
        for k in range(count):
            left[k] = weights[word, k] * count / total
            chances[word, k], others[word, k] = 1.0, k
            if left[k] < 1.0:
                small[below] = k
                below += 1
            else:
                large[above] = k
                above += 1
        while below and above:
            below -= 1
            k, rich = small[below], large[above - 1]
            chances[word, k], others[word, k] = left[k], rich
            left[rich] -= 1.0 - left[k]
            if left[rich] < 1.0:
                above -= 1
                small[below] = rich
                below += 1
