"""Lines of strangers, and of who knows the key but sends nonsense, to a service of signed lines."""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress
from typing import Any

from distvec.spark.cluster.signed_lines import SignedLines, connect
from distvec.spark.cluster.signed_service import SignedService
from ps_backend.errors import AuthenticationError

KEY = "the key of these tests"
_SILENCE = 2.0
_EVERY = 50
"""After so many connections a good client asks."""
_LATE_SECONDS = 1.0
_MESSAGES = ({"ask": 1}, {"first": True})
"""All that may be heard: the others are signed wrongly, or too long, or no messages."""


class Echo(SignedService):
    """Answers what it is asked."""

    def __init__(self, silence: float = _SILENCE) -> None:
        super().__init__("127.0.0.1", "127.0.0.1", KEY, name="echo", silence=silence)
        self.heard: list[Any] = []

    def converse(self, lines: SignedLines) -> None:
        """As long as the other side speaks."""
        while True:
            self.heard.append(lines.receive())
            lines.send({"heard": len(self.heard)})


def attack(seed: int, count: int) -> tuple[list[str], int]:
    """So many connections; what went wrong, and how many of them knew the key."""
    service, wrong, known = Echo(), [], 0
    try:
        for number in range(count):
            known += _one(service.address, random.Random(seed + number))
            if number % _EVERY == 0 or number == count - 1:
                began = time.perf_counter()
                wrong += _good(service.address)
                seconds = time.perf_counter() - began
                wrong += [f"the good client waited {seconds:.1f} s"] * (seconds > _LATE_SECONDS)
        deadline = time.monotonic() + 4 * _SILENCE
        while service._server.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        if service._server.connections:
            wrong.append(f"{len(service._server.connections)} connections are left")
        wrong += [f"{one} was heard" for one in service.heard if one not in _MESSAGES]
    finally:
        service.close()
    return wrong, known


def _good(address: tuple[str, int]) -> list[str]:
    try:
        lines = connect(address, KEY, 10.0)
        try:
            for _ in range(2):
                lines.send({"ask": 1})
                if "heard" not in lines.receive():
                    return ["a good client got another answer"]
        finally:
            lines.close()
    except (OSError, AuthenticationError) as error:
        return [f"a good client: {error!r}"]
    return []


def _one(address: tuple[str, int], rng: random.Random) -> bool:
    """One connection; whether it knew the key."""
    kind = rng.randrange(10)
    with suppress(OSError, AuthenticationError, ValueError):
        if kind >= 7:
            _with_the_key(address, rng)
            return True
        with socket.create_connection(address, 5.0) as connection:
            connection.sendall(_strange(kind, rng))
            if rng.random() < 0.5:
                connection.settimeout(0.05)
                connection.recv(4096)
    return kind >= 7


def _strange(kind: int, rng: random.Random) -> bytes:
    nonce = rng.randbytes(32).hex().encode() + b"\n"
    sign = rng.randbytes(32).hex().encode()
    match kind:
        case 0:
            return rng.randbytes(rng.choice((0, 1, 64, 65, 70_000)))
        case 1:
            return nonce + sign + b' {"ask": 2}\n'
        case 2:
            return nonce + sign + b" " + b"x" * rng.choice((1000, 65_535, 65_536, 200_000))
        case 3:
            return nonce + b"\n" * rng.choice((1, 5000))
        case 4:
            return nonce[: rng.randrange(len(nonce))]
        case 5:
            return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        case _:
            return nonce + b"\xff\xfe\0" + sign + b" [" * 5000 + b"\n"


def _with_the_key(address: tuple[str, int], rng: random.Random) -> None:
    """Right signatures of what is no message, and right lines that come again or in part."""
    lines = connect(address, KEY, 5.0)
    try:
        wire = lines._connection
        match rng.randrange(6):
            case 0:
                body = rng.choice((b"[]", b"1", b"", b"{", b"NaN", b"[" * 20_000, b"\xff", b"null"))
                wire.sendall(_signed(lines, body))
            case 1:
                line = _signed(lines, b'{"first": true}')
                wire.sendall(line + line)  # the second one is a replay
            case 2:
                wire.sendall(_signed(lines, b'{"half": 1}')[: rng.randrange(60)])
            case 3:
                line = bytearray(_signed(lines, b'{"flip": 1}'))
                line[rng.randrange(len(line) - 1)] ^= 1 << rng.randrange(8)
                wire.sendall(line)
            case 4:
                wire.sendall(_signed(lines, b'{"long": 1}' + b" " * 70_000))
            case _:
                wire.sendall(_signed(lines, b'{"first": true}'))
        wire.settimeout(0.05)
        wire.recv(4096)
    finally:
        lines.close()


def _signed(lines: SignedLines, body: bytes) -> bytes:
    lines._sent += 1
    return lines._sign(lines._mine, lines._sent, body) + b" " + body + b"\n"
