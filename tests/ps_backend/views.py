"""Programs whose inputs are views, and what should come of them."""

from __future__ import annotations

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Combination, Link, Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from ps_backend.program.views import View

F8, BOOL = ValueType("float64"), ValueType("bool")
DIFFERENCE = Sweep(
    (F8, F8),
    (),
    (Step("subtract", (0, 1), F8),),
    (2,),
    (Reduction("sum", (2,)), Reduction("argmax", (2,))),
)
"""``a - b``, its sum and the place of its largest element."""

COMBINED = Sweep(
    (F8, F8),
    (F8,),
    (Combination((Link("start", 0), Link("scale", scalar=2), Link("add", 1)), F8),),
    (3,),
    (Reduction("sum", (3,)), Reduction("dot", (0, 3))),
)
"""``c * a + b``, its sum and its inner product with ``a``."""


def values(length: int, seed: int = 0, row=()) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((length, *row))


def difference(client: Client, a: int, b: int, space: DenseSpace, *views: View | None):
    """``a - b`` of views, with what its reductions leave."""
    out = client.new_id()
    call = SweepCall(DIFFERENCE, space, (a, b), (), (out,), views=views)
    (partials,) = client.run(Program((call,)))
    found = client.read(out, array_type(space, float))
    client.free([out])
    return found, partials


def agrees(client: Client, expected: np.ndarray, found: np.ndarray, partials) -> None:
    """Same bits, and partial results of all blocks in their order."""
    assert found.tobytes() == expected.tobytes()
    sums, best, where = partials
    space = DenseSpace(len(expected))
    assert len(sums) == len(best) == space.blocks
    for block in range(space.blocks):
        part = expected[block * space.block_size : (block + 1) * space.block_size]
        assert best[block] == part.max()
        assert where[block] == block * space.block_size + part.argmax()
        assert sums[block] == pytest.approx(part.sum(), abs=1e-9)


def view(space: DenseSpace, cut: slice) -> View:
    return View(space, (), cut.start, cut.step)
