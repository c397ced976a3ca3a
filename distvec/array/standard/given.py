"""What functions of the standard are given: arrays of a session, one at least."""

from __future__ import annotations

from typing import Any

from distvec.array.core.operators import Arithmetic


def check_given(name: str, *operands: Any) -> None:
    """``TypeError`` unless an array of ours is among ``operands``: NumPy would compute it."""
    if not any(isinstance(one, Arithmetic) for one in operands):
        kinds = ", ".join(type(operand).__name__ for operand in operands)
        raise TypeError(
            f"{name}: needs an array on the servers, got ({kinds}); put it there with asarray(...)"
        )
