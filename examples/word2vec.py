"""Learn word vectors with negative sampling (word2vec) on parameter servers, in two ways.

    python -m examples.word2vec

*Rows travel*: the vectors are rows of a table over keys. For each minibatch the client pulls the
rows that it needs, computes products and gradients, and a row function subtracts the gradients on
the servers. *Sums travel*: the vectors are rows of two tables that are split by columns, so each
server has a part of every vector. The servers multiply the parts, and only sums, indices and
coefficients travel. Both ways run the same algorithm from the same start. The sentences consist of
words of one cluster each, so similar vectors must belong to one cluster at the end. Sources:
Mikolov et al. (2013); split by columns as in Ordentlich et al. (2016).
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
    """Pairs of a word and a context; ``seen`` is 1 for pairs of the corpus and 0 for drawn ones."""

    words: Ints
    contexts: Ints
    seen: Floats


class Vectors(Protocol):
    """A way to store the vectors and to take a step on them."""

    def products(self, words: Ints, contexts: Ints) -> Floats:
        """Return the inner product of the two vectors of each pair."""

    def descend(self, words: Ints, contexts: Ints, slopes: Floats) -> None:
        """Subtract ``slopes`` times the other vector from each vector of a pair."""

    def of_words(self) -> Floats:
        """Return the vectors of all words."""


@dv.rows
def take_off(w: Any, change: Any) -> Any:
    """Subtract the changes on the servers; changes of one row have been added up."""
    return {"w": w - change}


class RowsTravel:
    """Pull rows and push changes: two requests to each server per minibatch."""

    def __init__(self, ps: dv.Session, count: int, columns: int, seed: int) -> None:
        self.space = ps.keys()
        bound = 0.5 / columns
        self.table = self.space.table(columns, init=dv.uniform(-bound, bound), seed=seed)
        self.count = count

    def products(self, words: Ints, contexts: Ints) -> Floats:
        """Pull words (even keys) and contexts (odd keys) in one request."""
        rows = self.table.pull(np.concatenate((2 * words, 2 * contexts + 1)))
        self.of_pairs = rows[: len(words)], rows[len(words) :]
        return np.asarray(np.vecdot(*self.of_pairs))

    def descend(self, words: Ints, contexts: Ints, slopes: Floats) -> None:
        """Compute the changes of each row, and apply them on the servers."""
        first, second = self.of_pairs
        changes = slopes[:, None] * np.concatenate((second, first)).reshape(2, *first.shape)
        keys = np.concatenate((2 * words, 2 * contexts + 1))
        self.space.apply(take_off, keys, self.table, changes.reshape(len(keys), -1))

    def of_words(self) -> Floats:
        """Pull the rows of the words."""
        return np.asarray(self.table.pull(2 * np.arange(self.count)))


class SumsTravel:
    """Keep some columns of all vectors on each server: one request per minibatch to each."""

    def __init__(self, ps: dv.Session, start: RowsTravel) -> None:
        """Copy the vectors of ``start``."""
        space, keys = ps.space(start.count, split="columns"), np.arange(start.count)
        self.words = space.array(start.table.pull(2 * keys))
        self.contexts = space.array(start.table.pull(2 * keys + 1))

    def products(self, words: Ints, contexts: Ints) -> Floats:
        """Compute the products, and the previous step in the same request."""
        return np.asarray(dv.row_dot(self.words, words, self.contexts, contexts))

    def descend(self, words: Ints, contexts: Ints, slopes: Floats) -> None:
        """Add the step to the pending work."""
        first, second = self.words[words], self.contexts[contexts]
        np.subtract.at(self.words, words, slopes[:, None] * second)
        np.subtract.at(self.contexts, contexts, slopes[:, None] * first)

    def of_words(self) -> Floats:
        """Pull the table."""
        return np.asarray(self.words)


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate a corpus, learn vectors in both ways, and print the cost of each."""
    options = parse(arguments)
    count = options.clusters * options.words
    sentences = corpus(options.clusters, options.words, options.sentences, 12, options.seed)
    pairs = skip_grams(sentences, options.window)
    print(f"{count} words in {options.clusters} clusters, {len(pairs):,} pairs per epoch")
    with dv.local(servers=options.servers) as ps:
        rows = RowsTravel(ps, count, options.columns, options.seed)
        sums = SumsTravel(ps, rows)
        costs = [learn(ps, way, pairs, count, options) for way in (rows, sums)]
    for name, cost in zip(("rows travel", "sums travel"), costs, strict=True):
        print(f"{name}: {cost}")
    print(advice(options.batch, options.negatives, options.columns, 2 * count, options.servers))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clusters", type=int, default=10, help="number of clusters")
    parser.add_argument("--words", type=int, default=50, help="words per cluster")
    parser.add_argument(
        "--sentences", type=int, default=2000, help="number of sentences of 12 words"
    )
    parser.add_argument("--window", type=int, default=2, help="words on each side of a word")
    parser.add_argument("--columns", type=int, default=128, help="length of a vector")
    parser.add_argument("--negatives", type=int, default=5, help="contexts drawn for each pair")
    parser.add_argument("--batch", type=int, default=1024, help="pairs per minibatch")
    parser.add_argument("--epochs", type=int, default=4, help="passes over all pairs")
    parser.add_argument("--step", type=float, default=0.05, help="step size")
    parser.add_argument("--servers", type=int, default=2, help="number of server processes")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers")
    return parser.parse_args(arguments)


# --- the corpus -----------------------------------------------------------------------------------


def corpus(clusters: int, words: int, sentences: int, length: int, seed: int) -> Ints:
    """Generate sentences of words of one cluster; one word in ten is from another cluster.

    Word ``w`` is in cluster ``w // words``, and some words of a cluster are more frequent.
    """
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, words + 1) ** 0.5
    cluster = rng.integers(clusters, size=(sentences, 1))
    stray = rng.random((sentences, length)) < 0.1
    cluster = np.where(stray, rng.integers(clusters, size=stray.shape), cluster)
    return cluster * words + rng.choice(words, cluster.shape, p=frequency / frequency.sum())


def skip_grams(sentences: Ints, window: int) -> Ints:
    """Pair each word with its neighbors within ``window`` places: shape ``(pairs, 2)``."""
    found = []
    for distance in range(1, window + 1):
        near = sentences[:, :-distance].ravel(), sentences[:, distance:].ravel()
        found += [np.stack(near, axis=1), np.stack(near[::-1], axis=1)]
    return np.concatenate(found)


def batches(pairs: Ints, count: int, epoch: int, options: argparse.Namespace) -> Iterator[Batch]:
    """Yield the pairs in a new order each epoch, together with drawn contexts.

    The chance of a context is proportional to the power 3/4 of its count. The draws depend only on
    the seed and the epoch, so both ways see the same batches.
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
    """The average cost of a minibatch, and the results of the run."""

    messages: float
    sent: float
    received: float
    seconds: float
    losses: list[float]
    purity: float

    def __str__(self) -> str:
        return (
            f"{self.messages:.2f} requests to a server, {self.sent / 1000:,.0f} kB sent and "
            f"{self.received / 1000:,.0f} kB received, {1000 * self.seconds:.1f} ms per minibatch"
        )


def learn(
    ps: dv.Session, way: Vectors, pairs: Ints, count: int, options: argparse.Namespace
) -> Cost:
    """Train for all epochs, and print a line for each."""
    name, steps, losses = type(way).__name__, 0, []
    before, began = ps.counters.snapshot(), time.perf_counter()
    for epoch in range(options.epochs):
        total = 0.0
        for batch in batches(pairs, count, epoch, options):
            total += step(way, batch, options.step)
            steps += 1
        losses.append(total / len(pairs))
        print(f"{name} {epoch + 1:3}  loss per pair {losses[-1]:.4f}")
    seconds, after = time.perf_counter() - began, ps.counters.snapshot()
    used = {what: (after[what] - before[what]) / steps for what in after}
    found = purity(way.of_words(), options.words)
    print(f"{name}: {100 * found:.1f} % of the five nearest words are in the same cluster")
    sent, received = used["bytes_sent"], used["bytes_received"]
    return Cost(used["messages"], sent, received, seconds / steps, losses, found)


def step(way: Vectors, batch: Batch, step_size: float) -> float:
    """Take a step of gradient descent on a minibatch, and return the loss before it."""
    products = way.products(batch.words, batch.contexts)
    signed = np.where(batch.seen > 0, -products, products)
    chances = 0.5 + 0.5 * np.tanh(0.5 * products)
    slopes = (step_size * (chances - batch.seen)).astype(np.float32)
    way.descend(batch.words, batch.contexts, slopes)
    return float(np.logaddexp(0.0, signed).sum())


def purity(vectors: Floats, words: int, nearest: int = 5) -> float:
    """Return the share of the nearest words, by angle, that are in the same cluster."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    angles = unit @ unit.T
    np.fill_diagonal(angles, -np.inf)
    found = np.argsort(-angles, axis=1)[:, :nearest] // words
    return float((found == np.arange(len(vectors))[:, None] // words).mean())


def advice(batch: int, negatives: int, columns: int, most: int, servers: int) -> str:
    """Estimate which way sends fewer bytes.

    Rows: each distinct row of a minibatch (at most ``most``) travels as float32 in both directions.
    Sums: each pair needs two indices of 8 bytes, twice, a coefficient of 4 and a sum of 8 bytes,
    for each server that has columns. A server has at least 1,024 columns.
    """
    pairs, holders = batch * (1 + negatives), min(servers, -(-columns // 1024))
    rows = min(2 * pairs, most)
    by_rows, by_sums = 2 * 4 * columns * rows, holders * pairs * (2 * 16 + 4 + 8)
    return (
        f"rule of thumb: {rows} rows x {columns} columns x 8 bytes = {by_rows / 1000:,.0f} kB, or "
        f"{holders} servers x {pairs} pairs x 44 bytes = {by_sums / 1000:,.0f} kB: "
        f"sums send less above {44 * holders * pairs / (8 * rows):.0f} columns"
    )


if __name__ == "__main__":
    main()
