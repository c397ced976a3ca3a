"""Real SIGINTs at any moment: arrays stay, with their old or their new value."""

from __future__ import annotations

import pytest

from tests.stress.interrupts import CHANGES, broken

TRIALS = 6


@pytest.mark.parametrize("name", CHANGES)
def test_a_ctrl_c_leaves_the_old_value_or_the_new_one(name: str) -> None:
    assert broken(CHANGES[name], TRIALS) == []


@pytest.mark.parametrize("name", ["x += y; x.persist()", "x.push"])
def test_so_do_two_of_them(name: str) -> None:
    """The second one waits as well."""
    assert broken(CHANGES[name], TRIALS, times=2) == []
