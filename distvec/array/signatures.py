"""What NumPy's functions are called with: whether ours have such parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from distvec.array.operators import Arithmetic


def check_bound(
    name: str, ours: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
) -> None:
    """``TypeError`` for arguments that our counterpart of NumPy's function ``name`` has not."""
    if not given:
        return
    try:
        inspect.signature(ours).bind(*args, **given)
    except TypeError as error:
        raise TypeError(
            f"numpy.{name}: {error} on the servers; "
            f"pull the values with x.numpy() and call it on those"
        ) from None


def as_arrays(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """``inputs``. ``TypeError`` if one is not on the servers."""
    for operand in inputs:
        if not isinstance(operand, Arithmetic):
            raise TypeError(
                f"needs arrays on the servers, got {type(operand).__name__}; "
                f"put it there with session.array(...)"
            )
    return inputs
