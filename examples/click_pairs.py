"""Predict clicks that depend on pairs of keys, with three models over one stream.

    python -m examples.click_pairs --picture pairs.svg

Each hour brings impressions with new users. A click depends on hidden weights of user, ad and site,
and on how well hidden vectors of each two of them agree. A linear model (FTRL) learns the weights
alone. A factorization machine learns vectors of frequent keys, and a field-aware one a vector for
each column of the partner. Each model predicts a minibatch, and then learns from it. The same
models for DataFrames are in ``distvec.spark.ml.online_factorization``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import distvec as dv
from distvec.losses import KeyedMachine
from examples.click_through import area, draw

COLUMNS = ["user", "ad", "site"]
WEIGHT, LENGTH, COMMON = 0.5, 3, -1.0
"""Standard deviation of hidden weights, length of hidden vectors, common part of all margins."""
BATCH = 500
OPTIONS = {
    "factors": 4, "step_size": 0.1, "l1": 0.02, "factor_step_size": 0.1, "spread": 0.1,
    "admit": 3, "seed": 1,
}  # fmt: skip
MODELS: dict[str, dict[str, float]] = {
    "FTRL, linear": {"admit": 2**31 - 1},  # no key is seen so often, so none has factors
    "factorization machine": {},
    "field-aware machine": {"fields": len(COLUMNS)},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate hours of clicks, train the models on them, and print a line per hour."""
    options = parse(arguments)
    with dv.local(servers=2) as ps:
        curves = learn(ps, options)
    if options.json:
        options.json.write_text(json.dumps({"rows": options.rows, "auc": curves}, indent=1) + "\n")
    if options.picture:
        draw(options.picture, curves)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=int, default=12, help="number of batches of the stream")
    parser.add_argument("--rows", type=int, default=10_000, help="impressions per hour")
    parser.add_argument("--users", type=int, default=300, help="users; each hour adds a tenth")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated data")
    parser.add_argument("--picture", type=Path, help="write a plot of the AUC to this file")
    parser.add_argument("--json", type=Path, help="write the AUC of each hour to this file")
    return parser.parse_args(arguments)


def learn(ps: dv.Session, options: argparse.Namespace) -> dict[str, list[float]]:
    """Train on one hour after the other; return the AUC of each hour before it is learned."""
    machines: dict[str, Any] = {
        name: KeyedMachine(ps, **(OPTIONS | own)) for name, own in MODELS.items()
    }
    curves: dict[str, list[float]] = {"best possible": [], **{name: [] for name in machines}}
    for hour in range(options.hours):
        rows, clicks, best = hour_of_clicks(hour, options)
        curves["best possible"].append(best)
        for name, machine in machines.items():
            margins = []
            for low in range(0, len(rows), BATCH):
                some = rows[low : low + BATCH]
                margins.append(machine.margins(some))
                machine.partial_fit(some, clicks[low : low + BATCH])
            curves[name].append(area(np.concatenate(margins), clicks))
        found = "  ".join(f"{name} {curve[-1]:.4f}" for name, curve in curves.items())
        print(f"hour {hour:3}  AUC  {found}")
    for name, machine in machines.items():
        keys, factors = len(machine.weights), len(machine.factors)
        print(f"{name}: {keys:,} keys, {factors:,} with factors, {machine.nbytes:,} bytes")
    return curves


def hour_of_clicks(
    hour: int, options: argparse.Namespace
) -> tuple[list[list[str]], np.ndarray, float]:
    """Generate the keys and clicks of an hour, and the AUC of the hidden weights and vectors."""
    rng = np.random.default_rng((options.seed, hour))
    users = options.users + options.users * hour // 10
    counts = dict(zip(COLUMNS, (users, 60, 20), strict=True))
    margins, total, columns = np.full(options.rows, COMMON), 0.0, []
    for place, (name, count) in enumerate(counts.items()):
        chosen = (count * rng.random(options.rows) ** 2).astype(np.int64)  # low ones are frequent
        hidden = np.random.default_rng((options.seed, 0, place))
        vectors = hidden.normal(size=(10_000, LENGTH + 1))[chosen]
        margins += WEIGHT * vectors[:, 0] - 0.5 * np.square(vectors[:, 1:]).sum(axis=1)
        total = total + vectors[:, 1:]
        columns.append(np.char.add(f"{name}=", chosen.astype(str)))
    margins += 0.5 * np.square(total).sum(axis=1)  # so what is added in all is that of the pairs
    clicks = (rng.random(options.rows) < 1 / (1 + np.exp(-margins))).astype(np.int32)
    return np.column_stack(columns).tolist(), clicks, area(margins, clicks)


if __name__ == "__main__":
    main()
