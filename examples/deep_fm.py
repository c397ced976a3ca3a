"""Predict clicks with DeepFM in PyTorch, with embeddings on parameter servers.

    python -m examples.deep_fm
    python -m examples.deep_fm --data clicks.parquet --label click

A weight and a vector belong to each value of each field, such as "user=u17" and "ad=a4". The
servers store them and take their steps (AdaGrad); PyTorch trains the network on top (Adam). Each
batch is predicted before it is learned, so the AUC is that of new rows. Without a file the clicks
follow hidden vectors, and the program also prints the best possible AUC. Source: Guo et al. (2017).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pyarrow import parquet
from torch.nn.functional import binary_cross_entropy_with_logits

import distvec as dv
from distvec.torch import Embedding, Optimizer, prefetch
from examples.click_through import area

COUNTS = {"user": 2000, "ad": 500, "site": 50}
"""The generated fields, and how many values each has."""


class Impressions(NamedTuple):
    """Rows of a table; ``keys`` has a column for each field."""

    keys: np.ndarray
    clicks: np.ndarray
    chances: np.ndarray | None
    """Of a click, where they are known."""


class DeepFM(torch.nn.Module):
    """Weights and products of pairs of vectors, and a network over all vectors."""

    def __init__(self, weights: dv.KeyedArray, vectors: dv.KeyedArray, fields: int) -> None:
        super().__init__()
        self.weights, self.vectors = Embedding(weights), Embedding(vectors)
        self.deep = torch.nn.Sequential(
            torch.nn.Linear(fields * self.vectors.embedding_dim, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, 1),
        )

    def forward(self, keys: np.ndarray) -> torch.Tensor:
        """Return the logits of rows."""
        vectors = self.vectors(keys)
        pairs = vectors.sum(1).square().sum(1) - vectors.square().sum((1, 2))
        deep = self.deep(vectors.flatten(1)).squeeze(1)
        return self.weights(keys).sum((1, 2)) + 0.5 * pairs + deep


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn from one pass over the rows, and print a line per report."""
    options = parse(arguments)
    torch.manual_seed(options.seed)
    rows = read(options.data, options.label) if options.data else generate(options)
    with dv.local(servers=2) as ps:
        space = ps.keys()
        weights = space.table(1)
        vectors = space.table(options.columns, init=dv.normal(scale=0.05, seed=options.seed))
        for table in (weights, vectors):
            table.optimizer(dv.rows.adagrad(options.step_size))
        model = DeepFM(weights, vectors, rows.keys.shape[1])
        ps.counters.reset()
        scores = learn(model, rows, options)
        batches = -(-len(scores) // options.batch)
        print(f"{ps.counters.messages / batches:.1f} requests to a server per batch")
        print(f"{len(space):,} keys with {1 + options.columns} numbers each")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="Parquet file; each column is a field")
    parser.add_argument("--label", default="click", help="column of the file with 0 and 1")
    parser.add_argument("--rows", type=int, default=200_000, help="generated impressions")
    parser.add_argument("--batch", type=int, default=1000, help="rows of a batch")
    parser.add_argument("--columns", type=int, default=8, help="length of a vector")
    parser.add_argument("--step-size", type=float, default=0.1, help="of AdaGrad")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and initial values")
    return parser.parse_args(arguments)


def learn(model: DeepFM, rows: Impressions, options: argparse.Namespace) -> np.ndarray:
    """Train on all rows once; return their scores before they were learned."""
    tables = Optimizer(model)
    network = torch.optim.Adam(model.parameters(), lr=1e-3)
    scores = np.empty(len(rows.clicks))
    report = max(1, len(rows.clicks) // options.batch // 5)
    batches = [*slices(len(scores), options.batch)]
    for number, (here, following) in enumerate(zip_longest(batches, batches[1:])):
        logits = model(rows.keys[here])
        if following is not None:  # these rows come while this batch is learned
            prefetch(dict.fromkeys((model.weights, model.vectors), rows.keys[following]))
        scores[here] = logits.detach().numpy()
        tables.zero_grad()
        network.zero_grad()
        clicks = torch.from_numpy(rows.clicks[here])
        binary_cross_entropy_with_logits(logits, clicks).backward()
        tables.step()
        network.step()
        if number % report == report - 1 or following is None:
            newest = slice(max(0, here.stop - report * options.batch), here.stop)
            print(describe(rows, scores, newest))
    return scores


def describe(rows: Impressions, scores: np.ndarray, newest: slice) -> str:
    """Return a line about the newest rows."""
    found = f"{newest.stop:9,} rows  AUC {area(scores[newest], rows.clicks[newest]):.4f}"
    if rows.chances is None:
        return found
    return f"{found}  (best possible {area(rows.chances[newest], rows.clicks[newest]):.4f})"


def slices(count: int, size: int) -> Iterator[slice]:
    """Yield the batches; the last one may be smaller."""
    for begin in range(0, count, size):
        yield slice(begin, min(count, begin + size))


def generate(options: argparse.Namespace) -> Impressions:
    """Return clicks that depend on hidden weights, and on hidden vectors of pairs of fields."""
    rng = np.random.default_rng(options.seed)
    margins, total, squares = np.full(options.rows, -1.5), 0.0, 0.0
    columns = []
    for name, count in COUNTS.items():
        chosen = (count * rng.random(options.rows) ** 2).astype(np.int64)  # low ones are frequent
        margins += rng.normal(scale=0.5, size=count)[chosen]
        hidden = rng.normal(scale=0.6, size=(count, 4))[chosen]
        total, squares = total + hidden, squares + hidden**2
        columns.append(np.char.add(f"{name}=", chosen.astype(str)))
    margins += 0.5 * (total**2 - squares).sum(axis=1)
    chances = 1 / (1 + np.exp(-margins))
    clicks = (rng.random(options.rows) < chances).astype(np.float32)
    return Impressions(np.stack(columns, axis=1), clicks, chances)


def read(path: Path, label: str) -> Impressions:
    """Return the rows of a file."""
    table = parquet.read_table(path)
    if label not in table.column_names or table.num_columns < 2:
        raise SystemExit(f"{path} has no column {label!r} beside fields; name it with --label")
    fields = [name for name in table.column_names if name != label]
    columns: list[Any] = [
        np.char.add(f"{name}=", np.asarray(table[name]).astype(str)) for name in fields
    ]
    return Impressions(np.stack(columns, axis=1), np.asarray(table[label], np.float32), None)


if __name__ == "__main__":
    main()
