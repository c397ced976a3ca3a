"""Loops that read or write elements at random places of a long array.

Each place takes the time of a way to the main memory, unless many are under way at once. So what
is needed ``_AHEAD`` elements later is asked for; a processor alone looks less far ahead, and takes
three times as long.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_AHEAD = 128
_I32 = ir.IntType(32)
_BYTE_POINTER = ir.IntType(8).as_pointer()


@intrinsic
def _prefetch(context: Any, array: Any, place: Any) -> Any:
    """Ask for the line of memory where an element is; no place can fault."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), _BYTE_POINTER)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", (_BYTE_POINTER,), kind)
        builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(array, place), generate


@njit(cache=True, nogil=True)
def take(source: Any, low: int, wanted: Any, out: Any) -> None:
    """``out[k] = source[wanted[k] - low]``."""
    count = len(wanted)
    for k in range(count):
        _prefetch(source, wanted[min(k + _AHEAD, count - 1)] - low)  # type: ignore[call-arg]
        out[k] = source[wanted[k] - low]


@njit(cache=True, nogil=True)
def assign(out: Any, low: int, wanted: Any, values: Any) -> None:
    """``out[wanted[k] - low] = values[k]``, one after the other."""
    count = len(wanted)
    for k in range(count):
        _prefetch(out, wanted[min(k + _AHEAD, count - 1)] - low)  # type: ignore[call-arg]
        out[wanted[k] - low] = values[k]


@njit(cache=True, nogil=True)
def add(out: Any, low: int, wanted: Any, values: Any) -> None:
    """``out[wanted[k] - low] += values[k]``, one after the other."""
    count = len(wanted)
    for k in range(count):
        _prefetch(out, wanted[min(k + _AHEAD, count - 1)] - low)  # type: ignore[call-arg]
        out[wanted[k] - low] += values[k]
