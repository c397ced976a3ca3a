"""How the rows of a keyed array begin: rules that users name."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import Any

from ps_backend.program.initial import Constant, Fill, Normal, Uniform


def uniform(low: float, high: float, *, seed: int | None = None) -> Uniform:
    """Rows begin uniform in ``[low, high)``: ``space.table(16, init=dv.uniform(-0.05, 0.05))``.

    What a key begins with depends on seed, key and column alone (Philox). Without a ``seed`` one is
    drawn, so that two tables differ.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"uniform needs finite low <= high, got {low} and {high}")
    return Uniform(float(low), float(high), _seed(seed))


def normal(mean: float = 0.0, scale: float = 1.0, *, seed: int | None = None) -> Normal:
    """Rows begin normally distributed; as ``uniform``."""
    if not (math.isfinite(mean) and 0 <= scale < math.inf):
        raise ValueError(f"normal needs a finite mean, and scale >= 0, got {mean} and {scale}")
    return Normal(float(mean), float(scale), _seed(seed))


def rule_of(init: Any, seed: int | None) -> Fill:
    """What a user gave as ``init``, a rule or a number; with another ``seed``, if that is given."""
    if isinstance(init, Uniform | Normal):
        return init if seed is None else replace(init, seed=_seed(seed))
    if isinstance(init, Constant):
        return init
    if isinstance(init, int | float):
        return Constant(init)
    raise TypeError(
        f"init must be a number, dv.uniform(low, high) or dv.normal(mean, scale), got {init!r}"
    )


def _seed(seed: int | None) -> int:
    if seed is None:
        return secrets.randbits(62)
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed must fit int64, got {seed}")
    return seed
