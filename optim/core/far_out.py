"""Telling a small residual from one that rounds to nothing, where x is large."""

from __future__ import annotations

from collections.abc import Callable

from optim.core.arrays import Array, fetch, machine_epsilon, max_norm, quiet
from optim.core.state import State

# Residuals of this size and more may be hidden by the rounding of x.
_RESIDUAL = 1e-9


def residual_is_hidden(state: State, size: float, mapped: Callable[[Array, float], Array]) -> bool:
    """Whether x - mapped(x - g, 1) vanishes by the rounding of x alone, and not at a minimum.

    `mapped(v, step)` is a projection of v or a proximal operator. The residual of a longer step,
    divided by the step, is no larger (A. Beck, First-Order Methods in Optimization, 2017, theorem
    10.9), and one of the `size` of x, its max norm, is not rounded away. No message on lazy arrays
    but where x is large.
    """
    x = state.x
    if machine_epsilon(x) * size < _RESIDUAL:
        return False
    with quiet():
        (residual,) = fetch(max_norm(x - mapped(x - size * state.gradient, size)) / size)
    return residual > max(_RESIDUAL, 10.0 * state.gradient_norm)
