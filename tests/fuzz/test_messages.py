"""Strangers at the port of the driver."""

from __future__ import annotations

from tests.fuzz import messages


def test_strangers_are_sent_away_and_a_good_client_is_served():
    wrong, known = messages.attack(0, 150)
    assert not wrong
    assert known > 10
