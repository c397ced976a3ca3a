"""Schedules of sessions, losses and checkpoints in one process, drawn from seeds; see
``tests.durability.simulation``. A failure names its seed: ``--seed K`` runs that one again.
"""

from __future__ import annotations

import time
from collections import Counter

from tests.durability.cluster import Chances
from tests.durability.simulation import simulate
from tests.stress.row import Row

SEEDS = 4000
KINDS = {
    "arrays, losses and checkpoints": Chances(),
    "the same, servers die ten times as often": Chances(server=0.04),
    "the same, drivers die ten times as often": Chances(driver=0.01),
    "the same, many messages are lost or repeated": Chances(lost=0.15, repeated=0.15),
    "the same without faults of the network": Chances(lost=0, repeated=0),
}


def run(scale: float, *, seeds: int = SEEDS, seed: int | None = None) -> list[Row]:
    """A row a kind of chances, with ``scale`` times that many seeds each, or only ``seed``."""
    chosen = range(max(1, round(scale * seeds))) if seed is None else [seed]
    return [_row(what, chances, chosen) for what, chances in KINDS.items()]


def _row(what: str, chances: Chances, seeds: range | list[int]) -> Row:
    began, count, failed = time.perf_counter(), Counter[str](), {}
    for seed in seeds:
        try:
            count += simulate(seed, chances)
        except Exception as error:  # noqa: BLE001 - told in the table
            failed[seed] = repr(error)
    minutes = (time.perf_counter() - began) / 60
    told = [f"{len(seeds) / minutes:.0f} a minute"]
    told += [f"seed {seed}: {error:.120}" for seed, error in list(failed.items())[:5]]
    told += [f"{count[kind]} {kind}" for kind in _TOLD]
    return Row(f"simulation: {what}", len(seeds), len(failed), "; ".join(told))


_TOLD = (
    "checkpoints written",
    "checkpoints failed",
    "losses",
    "restores",
    "restores interrupted",
    "drivers killed",
    "machines crashed",
    "zombies",
)
