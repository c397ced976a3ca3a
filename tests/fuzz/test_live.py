"""What comes to the ports of live servers: a good client does not notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.live import Live, abuse_all, live, send_messages


@pytest.fixture(scope="module")
def running() -> Iterator[Live]:
    with live() as running:
        yield running


def test_malformed_messages_with_and_without_a_token(running):
    token = running.servers.token
    became = send_messages(running, [0, 3, 7], [token, token, None])
    assert became["answered"] > 100
    assert became["UNAUTHENTICATED"] > 100
    assert not running.looks()


def test_http2_that_keeps_to_no_rules(running):
    sent = abuse_all(running, 2, 0.2)
    assert all(sent.values())
    assert not running.looks()
    assert running.good.asked
