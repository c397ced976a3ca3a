"""A few of the schedules that ``python -m tests.stress simulation`` runs by thousands."""

from __future__ import annotations

import random
import threading

import pytest

from tests.durability.cluster import Chances
from tests.durability.disk import Disk, File, Names
from tests.durability.simulation import simulate


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_arrays_have_numpys_bits_whatever_dies(first):
    before = _threads()
    for seed in range(first, first + 10):
        simulate(seed)
    assert _threads() == before


def _threads():
    """Those of now, but for those of all the process: of kernels, and what compiles hot ones."""
    shared = ("distvec-compile", "distvec-kernel")
    return {one for one in threading.enumerate() if not one.name.startswith(shared)}


@pytest.mark.parametrize(
    "chances", [Chances(server=0.04), Chances(driver=0.01), Chances(lost=0.15, repeated=0.15)]
)
def test_the_same_where_more_of_one_kind_happens(chances):
    for seed in range(6):
        simulate(seed, chances)


def test_a_seed_is_a_schedule():
    assert simulate(7) == simulate(7)


def test_a_crash_keeps_what_is_durable_and_any_sectors_of_the_rest():
    lengths, kept = set(), set()
    for seed in range(200):
        disk = Disk()
        disk.root.names["a"] = disk.root.durable["a"] = File(bytearray(b"n" * 1500), b"o" * 1000)
        disk.root.names["new"] = Names()
        disk.crash(random.Random(seed))
        data = disk.files()["/a"].data
        lengths.add(len(data))
        kept.add(bytes(data[0:1]))
        assert len(set(data[:512])) <= 1
        assert "new" not in disk.root.names or disk.root.names["new"].names == {}
    assert {1000, 1500} <= lengths
    assert {b"n", b"o"} <= kept
