"""Skip-gram by negative sampling or hierarchical softmax, a batch of words at a time (word2vec).

By negative sampling each word has two vectors: its own, and one as a neighbour. At each place of a
text the vector of the word is trained to tell the words around it from words that are drawn.
T. Mikolov et al., "Distributed representations of words and phrases and their compositionality",
2013. Drawn words are shared by a batch, so few rows travel for them: S. Ji et al., "Parallelizing
word2vec in shared and distributed memory", 2016.

By hierarchical softmax the words are leaves of a Huffman tree. Each inner node has a vector, too,
and the vectors of the words around a place are trained to take the way to its word at each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.compiled import njit
from distvec.losses.rows import Floats, Ints

_DRAWN_WORDS = 1024
"""About so many words are drawn for a batch."""
_POWER = 0.75
"""The chance of a word to be drawn grows with this power of its count."""
_LEAST_RATE = 1e-4
"""Of the step size, at the end."""
_CURVATURE = 0.2
"""Of the loss of a pair along a vector: measured from above, between vocabularies of 300 words,
where lower values let sums of the steps of eight workers diverge, and of 4000."""
_LEAST_CHANCE = 1e-30

Numbers = npt.NDArray[np.int32]
_NONE: Numbers = np.empty(0, np.int32)


class Text(NamedTuple):
    """Sentences of words."""

    words: Numbers
    """The numbers of the words, one sentence after the other."""
    ends: Ints
    """Where each sentence ends."""


class Batch(NamedTuple):
    """A part of a text, and the words that are drawn for it."""

    rows: Ints
    """The rows of the table that are trained, ascending; the others are numbers of these."""
    words: Numbers
    """The row of each word that is kept."""
    contexts: Numbers
    """Its row as a neighbour."""
    starts: Numbers
    """Where its window starts, among the words that are kept."""
    ends: Numbers
    """Where it ends."""
    drawn: Numbers
    """The rows of drawn words. Each place takes the next ones, and begins again at the end."""
    links: Numbers
    """The tree: of each row twice the row of its parent, and 1 more for the second branch; -1 for
    the root. Without a tree it is empty."""
    rate: float
    """The step size."""


class Trained(NamedTuple):
    """What a batch made of its rows."""

    changes: npt.NDArray[Any]
    """What is added to each row."""
    loss: float
    """The sum of the losses before the steps."""
    pairs: int
    """Of so many pairs of a word and a neighbour."""


@dataclass(frozen=True)
class SkipGram:
    """What is trained: a table with the vectors of words, and then those of neighbours."""

    counts: Ints
    """How often each word occurs."""
    window: int = 5
    """A place sees 1 to so many words on each side, a number that is drawn."""
    negative: int = 5
    """So many words are drawn at a place; each one stands beside all neighbours of the place. With
    0 none is drawn, and the words are leaves of a tree."""
    sample: float = 1e-3
    """Words with a larger share of the text are left out at times; 0 keeps all."""
    step_size: float = 0.025
    """At the beginning. It falls to almost 0 in a line."""
    epochs: int = 1
    batch_size: int = 5_000
    """Words of a batch, of all workers together."""
    seed: int = 0
    is_symmetric: bool = False
    """Whether words have one vector, also as neighbours."""

    @property
    def rows(self) -> int:
        """The rows of the table."""
        return len(self.counts) * (1 if self.is_symmetric else 2)

    def batches_per_epoch(self, words: int, workers: int = 1) -> int:
        """In how many batches a worker trains so many words of its own."""
        return -(-words // self._part(workers))

    def _part(self, workers: int) -> int:
        return -(-self.batch_size // workers)

    def batches(
        self, text: Text, rank: int = 0, workers: int = 1, begin: int = 0
    ) -> Iterator[Batch]:
        """The batches of all epochs from number ``begin``: a function of seed, rank and number."""
        each = self.batches_per_epoch(text.words.size, workers)
        for number in range(begin, self.epochs * each):
            epoch, place = divmod(number, each)
            counter = [0, place, epoch, rank]
            rng = np.random.Generator(np.random.Philox(key=self.seed % 2**64, counter=counter))
            rate = self.step_size * max(1.0 - number / (self.epochs * each), _LEAST_RATE)
            low = place * self._part(workers)
            yield self._batch(text, low, low + self._part(workers), rate, rng)

    def _batch(
        self, text: Text, low: int, high: int, rate: float, rng: np.random.Generator
    ) -> Batch:
        words = text.words[low:high]
        kept = np.flatnonzero(rng.random(words.size) < self._chances[words])
        sentences = np.searchsorted(text.ends, low + kept, side="right")
        first, last = (np.searchsorted(sentences, sentences, side=one) for one in ("left", "right"))
        places, reach = np.arange(kept.size), rng.integers(1, self.window + 1, kept.size)
        starts, ends = np.maximum(places - reach, first), np.minimum(places + reach + 1, last)
        window = starts.astype(np.int32), ends.astype(np.int32)
        if not self.negative:
            return self._batch_of_tree(words[kept], window, rate)
        rounds = max(1, _DRAWN_WORDS // self.negative)
        shares = self._noise[-1] * rng.random(rounds * self.negative)
        found = np.searchsorted(self._noise, shares, side="right")
        drawn = np.minimum(found, len(self.counts) - 1)  # the product may be the last sum, rounded
        own, numbers = np.unique(words[kept], return_inverse=True)
        others = np.union1d(own, drawn)
        if self.is_symmetric:
            rows, offset = others, 0
            numbers = np.searchsorted(others, own)[numbers]
        else:
            rows, offset = np.concatenate([own, len(self.counts) + others]), own.size
        neighbours, drawn = (offset + np.searchsorted(others, one) for one in (words[kept], drawn))
        return Batch(
            rows.astype(np.int64),
            numbers.astype(np.int32),
            neighbours.astype(np.int32),
            *window,
            drawn.astype(np.int32),
            _NONE,
            rate,
        )

    def _batch_of_tree(self, words: Numbers, window: tuple[Numbers, Numbers], rate: float) -> Batch:
        own, numbers = np.unique(words, return_inverse=True)
        levels = [own]
        while levels[-1].size:
            links = self._links[levels[-1]]
            levels.append(np.unique(links[links >= 0] >> 1))
        rows = np.unique(np.concatenate(levels))  # words first: their numbers are below all others
        links = self._links[rows]
        inner = np.searchsorted(rows, links >> 1) * 2 + (links & 1)
        return Batch(
            rows.astype(np.int64),
            numbers.astype(np.int32),
            numbers.astype(np.int32),
            *window,
            _NONE,
            np.where(links >= 0, inner, -1).astype(np.int32),
            rate,
        )

    @cached_property
    def _links(self) -> Ints:
        """As those of a batch, of all words, and then of all other nodes."""
        counts = np.asarray(self.counts, np.int64)
        order = np.argsort(counts, kind="stable")
        links = _huffman(counts[order])
        found = links.copy()
        found[order] = links[: len(order)]
        return found

    @cached_property
    def _noise(self) -> Floats:
        """Running sums of the chances of words to be drawn."""
        return np.cumsum(np.asarray(self.counts, np.float64) ** _POWER)

    @cached_property
    def _chances(self) -> Floats:
        """Of words of the text to be kept."""
        if not self.sample:
            return np.ones(len(self.counts))
        shares = np.asarray(self.counts, np.float64) / (self.sample * np.sum(self.counts))
        return (np.sqrt(shares) + 1.0) / shares

    def train(self, batch: Batch, vectors: npt.NDArray[Any], workers: int = 1) -> Trained:
        """Train the rows of a batch, which ``vectors`` has, and return what changes.

        Of several workers the changes are added up. Each one's steps lead toward a minimum, so
        the sum would lead beyond it; it is scaled to what steps one after the other do: of a row
        that ``n`` steps contract by ``q``, all workers' by ``q**workers``.
        """
        found, steps = vectors.copy(), np.zeros(len(vectors))
        rate, places = vectors.dtype.type(batch.rate), (batch.starts, batch.ends)
        if self.negative:
            known = batch.words, batch.contexts, *places, batch.drawn, self.negative
            loss, pairs = _descend(found, *known, rate, steps)
        else:
            loss, pairs = _descend_tree(found, batch.words, *places, batch.links, rate, steps)
        changes = found - vectors
        if workers > 1:
            exponents = -batch.rate * _CURVATURE * np.maximum(steps, 1e-9)
            scale = np.expm1(workers * exponents) / (workers * np.expm1(exponents))
            changes *= scale.astype(vectors.dtype)[:, None]
        return Trained(changes, loss, pairs)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _descend(
    vectors: Any,
    words: Numbers,
    contexts: Numbers,
    starts: Numbers,
    ends: Numbers,
    drawn: Numbers,
    negative: int,
    rate: Any,
    steps: Floats,
) -> tuple[float, int]:
    """Train one place after the other; the vector of a place changes after those of neighbours.

    ``steps`` counts the steps of each row.
    """
    columns, dtype, loss, pairs = vectors.shape[1], vectors.dtype.type, 0.0, 0
    change = np.empty(columns, vectors.dtype)
    for place in range(len(words)):
        start, end = starts[place], ends[place]
        if end - start < 2:
            continue
        own = vectors[words[place]]
        change[:] = 0
        for near in range(start, end):
            if near == place:
                continue
            other = vectors[contexts[near]]
            product = 0 * rate
            for k in range(columns):
                product += own[k] * other[k]
            chance = 1 / (1 + np.exp(-product))
            loss -= np.log(max(chance, _LEAST_CHANCE))
            slope = dtype(rate * (1 - chance))  # or sums would be of float64
            for k in range(columns):
                change[k] += slope * other[k]
                other[k] += slope * own[k]
            steps[words[place]] += 1
            steps[contexts[near]] += 1
        pairs += end - start - 1
        for number in range(negative):
            word = drawn[(place * negative + number) % len(drawn)]
            count = 0
            for near in range(start, end):
                count += near != place and contexts[near] != word
            if count == 0:
                continue
            other = vectors[word]
            product = 0 * rate
            for k in range(columns):
                product += own[k] * other[k]
            chance = 1 / (1 + np.exp(-product))
            loss -= count * np.log(max(1 - chance, _LEAST_CHANCE))
            slope = dtype(rate * count * chance)
            for k in range(columns):
                change[k] -= slope * other[k]
                other[k] -= slope * own[k]
            steps[words[place]] += count
            steps[word] += count
        for k in range(columns):
            own[k] += change[k]
    return loss, pairs


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _descend_tree(
    vectors: Any,
    words: Numbers,
    starts: Numbers,
    ends: Numbers,
    links: Numbers,
    rate: Any,
    steps: Floats,
) -> tuple[float, int]:
    """As ``_descend``; the vector of a neighbour changes after those of the nodes."""
    columns, dtype, loss, pairs = vectors.shape[1], vectors.dtype.type, 0.0, 0
    change = np.empty(columns, vectors.dtype)
    for place in range(len(words)):
        for near in range(starts[place], ends[place]):
            if near == place:
                continue
            pairs += 1
            own = vectors[words[near]]
            change[:] = 0
            all_chances, link = 1.0, links[words[place]]
            while link >= 0:
                other = vectors[link >> 1]
                product = 0 * rate
                for k in range(columns):
                    product += own[k] * other[k]
                chance = 1 / (1 + np.exp(-product))
                is_second = link & 1
                all_chances *= 1 - chance if is_second else chance
                slope = dtype(rate * (1 - is_second - chance))  # or sums would be of float64
                for k in range(columns):
                    change[k] += slope * other[k]
                    other[k] += slope * own[k]
                steps[words[near]] += 1
                steps[link >> 1] += 1
                link = links[link >> 1]
            loss -= np.log(max(all_chances, _LEAST_CHANCE))
            for k in range(columns):
                own[k] += change[k]
    return loss, pairs


@njit(cache=True, nogil=True)
def _huffman(counts: Ints) -> Ints:
    """The links of a tree with the shortest ways to leaves of these counts, which ascend."""
    leaves = len(counts)
    nodes = 2 * leaves - 1
    links, weights = np.full(nodes, -1), np.zeros(nodes, np.int64)
    weights[:leaves] = counts
    leaf, inner = 0, leaves  # the lightest nodes without a parent, as inner ones ascend, too
    for node in range(leaves, nodes):
        for branch in range(2):
            is_leaf = leaf < leaves and (inner == node or weights[leaf] <= weights[inner])
            least = leaf if is_leaf else inner
            leaf, inner = leaf + is_leaf, inner + (not is_leaf)
            links[least] = 2 * node + branch
            weights[node] += weights[least]
    return links
