"""The keywords of NumPy's functions: ``where=``, ``initial=``, ``out=``, and other names for some.

``where=`` and ``initial=`` become elementwise operations before and after a reduction, which are
fused with it and send no request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from distvec.array.core.handle import check_not_slice, check_split
from distvec.array.core.operators import A, Arithmetic, as_operand, elementwise
from distvec.array.core.shapes import broadcast_to
from ps_backend.program import ops
from ps_backend.program.reducers import Reducer

NOT_GIVEN: Any = np._NoValue
"""What NumPy hands on for an argument that was not given."""

_BOOL = np.dtype(np.bool_)


def is_given(argument: Any) -> bool:
    """Whether an argument was given, and is not None."""
    return argument is not NOT_GIVEN and argument is not None


def is_everywhere(where: Any) -> bool:
    """Test whether ``where=`` selects all elements."""
    return where is True or where is NOT_GIVEN or where is np.True_


def where_mask(x: A, where: Any, name: str) -> A:
    """``where=`` of ``name`` as booleans in the shape of ``x``; errors as NumPy's."""
    mask = as_operand(x, where, f"{name}: where=")
    if mask.dtype != _BOOL:
        raise TypeError(
            f"{name}: where= must be boolean, got {mask.dtype}; compare first, as in mask != 0"
        )
    return mask if mask.shape == x.shape else broadcast_to(mask, x.shape)


def select_where(x: A, row: Reducer, where: Any, initial: Any) -> A:
    """Replace the elements of ``x`` that ``where`` leaves out by the neutral element of ``row``.

    ``ValueError`` if the reduction has no neutral element.
    """
    if is_everywhere(where):
        return x
    neutral = x.dtype.type(row.identity) if row.identity is not None else initial
    if neutral is NOT_GIVEN:
        raise ValueError(
            f"reduction operation {row.name!r} does not have an identity, so to use a where mask "
            f"one has to specify 'initial'"
        )
    return elementwise(x, "where", where_mask(x, where, row.name), x, neutral)


def include_initial(result: A, row: Reducer, initial: Any) -> A:
    """``result`` of the reduction ``row`` with the element ``initial`` besides."""
    if row.numpy not in ops.NAMES:
        raise TypeError(f"{row.name}: initial= is not supported; combine it with the result")
    return elementwise(result, ops.NAMES[row.numpy], result, initial)


def initial_in(x: A, initial: Any, dtype: np.dtype[Any]) -> Any:
    """``initial=`` in ``dtype``, converted as NumPy does, or ``NOT_GIVEN``."""
    if not is_given(initial):
        return NOT_GIVEN
    if isinstance(initial, Arithmetic):
        if initial.ndim:
            raise ValueError(f"initial= must be a number, got an array of shape {initial.shape}")
        return initial.astype(dtype)
    with np.errstate(over="ignore"):
        return dtype.type(initial)


def accumulation_dtype(out: Any, x: Any) -> np.dtype[Any]:
    """The dtype in which ``x`` is accumulated into ``out=``, as NumPy has it: one for both."""
    return np.result_type(out.dtype, x.dtype)


def store(out: Any, result: A, name: str, casting: str | None = None) -> A:
    """Return ``result`` of the function ``name``; store it in ``out=`` if that is given.

    ``casting``: the rule, if ``out=`` must have exactly the shape of the result; reductions cast
    "unsafe". None: as for ufuncs, by "same_kind", with broadcasting. ``out=`` may be a NumPy array
    if the client stores the result; this evaluates it.
    """
    if not is_given(out):
        return result
    target = out[0] if isinstance(out, tuple) else out
    is_numpy = isinstance(target, np.ndarray) and result.node.on_client
    if not is_numpy:
        target = check_out(target, name)
    if casting is None and not is_numpy:
        check_split(target, result, name)
    elif casting is not None and target.shape != result.shape:
        what = "reduction operation " if casting == "unsafe" else ""  # as NumPy says it
        raise ValueError(
            f"output parameter for {what}{name} has the wrong shape: {target.shape}, but the "
            f"result has {result.shape}"
        )
    if casting == "no" and target.dtype != result.dtype:
        raise ValueError(
            f"{name}: out= has dtype {target.dtype}, but the result has {result.dtype}; give out= "
            f"that dtype, or write out[...] = numpy.{name}(...)"
        )
    changed: A = target
    if is_numpy:  # evaluates the result, which the client stores anyway
        rule: Any = "unsafe" if casting == "unsafe" else "same_kind"
        np.copyto(target, np.asarray(result), casting=rule)
    else:
        given = result.astype(target.dtype) if casting == "unsafe" else result
        changed = target.assign(given, name)
    return changed


def check_out(out: Any, name: str) -> Any:
    """``out=``, which must be an array on the servers."""
    if not isinstance(out, Arithmetic):
        raise TypeError(
            f"numpy.{name}: out is a {type(out).__name__} on the client; "
            f"write out[...] = numpy.{name}(...).numpy() to pull the result"
        )
    check_not_slice(out)
    return out


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
    return args if all(name in named for name in given) else leading_arguments(func, args, given)


def leading_arguments(
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
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)  # takes longer than building a node


@lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(_signature(function).parameters.values())


def check_bound(
    name: str, ours: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
) -> None:
    """``TypeError`` for arguments that our counterpart of NumPy's function ``name`` has not."""
    if not given:
        return
    try:
        _signature(ours).bind(*args, **given)
    except TypeError as error:
        raise TypeError(
            f"numpy.{name}: {error} on the servers; "
            f"pull the values with x.numpy() and call it on those"
        ) from None
