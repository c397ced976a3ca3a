"""Mixed work of four threads in one session with a budget, each beside NumPy."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import distvec as dv
from tests.stress.row import Row

SECONDS = 600.0
THREADS = 4
LENGTHS = (1_000, 1 << 17, 1 << 19)
MEMORY = 20 << 20
"""For each of two servers: what all threads hold at once is often more than that."""

NAMES = ("a", "b", "c", "d", "e")


class Mixed:
    """What one thread does: the same with arrays and with NumPy."""

    def __init__(self, ps: dv.Session, seed: int, failures: list[str], done: Counter[str]) -> None:
        self.ps, self.rng = ps, random.Random(seed)
        self.failures, self.done = failures, done
        self.ours: dict[str, Any] = {}
        self.theirs: dict[str, np.ndarray] = {}

    def start(self) -> None:
        """Other arrays: one is put there, the others are lazy."""
        length = self.rng.choice(LENGTHS)
        first = np.linspace(-1.0, 1.0 + self.rng.random(), length)
        self.ours, self.theirs = {}, {}
        given = self.ps.array(first)
        for k, name in enumerate(NAMES, 1):
            self.ours[name], self.theirs[name] = given * float(k), first * float(k)

    def step(self) -> None:
        """One statement, both ways; the arrays are what they were if there is no memory for it."""
        x, y, z = (self.rng.choice(NAMES) for _ in range(3))
        kind = self.rng.choice(("mix", "add", "push", "project", "read", "flush", "chain", "sum"))
        self.done[kind] += 1
        a, b = self.ours, self.theirs
        where = np.array([0, len(b[x]) - 1, 0])
        match kind:
            case "mix":
                a[x], b[x] = a[y] * 0.5 - a[z] * 0.25, b[y] * 0.5 - b[z] * 0.25
            case "add":
                a[x] += a[y] * 0.125
                b[x] = b[x] + b[y] * 0.125
            case "push":
                # What is pushed to must have room for a copy if another name holds it, too.
                a[x].push(where, 1.0)
                b[x] = b[x].copy()
                np.add.at(b[x], where, 1.0)
            case "project":
                a[x] = a[y] - (a[y] @ a[z]) / (1.0 + a[z] @ a[z]) * a[z]
                b[x] = b[y] - (b[y] @ b[z]) / (1.0 + b[z] @ b[z]) * b[z]
            case "read":
                self.compare(x)
            case "flush":
                self.ps.flush()
            case "chain":
                for _ in range(self.rng.randrange(300)):
                    a[x] = a[x] * 0.5 + 0.25
                    b[x] = b[x] * 0.5 + 0.25
            case "sum":
                np.testing.assert_allclose(float(a[x].sum()), b[x].sum(), rtol=1e-7, atol=1e-6)

    def compare(self, name: str) -> None:
        found = self.ours[name].numpy()
        np.testing.assert_allclose(found, self.theirs[name], rtol=1e-7, atol=1e-7, err_msg=name)

    def run(self, until: float) -> None:
        """Steps until then; what was refused for want of memory is read when others are gone."""
        while time.monotonic() < until:
            try:
                self.start()
                for _ in range(self.rng.randrange(5, 60)):
                    try:
                        self.step()
                    except dv.OutOfBudget:
                        self.done["out of budget"] += 1
                        self.free_one()
                    if len(self.ours) < len(NAMES):
                        break
                for name in list(self.ours):
                    try:
                        self.compare(name)
                    except dv.OutOfBudget:
                        self.done["out of budget"] += 1
                    del self.ours[name]
            except dv.OutOfBudget:
                self.done["out of budget"] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                self.failures.append(f"{type(error).__name__}: {error}")

    def free_one(self) -> None:
        name = self.rng.choice(list(self.ours))
        del self.ours[name]


def share(ps: dv.Session, until: float, failures: list[str]) -> int:
    """Four more threads change one array; how many changes all of them made."""
    x = ps.zeros(LENGTHS[1]).persist()
    everywhere = np.arange(LENGTHS[1])
    made, refused, lock = [0], [0], threading.Lock()

    def change(k: int) -> None:
        nonlocal x
        while time.monotonic() < until:
            try:
                if k % 2:
                    x.push(everywhere, 1.0)
                else:
                    x.__iadd__(1.0).persist()
                with lock:
                    made[0] += 1
            except dv.OutOfBudget:
                with lock:  # in place it counts all the same: it is only not computed yet
                    made[0] += 1 - k % 2
                    refused[0] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                failures.append(f"{type(error).__name__}: {error}")
                return

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(change, range(THREADS)))
    values = x.numpy()
    if (values != made[0]).any():
        failures.append(f"{values[:3]} after {made[0]} changes, {refused[0]} were refused")
    return made[0]


def run(scale: float) -> list[Row]:
    """Ten minutes at scale 1, of which a fifth on one array that all change."""
    failures: list[str] = []
    done: Counter[str] = Counter()
    with dv.local(servers=2, memory=MEMORY) as ps:
        ps.pending_depth = 64
        until = time.monotonic() + 0.8 * SECONDS * scale
        workers = [Mixed(ps, seed, failures, done) for seed in range(THREADS)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda worker: worker.run(until), workers))
        for worker in workers:
            worker.ours.clear()
    detail = f"{done.pop('out of budget', 0)} out of budget"
    trials = done.total()
    first = "; ".join(failures[:1])
    rows = [
        Row("statements of four threads under a budget", trials, len(failures), first or detail)
    ]
    wrong: list[str] = []
    with dv.local(servers=2, memory=MEMORY) as ps:
        changes = share(ps, time.monotonic() + 0.2 * SECONDS * scale, wrong)
    rows.append(Row("changes of one array by four threads", changes, len(wrong), "; ".join(wrong)))
    return rows
