"""Bytes of strangers, and of who knows the key but sends nonsense, to a server of messages."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import nullcontext, suppress
from typing import Any

from ps_backend.client import MessageClient
from ps_backend.errors import AuthenticationError
from ps_backend.processes.message_server import MessageServer
from ps_backend.transport.messages import NONCE_BYTES

KEY = "the key of these tests"
_SILENCE = 2.0
_EVERY = 50
"""After so many connections a good client asks."""
_LATE_SECONDS = 1.0
_MESSAGES = ({"ask": 1}, {"first": True})
"""All that may be heard: the others are of strangers, too long, or no messages."""
_HEAD = struct.Struct("<IQ")


class Echo(MessageServer):
    """Answers what it is asked."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        host = "127.0.0.1"
        super().__init__(lambda: nullcontext(self._hear), host, host, KEY, silence=_SILENCE)

    def _hear(self, message: Any) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise TypeError("no message")
        self.heard.append(message)
        return {"heard": len(self.heard)}


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
        deadline = time.monotonic() + 10 * _SILENCE
        while len(service) and time.monotonic() < deadline:
            time.sleep(0.01)
        if len(service):
            wrong.append(f"{len(service)} connections are left")
        wrong += [f"{one} was heard" for one in service.heard if one not in _MESSAGES]
    finally:
        service.close()
    return wrong, known


def _good(address: tuple[str, int]) -> list[str]:
    try:
        client = MessageClient(address, KEY, 10.0)
        try:
            for _ in range(2):
                if "heard" not in client.ask({"ask": 1}, 10.0):
                    return ["a good client got another answer"]
        finally:
            client.close()
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
    nonce, proof = rng.randbytes(NONCE_BYTES), rng.randbytes(32)
    match kind:
        case 0:
            return rng.randbytes(rng.choice((0, 1, 64, 65, 70_000)))
        case 1:
            return nonce + proof + _frame(b'{"ask": 2}')
        case 2:
            return nonce + proof + _frame(b"x" * rng.choice((1000, 65_535, 65_536, 200_000)))
        case 3:
            return nonce + b"\n" * rng.choice((1, 5000))
        case 4:
            return nonce[: rng.randrange(len(nonce))]
        case 5:
            return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        case _:
            return bytes(NONCE_BYTES) + proof[:10]


def _with_the_key(address: tuple[str, int], rng: random.Random) -> None:
    """What is no message, and messages that lie, come again, or in part."""
    client = MessageClient(address, KEY, 5.0)
    try:
        wire = client._connection
        first = _signed(client, 0, b'{"first": true}')
        match rng.randrange(8):
            case 0:
                body = rng.choice((b"[]", b"1", b"", b"{", b"NaN", b"[" * 20_000, b"\xff", b"null"))
                wire.sendall(_signed(client, 0, body))
            case 1:
                wire.sendall(first + _signed(client, 1, b'{"first": true}'))
            case 2:
                wire.sendall(_signed(client, 0, b'{"half": 1}')[: rng.randrange(50)])
            case 3:
                wire.sendall(_HEAD.pack(2**32 - 1, 2**64 - 1) + b"{}")
            case 4:
                wire.sendall(_signed(client, 0, b'{"long": 1}' + b" " * 70_000))
            case 5:
                guess = rng.choice((b"", b"x" * 31, rng.randbytes(32)))
                wire.sendall(_frame(guess + b'{"ask": 2}'))
            case 6:
                broken = bytearray(_signed(client, 0, b'{"ask": 2}'))
                broken[_HEAD.size + rng.randrange(42)] ^= 1 << rng.randrange(8)
                wire.sendall(rng.choice((broken, _signed(client, 1, b'{"ask": 2}'))))
            case _:
                wire.sendall(_HEAD.pack(len(first), 7) + first)
        wire.settimeout(0.05)
        wire.recv(4096)
    finally:
        client.close()


def _signed(client: MessageClient, number: int, body: bytes) -> bytes:
    return _frame(client._messages._sign(b"ask ", number, body) + body)


def _frame(body: bytes) -> bytes:
    return _HEAD.pack(len(body), 0) + body
