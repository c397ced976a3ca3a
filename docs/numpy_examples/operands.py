"""What the examples are about: the same values as arrays of the servers, and as NumPy's."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np

LENGTH = 2000
"""Of vectors, and rows of tables: two servers have 1024 and 976 of them."""
COLUMNS = 4

LEGEND = """\
`x`, `y` vectors of float64; `u` in (-1, 1), `p` positive, `e` ascending, `z` with NaN; `f` of
float32; `i`, `j` of int64 from 1 to 9, `o` a permutation; `m`, `w` of bool; `T`, `U` tables of 2000
rows and 4 columns; `s` a number. All these are on two servers. `A`, `B` are small (4, 4) and the
client keeps them, as it does `T.T @ T`. `v` is a NumPy array of 4 numbers, `file` an open file."""


@cache
def values() -> dict[str, np.ndarray]:
    """By name the values of the arrays on the servers."""
    random = np.random.default_rng(0)
    with_nan = random.standard_normal(LENGTH)
    with_nan[random.integers(0, LENGTH, 20)] = np.nan
    return {
        "x": random.standard_normal(LENGTH),
        "y": random.standard_normal(LENGTH),
        "u": random.uniform(-1, 1, LENGTH),
        "p": random.uniform(1, 3, LENGTH),
        "e": np.sort(random.uniform(-3, 3, LENGTH)),
        "z": with_nan,
        "f": random.standard_normal(LENGTH).astype(np.float32),
        "i": random.integers(1, 10, LENGTH),
        "j": random.integers(1, 10, LENGTH),
        "o": random.permutation(LENGTH),
        "m": random.integers(0, 2, LENGTH).astype(np.bool_),
        "w": random.integers(0, 2, LENGTH).astype(np.bool_),
        "T": random.standard_normal((LENGTH, COLUMNS)),
        "U": random.standard_normal((LENGTH, COLUMNS)),
    }


class Operands:
    """The arrays of one session by name, and fresh handles of them for each example."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._ours = {name: session.array(one) for name, one in values().items()}
        table, other = self._ours["T"], self._ours["U"]
        self._ours |= {"A": table.T @ table, "B": table.T @ other, "s": session.array(2.5)}
        self._small = {name: self._ours[name].numpy() for name in ("A", "B")}

    def on_servers(self) -> dict[str, Any]:
        """Arrays of the servers by name, which an example may change."""
        return _plain() | {name: one.copy() for name, one in self._ours.items()}

    def on_client(self) -> dict[str, Any]:
        """The same values as NumPy's arrays."""
        small = {name: one.copy() for name, one in self._small.items()}
        return _plain() | {name: one.copy() for name, one in values().items()} | small | _NUMBERS


_NUMBERS = {"s": np.float64(2.5)}


def _plain() -> dict[str, Any]:
    return {"np": np, "file": io.BytesIO(), "v": np.array([0.5, -1.0, 2.0, 0.25])}
