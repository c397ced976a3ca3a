"""Words and rows at addresses, for compiled loops over blocks that tables of addresses name.

A location is a bucket and, in its last 32 bits, the slot of a row in the block of that bucket.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic as _numba_intrinsic

# What is decorated takes one argument less than it seems to, which type checkers cannot know.
intrinsic: Any = _numba_intrinsic

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))


def _loader(kind: Any) -> Any:
    @intrinsic
    def load(typing, address):  # type: ignore[no-untyped-def]
        """The value at an address."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_value_type(kind).as_pointer())
            return builder.load(pointer, align=1)

        return kind(types.int64), generate

    return load


def _storer(kind: Any) -> Any:
    @intrinsic
    def store(typing, address, value):  # type: ignore[no-untyped-def]
        """Write a value to an address."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], args[1].type.as_pointer())
            builder.store(args[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return store


load_8, store_8 = _loader(types.uint8), _storer(types.uint8)
load_16, store_16 = _loader(types.uint16), _storer(types.uint16)
load_32, store_32 = _loader(types.uint32), _storer(types.uint32)
load_64, store_64 = _loader(types.uint64), _storer(types.uint64)
load_integer, store_integer = _loader(types.int64), _storer(types.int64)
load_single, store_single = _loader(types.float32), _storer(types.float32)
load_double, store_double = _loader(types.float64), _storer(types.float64)


@intrinsic
def load_as(typing, address, like):  # type: ignore[no-untyped-def]
    """The value at an address, of the type of ``like``: loops are compiled for each."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], context.get_value_type(like).as_pointer())
        return builder.load(pointer, align=1)

    return like(types.int64, like), generate


@intrinsic
def store_as(typing, address, value):  # type: ignore[no-untyped-def]
    """Write a value of any type to an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, value), generate


@intrinsic
def width_of(typing, value):  # type: ignore[no-untyped-def]
    """Bytes of a number, a constant of the compiled loop."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.int64, value.bitwidth // 8)

    return types.int64(value), generate


@intrinsic
def ask_for(typing, address):  # type: ignore[no-untyped-def]
    """Have the line of memory at an address brought into the cache; no address can fault."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", (_I8.as_pointer(),), kind)
        builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def copy(typing, target, source, size):  # type: ignore[no-untyped-def]
    """Copy so many bytes between addresses that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = [builder.inttoptr(address, _I8.as_pointer()) for address in args[:2]]
        kinds = [_I8.as_pointer(), _I8.as_pointer(), _I64]
        function = builder.module.declare_intrinsic("llvm.memcpy", kinds)
        builder.call(function, [*pointers, args[2], _I1(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


_LINE, _LONGEST = 64, 512
"""Bytes that memory is read by; of a longer row the rest comes by itself."""
_SLOT_BITS, _SLOT_MASK = 32, (1 << 32) - 1
_WORD = 8

# As calls, a loop that adds rows of one number takes twice as long.
_inline = njit(nogil=True, error_model="numpy", inline="always")


@_inline
def row_at(blocks, location, size):  # type: ignore[no-untyped-def]
    """Where a row lies."""
    block = load_integer(blocks + (location >> _SLOT_BITS) * _WORD)
    return block + (location & _SLOT_MASK) * size


@_inline
def ask_for_row(place, size):  # type: ignore[no-untyped-def]
    """Have a row brought into the cache."""
    for more in range(0, min(size, _LONGEST), _LINE):
        ask_for(place + more)
    ask_for(place + size - 1)


@_inline
def copy_row(target, source, size):  # type: ignore[no-untyped-def]
    """Copy a row; a constant size takes no call."""
    if size == 8:
        store_64(target, load_64(source))
    elif size == 4:
        store_32(target, load_32(source))
    elif size == 2:
        store_16(target, load_16(source))
    elif size == 1:
        store_8(target, load_8(source))
    elif size == _LINE:
        copy(target, source, _LINE)
    else:
        copy(target, source, size)


@_inline
def add_row(target, source, size, zero):  # type: ignore[no-untyped-def]
    """Add a row of numbers of the type of ``zero`` to another one."""
    for at in range(0, size, width_of(zero)):
        store_as(target + at, load_as(target + at, zero) + load_as(source + at, zero))
