"""Real signals at any moment: arrays stay, with their old or their new value."""

from __future__ import annotations

import pytest

from tests.stress.interrupts import CHANGES, broken, checkpointed, nested

TRIALS = 6


@pytest.mark.parametrize("name", CHANGES)
def test_a_ctrl_c_leaves_the_old_value_or_the_new_one(name: str) -> None:
    assert broken(CHANGES[name], TRIALS) == []


@pytest.mark.parametrize("name", ["x += y; x.persist()", "x.push"])
def test_so_do_two_of_them(name: str) -> None:
    """The second one waits as well."""
    assert broken(CHANGES[name], TRIALS, times=2) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_handler_may_make_a_checkpoint(name: str) -> None:
    assert checkpointed(CHANGES[name], TRIALS, length=300_000) == []


def test_handlers_that_push_count_each_push_and_end() -> None:
    assert nested(30, length=100_000) == []
