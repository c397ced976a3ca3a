"""k-means by Lloyd's algorithm, over a table on parameter servers.

    python -m examples.k_means

The algorithm is NumPy's, and runs on NumPy's arrays as it is: which points are nearest to which
centre, and the sums of these, are found where the points are. The few centres go along.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import distvec as dv


class Step(NamedTuple):
    """One iteration: new centres, how many points each has, and the sum of squared distances."""

    centres: Any
    counts: Any
    inertia: Any


def main(arguments: Sequence[str] | None = None) -> None:
    """Make up clusters, find them, and print a line for each iteration."""
    options = parse(arguments)
    rng = np.random.default_rng(options.seed)
    truth = options.spread * rng.standard_normal((options.clusters, options.features))
    with dv.local(servers=options.servers) as ps:
        points = clusters(ps, truth, options.rows, options.seed)
        start = farthest_first(points, options.clusters)
        shape = f"{options.rows:,} x {options.features}"
        print(f"a table of {shape} on {options.servers} servers")
        before, began, last = ps.counters.messages, time.perf_counter(), np.inf
        for number, step in enumerate(k_means(points, start), 1):
            dv.evaluate(*step)
            inertia = float(step.inertia) / options.rows
            print(f"{number:3}  mean squared distance {inertia:.6f}")
            if last - inertia <= options.tolerance * inertia:
                break
            last = inertia
        seconds, messages = time.perf_counter() - began, ps.counters.messages - before
        print(f"{messages} messages to each server, {seconds / number:.3f} s an iteration")
        error = np.abs(matched(np.asarray(step.centres), truth) - truth).max()
        print(f"the centres are found to {error:.4f}; points of each: {np.asarray(step.counts)}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000, help="points")
    parser.add_argument("--features", type=int, default=8, help="of each point")
    parser.add_argument("--clusters", type=int, default=5, help="to make up, and to find")
    parser.add_argument("--spread", type=float, default=3.0, help="of the clusters' centres")
    parser.add_argument("--servers", type=int, default=2, help="processes that hold the points")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="on the relative gain")
    parser.add_argument("--seed", type=int, default=0, help="of what is made up")
    return parser.parse_args(arguments)


def clusters(ps: dv.Session, centres: np.ndarray, rows: int, seed: int) -> dv.DistArray:
    """Points with standard normal noise about one of the centres each, made on the servers."""
    count, features = centres.shape
    member = ps.random.integers(0, count, rows, seed=seed)
    noise = ps.random.normal((rows, features), seed=seed)
    points = (member[:, None] == np.arange(count)) @ centres + noise
    return points.persist()


def farthest_first(points: Any, count: int) -> np.ndarray:
    """The first point, and then each time the one farthest from those before: Gonzalez (1985)."""
    found = [np.asarray(points[0])]
    distance = ((points - found[0]) ** 2).sum(axis=1)
    while len(found) < count:
        found.append(np.asarray(points[int(distance.argmax())]))
        distance = np.minimum(distance, ((points - found[-1]) ** 2).sum(axis=1))
    return np.array(found)


def k_means(points: Any, centres: Any) -> Iterator[Step]:
    """The iterations of Lloyd's algorithm, without an end."""
    squares = (points**2).sum(axis=1)
    while True:
        distances = squares[:, None] - 2.0 * points @ centres.T + (centres**2).sum(axis=1)
        inertia = distances.min(axis=1).sum()
        members = distances.argmin(axis=1)[:, None] == np.arange(len(centres))
        counts = members.sum(axis=0)
        # A centre that has lost its points stays.
        means = members.T @ points / np.maximum(counts, 1)[:, None]
        centres = np.where((counts > 0)[:, None], means, centres)
        yield Step(centres, counts, inertia)


def matched(centres: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """For each of the true centres the nearest one that was found."""
    distances = ((truth[:, None, :] - centres) ** 2).sum(axis=2)
    return centres[distances.argmin(axis=1)]


if __name__ == "__main__":
    main()
