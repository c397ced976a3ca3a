"""The direction of L-BFGS, ten pairs, typed operator by operator: on servers and in NumPy.

The same function runs on both; a second NumPy version is tuned by hand to work in place. Every
run takes a new gradient and replaces the oldest pair, as an iteration does. The bound is 4m + 3
vectors read or written, at the bandwidth of a plain copy.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, interleaved, main, speed_up

HISTORY = 10
SERVERS = 2
GAMMA = 0.05

Pair = tuple[Any, Any, float]


def two_loop(g: Any, pairs: Sequence[Pair], gamma: float) -> Any:
    """J. Nocedal, S. J. Wright, Numerical Optimization (2006), algorithm 7.4."""
    q, alphas = g, []
    for s, y, rho in reversed(pairs):
        alpha = rho * (s @ q)
        q = q - alpha * y
        alphas.append(alpha)
    r = gamma * q
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        beta = rho * (y @ r)
        r = r + (alpha - beta) * s
    return r


def two_loop_in_place(g: Any, pairs: Sequence[Pair], gamma: float, r: Any, work: Any) -> Any:
    """The same into ``r``, without temporaries: what a careful NumPy programmer writes."""
    np.copyto(r, g)
    alphas = []
    for s, y, rho in reversed(pairs):
        alpha = rho * np.dot(s, r)
        np.multiply(y, alpha, out=work)
        np.subtract(r, work, out=r)
        alphas.append(alpha)
    np.multiply(r, gamma, out=r)
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        beta = rho * np.dot(y, r)
        np.multiply(s, alpha - beta, out=work)
        np.add(r, work, out=r)
    return r


class Run:
    """Pairs that change as in an iteration; ``put`` makes an array of the kind under test."""

    def __init__(self, host: Sequence[tuple[np.ndarray, np.ndarray]], put: Any) -> None:
        made = [(put(s), put(y), 1.0 / float(s @ y)) for s, y in host]
        self._waiting = deque(made[HISTORY:])
        self.pairs = deque(made[:HISTORY])
        self.gradients = deque(put(s) for s, _ in host)

    def next(self) -> tuple[Any, list[Pair]]:
        """The next gradient and history: one pair comes, the oldest goes and will come again."""
        self._waiting.append(self.pairs.popleft())
        self.pairs.append(self._waiting.popleft())
        self.gradients.rotate(1)
        return self.gradients[0] * 1.0, list(self.pairs)


def measure(options: argparse.Namespace) -> Report:
    """Ours on two server processes; both NumPy versions in this one."""
    n = 1_000_000 if options.quick else 10_000_000
    rng = np.random.default_rng(1)
    curvature = np.linspace(1.0, 50.0, n)
    host = []
    for _ in range(HISTORY + 2):
        s = rng.standard_normal(n)
        host.append((s, curvature * s))
    r, work, target = np.empty(n), np.empty(n), np.empty(n)
    with dv.local(servers=SERVERS) as ps:
        ours, theirs, tuned = Run(host, ps.array), Run(host, np.asarray), Run(host, np.asarray)
        check = two_loop(*ours.next(), GAMMA).numpy()
        expected = two_loop(*theirs.next(), GAMMA)
        error = float(np.linalg.norm(check - expected) / np.linalg.norm(expected))
        messages: list[int] = []

        def on_servers() -> None:
            gradient, pairs = ours.next()
            gradient.persist()
            before = ps.counters.messages
            two_loop(gradient, pairs, GAMMA).persist()
            messages.append(ps.counters.messages - before)

        timings = interleaved(
            [
                Case("distvec", on_servers, bytes=(4 * HISTORY + 3) * r.nbytes),
                Case("NumPy, the same lines", lambda: two_loop(*theirs.next(), GAMMA)),
                Case("NumPy, in place", lambda: two_loop_in_place(*tuned.next(), GAMMA, r, work)),
                Case("copy, 1 thread", lambda: np.copyto(target, r), bytes=2 * r.nbytes),
            ],
            repeat=3 if options.quick else 7,
            warm_up=2,
        )
    mine = timings["distvec"]
    ratios = [
        Ratio("speed over NumPy", speed_up(mine, timings["NumPy, the same lines"]), "at least 5"),
        Ratio(
            "speed over NumPy in place", speed_up(mine, timings["NumPy, in place"]), "at least 3"
        ),
        Ratio("bandwidth over copy's", speed_up(mine, timings["copy, 1 thread"])),
    ]
    facts = {"messages per server": max(messages), "relative difference to NumPy": f"{error:.1e}"}
    title = f"L-BFGS direction, m = {HISTORY}, n = {n:.0e}, {SERVERS} servers"
    return Report(title, list(timings.values()), ratios, facts)


if __name__ == "__main__":
    main(__doc__, measure)
