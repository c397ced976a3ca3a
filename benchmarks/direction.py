"""The direction of L-BFGS, ten pairs, typed operator by operator: on servers and in NumPy.

The same function runs on both; a second NumPy version is tuned by hand to work in place. Every
run takes a new gradient and replaces the oldest pair, as an iteration does. The bound is 4m + 3
vectors read or written, at the bandwidth of a plain copy. The first runs are those of servers that
have just started, on a machine where nothing was compiled yet.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.harness import (
    Case,
    Ratio,
    Report,
    heat,
    interleaved,
    main,
    nothing_compiled,
    speed_up,
)

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

    def next(self, copy: Any) -> tuple[Any, list[Pair]]:
        """The next gradient and history: one pair comes, the oldest goes and will come again.

        ``copy`` makes new arrays of them, of which nothing is known yet.
        """
        self._waiting.append(self.pairs.popleft())
        s, y, rho = self._waiting.popleft()
        self.pairs.append((copy(s), copy(y), rho))
        self.gradients.rotate(1)
        return copy(self.gradients[0]), list(self.pairs)


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
    with nothing_compiled(), dv.local(servers=SERVERS) as ps:
        ours, theirs, tuned = Run(host, ps.array), Run(host, np.asarray), Run(host, np.asarray)
        messages: list[int] = []
        new: dict[str, tuple[Any, list[Pair]]] = {}

        def ours_next() -> None:
            new["distvec"] = ours.next(lambda x: (x * 1.0).persist())

        def on_servers() -> Any:
            before = ps.counters.messages
            found = two_loop(*new["distvec"], GAMMA).persist()
            messages.append(ps.counters.messages - before)
            return found

        def numpy_next(name: str, run: Run) -> Callable[[], None]:
            return lambda: new.update({name: run.next(lambda x: x)})

        def one_iteration() -> None:
            ours_next()
            on_servers()

        cases = [
            Case("distvec", on_servers, bytes=(4 * HISTORY + 3) * r.nbytes, prepare=ours_next),
            Case(
                "NumPy, the same lines",
                lambda: two_loop(*new["same"], GAMMA),
                prepare=numpy_next("same", theirs),
            ),
            Case(
                "NumPy, in place",
                lambda: two_loop_in_place(*new["tuned"], GAMMA, r, work),
                prepare=numpy_next("tuned", tuned),
            ),
            Case("copy, 1 thread", lambda: np.copyto(target, r), bytes=2 * r.nbytes),
        ]
        firsts = list(interleaved(cases[:-1], repeat=1, warm_up=0).values())
        firsts = [replace(timing, name=f"{timing.name}, first run") for timing in firsts]
        check, expected = on_servers().numpy(), two_loop(*new["same"], GAMMA)
        error = float(np.linalg.norm(check - expected) / np.linalg.norm(expected))
        heat(one_iteration, options.quick)
        timings = interleaved(cases, repeat=3 if options.quick else 7)
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
    return Report(title, [*timings.values(), *firsts], ratios, facts)


if __name__ == "__main__":
    main(__doc__, measure)
