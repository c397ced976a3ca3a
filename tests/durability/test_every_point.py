"""At each message and each call of the disk, one after the other, a driver or a server dies."""

from __future__ import annotations

import gc
import itertools
import random

import numpy as np
import pytest

from distvec.durability.checkpoints import Checkpoints
from distvec.session import Session
from ps_backend.errors import BufferLost, ServerLost
from tests.durability.cluster import NONE, Cluster, Driver, DriverKilled
from tests.durability.disk import Disk
from tests.samples import sampled

N = 3000
OLD, NEW = np.arange(float(N)), np.arange(float(N)) * 3.0


class Points(Cluster):
    """A cluster in which one thing happens, at one of the points where it may."""

    def __init__(self, disk, servers=3):
        super().__init__(servers, disk, random.Random(0), NONE)
        self.what, self.left = "", -1

    def arm(self, what, number):
        """Let it happen at that point from now on; 0 is the next."""
        self.what, self.left = what, number

    def happens(self, what):
        """Whether it happens now."""
        if what != self.what or self.left < 0:
            return False
        self.left -= 1
        return self.left < 0


def opened(cluster):
    """A driver with its checkpoints, each of which it writes at once."""
    driver = Driver(cluster)
    session = Session(driver.connect())
    checkpoints = Checkpoints(
        session, "/run", start=driver.steps.start, open_store=driver.open_store
    )
    return session, checkpoints


def found(disk):
    """What a new driver on other servers finds."""
    session, checkpoints = opened(Points(disk, servers=2))
    with session:
        restored = checkpoints.restore()
        return restored["x"].numpy().tolist()


@pytest.mark.filterwarnings("ignore::ps_backend.errors.NotDurable")  # of a torn manifest
@pytest.mark.parametrize(
    ("what", "disk"),
    sampled(
        ["driver", "server", "lost", "repeated"],
        # With three before it, the next one is written over the first.
        [(1, False), (1, True), (3, False), (3, True)],
        every=2,
    ),
)
def test_while_a_checkpoint_is_written(what, disk):
    before, crash = disk
    for number in itertools.count():
        disk = Disk()
        cluster = Points(disk)
        session, checkpoints = opened(cluster)
        for earlier in range(1, before):
            checkpoints.begin(0, {"x": session.array(OLD + earlier)}).result()
        x = session.array(OLD)
        y = (x * 3.0).persist()
        checkpoints.begin(1, {"x": x}).result()
        assert bool(checkpoints.spares) == (before > 2)
        cluster.arm(what, number)
        is_done = False
        try:
            checkpoints.begin(2, {"x": y}).result()
            is_done = True
        except (DriverKilled, ServerLost, BufferLost):
            assert what in ("driver", "server")
        is_over = cluster.left >= 0
        cluster.arm("", -1)
        if crash:
            disk.crash(random.Random(number))
        assert found(disk) in ([NEW.tolist()] if is_done else [OLD.tolist(), NEW.tolist()])
        if is_over:
            break
    assert number > 2


@pytest.mark.parametrize("what", ["driver", "server", "lost", "repeated"])
def test_while_arrays_are_brought_back(what):
    for number in itertools.count():
        disk = Disk()
        cluster = Points(disk)
        session, checkpoints = opened(cluster)
        x = session.array(OLD)
        y = (x * 3.0).persist()
        checkpoints.begin(1, {"x": y}).result()
        cluster.kill(1)
        cluster.arm(what, number)
        try:
            checkpoints.restore()
        except DriverKilled:
            assert found(disk) == NEW.tolist()
            continue
        except (ServerLost, BufferLost):
            assert what == "server"
        is_over = cluster.left >= 0
        cluster.arm("", -1)
        for _ in range(2):  # once more does no harm
            restored = checkpoints.restore()
            assert restored["x"].numpy().tolist() == y.numpy().tolist() == NEW.tolist()
            assert x.numpy().tolist() == OLD.tolist()
        del x, y, restored
        gc.collect()  # what errors refer to
        session.client.status()
        assert not any(status.buffers for status in session.client.status())
        if is_over:
            break
    assert number > 2
