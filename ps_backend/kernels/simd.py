"""The innermost loops of vectors by address, written as LLVM vector operations.

Two things cannot be left to the compiler's own vectoriser. The order of an accumulation: sums and
inner products run in ``LANES`` partial sums on every machine, so a reduction has the same bits
whichever kernel computes it. And prefetching: a chunk of each of many vectors is too short a run
for the processor to foresee the next one, so every loop asks for its own successor. Multiplication
and addition stay separate operations, rounded as NumPy rounds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

LANES = 16
"""Partial sums of a reduction: element ``i`` of a chunk goes to sum ``i % LANES``."""
WIDTH = 8
"""Elements a step of the other loops takes."""
TOGETHER = 4
"""Inner products with one vector that are computed in one go: more would not fit registers."""

LINE = 64
"""Bytes of a cache line."""

# What is decorated takes one argument less than it seems to, which type checkers cannot know.
intrinsic: Any = _numba_intrinsic

_I32, _I64, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_BYTE_POINTER = ir.IntType(8).as_pointer()
_ELEMENT = 8  # bytes


def scaled_adder(count: int, fresh: bool = False) -> Any:
    """``f(y, xs, scales, offset, n, ahead)``: ``y = y + s0*x0 + s1*x1 + ...``, from the left.

    ``y`` is the address of the accumulator, ``xs`` and ``scales`` those of ``count`` addresses and
    of as many float64; the vectors are read from byte ``offset`` on. ``n`` is a multiple of
    ``WIDTH``. What lies ``ahead`` bytes further is fetched into the cache. With ``fresh`` the
    accumulator starts as ``s0*x0``.
    """

    def body(builder: Any, y: Any, xs: Any, scales: Any, offset: Any, n: Any, ahead: Any) -> None:
        vectors = [builder.add(_load_at(builder, xs, k, _I64), offset) for k in range(count)]
        factors = [_splat(builder, _load_at(builder, scales, k, _DOUBLE)) for k in range(count)]
        with cgutils.for_range_slice(builder, _I64(0), n, _I64(WIDTH), intp=_I64) as (i, _):
            total = None if fresh else _load(builder, y, i, WIDTH)
            for x, factor in zip(vectors, factors, strict=True):
                _prefetch(builder, builder.add(x, ahead), i)
                product = builder.fmul(factor, _load(builder, x, i, WIDTH))
                total = product if total is None else builder.fadd(total, product)
            builder.store(total, _pointer(builder, y, i, _vector(WIDTH)), align=_ELEMENT)

    @intrinsic
    def scaled_add(typing, y, xs, scales, offset, n, ahead):  # type: ignore[no-untyped-def]
        return types.void(*[types.int64] * 6), _body_only(body)

    return scaled_add


def dotter(count: int) -> Any:
    """``f(x, ys, sums, offset, n, ahead)``: ``sums[k] = x @ y_k`` for ``count`` vectors.

    ``x`` is an address, ``ys`` and ``sums`` those of ``count`` addresses and of as many float64.
    ``n`` is a multiple of ``LANES``; ``offset`` and ``ahead`` are as in ``scaled_adder``.
    """

    def body(builder: Any, x: Any, ys: Any, sums: Any, offset: Any, n: Any, ahead: Any) -> None:
        x = builder.add(x, offset)
        vectors = [builder.add(_load_at(builder, ys, k, _I64), offset) for k in range(count)]
        partial = [_partial_sums(builder) for _ in vectors]
        following = builder.add(x, ahead)
        with cgutils.for_range_slice(builder, _I64(0), n, _I64(LANES), intp=_I64) as (i, _):
            for byte in range(0, LANES * _ELEMENT, LINE):
                _prefetch(builder, builder.add(following, _I64(byte)), i)
            mine = _load(builder, x, i, LANES)
            for y, lanes in zip(vectors, partial, strict=True):
                product = builder.fmul(mine, _load(builder, y, i, LANES))
                builder.store(builder.fadd(builder.load(lanes), product), lanes)
        for k, lanes in enumerate(partial):
            builder.store(_combined(builder, lanes), _pointer(builder, sums, _I64(k), _DOUBLE))

    @intrinsic
    def dots(typing, x, ys, sums, offset, n, ahead):  # type: ignore[no-untyped-def]
        return types.void(*[types.int64] * 6), _body_only(body)

    return dots


@intrinsic
def lane_sum(typing, x, n):  # type: ignore[no-untyped-def]
    """The sum of ``n`` float64 at address ``x``, added up as ``dotter`` does."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = _partial_sums(builder)
        with cgutils.for_range_slice(builder, _I64(0), args[1], _I64(LANES), intp=_I64) as (i, _):
            values = _load(builder, args[0], i, LANES)
            builder.store(builder.fadd(builder.load(lanes), values), lanes)
        return _combined(builder, lanes)

    return types.float64(types.int64, types.int64), generate


@intrinsic
def lane_dot(typing, x, y, n):  # type: ignore[no-untyped-def]
    """The inner product of ``n`` float64 at each of two addresses, added up as ``dotter`` does."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = _partial_sums(builder)
        with cgutils.for_range_slice(builder, _I64(0), args[2], _I64(LANES), intp=_I64) as (i, _):
            factors = (_load(builder, address, i, LANES) for address in args[:2])
            builder.store(builder.fadd(builder.load(lanes), builder.fmul(*factors)), lanes)
        return _combined(builder, lanes)

    return types.float64(types.int64, types.int64, types.int64), generate


@intrinsic
def copy_past_caches(typing, target, source, size):  # type: ignore[no-untyped-def]
    """Copy ``size`` bytes, a multiple of ``LINE``, to an address that is one.

    A store through the caches first reads what it will overwrite; this one does not.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source, size = args
        mark = builder.module.add_metadata([_I32(1)])
        line = ir.VectorType(_I64, LINE // _ELEMENT)
        with cgutils.for_range_slice(builder, _I64(0), size, _I64(LINE), intp=_I64) as (i, _):
            there, here = (
                builder.inttoptr(builder.add(address, i), line.as_pointer())
                for address in (target, source)
            )
            store = builder.store(builder.load(here, align=_ELEMENT), there, align=LINE)
            store.set_metadata("nontemporal", mark)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def fence(typing):  # type: ignore[no-untyped-def]
    """All stores before become visible before anything after."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def call_loop(typing, function, context, auxiliary, data, n, strides):  # type: ignore[no-untyped-def]
    """Call one of NumPy's inner loops (a ``PyArrayMethod_StridedLoop``); all are addresses."""

    def generate(ctx: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I64] * 5)
        function, context, auxiliary, data, n, strides = args
        pointer = builder.inttoptr(function, kind.as_pointer())
        builder.call(pointer, [context, data, n, strides, auxiliary])
        return ctx.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


@intrinsic
def float64_at(typing, address):  # type: ignore[no-untyped-def]
    """A pointer to float64 from an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    pointer = types.CPointer(types.float64)  # type: ignore[no-untyped-call]
    return pointer(types.int64), generate


def _body_only(body: Callable[..., None]) -> Callable[..., Any]:
    """Code generator of a function without a result."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        body(builder, *args)
        return context.get_dummy_value()

    return generate


def _vector(width: int) -> Any:
    return ir.VectorType(_DOUBLE, width)


def _pointer(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    """Pointer to ``kind`` at element ``index`` of what begins at ``address``."""
    byte = builder.mul(index, _I64(_ELEMENT))
    return builder.inttoptr(builder.add(address, byte), kind.as_pointer())


def _load(builder: Any, address: Any, index: Any, width: int) -> Any:
    return builder.load(_pointer(builder, address, index, _vector(width)), align=_ELEMENT)


def _load_at(builder: Any, address: Any, index: int, kind: Any) -> Any:
    return builder.load(_pointer(builder, address, _I64(index), kind))


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(_vector(WIDTH), ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, WIDTH), [0] * WIDTH))


def _partial_sums(builder: Any) -> Any:
    zero = ir.Constant(_vector(LANES), [0.0] * LANES)
    return cgutils.alloca_once_value(builder, zero)  # type: ignore[no-untyped-call]


def _combined(builder: Any, lanes: Any) -> Any:
    """The sum of the partial sums: the upper half is added to the lower until one is left."""
    value, width = builder.load(lanes), LANES
    while width > 1:
        width //= 2
        indices = ir.VectorType(_I32, width)
        lower = ir.Constant(indices, list(range(width)))
        upper = ir.Constant(indices, list(range(width, 2 * width)))
        value = builder.fadd(
            builder.shuffle_vector(value, value, lower), builder.shuffle_vector(value, value, upper)
        )
    return builder.extract_element(value, _I32(0))


def _prefetch(builder: Any, address: Any, index: Any) -> None:
    """Ask for a line of memory, for reading, in the second-level cache. No address can fault."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _I32, _I32, _I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", (_BYTE_POINTER,), kind)
    pointer = builder.bitcast(_pointer(builder, address, index, ir.IntType(8)), _BYTE_POINTER)
    builder.call(function, [pointer, _I32(0), _I32(2), _I32(1)])
