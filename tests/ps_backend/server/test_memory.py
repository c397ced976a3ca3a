"""The budget holds, and memory is used again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.arguments import default_budget
from ps_backend.errors import OutOfBudget
from ps_backend.machine import usable_memory
from ps_backend.server.state.memory import BLOCK_OVERHEAD as MORE
from ps_backend.server.state.memory import Memory

MB = 1 << 20


def test_more_than_the_budget_is_refused_with_numbers():
    memory = Memory(10 * MB)
    held = memory.allocate([6 * MB], "the test")
    with pytest.raises(
        OutOfBudget, match=f"the test needs {5 * MB + 2 * MORE} bytes.*{6 * MB + MORE} "
    ):
        memory.allocate([4 * MB, MB], "the test")
    assert memory.used == 6 * MB + MORE
    memory.allocate([3 * MB], "the test")
    del held
    assert memory.used == 0
    assert memory.peak == 9 * MB + 2 * MORE


def test_freed_memory_is_used_again():
    memory = Memory(100 * MB)
    (block,) = memory.allocate([MB], "a")
    place = block.bytes.ctypes.data
    del block
    assert memory.kept == MB
    (block,) = memory.allocate([MB], "b")
    assert block.bytes.ctypes.data == place
    assert memory.kept == 0
    assert memory.used == MB + MORE


def test_kept_memory_gives_way_to_new():
    memory = Memory(10 * MB)
    del memory.allocate([2 * MB], "a")[:]
    assert memory.kept == 2 * MB
    held = memory.allocate([9 * MB], "b")
    assert memory.kept == 0
    assert memory.used == sum(block.bytes.size + MORE for block in held)


def test_what_nobody_has_used_for_some_seconds_is_the_systems_again():
    memory = Memory(100 * MB)
    del memory.allocate([MB], "a")[:]
    memory.let_pass(2.0)
    del memory.allocate([2 * MB], "b")[:]
    memory.let_pass(2.0)
    assert memory.kept == 2 * MB
    del memory.allocate([2 * MB], "used again")[:]
    memory.let_pass(2.0)
    assert memory.kept == 2 * MB
    memory.let_pass(2.0)
    assert memory.kept == 0


def test_memory_stays_while_a_reader_holds_it():
    memory = Memory(10 * MB)
    blocks = memory.allocate([MB], "a")
    reader = blocks[0]
    blocks.clear()
    assert memory.used == MB + MORE
    del reader
    assert memory.used == 0


@given(st.lists(st.integers(0, 300_000), max_size=30), st.integers(0, 1 << 21))
def test_used_and_kept_never_exceed_the_budget(sizes, budget):
    memory = Memory(budget)
    held = []
    for size in sizes:
        try:
            held += memory.allocate([size], "x")
        except OutOfBudget:
            assert memory.used + size + MORE > budget
            del held[: len(held) // 2]
        assert memory.used == sum(block.bytes.size + MORE for block in held)
        assert memory.used + memory.kept <= budget
    memory.forget_kept()
    assert memory.kept == 0


def test_what_is_reserved_counts_until_nobody_holds_it():
    memory = Memory(10 * MB)
    held = memory.reserve(6 * MB, "the test")
    with pytest.raises(OutOfBudget, match="the test needs"):
        memory.allocate([5 * MB], "the test")
    more = memory.reserve(5 * MB, "what cannot be refused", force=True)
    assert memory.used == 11 * MB
    del held, more
    assert memory.used == 0


def test_servers_share_the_machine():
    assert 0 < default_budget(2) <= usable_memory() * 0.41
