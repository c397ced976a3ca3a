"""Strangers at the registry's door."""

from __future__ import annotations

import socket
from contextlib import suppress

from tests.fuzz import lines


def test_strange_lines_are_sent_away_and_a_good_client_is_served():
    wrong, known = lines.attack(0, 150)
    assert not wrong
    assert known > 10


def test_who_sends_a_byte_now_and_then_is_sent_away():
    service = lines.Echo(silence=0.3)
    try:
        with socket.create_connection(service.address, 0.02) as slow, suppress(ConnectionError):
            for _ in range(1000):
                with suppress(TimeoutError):
                    slow.sendall(b"a")
                    if not slow.recv(100):
                        return
            raise AssertionError("it was let be")
    finally:
        service.close()
