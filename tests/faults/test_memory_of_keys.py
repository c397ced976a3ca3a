"""Memory of removed keys goes back to the system."""

from __future__ import annotations

import numpy as np

import distvec as dv
from ps_backend.processes.launcher import launch_local
from tests.waiting import wait_for

MB = 1 << 20
PIECES, KEYS, WIDTH = 16, 150_000, 8
STAY = 1000
LARGEST = 48 * MB
"""Beyond what a warm server has: less than half of all rows."""


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_memory_of_removed_keys_goes_back_to_the_system():
    with (
        launch_local(1) as servers,
        dv.connect(servers.addresses, token=servers.token) as ps,
    ):
        (pid,) = servers.pids
        space = ps.keys()
        rows = space.table(WIDTH)

        rows.push([1], np.ones((1, WIDTH)))  # kernels are loaded
        rows.pull([1])
        space.keep(0, by=rows.values[:, 0])
        warm = resident(pid)
        pieces = np.arange(PIECES * KEYS).reshape(PIECES, KEYS)
        for piece in pieces:
            rows.push(piece, np.ones((KEYS, WIDTH)))
        assert space.state().bytes > 2 * LARGEST
        for piece in pieces[:-1]:
            space.remove(piece)
        space.keep(STAY, by=rows.values[:, 0])
        assert space.state().keys == STAY
        assert space.state().bytes < LARGEST / 8
        wait_for(lambda: resident(pid) - warm < LARGEST)
