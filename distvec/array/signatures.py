"""What NumPy's functions are called with: whether ours have such parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from distvec.array.operators import Arithmetic


def by_position(
    func: Callable[..., Any], ours: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[Any, ...]:
    """``args``, and after them those of the keywords ``given`` that ``ours`` calls otherwise than
    NumPy's ``func``, with what stands before these: they are gone from the keywords.
    """
    parameters = _parameters(ours)
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return args
    named = [one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY]
    return args if all(name in named for name in given) else leading(func, args, given)


def leading(
    func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[Any, ...]:
    """``args``, and those of the keywords ``given`` that come next among NumPy's parameters."""
    found = list(args)
    for parameter in _parameters(func)[len(args) :]:
        if parameter.name not in given or parameter.kind is parameter.KEYWORD_ONLY:
            break
        found.append(given.pop(parameter.name))
    return tuple(found)


@lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


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
