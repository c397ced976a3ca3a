"""Connections that are forgotten on the way: requests end as if nothing had happened, in time.

A proxy goes silent on the connections of now, as a firewall does that was started again, while it
lets new ones through; in each direction, before a request and in the middle of one.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

import distvec as dv
from ps_backend.client import Client
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.transport import GrpcTransport
from ps_backend.transport.shared_memory import SharedBulk
from tests.ps_backend.helpers import TOKEN, put, served
from tests.ps_backend.proxy import DIRECTIONS, Proxy, proxy_to
from tests.stress.row import Row

SECONDS = 10.0
"""That docs/operate/servers.md promises."""

_SMALL, _LARGE = 3000, 1_000_000
_TRIALS = 2
"""Of each, at scale 1."""

Step = Callable[[], bool]
"""A request, and whether all has come out as it must."""


@contextmanager
def by_grpc(servers: list[Server], large: bool) -> Iterator[tuple[Step, list[Proxy]]]:
    """A client whose gRPC goes over proxies."""
    with _proxies([_tcp(server.port) for server in servers]) as proxies:
        for server in servers:
            server.framed.port = 0
        addresses = [f"127.0.0.1:{proxy.address[1]}" for proxy in proxies]
        transports = [GrpcTransport(one, token=TOKEN, near=False) for one in addresses]
        with _changing(transports, large) as step:
            yield step, proxies


@contextmanager
def by_unix_sockets(servers: list[Server], large: bool) -> Iterator[tuple[Step, list[Proxy]]]:
    """One whose small requests go over proxies."""
    names = [b"\0" + server.framed.socket_name.encode() for server in servers]
    with _proxies(names) as proxies:
        for server, proxy in zip(servers, proxies, strict=True):
            assert isinstance(proxy.address, bytes)
            server.framed.socket_name = proxy.address[1:].decode()
        with _changing([GrpcTransport(one.address, token=TOKEN) for one in servers], large) as step:
            yield step, proxies


@contextmanager
def by_tcp(servers: list[Server], large: bool) -> Iterator[tuple[Step, list[Proxy]]]:
    """One whose large arrays, and then small requests, go over proxies."""
    with _proxies([_tcp(server.framed.port) for server in servers]) as proxies:
        _invite_to(servers, proxies)
        transports = [GrpcTransport(server.address, token=TOKEN, near=False) for server in servers]
        with _changing(transports, large) as step:
            yield step, proxies


@contextmanager
def between_servers(servers: list[Server], large: bool) -> Iterator[tuple[Step, list[Proxy]]]:
    """Servers that fetch from each other over proxies."""
    ports = [server.framed.port if large else server.port for server in servers]
    with _proxies(list(map(_tcp, ports))) as proxies:
        addresses = [server.address for server in servers]
        if not large:
            addresses = [f"127.0.0.1:{proxy.address[1]}" for proxy in proxies]
        with dv.connect(addresses, token=TOKEN) as session:
            if large:  # the client itself was told of the Unix sockets
                _invite_to(servers, proxies)
            values = np.random.default_rng(0).random(_LARGE if large else _SMALL)
            x, turned = session.array(values).persist(), session.array(values[::-1]).persist()
            count = itertools.count(1)

            def turn() -> bool:
                k = next(count)
                return float(abs((x * k)[::-1] - turned * k).max()) == 0.0

            yield turn, proxies


WAYS = {
    "gRPC, small": (by_grpc, False, "write"),
    "gRPC, large": (by_grpc, True, "write"),
    "Unix sockets": (by_unix_sockets, False, "write"),
    "TCP, large": (by_tcp, True, "write"),
    "peers, small": (between_servers, False, "fetch"),
    "peers, large": (between_servers, True, "fetch"),
}
"""By name: how, whether with large arrays, and the kind of request that is hit in the middle."""

MOMENTS = ("before", "in the middle")


def trial(way: str, directions: tuple[str, ...], moment: str) -> tuple[str, float]:
    """What went wrong, and the seconds of the slower of the requests that met the silence."""
    make, large, kind = WAYS[way]
    with served(2) as servers, make(servers, large) as (step, proxies):
        if not (step() and step()):
            return "wrong before anything was forgotten", 0.0
        if not all(proxy.passed["to the client"] for proxy in proxies):
            return "nothing goes over the proxies", 0.0
        left = [1]

        def forget() -> None:
            if left and left.pop():
                for proxy in proxies:
                    proxy.forget(directions)

        handle = servers[1].service.handle

        def forget_and_handle(request: Any, payload: Any) -> Any:
            if request.WhichOneof("body") == kind:
                forget()
            return handle(request, payload)

        if moment == "before":
            forget()
        else:
            servers[1].service.handle = forget_and_handle
        seconds, went = 0.0, True
        for _ in range(2):  # the second one may go to a server that the first did not wait for
            began = time.monotonic()
            try:
                went = step() and went
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                return f"{type(error).__name__}: {error}", time.monotonic() - began
            seconds = max(seconds, time.monotonic() - began)
        if left:
            return "nothing was forgotten", seconds
        return ("" if went and step() and step() else "wrong values"), seconds


def run(scale: float) -> Iterator[Row]:
    """Each way of bytes, all directions and moments; the slowest is told."""
    trials = max(1, math.ceil(_TRIALS * scale))
    cases = [*itertools.product(DIRECTIONS, MOMENTS)] * trials
    for way in WAYS:
        with ThreadPoolExecutor(len(DIRECTIONS)) as pool:
            found = list(pool.map(lambda case, way=way: trial(way, *case), cases))
        wrong = [what for what, _ in found if what]
        slowest = max(seconds for _, seconds in found)
        wrong += [f"{seconds:.1f} s" for _, seconds in found if seconds > SECONDS]
        detail = "; ".join(wrong[:1]) or f"the slowest took {slowest:.1f} s"
        yield Row(f"forgotten connections, {way}", len(cases), len(wrong), detail)


# --- what goes over the proxies ------------------------------------------------------------------


@contextmanager
def _changing(transports: list[GrpcTransport], large: bool) -> Iterator[Step]:
    """Adds to an array, and reads it, in turn, so that what counts twice shows."""
    space = DenseSpace(_LARGE if large else _SMALL)
    floats, where = array_type(space, float), np.arange(space.length)
    with Client(transports) as client:
        x, count = put(client, space, np.zeros(space.length)), 0

        def step() -> bool:
            nonlocal x, count
            count += 1
            if count % 2 == 0:
                expected = np.zeros(space.length)
                expected[: space.length if large else 100] = count // 2
                return bool((client.read(x, floats) == expected).all())
            y, added = client.new_id(), np.ones(space.length)
            if large:
                client.scatter_add(x, y, floats, where, added, donate=True)
            else:
                client.scatter_add(x, y, floats, where[:100], added[:100], donate=True)
            x = y
            return True

        yield step


@contextmanager
def _proxies(targets: list[tuple[str, int]] | list[bytes]) -> Iterator[list[Proxy]]:
    with ExitStack() as stack:
        # One host is to be as two: none of them shares memory.
        stack.enter_context(mock.patch.object(SharedBulk, "_take", return_value=None))
        yield [stack.enter_context(proxy_to(target)) for target in targets]


def _tcp(port: int) -> tuple[str, int]:
    return "127.0.0.1", port


def _invite_to(servers: list[Server], proxies: list[Proxy]) -> None:
    for server, proxy in zip(servers, proxies, strict=True):
        server.framed.port, server.framed.socket_name = int(proxy.address[1]), ""
