"""Slices, masks and indices on servers: programs with views, against NumPy and a plain copy.

The copy moves as many bytes as the program has to, with as many threads as there are servers: what
is read once counts once, and of a strided slice all that lies between its elements, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Case, Ratio, Report, interleaved, main
from ps_backend.client import Client
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType
from ps_backend.program.views import View

SERVERS = 2
F8, BOOL = ValueType("float64"), ValueType("bool")
SUBTRACT = Sweep((F8, F8), (), (Step("subtract", (0, 1), F8),), (2,), ())
ADD = Sweep((F8, F8), (), (Step("add", (0, 1), F8),), (2,), ())
MASKED_SUM = Sweep(
    (BOOL, F8), (F8,), (Step("where", (0, 1, 2), F8),), (), (Reduction("sum", (3,)),)
)
ASSIGN = Sweep((BOOL, F8, F8), (), (Step("where", (0, 1, 2), F8),), (3,), ())


@dataclass(frozen=True)
class Measured:
    """A program, NumPy's way to write it, and the elements of float64 that it has to move."""

    name: str
    call: SweepCall
    numpy: Callable[[], object]
    moved: float
    target: str = ""


def measure(options: argparse.Namespace) -> Report:
    """Programs on two server processes; NumPy and copies in this one."""
    n = 1_000_000 if options.quick else 20_000_000
    repeat = 3 if options.quick else 7
    with (
        launch_local(SERVERS) as servers,
        Client.connect(servers.addresses, token=servers.token) as client,
        ThreadPoolExecutor(SERVERS) as threads,
    ):
        measured = programs(client, n)
        timings, ratios, facts = [], [], {}
        for one in measured:
            size = int(one.moved * n / 2)
            source, target = np.ones(size), np.empty(size)
            found = interleaved(
                [
                    Case(f"{one.name}, distvec", lambda one=one: run(client, one.call)),
                    Case(f"{one.name}, NumPy", one.numpy),
                    Case(
                        f"{one.name}, copy",
                        lambda source=source, target=target: copied(threads, target, source),
                    ),
                ],
                repeat,
                2,
            )
            timings += found.values()
            ours, _, copy = found.values()
            ratios.append(Ratio(f"{one.name}, in copies", ours.median / copy.median, one.target))
            ratios.append(Ratio(f"{one.name}, best of both", ours.best / copy.best))
            client.counters.reset()
            run(client, one.call)
            counters = client.counters
            facts[f"{one.name}, between servers"] = (
                f"{counters.peer_messages} messages, {counters.peer_bytes} bytes"
            )
    return Report(f"views, n = {n:.0e}, float64, {SERVERS} servers", timings, ratios, facts)


def programs(client: Client, n: int) -> list[Measured]:
    """What is measured."""
    rng = np.random.default_rng(1)
    a, b, mask, order = rng.random(n), rng.random(n), rng.random(n) < 0.5, rng.permutation(n)
    one_in_two = np.zeros(n, bool)
    one_in_two[::2] = True
    space, less, half = DenseSpace(n), DenseSpace(n - 1), DenseSpace(n // 2)

    def put(values: np.ndarray) -> int:
        client.write(number := client.new_id(), DenseSpace(len(values)), values)
        return number

    x, y, m, i, e = put(a), put(b), put(mask), put(order), put(one_in_two)
    v = put(b[: n // 2])

    def call(
        sweep: Sweep, over: DenseSpace, inputs: tuple[int, ...], *views: View | None, scalars=()
    ) -> SweepCall:
        outputs = tuple(client.new_id() for _ in sweep.outputs)
        return SweepCall(sweep, over, inputs, scalars, outputs, views=views)

    def assigned() -> None:
        c = a.copy()
        c[::2] = b[: n // 2]

    return [
        Measured(
            "a[1:] - a[:-1]",
            call(SUBTRACT, less, (x, x), View(space, (), 1), View(space)),
            lambda: a[1:] - a[:-1],
            2,
            "1.2 at most",
        ),
        Measured(
            "a[::2] + b[1::2]",
            call(ADD, half, (x, y), View(space, (), 0, 2), View(space, (), 1, 2)),
            lambda: a[::2] + b[1::2],
            2.5,
            "1.2 at most",
        ),
        Measured(
            "sum(where(m, a, 0))",
            call(MASKED_SUM, space, (m, x), scalars=(0.0,)),
            lambda: np.where(mask, a, 0).sum(),
            1.125,
            "1.2 at most",
        ),
        Measured(
            "a[n//2:] - a[:n//2]",
            call(SUBTRACT, half, (x, x), View(space, (), n // 2), View(space)),
            lambda: a[n // 2 :] - a[: n // 2],
            1.5,
        ),
        Measured(
            "a[::-1] + b",
            call(ADD, space, (x, y), View(space, (), n - 1, -1), None),
            lambda: a[::-1] + b,
            3,
        ),
        Measured(
            "a[::2] = v",
            call(ASSIGN, space, (e, v, x), None, View(half, (), 0, 2, spread=True), None),
            assigned,
            2.625,
        ),
        Measured(
            "a[i] + b",
            call(ADD, space, (x, y), View(space, index=i), None),
            lambda: a[order] + b,
            4,
        ),
    ]


def run(client: Client, call: SweepCall) -> None:
    """Once; what it made goes with the next message."""
    client.run(Program((call,), frees=call.outputs))


def copied(threads: ThreadPoolExecutor, target: np.ndarray, source: np.ndarray) -> None:
    """In as many pieces as there are servers."""
    pieces = zip(np.array_split(target, SERVERS), np.array_split(source, SERVERS), strict=True)
    list(threads.map(lambda pair: np.copyto(*pair), pieces))


if __name__ == "__main__":
    main(__doc__, measure)
