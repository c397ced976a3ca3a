"""The price of TLS: bulk and small requests with it and without, beside bare gRPC.

All over TCP: this process shares no memory with the servers, as if they were on other hosts. Client
and servers share this machine's cores, so what both encrypt counts twice.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import distvec as dv
from benchmarks.bare_grpc import bare_server
from benchmarks.harness import Case, Ratio, Report, interleaved, main, speed_up
from benchmarks.latency import PAYLOAD, dots
from ps_backend.client import Client
from ps_backend.processes.certificates import Authority
from ps_backend.processes.launcher import launch_local
from ps_backend.transport import framed_client


def measure(options: argparse.Namespace) -> Report:
    """Two servers of each kind for bulk, one of each for small requests."""
    n, calls, repeat = (1_000_000, 20, 3) if options.quick else (10_000_000, 200, 15)
    values = np.random.default_rng(1).random(n)
    raw, target = values.view(np.uint8), np.empty(values.nbytes, dtype=np.uint8)
    vars(os).pop("memfd_create", None)  # as on another host
    vars(framed_client)["has_unix_sockets"] = lambda: False
    with (
        sessions(2) as (plain, secured),
        sessions(1) as (one, other),
        bare_server() as bare,
    ):
        x, y = plain.array(values), secured.array(values)
        np.testing.assert_array_equal(x.numpy(), y.numpy())
        timings = interleaved(
            [
                Case("pull, plain", x.numpy, bytes=raw.size),
                Case("pull, TLS", y.numpy, bytes=raw.size),
                Case("pull, bare gRPC", lambda: bare.pull(target), bytes=raw.size),
                Case("push, plain", lambda: plain.array(values), bytes=raw.size),
                Case("push, TLS", lambda: secured.array(values), bytes=raw.size),
                Case("push, bare gRPC", lambda: bare.push(raw), bytes=raw.size),
                Case("float(x @ y), plain", dots(one, calls), operations=calls),
                Case("float(x @ y), TLS", dots(other, calls), operations=calls),
                Case(
                    "bare gRPC echo",
                    lambda: [bare.echo(PAYLOAD) for _ in range(calls)],
                    operations=calls,
                ),
            ],
            repeat=repeat,
        )
    ratios = [
        Ratio(
            f"{what}: time with TLS over time without",
            1 / speed_up(timings[f"{what}, TLS"], timings[f"{what}, plain"]),
        )
        for what in ("pull", "push", "float(x @ y)")
    ]
    title = f"TLS, {values.nbytes / 1e6:.0f} MB to and from 2 servers; small requests to 1"
    return Report(title, list(timings.values()), ratios)


@contextmanager
def sessions(servers: int) -> Iterator[list[dv.Session]]:
    """One on servers without TLS, one on servers with it."""
    authority = Authority()
    with (
        launch_local(servers) as plain,
        launch_local(servers, signer=authority.signer) as secured,
        dv.Session(Client.connect(plain.addresses, token=plain.token)) as first,
        dv.Session(
            Client.connect(secured.addresses, token=secured.token, tls=authority.tls)
        ) as second,
    ):
        yield [first, second]


if __name__ == "__main__":
    main(__doc__, measure)
