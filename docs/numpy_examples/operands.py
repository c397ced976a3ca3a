"""What the examples are about: the same values as arrays of the servers, and as NumPy's."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

LENGTH = 2000
"""Of vectors, and rows of tables: two servers have 1024 and 976 of them."""
COLUMNS = 4

LEGEND = """\
| Name | Value |
|---|---|
| `x`, `y` | vectors of 2,000 float64 |
| `u`, `p` | vectors in (-1, 1), and of positive numbers |
| `e`, `z` | ascending vector, and vector with NaN |
| `f` | vector of float32 |
| `i`, `j`, `o` | vectors of int64: two from 1 to 9, and a permutation |
| `m`, `w` | vectors of bool |
| `T`, `U` | tables of 2,000 rows and 4 columns |
| `A`, `B` | small (4, 4) matrices, stored on the client, as `T.T @ T` is |
| `v`, `s`, `file` | NumPy array of 4 numbers, a number, an open file |"""


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


_SMALL = {"A": ("T", "T"), "B": ("T", "U")}
"""What the client keeps: by name the tables whose products they are."""
_NUMBER = 2.5


Put = Callable[[Any, np.ndarray], Any]
"""How a session is given values."""


def on_servers(
    session: Any, names: Iterable[str], put: Put = lambda session, array: session.array(array)
) -> dict[str, Any]:
    """New arrays on the servers, those of ``names``, and what else an example may name."""
    found = _plain()
    for name in names:
        if name in values():
            found[name] = put(session, values()[name])
        elif name in _SMALL:
            first, second = (session.array(values()[one]) for one in _SMALL[name])
            found[name] = (first.T @ second).persist()
        elif name == "s":
            found[name] = session.array(_NUMBER)
    return found


def on_client(small: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same values as NumPy's arrays; ``small`` as the servers have computed them."""
    own = {name: one.copy() for name, one in (values() | small).items()}
    return _plain() | own | {"s": np.float64(_NUMBER)}


def small_arrays(session: Any) -> dict[str, np.ndarray]:
    """By name the values of the arrays that the client keeps."""
    return {
        name: one.numpy() for name, one in on_servers(session, _SMALL).items() if name in _SMALL
    }


def _plain() -> dict[str, Any]:
    return {"np": np, "file": io.BytesIO(), "v": np.array([0.5, -1.0, 2.0, 0.25])}
