"""Words at addresses, for compiled loops over blocks that are found through tables of addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
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
