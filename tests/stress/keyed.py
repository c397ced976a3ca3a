"""A keyed space grows to its budget under four threads, while another one reads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import distvec as dv
from tests.stress.row import Row

SECONDS = 60.0
THREADS = 4
MEMORY = 64 << 20
"""For both servers: some 700,000 keys of 16 float32."""
BATCH = 20_000
SLOWEST = 0.1
"""Seconds that a small pull may take meanwhile, but for one in a hundred."""


class Pusher:
    """One thread: pushes to keys of its own and to some that all push to."""

    def __init__(self, table: dv.KeyedArray, seed: int) -> None:
        self.table, self.rng = table, np.random.default_rng(seed)
        self.first = (seed + 1) << 40
        self.counts: dict[int, int] = {}
        self.refused = self.pushes = 0

    def run(self, until: float) -> None:
        """Each key counts what was pushed to it; a refused one is given up."""
        rows = np.ones((BATCH, 16), np.float32)
        while time.monotonic() < until:
            keys = np.unique(
                np.concatenate(
                    [
                        self.first + self.rng.integers(0, 10**6, BATCH - 100),
                        self.rng.integers(0, 500, 100),
                    ]
                )
            )
            try:
                self.table.push(keys, rows[: len(keys)])
                self.pushes += 1
            except dv.OutOfBudget as error:
                self.refused += len(error.refused)
                keys = np.setdiff1d(keys, error.refused, assume_unique=True)
            for key in keys.tolist():
                self.counts[key] = self.counts.get(key, 0) + 1


def read(table: dv.KeyedArray, done: threading.Event) -> list[float]:
    """Seconds of each small pull until then."""
    seconds = []
    keys = np.arange(500)
    while not done.wait(0.01):
        began = time.perf_counter()
        table.pull(keys)
        seconds.append(time.perf_counter() - began)
    return seconds


def run(scale: float) -> list[Row]:
    """A minute at scale 1."""
    done = threading.Event()
    with dv.local(servers=2) as ps, ThreadPoolExecutor(THREADS + 1) as pool:
        space = ps.keys(most_bytes=MEMORY)
        table = space.table(16)
        table.push(np.arange(500), np.zeros((500, 16), np.float32))
        workers = [Pusher(table, seed) for seed in range(THREADS)]
        reader = pool.submit(read, table, done)
        until = time.monotonic() + SECONDS * scale
        list(pool.map(lambda worker: worker.run(until), workers))
        done.set()
        seconds = np.sort(reader.result())
        expected: dict[int, int] = {}
        for worker in workers:
            for key, count in worker.counts.items():
                expected[key] = expected.get(key, 0) + count
        keys = np.array([*expected])
        counts = table.pull(keys)[:, 0]
        wrong = int(np.count_nonzero(counts != np.array([*expected.values()])))
        state = space.state()
    late = float(np.quantile(seconds, 0.99))
    refused = sum(worker.refused for worker in workers)
    detail = (
        f"{state.keys} keys in {state.bytes >> 20} MiB, {refused} refused; pulls took "
        f"{1e3 * np.median(seconds):.1f} ms, 99 % {1e3 * late:.0f} ms, at most "
        f"{1e3 * seconds[-1]:.0f} ms"
    )
    rows = [Row("keys pushed to by four threads up to a budget", len(keys), wrong, detail)]
    slow = int(late > SLOWEST)
    rows.append(Row("small pulls meanwhile within 100 ms", len(seconds), slow, detail))
    return rows
