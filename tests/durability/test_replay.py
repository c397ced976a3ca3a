"""Seeded schedules of lost servers and messages, of which a session with replay shows nothing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.durability.checkpoints import Checkpoints
from distvec.durability.policy import Durability
from distvec.session import Opener, Session
from ps_backend.client import Client
from ps_backend.errors import ServerLost
from tests.durability.cluster import NONE, Chances, Cluster, Driver
from tests.durability.disk import Disk

LENGTHS = (1, 5, 700, 1500)
ACTIONS = 30
OFTEN = Chances(lost=0.02, repeated=0.02, server=0.004, driver=0.0)
LIMIT = 30_000
"""Bytes in the journal: a few dozen requests, so that checkpoints come often."""


class Simulated(Durability):
    """Replay with its checkpoints on the cluster's disk."""

    def __init__(self, driver: Driver) -> None:
        super().__init__("replay", "/run")
        self.driver = driver
        self.made: Checkpoints | None = None

    def checkpoints(self, session: Any, directory: Any = None) -> Checkpoints:
        if self.made is None:
            start, store = self.driver.steps.start, self.driver.open_store
            self.made = Checkpoints(session, "/run", start=start, open_store=store)
        return self.made


class Script:
    """Statements by chance, on arrays and beside them on NumPy's."""

    def __init__(self, seed: int, chances: Chances = OFTEN) -> None:
        self.pick = random.Random(seed)
        self.ps = self._begin(chances)
        self.resizes = self.refused = 0
        self.pairs: list[tuple[Any, np.ndarray]] = []
        self.space = self.ps.keys()
        self.table, self.rows = self.space.table(2), dict[int, np.ndarray]()

    def _begin(self, chances: Chances) -> Session:
        self.cluster = Cluster(self.pick.randint(1, 4), Disk(), self.pick, chances)
        self.driver = driver = Driver(self.cluster)
        session = type("Limited", (Session,), {"journal_limit": LIMIT})
        return session(
            driver.connect(), durability=Simulated(driver), opener=Opener(self._open, has_disk=True)
        )

    def run(self) -> Script:
        """All statements, and then every value."""
        for _ in range(ACTIONS):
            self.pick.choice(
                [self._make, self._compute, self._compute, self._push, self._sort, self._scan,
                 self._drop, self._sum, self._write_rows, self._read_rows, self._checkpoint,
                 self._select, self._resize]
            )()  # fmt: skip
        for array, values in self.pairs:
            assert array.numpy().tobytes() == values.tobytes()
        self._read_rows()
        return self

    def _one(self) -> tuple[Any, np.ndarray]:
        if not self.pairs:
            self._make()
        return self.pick.choice(self.pairs)

    def _draw(self, length: int) -> np.ndarray:
        return np.array([self.pick.randrange(-99, 100) for _ in range(length)], float)

    def _make(self) -> None:
        values = self._draw(self.pick.choice(LENGTHS))
        array = self.ps.array(values)
        values = values.copy()
        self.pairs.append((array, values))
        if len(self.pairs) > 6:
            self._drop()

    def _drop(self) -> None:
        if self.pairs:
            self.pairs.pop(self.pick.randrange(len(self.pairs)))

    def _compute(self) -> None:
        array, values = self._one()
        others = [pair for pair in self.pairs if pair[1].size == values.size]
        other, its = self.pick.choice(others)
        self.pairs.append((array * 0.5 + other, values * 0.5 + its))
        if self.pick.random() < 0.3:
            self.ps.flush()

    def _push(self) -> None:
        array, values = self._one()
        where, given = [self.pick.randrange(values.size) for _ in range(4)], self._draw(4)
        array.push(where, given)
        np.add.at(values, where, given)
        given += 1000.0  # what was sent is sent again as it was

    def _sort(self) -> None:
        array, values = self._one()
        self.pairs.append((np.sort(array), np.sort(values)))

    def _scan(self) -> None:
        array, values = self._one()
        whole = np.round(values)
        self.pairs.append((np.cumsum(np.round(array)), np.cumsum(whole)))

    def _sum(self) -> None:
        array, values = self._one()
        assert float(np.round(array).sum()) == np.round(values).sum()

    def _write_rows(self) -> None:
        keys = np.array([self.pick.randrange(30) for _ in range(5)])
        rows = self._draw(10).reshape(5, 2)
        self.table.push(keys, rows)
        for key, row in zip(keys.tolist(), rows, strict=True):
            self.rows[key] = self.rows.get(key, np.zeros(2)) + row
        keys += 1

    def _read_rows(self) -> None:
        keys = sorted(self.rows)
        found = self.table.pull(keys)
        assert found.tolist() == [self.rows[key].tolist() for key in keys]
        assert len(self.space) == len(keys)

    def _select(self) -> None:
        array, values = self._one()
        if (values > 3.0).any():
            self.pairs.append((array[array > 3.0], values[values > 3.0]))

    def _open(self, servers: int, former: Client) -> tuple[Client, None]:
        old = self.driver.cluster
        self.driver.cluster = Cluster(servers, old.disk, self.pick, old.chances)
        return self.driver.connect(former), None

    def _resize(self) -> None:
        before, servers = self.driver.cluster, self.pick.randint(1, 4)
        try:
            self.ps.resize(servers)
        except ServerLost:  # one that is to come; the statements that follow tell what has changed
            self.driver.cluster = before
            self.refused += 1
        else:
            self.resizes += 1
            assert self.ps.client.servers == servers

    def _checkpoint(self) -> None:
        if self.pick.random() < 0.2:
            self.ps.checkpoint()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_script_on_servers_that_are_lost_has_numpys_bits(seed):
    script = Script(seed).run()
    script.ps.close()


def test_what_is_freed_during_a_recovery_is_there_until_its_end():
    """Finalizers run at any moment; what they free may be what a repeated request reads."""
    script = Script(0, NONE)
    ps, cluster = script.ps, script.cluster
    values = np.arange(1500.0)
    x = ps.array(values)
    y = (x * 2.0 + 1.0).persist()
    number, journal = x.node.value.id, ps.client.journal
    renew = journal._renew

    def finalizing(messages):
        ps.client.free([number])
        return renew(messages)

    journal._renew = finalizing
    for server in range(cluster.servers):
        cluster.kill(server)
    assert y.numpy().tobytes() == (values * 2.0 + 1.0).tobytes()
    assert journal.recoveries == 1


@pytest.mark.long
def test_thousands_of_schedules():
    recoveries = resizes = refused = 0
    for seed in range(3000):
        script = Script(seed).run()
        recoveries += script.ps.client.journal.recoveries
        resizes, refused = resizes + script.resizes, refused + script.refused
        script.ps.close()
    told = f"{recoveries} recoveries, {resizes} resizes, {refused} that a loss broke off"
    assert recoveries > 1000 and resizes > 3000 and refused > 30, told
