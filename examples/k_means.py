"""Find clusters with k-means (Lloyd's algorithm) in a table on parameter servers.

    python -m examples.k_means

``k_means`` is written for NumPy, and runs on NumPy arrays unchanged. The points stay on the
servers; only the few centers travel, in one request to each server per iteration.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import distvec as dv


class Step(NamedTuple):
    """One iteration: new centers, their numbers of points, and the sum of squared distances."""

    centers: Any
    counts: Any
    inertia: Any


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate clusters, find them, and print a line for each iteration."""
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
        print(f"{messages} requests to each server, {seconds / number:.3f} s per iteration")
        error = np.abs(matched(np.asarray(step.centers), truth) - truth).max()
        print(
            f"largest error of a center {error:.4f}; points per cluster {np.asarray(step.counts)}"
        )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000, help="number of points")
    parser.add_argument("--features", type=int, default=8, help="coordinates of each point")
    parser.add_argument("--clusters", type=int, default=5, help="number of clusters")
    parser.add_argument(
        "--spread", type=float, default=3.0, help="standard deviation of the centers"
    )
    parser.add_argument("--servers", type=int, default=2, help="number of server processes")
    parser.add_argument(
        "--tolerance", type=float, default=1e-6, help="stop at this relative improvement"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated data")
    return parser.parse_args(arguments)


def clusters(ps: dv.Session, centers: np.ndarray, rows: int, seed: int) -> dv.DistArray:
    """Draw points on the servers: each is one of the centers plus standard normal noise."""
    count, features = centers.shape
    member = ps.random.integers(0, count, rows, seed=seed)
    noise = ps.random.normal((rows, features), seed=seed)
    points = (member[:, None] == np.arange(count)) @ centers + noise
    return points.persist()


def farthest_first(points: Any, count: int) -> np.ndarray:
    """Choose the first point, then repeatedly the farthest from all before: Gonzalez (1985)."""
    found = [np.asarray(points[0])]
    distance = ((points - found[0]) ** 2).sum(axis=1)
    while len(found) < count:
        found.append(np.asarray(points[int(distance.argmax())]))
        distance = np.minimum(distance, ((points - found[-1]) ** 2).sum(axis=1))
    return np.array(found)


def k_means(points: Any, centers: Any) -> Iterator[Step]:
    """Yield the iterations of Lloyd's algorithm; the caller stops."""
    squares = (points**2).sum(axis=1)
    while True:
        distances = squares[:, None] - 2.0 * points @ centers.T + (centers**2).sum(axis=1)
        inertia = distances.min(axis=1).sum()
        members = distances.argmin(axis=1)[:, None] == np.arange(len(centers))
        counts = members.sum(axis=0)
        # A center without points keeps its place.
        means = members.T @ points / np.maximum(counts, 1)[:, None]
        centers = np.where((counts > 0)[:, None], means, centers)
        yield Step(centers, counts, inertia)


def matched(centers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the nearest found center for each true center."""
    distances = ((truth[:, None, :] - centers) ** 2).sum(axis=2)
    return centers[distances.argmin(axis=1)]


if __name__ == "__main__":
    main()
