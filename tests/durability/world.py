"""What a simulation keeps of a driver and its arrays, and that servers keep nothing in the end."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distvec.array.array import DistArray
from distvec.durability.checkpoints import Checkpoints
from distvec.session import Session
from tests.durability.cluster import Cluster, Driver


@dataclass(eq=False)
class Tracked:
    """An array, its values by NumPy, and after how many kills it was whole for sure."""

    array: DistArray
    values: np.ndarray
    since: int


@dataclass
class Snapshot:
    """What a checkpoint must hold."""

    named: dict[str, np.ndarray]
    whole: list[tuple[Tracked, Any]]
    """With the node that the array stood for."""
    driver: Driver


@dataclass
class World:
    """The driver of now, its session and its arrays."""

    driver: Driver
    session: Session
    checkpoints: Checkpoints
    arrays: list[Tracked] = field(default_factory=list)


def assert_nothing_is_held(session: Session, cluster: Cluster) -> None:
    """By servers, once nobody has an array of ``session``, which is closed."""
    session.client.status()
    if any(status.buffers for status in session.client.status()):
        gc.collect()  # what errors refer to
        session.client.status()
    for service in cluster.services:
        for held in service.sessions.all():
            assert not len(held.store), "buffers that nobody has"
            assert not len(held.store.pins), "pins of checkpoints that are over"
    session.close()
    for service in cluster.services:
        assert not service.memory.used, f"{service.memory.used} bytes of nobody"
