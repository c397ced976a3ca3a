"""One seed, one schedule: arrays, checkpoints, losses and restores, with NumPy beside them.

    outcome = simulate(seed)        # raises, if an array has another value than it must have

What must hold: an array has NumPy's bits, or was lost with a server that died after it was made or
brought back. What a checkpoint holds is there after a restore. A new session finds the newest
checkpoint that was said to be written, or one that was begun later. In the end the servers hold
nothing that nobody needs, neither does the disk, and nobody waits.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from distvec.array.array import DistArray
from distvec.durability.checkpoints import Checkpoints
from distvec.session import Session
from ps_backend.errors import (
    BufferLost,
    CheckpointIncomplete,
    NotDurable,
    PSError,
    ServerLost,
    SessionFenced,
)
from ps_backend.program.types import DTYPES
from ps_backend.wire.protocol import Total, Winner
from tests.durability.cluster import NONE, Chances, Cluster, Driver, DriverKilled
from tests.durability.disk import Disk, unneeded
from tests.durability.world import Snapshot, Tracked, World, assert_nothing_is_held

LENGTHS = (0, 1, 5, 1500, 5000)
LARGE = 140_000
"""Programs write over arrays of a MiB or more, where they can."""
MOST_ARRAYS = 8
ACTIONS = 60


class Simulation:
    """One schedule."""

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        self.pick = random.Random(seed)
        self.chances = chances or Chances()
        self.length = LARGE if self.pick.random() < 0.04 else None
        self.count: Counter[str] = Counter()
        self.disk = Disk()
        self.cluster = self._cluster()
        self.world: World | None = None
        self.zombies: list[World] = []
        self.snapshots: dict[int, Snapshot] = {}
        self.allowed: list[int] = []
        """Numbers of the checkpoints that a new session may find."""
        self.acknowledged = False

    def run(self) -> Counter[str]:
        """Actions of the seed, then an end without faults; how often what happened."""
        while self.world is None:
            self._guarded(self._open)
        for _ in range(ACTIONS):
            action = self.pick.choices(_ACTIONS, _WEIGHTS)[0]
            self.count[action.__name__.strip("_")] += 1
            self._guarded(action, self)
            if self.world is not None and self.world.driver.is_dead:  # its writer met it
                self._bury()
            while self.world is None:
                self._guarded(self._open)
        self._end()
        return self.count

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        """Losses are errors that may be; with a driver's death all of it ends."""
        try:
            action(*arguments)
        except (ServerLost, BufferLost):
            self.count["losses"] += 1
        except DriverKilled:
            self._bury()

    def _bury(self) -> None:
        self.count["drivers killed"] += 1
        world, self.world = self.world, None
        if world is not None:
            world.driver.is_dead = True
            world.driver.steps.finish()
        if self.pick.random() < 0.3:  # the machine went with it
            self.count["machines crashed"] += 1
            self.disk.crash(self.pick)
            self.zombies.clear()
        for zombie in self.zombies if self.pick.random() < 0.5 else ():
            zombie.driver.is_dead = True
            zombie.driver.steps.finish()
        self.zombies = [one for one in self.zombies if not one.driver.is_dead]

    def _cluster(self) -> Cluster:
        return Cluster(self.pick.randint(1, 7), self.disk, self.pick, self.chances)

    # --- sessions -----------------------------------------------------------------------------

    def _open(self) -> None:
        """A new session on other servers takes what the newest checkpoint has."""
        self.cluster = self._cluster()
        driver = Driver(self.cluster)
        session = Session(driver.connect())
        world = World(driver, session, self._checkpoints(driver, session))
        world.checkpoints._folder.claim()  # as the first checkpoint of a run does, at its start
        found = self._restore(world)
        if found is not None:
            snapshot = self.snapshots[found.number]
            for name, values in snapshot.named.items():
                world.arrays.append(Tracked(found[name], values, self.kills_before))
        self.world = world

    def _checkpoints(self, driver: Driver, session: Session) -> Checkpoints:
        return Checkpoints(session, "/run", start=driver.steps.start, open_store=driver.open_store)

    def _restore(self, world: World) -> Any:
        """The newest checkpoint, which must be one of those that may be found."""
        while True:
            self.kills_before = self.cluster.kills
            try:
                found = world.checkpoints.restore()
                break
            except (ServerLost, BufferLost):
                self.count["restores interrupted"] += 1
            except CheckpointIncomplete:  # the first was broken off, or its manifest torn
                found = None
                break
        self.count["restores"] += 1
        if found is None:
            assert not self.acknowledged, f"none is found, but one of {self.allowed} must be there"
            return None
        assert found.number in self.allowed, f"{found.number} is found, not of {self.allowed}"
        snapshot = self.snapshots[found.number]
        assert found.document == {"number": found.number}
        assert set(found.arrays) == set(snapshot.named)
        for name, values in snapshot.named.items():
            self._check(Tracked(found[name], values, self.kills_before))
        return found

    # --- arrays -------------------------------------------------------------------------------

    def _check(self, one: Tracked) -> None:
        """It has NumPy's bits, or is lost with a server."""
        before = self.cluster.kills
        try:
            found = one.array.numpy()
        except (ServerLost, BufferLost) as error:
            self._check_may_be_lost(one, error)
            raise
        assert found.dtype == one.values.dtype
        assert found.shape == one.values.shape
        assert found.tobytes() == one.values.tobytes()
        one.since = max(one.since, before)

    def _check_may_be_lost(self, one: Tracked, error: Exception) -> None:
        assert self.cluster.kills > one.since, f"lost without a loss: {error!r}"

    def _values(self, like: Tracked | None = None) -> np.ndarray:
        if like is not None:
            shape, dtype = like.values.shape, like.values.dtype
        else:
            dtype = np.dtype(self.pick.choice(DTYPES))
            length = self.length or self.pick.choice(LENGTHS)
            shape = (length, *self.pick.choice([(), (), (1,), (3,)]))
        draw = np.random.default_rng(self.pick.randrange(1 << 32))
        return draw.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)

    def _any(self) -> Tracked:
        if not self.world.arrays:
            self._make()
        return self.pick.choice(self.world.arrays)

    def _add(self, array: DistArray, values: np.ndarray, since: int) -> None:
        self.world.arrays.append(Tracked(array, values, since))
        if len(self.world.arrays) > MOST_ARRAYS:
            self._drop()

    def _drop(self) -> None:
        self.world.arrays.pop(self.pick.randrange(len(self.world.arrays)))

    def _make(self) -> None:
        values, since = self._values(), self.cluster.kills
        self._add(self.world.session.array(values), values, since)

    def _compute(self) -> None:
        one = self._any()
        other = self._like(one)
        if one.values.dtype.kind == "b":
            array, values = one.array ^ other.array, one.values ^ other.values
        else:
            array, values = one.array * 3 + other.array, one.values * 3 + other.values
        since = min(one.since, other.since)
        if self.pick.random() < 0.5:
            one.array, one.values, one.since = array, values, since
        else:
            self._add(array, values, since)
        if self.pick.random() < 0.3:
            self.world.session.flush()

    def _like(self, one: Tracked) -> Tracked:
        fitting = [
            other
            for other in self.world.arrays
            if other.values.shape == one.values.shape and other.values.dtype == one.values.dtype
        ]
        return self.pick.choice(fitting)

    def _push(self) -> None:
        one = self._any()
        if one.values.dtype.kind == "b" or not len(one.values):
            return
        where = [self.pick.randrange(len(one.values)) for _ in range(5)]
        given = self._values(one)[:5]
        given = np.resize(given, (5, *one.values.shape[1:])).astype(one.values.dtype)
        values = one.values.copy()
        np.add.at(values, where, given)
        before = self.cluster.kills
        try:
            one.array.push(where, given)
        except (ServerLost, BufferLost) as error:
            self._check_may_be_lost(one, error)
            raise
        one.values, one.since = values, max(one.since, before)

    def _round(self) -> None:
        """Contributions of some partitions, one of them by two attempts."""
        session, like = self.world.session, self._any()
        type = like.array.node.type
        if like.values.dtype.kind == "b" or not like.values.size or like.array.node.on_client:
            return
        since, name = self.cluster.kills, f"round {self.pick.random()}"
        total, winners = np.zeros_like(like.values), []
        for partition in range(self.pick.randint(1, 3)):
            given = self._values(like)
            for attempt in range(self.pick.randint(1, 2)):
                session.client.stage(name, partition, attempt, type.space, None, given)
            total += given
            winners.append(Winner(partition, attempt))
        buffer = session.new_buffer(type)
        try:
            session.client.commit_totals(name, [Total(buffer.id, type, winners)])
        except PSError:
            assert self.cluster.kills > since
            return
        self._add(DistArray(session, session.graph.leaf(buffer)), total, since)

    def _read(self) -> None:
        one = self._any()
        try:
            self._check(one)
        except (ServerLost, BufferLost):
            if self.pick.random() < 0.3:
                self.world.arrays.remove(one)
            raise

    # --- checkpoints --------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        self._begin(self.world)

    def _begin(self, world: World) -> None:
        self._note_done(world)
        world.checkpoints.settle()
        self._note_done(world)
        number = 1 + max(self.snapshots, default=-1)
        chosen = [one for one in world.arrays if self.pick.random() < 0.5]
        named = {f"a{k}": one.values for k, one in enumerate(chosen)}
        snapshot = Snapshot(named, [], world.driver)
        self.snapshots[number] = snapshot
        self.allowed.append(number)
        before = world.driver.cluster.kills
        arrays = {f"a{k}": one.array for k, one in enumerate(chosen)}
        try:
            future = world.checkpoints.begin(number, arrays, {"number": number})
        except (ServerLost, BufferLost):
            self.count["checkpoints not begun"] += 1
            self.allowed.remove(number)
            raise
        world.future, world.number = future, number
        for one in chosen:
            one.since = max(one.since, before)
        if world.driver.cluster.kills == before:
            snapshot.whole = [
                (one, one.array.node)
                for one in world.arrays
                if one.since == before and one.array.node.known and not one.array.node.on_client
            ]

    def _note_done(self, world: World) -> None:
        """If its checkpoint was written, older ones may not be found any more."""
        future = getattr(world, "future", None)
        if future is None or not future.done() or world is not self.world:
            return
        world.future = None
        if future.exception() is None:
            self.count["checkpoints written"] += 1
            self.acknowledged = True
            self.allowed = [
                one
                for one in self.allowed
                if one >= world.number and self.snapshots[one].driver is world.driver
            ]
        else:
            self.count["checkpoints failed"] += 1

    def _step(self) -> None:
        for _ in range(self.pick.randint(1, 8)):
            self.world.driver.steps.step()
        self._note_done(self.world)

    def _settle(self) -> None:
        self.world.checkpoints.settle()
        self._note_done(self.world)

    def _roll_back(self) -> None:
        """What arrays stood for when the checkpoint was begun is there again."""
        world = self.world
        world.checkpoints.settle()
        self._note_done(world)
        found = self._restore(world)
        if found is None or self.snapshots[found.number].driver is not world.driver:
            return
        for one, node in self.snapshots[found.number].whole:
            if one in world.arrays and one.array.node is node:
                one.since = max(one.since, self.kills_before)

    def _kill(self) -> None:
        self.cluster.kill(self.pick.randrange(self.cluster.servers))

    def _replace_driver(self) -> None:
        """Another one goes on; the one before may not know of it."""
        if self.pick.random() < 0.5:
            raise DriverKilled
        self.count["zombies"] += 1
        self.zombies.append(self.world)
        self.world = None

    def _let_zombies_work(self) -> None:
        for zombie in self.zombies:
            with suppress(ServerLost, BufferLost, SessionFenced):
                try:
                    if self.pick.random() < 0.5:
                        self._begin(zombie)
                    for _ in range(self.pick.randint(1, 20)):
                        zombie.driver.steps.step()
                except DriverKilled:
                    zombie.driver.is_dead = True
        self.zombies = [one for one in self.zombies if not one.driver.is_dead]

    # --- the end ------------------------------------------------------------------------------

    def _end(self) -> None:
        """Without faults: all is right, and nothing is left over."""
        for zombie in self.zombies:
            zombie.driver.is_dead = True
            zombie.driver.steps.finish()
        self.cluster.chances = self.chances = NONE
        with suppress(ServerLost, BufferLost):
            self._roll_back()
        self._check_all()
        self._check_files()
        self._check_memory()

    def _check_all(self) -> None:
        for one in self.world.arrays[:]:
            try:
                self._check(one)
            except (ServerLost, BufferLost):
                self.world.arrays.remove(one)

    def _check_files(self) -> None:
        world = self.world
        for _ in range(2):
            self._begin(world)
            trouble = world.checkpoints.settle()
            assert trouble is None, trouble
            self._note_done(world)
        assert self._restore(world).number == world.number
        left = unneeded(self.disk, world.checkpoints)
        assert not left, f"files that nobody needs: {left}"

    def _check_memory(self) -> None:
        session, cluster = self.world.session, self.cluster
        self.world = None
        self.zombies.clear()
        self.snapshots.clear()
        assert_nothing_is_held(session, cluster)


def simulate(seed: int, chances: Chances | None = None) -> Counter[str]:
    """Run the schedule of ``seed``; how often what happened. ``AssertionError`` where it fails."""
    with warnings.catch_warnings(), np.errstate(over="ignore"):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NotDurable)  # a manifest that a crash has torn
        return Simulation(seed, chances).run()


_WEIGHTED = {
    Simulation._make: 4,
    Simulation._compute: 10,
    Simulation._push: 4,
    Simulation._round: 2,
    Simulation._read: 6,
    Simulation._checkpoint: 5,
    Simulation._step: 12,
    Simulation._settle: 1,
    Simulation._roll_back: 2,
    Simulation._kill: 1,
    Simulation._replace_driver: 0.5,
    Simulation._let_zombies_work: 2,
}
_ACTIONS, _WEIGHTS = list(_WEIGHTED), list(_WEIGHTED.values())
