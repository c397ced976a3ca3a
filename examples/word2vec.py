"""word2vec by negative sampling, with the vectors on parameter servers, in two ways.

    python -m examples.word2vec

*Rows travel*: the vectors are rows of a table over keys. A minibatch pulls those it needs, computes
products and gradients here, and a row function takes the gradients off on the servers. *Sums
travel*: the vectors are rows of two tables that are split by columns, so each server has a part of
every vector. It multiplies the parts; sums come back; indices and coefficients of the gradients go
there, with the indices of the next minibatch. Both are the same algorithm, from the same start, on
sentences of words of one of some clusters each: at the end the neighbours of a word must be those
of its cluster. Source: Mikolov et al. (2013); split by columns as Ordentlich et al. (2016).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

import distvec as dv

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Batch(NamedTuple):
    """Pairs of a word and a context: ``seen`` is 1 for those of the corpus, 0 for those drawn."""

    words: Ints
    contexts: Ints
    seen: Floats


class Vectors(Protocol):
    """Where the vectors are, and how a step on them is made."""

    def products(self, words: Ints, contexts: Ints) -> Floats:
        """Of each pair the inner product of its vectors."""

    def descend(self, words: Ints, contexts: Ints, slopes: Floats) -> None:
        """Take ``slopes`` times the vector of the other one off the vectors of each pair."""

    def of_words(self) -> Floats:
        """The vectors of all words."""


@dv.rows
def take_off(w: Any, change: Any) -> Any:
    """What the servers do to the rows of a minibatch, whose changes are added up before."""
    return {"w": w - change}


class RowsTravel:
    """Rows are pulled, changes are pushed: a message to each server for each of the two."""

    def __init__(self, ps: dv.Session, count: int, columns: int, seed: int) -> None:
        self.space = ps.keys()
        bound = 0.5 / columns
        self.table = self.space.table(columns, init=dv.uniform(-bound, bound), seed=seed)
        self.count = count

    def products(self, words: Ints, contexts: Ints) -> Floats:
        """Words have keys 0, 2, 4, ..., contexts the others: so one message brings both."""
        rows = self.table.pull(np.concatenate((2 * words, 2 * contexts + 1)))
        self.of_pairs = rows[: len(words)], rows[len(words) :]
        return np.asarray(np.vecdot(*self.of_pairs))

    def descend(self, words: Ints, contexts: Ints, slopes: Floats) -> None:
        """Changes of one row are added up here, in the order of the pairs."""
        first, second = self.of_pairs
        changes = slopes[:, None] * np.concatenate((second, first)).reshape(2, *first.shape)
        keys = np.concatenate((2 * words, 2 * contexts + 1))
        self.space.apply(take_off, keys, self.table, changes.reshape(len(keys), -1))

    def of_words(self) -> Floats:
        """Pulled."""
        return np.asarray(self.table.pull(2 * np.arange(self.count)))


class SumsTravel:
    """Each server has some columns of all vectors: a message to each, for products and step."""

    def __init__(self, ps: dv.Session, start: RowsTravel) -> None:
        """With the vectors of ``start``."""
        space, keys = ps.space(start.count, split="columns"), np.arange(start.count)
        self.words = space.array(start.table.pull(2 * keys))
        self.contexts = space.array(start.table.pull(2 * keys + 1))

    def products(self, words: Ints, contexts: Ints) -> Floats:
        """The step before is computed with them."""
        return np.asarray(dv.row_dot(self.words, words, self.contexts, contexts))

    def descend(self, words: Ints, contexts: Ints, slopes: Floats) -> None:
        """Lazy."""
        first, second = self.words[words], self.contexts[contexts]
        np.subtract.at(self.words, words, slopes[:, None] * second)
        np.subtract.at(self.contexts, contexts, slopes[:, None] * first)

    def of_words(self) -> Floats:
        """Pulled."""
        return np.asarray(self.words)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make up a corpus, learn vectors in both ways, and print what each of them costs."""
    options = parse(arguments)
    count = options.clusters * options.words
    sentences = corpus(options.clusters, options.words, options.sentences, 12, options.seed)
    pairs = skip_grams(sentences, options.window)
    print(f"{count} words in {options.clusters} clusters, {len(pairs):,} pairs an epoch")
    with dv.local(servers=options.servers) as ps:
        rows = RowsTravel(ps, count, options.columns, options.seed)
        sums = SumsTravel(ps, rows)
        costs = [learn(ps, way, pairs, count, options) for way in (rows, sums)]
    for name, cost in zip(("rows travel", "sums travel"), costs, strict=True):
        print(f"{name}: {cost}")
    print(advice(options.batch, options.negatives, options.columns, 2 * count, options.servers))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clusters", type=int, default=10, help="of words")
    parser.add_argument("--words", type=int, default=50, help="of each cluster")
    parser.add_argument("--sentences", type=int, default=2000, help="of 12 words")
    parser.add_argument("--window", type=int, default=2, help="words on each side of a word")
    parser.add_argument("--columns", type=int, default=128, help="elements of a vector")
    parser.add_argument("--negatives", type=int, default=5, help="drawn for each pair")
    parser.add_argument("--batch", type=int, default=1024, help="pairs of a minibatch")
    parser.add_argument("--epochs", type=int, default=4, help="over all pairs")
    parser.add_argument("--step", type=float, default=0.05, help="step size")
    parser.add_argument("--servers", type=int, default=2, help="processes that hold the vectors")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    return parser.parse_args(arguments)


# --- the corpus -----------------------------------------------------------------------------------


def corpus(clusters: int, words: int, sentences: int, length: int, seed: int) -> Ints:
    """Sentences of words of one cluster each, but for one word in ten: ``(sentences, length)``.

    Word ``w`` is in cluster ``w // words``, and some words of a cluster are more frequent.
    """
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, words + 1) ** 0.5
    cluster = rng.integers(clusters, size=(sentences, 1))
    stray = rng.random((sentences, length)) < 0.1
    cluster = np.where(stray, rng.integers(clusters, size=stray.shape), cluster)
    return cluster * words + rng.choice(words, cluster.shape, p=frequency / frequency.sum())


def skip_grams(sentences: Ints, window: int) -> Ints:
    """Each word with each of those up to ``window`` places from it: ``(pairs, 2)``."""
    found = []
    for distance in range(1, window + 1):
        near = sentences[:, :-distance].ravel(), sentences[:, distance:].ravel()
        found += [np.stack(near, axis=1), np.stack(near[::-1], axis=1)]
    return np.concatenate(found)


def batches(pairs: Ints, count: int, epoch: int, options: argparse.Namespace) -> Iterator[Batch]:
    """The pairs in another order each epoch, each with words that are drawn as contexts.

    A context is drawn as often as the power 3/4 of how often it occurs. What is drawn depends on
    seed and epoch alone: both ways see the same.
    """
    rng = np.random.Generator(np.random.Philox(key=options.seed, counter=[0, 0, 0, epoch]))
    weights = np.cumsum(np.bincount(pairs[:, 1], minlength=count) ** 0.75)
    order = rng.permutation(len(pairs))
    for low in range(0, len(order), options.batch):
        words, contexts = pairs[order[low : low + options.batch]].T
        many = len(words) * options.negatives
        drawn = np.searchsorted(weights, weights[-1] * rng.random(many), side="right")
        seen = np.repeat(np.array([1.0, 0.0], np.float32), (len(words), many))
        repeated = np.concatenate((words, np.repeat(words, options.negatives)))
        yield Batch(repeated, np.concatenate((contexts, drawn)), seen)


# --- learning -------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What learning came to: of the counters what a minibatch takes, on average."""

    messages: float
    sent: float
    received: float
    seconds: float
    losses: list[float]
    purity: float

    def __str__(self) -> str:
        return (
            f"{self.messages:.2f} messages to a server, {self.sent / 1000:,.0f} kB sent and "
            f"{self.received / 1000:,.0f} kB received, {1000 * self.seconds:.1f} ms a minibatch"
        )


def learn(
    ps: dv.Session, way: Vectors, pairs: Ints, count: int, options: argparse.Namespace
) -> Cost:
    """All epochs, with a line for each."""
    name, steps, losses = type(way).__name__, 0, []
    before, began = ps.counters.snapshot(), time.perf_counter()
    for epoch in range(options.epochs):
        total = 0.0
        for batch in batches(pairs, count, epoch, options):
            total += step(way, batch, options.step)
            steps += 1
        losses.append(total / len(pairs))
        print(f"{name} {epoch + 1:3}  loss of a pair {losses[-1]:.4f}")
    seconds, after = time.perf_counter() - began, ps.counters.snapshot()
    used = {what: (after[what] - before[what]) / steps for what in after}
    found = purity(way.of_words(), options.words)
    print(f"{name}: {100 * found:.1f} % of the nearest five words are of the same cluster")
    sent, received = used["bytes_sent"], used["bytes_received"]
    return Cost(used["messages"], sent, received, seconds / steps, losses, found)


def step(way: Vectors, batch: Batch, step_size: float) -> float:
    """One step of gradient descent on a minibatch; the loss before it."""
    products = way.products(batch.words, batch.contexts)
    signed = np.where(batch.seen > 0, -products, products)
    chances = 0.5 + 0.5 * np.tanh(0.5 * products)
    slopes = (step_size * (chances - batch.seen)).astype(np.float32)
    way.descend(batch.words, batch.contexts, slopes)
    return float(np.logaddexp(0.0, signed).sum())


def purity(vectors: Floats, words: int, nearest: int = 5) -> float:
    """Of the ``nearest`` ones of each word, by the angle, how many are of its cluster: 0 to 1."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    angles = unit @ unit.T
    np.fill_diagonal(angles, -np.inf)
    found = np.argsort(-angles, axis=1)[:, :nearest] // words
    return float((found == np.arange(len(vectors))[:, None] // words).mean())


def advice(batch: int, negatives: int, columns: int, most: int, servers: int) -> str:
    """Which way sends less, by a rule of thumb.

    Rows of float32 travel there and back: each that a minibatch names, of ``most``, once. Or for
    each pair two indices of 8 bytes, twice, a coefficient of 4 and a sum of 8: to and from each
    server that has columns, of which one has 1024 at least.
    """
    pairs, holders = batch * (1 + negatives), min(servers, -(-columns // 1024))
    rows = min(2 * pairs, most)
    by_rows, by_sums = 2 * 4 * columns * rows, holders * pairs * (2 * 16 + 4 + 8)
    return (
        f"rule of thumb: {rows} rows x {columns} columns x 8 bytes = {by_rows / 1000:,.0f} kB, or "
        f"{holders} servers x {pairs} pairs x 44 bytes = {by_sums / 1000:,.0f} kB: "
        f"sums pay above {44 * holders * pairs / (8 * rows):.0f} columns"
    )


if __name__ == "__main__":
    main()
