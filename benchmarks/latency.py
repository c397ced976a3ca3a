"""A small dot, value in hand, in one process and over two, against a bare gRPC echo.

Every dot is of a pair of vectors not asked for before, so that none is answered from memory.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator

import numpy as np

import distvec as dv
from benchmarks.bare_grpc import bare_server
from benchmarks.harness import Case, Ratio, Report, interleaved, main, speed_up

LENGTH = 1000
VECTORS = 100
PAYLOAD = b"x" * 100


def measure(options: argparse.Namespace) -> Report:
    """Ours on one server and two, and in this process; the echo is one call to one server."""
    calls, repeat = (20, 3) if options.quick else (200, 15)
    with (
        dv.local(servers=1) as one,
        dv.local(servers=2) as two,
        dv.local(servers=1, in_process=True) as here,
        bare_server() as bare,
    ):
        timings = interleaved(
            [
                Case("float(x @ y), 1 server", dots(one, calls), operations=calls),
                Case("float(x @ y), 2 servers", dots(two, calls), operations=calls),
                Case("float(x @ y), in process", dots(here, calls), operations=calls),
                Case(
                    "bare gRPC echo",
                    lambda: [bare.echo(PAYLOAD) for _ in range(calls)],
                    operations=calls,
                ),
            ],
            repeat=repeat,
            warm_up=2,
        )
    echo = timings["bare gRPC echo"]
    ratios = [
        Ratio(f"time over echo, {name}", 1 / speed_up(timings[f"float(x @ y), {name}"], echo), goal)
        for name, goal in (
            ("1 server", "under 0.25"),
            ("2 servers", "under 0.25"),
            ("in process", "30 us"),
        )
    ]
    title = f"latency of a dot, n = {LENGTH}"
    return Report(title, list(timings.values()), ratios)


def dots(ps: dv.Session, calls: int) -> Callable[[], list[float]]:
    """A function that takes the next ``calls`` dots of new pairs."""
    pairs = new_pairs(ps)
    return lambda: [float(x @ y) for x, y in itertools.islice(pairs, calls)]


def new_pairs(ps: dv.Session) -> Iterator[tuple[dv.DistArray, dv.DistArray]]:
    """Pairs of vectors on the servers, none twice."""
    rng = np.random.default_rng(1)
    vectors = [ps.array(rng.random(LENGTH)) for _ in range(VECTORS)]
    return itertools.combinations(vectors, 2)


if __name__ == "__main__":
    main(__doc__, measure)
