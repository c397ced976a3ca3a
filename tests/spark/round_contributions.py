"""What tasks contribute to plain and keyed arrays in ``round_schedules``, and NumPy's results."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import distvec as dv
from distvec.keyed.array import KeyedArray
from distvec.spark import PSContext
from ps_backend.program.keys import bucket_of

SHAPES = ((2500,), (40, 3))
"""Of the plain arrays of a round: a vector and a table."""

ROWS = ((), (3,))
"""Of its keyed arrays, of one space: a vector and a table."""

KEYS = np.append(np.arange(-20, 20) * 10**15, [-(2**63), -1, 2**63 - 1])
THERE = KEYS[::3]
"""The keys that are there before; the others are inserted by the round."""

COUNT = 30
"""Indices or keys of a contribution."""

PARTITIONS = 3
COMBINE = {"add": np.add, "min": np.minimum, "max": np.maximum}
_NEUTRAL = {"add": 0.0, "min": np.inf, "max": -np.inf}


class Contribution(NamedTuple):
    """Values for an array at indices or keys, or for all of a plain one."""

    slot: int
    indices: npt.NDArray[np.int64] | None
    values: npt.NDArray[np.float64]

    @property
    def is_keyed(self) -> bool:
        """Whether it is for a keyed array."""
        return self.slot >= len(SHAPES)


def contributions(seed: int, partition: int) -> list[Contribution]:
    """What a partition contributes, in order, which shows in the bits: magnitudes differ."""
    rng = np.random.default_rng((seed, partition))
    made = []
    for _ in range(rng.integers(2, 6)):
        slot = int(rng.integers(len(SHAPES) + len(ROWS)))
        if slot >= len(SHAPES):
            indices, row = rng.choice(KEYS, COUNT), ROWS[slot - len(SHAPES)]
        else:
            length, *row = SHAPES[slot]
            indices = None if rng.random() < 0.3 else rng.integers(0, length, COUNT)
        shape = SHAPES[slot] if indices is None else (COUNT, *row)
        values = rng.normal(size=shape) * 10.0 ** rng.integers(-8, 8)
        made.append(Contribution(slot, indices, values))
    return made


def start_values(seed: int) -> list[npt.NDArray[np.float64]]:
    """The plain arrays before the round."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in SHAPES]


def keyed_arrays(ps: PSContext, seed: int) -> list[KeyedArray]:
    """The keyed arrays before the round."""
    space = ps.keys()
    made = [space.zeros(), space.table(*ROWS[1], init=dv.uniform(-1, 1, seed=seed), dtype=float)]
    for array in made:
        array.push(THERE, 0.125)
    return made


def expected(seed: int, op: str) -> list[npt.NDArray[np.float64]]:
    """The plain arrays after it."""
    totals = start_values(seed)
    for partition in range(PARTITIONS):
        for one in contributions(seed, partition):
            if one.indices is None:
                COMBINE[op](totals[one.slot], one.values, out=totals[one.slot])
            elif not one.is_keyed:
                COMBINE[op].at(totals[one.slot], one.indices, one.values)
    return totals


def expected_rows(
    seed: int, op: str, before: list[npt.NDArray[np.float64]]
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.float64]]]:
    """The keys of the space after it, in order, and the rows of ``KEYS``, which were ``before``.

    What comes for a key that repeats is joined first; keys are inserted in ascending order.
    """
    rows, place = [one.copy() for one in before], {key: k for k, key in enumerate(KEYS.tolist())}
    inserted = dict.fromkeys(np.sort(THERE).tolist())
    for partition in range(PARTITIONS):
        for one in contributions(seed, partition):
            if one.is_keyed:
                keys, inverse = np.unique(one.indices, return_inverse=True)
                joined = np.full((len(keys), *one.values.shape[1:]), _NEUTRAL[op])
                COMBINE[op].at(joined, inverse, one.values)
                some = [place[key] for key in keys.tolist()]
                target = rows[one.slot - len(SHAPES)]
                target[some] = COMBINE[op](target[some], joined)
                inserted.update(dict.fromkeys(keys.tolist()))
    keys = np.array([*inserted])
    return keys[np.argsort(bucket_of(keys), kind="stable")], rows


def same_bits(found: list[npt.NDArray[np.float64]], wanted: list[npt.NDArray[np.float64]]) -> bool:
    """Whether all arrays have the same bits."""
    return all(one.tobytes() == other.tobytes() for one, other in zip(found, wanted, strict=True))
