"""What a server says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ps_backend.client.counters import Counters
from ps_backend.client.fan_out import FanOut
from ps_backend.client.requests import Requests
from ps_backend.client.server_link import RetryPolicy, ServerLink
from ps_backend.metrics import Sample, SlowRequest
from ps_backend.transport import GrpcTransport, Tls, Transport, tls_of
from ps_backend.wire import ps_pb2 as pb


@dataclass(frozen=True, slots=True)
class HeldSession:
    """A session that a server holds. Times in seconds."""

    name: str
    buffers: int
    age: float
    lease: float
    """0 if it has none."""
    left: float
    """Of the lease, should no client of the session be heard of."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of one server. Sizes in bytes, times in seconds."""

    address: str
    version: str
    instance: str
    """Random for each start of a server."""
    pid: int
    uptime: float
    sessions: int
    buffers: int
    used: int
    """Bytes of buffers, staged contributions and requests being served."""
    peak: int
    budget: int
    bits: str = ""
    """A digest of arithmetic and reductions on known values: servers on which it differs give
    different bits. It does not depend on the processor."""
    functions: str = ""
    """The same of functions such as ``exp``, which does (docs/reference/operations.md)."""
    bulk: str = ""
    """How large arrays went to it from here: "shared memory", "port ..." of its host, or "gRPC",
    with the reason; empty before any did."""
    held: tuple[HeldSession, ...] = ()
    plugins: tuple[tuple[str, str], ...] = ()
    """Functions of rows that its operator has loaded: names and signatures."""
    commands: tuple[str, ...] = ()
    """Commands that these modules have added."""
    samples: tuple[Sample, ...] = ()
    """The metrics, if they were asked for."""
    slow: tuple[SlowRequest, ...] = ()
    """The last slow requests, oldest first, if metrics were asked for."""


def decode_status(address: str, message: pb.Status, bulk: str) -> ServerStatus:
    """The status that the server at ``address`` sent, which large arrays reach by ``bulk``."""
    return ServerStatus(
        address=address,
        version=message.version,
        instance=message.instance,
        pid=message.pid,
        uptime=message.uptime,
        sessions=message.sessions,
        buffers=message.buffers,
        used=message.used,
        peak=message.peak,
        budget=message.budget,
        bits=message.bits,
        functions=message.functions,
        bulk=bulk,
        held=tuple(
            HeldSession(one.name, one.buffers, one.age, one.lease, one.left) for one in message.held
        ),
        plugins=tuple((one.name, one.signature) for one in message.plugins),
        commands=tuple(message.commands),
        samples=tuple(Sample(one.name, one.value, one.labels) for one in message.samples),
        slow=tuple(
            SlowRequest(one.ended, one.command, one.seconds, one.bytes, one.session)
            for one in message.slow
        ),
    )


def ask_status(
    transports: Sequence[Transport], retry: RetryPolicy, *, metrics: bool
) -> list[pb.Status]:
    """The status of the servers behind ``transports``, without a session."""
    servers = len(transports)
    counters = Counters(servers)
    links = [
        ServerLink(transport, k, counters, retry=retry, diagnose=None)
        for k, transport in enumerate(transports)
    ]
    messages = Requests("", "", servers).to_all("status", metrics=metrics)
    replies = FanOut(links, counters).send(messages, recorded=False)
    return [replies[k].status for k in range(servers)]


def server_status(
    addresses: Sequence[str],
    *,
    token: str | None,
    tls: str | Path | Tls | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    timeout: float = 5.0,
    metrics: bool = False,
) -> list[ServerStatus]:
    """What running servers hold, without a session, and whether bulk data would reach them.

    One message each, and one more that asks for the port of bulk data.

    ``metrics``: also their samples and slow requests.
    ``tls``, ``tls_cert`` and ``tls_key`` as of ``Client.connect``. Raises ``ServerLost`` if one
    cannot be reached in ``timeout`` seconds, or is reached and does not answer for five.
    """
    trusted = tls_of(tls, tls_cert, tls_key)
    transports = [
        GrpcTransport(address, token=token, tls=trusted, near=False) for address in addresses
    ]
    try:
        statuses = ask_status(transports, RetryPolicy(timeout), metrics=metrics)
        ways = [transport.find_bulk_way() for transport in transports]
        return list(map(decode_status, addresses, statuses, ways))
    finally:
        for transport in transports:
            transport.close()


def status_table(servers: Sequence[ServerStatus]) -> str:
    """An aligned table, one line per server."""
    head = "server version pid uptime sessions buffers used peak budget bits functions bulk"
    rows = [tuple(head.split())]
    for server in servers:
        rows.append(
            (
                server.address,
                server.version,
                str(server.pid),
                f"{server.uptime:.0f} s",
                str(server.sessions),
                str(server.buffers),
                _size(server.used),
                _size(server.peak),
                _size(server.budget),
                server.bits,
                server.functions,
                server.bulk,
            )
        )
    return "\n".join((_align_columns(rows), *_held_table(servers), *_added_table(servers)))


def slow_table(servers: Sequence[ServerStatus]) -> str:
    """An aligned table of slow requests, the newest last."""
    rows = [("ended (UTC)", "server", "session", "request", "seconds", "bytes")]
    found = [(one.ended, server.address, one) for server in servers for one in server.slow]
    for ended, address, one in sorted(found, key=lambda row: row[:2]):
        when = datetime.fromtimestamp(ended, UTC).strftime("%Y-%m-%d %H:%M:%S")
        seconds = f"{one.seconds:.2f}"
        rows.append((when, address, one.session, one.command, seconds, _size(one.nbytes)))
    return _align_columns(rows) if found else "no request took longer than a second"


def _held_table(servers: Sequence[ServerStatus]) -> list[str]:
    """The sessions, and what is left of their leases; nothing if there are none."""
    rows = [("session", "server", "buffers", "age", "lease", "left")]
    for server in servers:
        for one in server.held:
            limits = (f"{one.lease:g} s", f"{one.left:.0f} s") if one.lease else ("none", "")
            age = f"{one.age:.0f} s"
            rows.append((one.name[:8], server.address, str(one.buffers), age, *limits))
    return ["", _align_columns(rows)] if len(rows) > 1 else []


def _added_table(servers: Sequence[ServerStatus]) -> list[str]:
    """What the operator has added; nothing if that is nothing."""
    rows = [("added", "server", "is")]
    for server in servers:
        rows += [(name, server.address, signature) for name, signature in server.plugins]
        rows += [(name, server.address, "a command") for name in server.commands]
    return ["", _align_columns(rows)] if len(rows) > 1 else []


def _align_columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
