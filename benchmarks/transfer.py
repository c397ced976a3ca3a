"""Dense pull and push of 80 MB, against bare gRPC streams in 1 MiB chunks and a copy in memory."""

from __future__ import annotations

import argparse

import numpy as np

import distvec as dv
from benchmarks.bare_grpc import bare_server
from benchmarks.harness import Case, Ratio, Report, interleaved, main, speed_up


def measure(options: argparse.Namespace) -> Report:
    """Ours to and from two servers, the bare stream to and from one."""
    n = 1_000_000 if options.quick else 10_000_000
    values = np.random.default_rng(1).random(n)
    raw, target = values.view(np.uint8), np.empty(values.nbytes, dtype=np.uint8)
    with dv.local(servers=2) as ps, bare_server() as bare:
        x = ps.array(values)
        np.testing.assert_array_equal(x.numpy(), values)
        timings = interleaved(
            [
                Case("pull, distvec", x.numpy, bytes=raw.size),
                Case("pull, bare gRPC", lambda: bare.pull(target), bytes=raw.size),
                Case("push, distvec", lambda: ps.array(values), bytes=raw.size),
                Case("push, bare gRPC", lambda: bare.push(raw), bytes=raw.size),
                Case("copy in memory", lambda: np.copyto(target, raw), bytes=raw.size),
            ],
            repeat=3 if options.quick else 15,
        )
    ratios = [
        Ratio(
            f"{way}, speed over bare gRPC",
            speed_up(timings[f"{way}, distvec"], timings[f"{way}, bare gRPC"]),
        )
        for way in ("pull", "push")
    ]
    title = f"dense transfer, {values.nbytes / 1e6:.0f} MB, 2 servers"
    return Report(title, list(timings.values()), ratios)


if __name__ == "__main__":
    main(__doc__, measure)
