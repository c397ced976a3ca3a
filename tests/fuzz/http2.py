"""HTTP/2 as nobody should speak it, by hand and bounded: libraries keep to the rules."""

from __future__ import annotations

import random
import select
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from ps_backend.transport.grpc_transport import SERVICE, TOKEN_KEY
from tests.ps_backend.stranger import let_in
from tests.waiting import PATIENCE

_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _MORE = range(10)
_END_STREAM, _END_HEADERS = 1, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MOST_BYTES = 8 << 20
"""No abuse sends more."""

Metadata = tuple[tuple[str, str], ...]
Abuse = Callable[[Metadata], Iterator[bytes]]


def _frame(
    kind: int, flags: int, stream: int, body: bytes = b"", length: int | None = None
) -> bytes:
    size = len(body) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _text(text: str) -> bytes:
    data, size = text.encode(), bytearray()
    rest = len(data)
    if rest < 127:
        return bytes((rest,)) + data
    size.append(127)
    rest -= 127
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes(size) + bytes((rest,)) + data


def _block(metadata: Metadata, path: str = f"/{SERVICE}/Call") -> bytes:
    pairs = (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "abuse"),
        ("te", "trailers"), ("content-type", "application/grpc"), *metadata,
    )  # fmt: skip
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)


def _hello(settings: bytes = b"") -> bytes:
    return _PREFACE + _frame(_SETTINGS, 0, 0, settings)


def _bad_prefaces(metadata: Metadata) -> Iterator[bytes]:
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def _client_hello(metadata: Metadata) -> Iterator[bytes]:
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)


def _noise(metadata: Metadata) -> Iterator[bytes]:
    yield random.Random(0).randbytes(100_000)


def _half_a_preface(metadata: Metadata) -> Iterator[bytes]:
    yield _PREFACE[:10]


def _no_settings(metadata: Metadata) -> Iterator[bytes]:
    yield _PREFACE


def _many_streams(metadata: Metadata) -> Iterator[bytes]:
    yield _hello()
    block = _block(metadata)
    for number in range(10_000):
        yield _frame(_HEADERS, _END_HEADERS, 2 * number + 1, block)


def _rapid_reset(metadata: Metadata) -> Iterator[bytes]:
    yield _hello()
    block = _block(metadata)
    for number in range(10_000):
        stream = 2 * number + 1
        yield _frame(_HEADERS, _END_HEADERS, stream, block)
        yield _frame(_RESET, 0, stream, struct.pack(">I", 8))


def _endless_headers(metadata: Metadata) -> Iterator[bytes]:
    yield _hello() + _frame(_HEADERS, 0, 1, _block(metadata))
    more = _frame(_MORE, 0, 1, b"\0" + _text("x" * 20) + _text("y" * 16_000))
    for _ in range(400):
        yield more


def _a_text_without_end(metadata: Metadata) -> Iterator[bytes]:
    """Of a header, of which gRPC keeps the more the longer it is."""
    yield _hello() + _frame(_HEADERS, 0, 1, _block(metadata))
    while True:
        yield _frame(_MORE, 0, 1, b"y" * 16_000)


def _large_headers(metadata: Metadata) -> Iterator[bytes]:
    yield _hello()
    block = _block((*metadata, *((f"x{k}", "y" * 1000) for k in range(15))))
    for number in range(300):
        yield _frame(_HEADERS, _END_HEADERS | _END_STREAM, 2 * number + 1, block)


def _headers_that_refer(metadata: Metadata) -> Iterator[bytes]:
    """One entry of 4000 bytes in the table, named a thousand times in a byte each."""
    yield _hello()
    bomb = _block(metadata) + b"\x40" + _text("x") + _text("y" * 4000) + b"\xbe" * 3000
    for number in range(300):
        yield _frame(_HEADERS, _END_HEADERS, 2 * number + 1, bomb)


def _headers_that_are_none(metadata: Metadata) -> Iterator[bytes]:
    yield _hello()
    rng = random.Random(1)
    for number in range(300):
        yield _frame(_HEADERS, _END_HEADERS, 2 * number + 1, rng.randbytes(200))


def _settings_flood(metadata: Metadata) -> Iterator[bytes]:
    yield _hello()
    for number in range(10_000):
        yield _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, number))


def _large_settings(metadata: Metadata) -> Iterator[bytes]:
    yield _hello(struct.pack(">HI", 0x999, 1) * 2700)
    yield _frame(_SETTINGS, 0, 0, struct.pack(">HI", 1, (1 << 32) - 1))
    yield _frame(_SETTINGS, 0, 0, struct.pack(">HI", 5, (1 << 24) - 1))
    yield _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, (1 << 32) - 1))


def _ping_flood(metadata: Metadata) -> Iterator[bytes]:
    yield _hello()
    for number in range(10_000):
        yield _frame(_PING, 0, 0, struct.pack(">Q", number))


def _empty_data(metadata: Metadata) -> Iterator[bytes]:
    yield _hello() + _frame(_HEADERS, _END_HEADERS, 1, _block(metadata))
    for _ in range(10_000):
        yield _frame(_DATA, 0, 1)


def _windows(metadata: Metadata) -> Iterator[bytes]:
    yield _hello() + _frame(_HEADERS, _END_HEADERS, 1, _block(metadata))
    for _ in range(3000):
        yield _frame(_WINDOW, 0, 1, struct.pack(">I", (1 << 31) - 1))
        yield _frame(_WINDOW, 0, 0, struct.pack(">I", (1 << 31) - 1))


def _out_of_place(metadata: Metadata) -> Iterator[bytes]:
    yield _hello()
    rng = random.Random(2)
    for _ in range(300):
        kind, flags = rng.choice((*range(10), 77, 255)), rng.randrange(256)
        stream = rng.choice((0, 1, 2, 3, 1001, (1 << 31) - 1))
        yield _frame(kind, flags, stream, rng.randbytes(rng.choice((0, 4, 5, 6, 8, 40))))


def _large_frame(metadata: Metadata) -> Iterator[bytes]:
    yield _hello() + _frame(_HEADERS, _END_HEADERS, 1, _block(metadata))
    yield _frame(_DATA, 0, 1, bytes(1 << 20), length=(1 << 24) - 1)


def _lying_messages(metadata: Metadata) -> Iterator[bytes]:
    """Of gRPC: 4 GiB announced, compressed, half a head, two for one."""
    yield _hello()
    heads = (b"\0\xff\xff\xff\xff", b"\1\0\0\0\4abcd", b"\0\0", b"\0\0\0\0\0" * 2, b"\x07\0\0\0\0")
    paths = [f"/{SERVICE}/{name}" for name in ("Call", "Stream", "Shared", "None")]
    for number in range(200):
        stream, path = 2 * number + 1, paths[number % len(paths)]
        yield _frame(_HEADERS, _END_HEADERS, stream, _block(metadata, path))
        yield _frame(_DATA, number % 2, stream, heads[number // 5 % len(heads)])


def _windows_of_nothing(metadata: Metadata) -> Iterator[bytes]:
    """Calls whose answers nobody takes."""
    yield _hello(struct.pack(">HI", 4, 0))
    block = _block(metadata)
    for number in range(900):
        stream = 2 * number + 1
        yield _frame(_HEADERS, _END_HEADERS, stream, block)
        yield _frame(_DATA, _END_STREAM, stream, b"\0\0\0\0\4\xaa\1\0\0")


KEPT_BY_GRPC = {"headers that refer", "a text without end"}
"""Headers of 12 MB in 7 KB of the wire, which gRPC's bound on headers does not count, and those
that never end: a server grows by some 100 MiB each time. Who has the token can make it do so."""

ABUSES: Mapping[str, Abuse] = {
    name.strip("_").replace("_", " "): function
    for name, function in list(globals().items())
    if name.startswith("_")
    and callable(function)
    and getattr(function, "__annotations__", {}).get("return") == "Iterator[bytes]"
}


def abuse(
    address: str,
    name: str,
    metadata: Metadata,
    *,
    listens: bool,
    seconds: float,
    most: int = _MOST_BYTES,
) -> int:
    """One connection that does so, until all is sent or the server ends it; the bytes sent.

    Who has the token shows it first. Who does not listen never takes an answer from the socket.
    """
    sent = 0
    with _connected(address, dict(metadata).get(TOKEN_KEY)) as connection, suppress(OSError):
        connection.settimeout(seconds)
        for piece in ABUSES[name](metadata):
            connection.sendall(piece)
            sent += len(piece)
            if sent > most:
                break
            if listens:
                _take(connection)
        connection.settimeout(0.05)
        while listens and connection.recv(1 << 16):
            pass
    return sent


def _connected(address: str, token: str | None) -> socket.socket:
    if token is not None:
        return let_in(address, token)
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), PATIENCE)


def _take(connection: socket.socket) -> None:
    """What has come so far, without waiting."""
    while select.select([connection], [], [], 0)[0]:
        if not connection.recv(1 << 16):
            raise ConnectionError("the server has ended the connection")
