"""NumPy's functions that put together an array of several, each element from one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distvec.array.checks import refuse_if
from distvec.array.functions import array_among, where, zeros_like
from distvec.array.handle import Handle
from distvec.array.items import get_item, set_item
from distvec.array.reduction_keywords import stored


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Of each element the choice with the number that ``a`` has there: ``numpy.choose``.

    One sweep. With ``mode="raise"`` an implicit evaluation: ``ValueError`` for a number of none.
    """
    array_among("choose", (a, *choices, out))
    count = len(choices)
    if getattr(a, "dtype", np.dtype(int)).kind not in "iub":
        raise TypeError(f"choose: numbers of choices are integers, got {a.dtype}")
    number = a.astype(np.int64) if hasattr(a, "dtype") else np.asarray(a)
    if mode == "raise":
        refuse_if((number < 0) | (number >= count), ValueError, "invalid entry in choice array")
    elif mode == "wrap":
        number = number % count
    elif mode != "clip":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    dtype = np.result_type(*(getattr(choice, "dtype", choice) for choice in choices))
    result = choices[-1]
    for position in range(count - 2, -1, -1):
        result = where(number <= position, choices[position], result)
    if count == 1:
        result = where(number == 0, result, result)
    return stored(out, result.astype(dtype), "choose")


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """Of each element the choice of the first condition that is true there: ``numpy.select``."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    array_among("select", (*condlist, *choicelist, default))
    for position, condition in enumerate(condlist):
        if getattr(condition, "dtype", None) != np.bool_:
            raise TypeError(f"invalid entry {position} in condlist: should be boolean ndarray")
    kinds = [getattr(choice, "dtype", choice) for choice in (*choicelist, default)]
    dtype = np.result_type(*kinds)
    result = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        result = where(condition, choice, result)
    return result.astype(dtype)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """A function of each piece of ``x``, or a number; the last one elsewhere: ``numpy.piecewise``.

    Functions get what their condition selects; elementwise ones cost no message.
    """
    x = array_among("piecewise", (x,))
    if getattr(condlist, "ndim", 0) > x.ndim:
        condlist = [condlist[k] for k in range(len(condlist))]
    elif np.isscalar(condlist) or isinstance(condlist, Handle):
        condlist = [condlist]
    conditions = [x.session.namespace.asarray(condition).astype(np.bool_) for condition in condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        count = len(conditions)
        raise ValueError(
            f"with {count} condition(s), either {count} or {count + 1} functions are expected"
        )
    if len(funclist) > len(conditions):
        some = conditions[0]
        for condition in conditions[1:]:
            some = some | condition
        conditions.append(~some)
    result = zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        value = function(get_item(x, condition), *args, **kw) if callable(function) else function
        set_item(result, condition, value)
    return result


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.choose: choose, np.select: select, np.piecewise: piecewise}
