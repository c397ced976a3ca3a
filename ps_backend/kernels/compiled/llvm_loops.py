"""Inner loops written as LLVM code: vectors by address, and the loops that NumPy does not hand out.

Of vectors, two things cannot be left to the compiler's own vectoriser. The order of an
accumulation: sums and inner products keep to ``program.order`` on every machine, so a reduction has
the same bits whichever engine computes it. And prefetching: a chunk of each of many vectors is too
short a run for the processor to foresee the next one, so every loop asks for its own successor.
Multiplication and addition stay separate operations, rounded as NumPy rounds them. Where a function
takes a ``dtype``, float64 or float32, it is generated anew for each.

NumPy hands out no loops of selections, conversions and sums of integers. A row of the table of
these is an op with the dtypes of its arguments and of its result; its number, which stands where
NumPy's loops have an address, is its place. The loops read and write contiguous elements. numba
takes ten times as long to compile the same in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

from ps_backend.kernels.compiled.llvm_random import normal as _normal
from ps_backend.kernels.compiled.llvm_random import uniform as _uniform
from ps_backend.program import ops
from ps_backend.program.summation_order import CHUNK, LANES, LEAF

TOGETHER = 4
"""Inner products with one vector that are computed in one go: more would not fit registers."""

LINE = 64
"""Bytes of a cache line."""

# What is decorated takes one argument less than it seems to, which type checkers cannot know.
intrinsic: Any = _numba_intrinsic

_I32, _I64, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_BYTE_POINTER = ir.IntType(8).as_pointer()
_WORD = 8  # bytes of an int64


def scaled_adder(count: int, fresh: bool = False) -> Any:
    """``f(dtype, y, xs, scales, low, n, ahead)``: ``y = y + s0*x0 + s1*x1 + ...``.

    Terms are added from the left. ``y`` is the address of the accumulator, ``xs`` and ``scales``
    those of ``count`` addresses and of as many scalars. Of each vector ``n`` elements are read from
    ``low`` on, whole cache lines of them; what lies ``ahead`` elements further is fetched into the
    cache. With ``fresh`` the accumulator starts as ``s0*x0``.
    """

    def body(builder: Any, dtype: Any, args: Sequence[Any]) -> None:
        y, xs, scales, low, n, ahead = args
        of = _Elements(builder, dtype)
        width = LINE // of.size
        vectors = [of.address_of(of.vector_at(xs, k), low) for k in range(count)]
        factors = [of.splat(of.at(scales, k), width) for k in range(count)]
        with cgutils.for_range_slice(builder, _I64(0), n, _I64(width), intp=_I64) as (i, _):
            total = None if fresh else of.load(y, i, width)
            for x, factor in zip(vectors, factors, strict=True):
                of.prefetch(of.address_of(x, ahead), i)
                product = builder.fmul(factor, of.load(x, i, width))
                total = product if total is None else builder.fadd(total, product)
            of.store(total, y, i)

    @intrinsic
    def scaled_add(typing, dtype, y, xs, scales, low, n, ahead):  # type: ignore[no-untyped-def]
        return types.void(dtype, *[types.int64] * 6), _body_only(body)

    return scaled_add


def dotter(count: int) -> Any:
    """``f(dtype, x, ys, sums, low, ahead)``: ``sums[k] = x @ y_k`` for ``count`` vectors.

    ``x`` is an address, ``ys`` and ``sums`` those of ``count`` addresses and of as many float64.
    Products are float64 too. Of each vector ``CHUNK`` elements are read; ``low`` and ``ahead`` are
    as in ``scaled_adder``.
    """

    def body(builder: Any, dtype: Any, args: Sequence[Any]) -> None:
        x, ys, sums, low, ahead = args
        of = _Elements(builder, dtype)
        x = of.address_of(x, low)
        vectors = [of.address_of(of.vector_at(ys, k), low) for k in range(count)]
        following = of.address_of(x, ahead)

        def products(i: Any) -> list[Any]:
            of.prefetch(following, i)
            mine = of.load_wide(x, i)
            return [builder.fmul(mine, of.load_wide(y, i)) for y in vectors]

        for k, total in enumerate(_chunk_sums(builder, products, count)):
            _Elements(builder, types.float64).store(total, sums, _I64(k))

    @intrinsic
    def dots(typing, dtype, x, ys, sums, low, ahead):  # type: ignore[no-untyped-def]
        return types.void(dtype, *[types.int64] * 5), _body_only(body)

    return dots


@intrinsic
def chunk_sum(typing, x):  # type: ignore[no-untyped-def]
    """The sum of ``CHUNK`` float64 at address ``x``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        of = _Elements(builder, types.float64)
        return _chunk_sums(builder, lambda i: [of.load_wide(args[0], i)], 1)[0]

    return types.float64(types.int64), generate


@intrinsic
def chunk_dot(typing, x, y):  # type: ignore[no-untyped-def]
    """The inner product of ``CHUNK`` float64 at each of two addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        of = _Elements(builder, types.float64)

        def products(i: Any) -> list[Any]:
            return [builder.fmul(*(of.load_wide(address, i) for address in args))]

        return _chunk_sums(builder, products, 1)[0]

    return types.float64(types.int64, types.int64), generate


def _copier(past_caches: bool) -> Any:
    """``f(target, source, size)``: copy ``size`` bytes, a multiple of ``LINE``.

    A store through the caches first reads what it will overwrite, unless that is in them; one
    ``past_caches`` does not, and begins at a multiple of ``LINE``.
    """

    def body(builder: Any, args: Sequence[Any]) -> None:
        target, source, size = args
        line = ir.VectorType(_I64, LINE // _WORD)
        with cgutils.for_range_slice(builder, _I64(0), size, _I64(LINE), intp=_I64) as (i, _):
            there, here = (
                builder.inttoptr(builder.add(address, i), line.as_pointer())
                for address in (target, source)
            )
            values = builder.load(here, align=_WORD)
            store = builder.store(values, there, align=LINE if past_caches else 1)
            if past_caches:
                mark = builder.module.add_metadata([_I32(1)])
                store.set_metadata("nontemporal", mark)

    @intrinsic
    def copy(typing, target, source, size):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            body(builder, args)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return copy


copy_past_caches = _copier(past_caches=True)
copy_through_caches = _copier(past_caches=False)


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
def pointer_to(typing, dtype, address, index):  # type: ignore[no-untyped-def]
    """A pointer to element ``index`` of the vector of ``dtype`` at ``address``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, address, index = args
        element = builder.add(address, builder.mul(index, _I64(dtype.dtype.bitwidth // 8)))
        return builder.inttoptr(element, context.get_value_type(signature.return_type))

    pointer = types.CPointer(dtype.dtype)  # type: ignore[no-untyped-call]
    return pointer(dtype, types.int64, types.int64), generate


def _body_only(body: Callable[[Any, Any, Sequence[Any]], None]) -> Callable[..., Any]:
    """Code generator of a function without a result, whose first argument is a dtype."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        body(builder, signature.args[0].dtype, args[1:])
        return context.get_dummy_value()

    return generate


class _Elements:
    """Loads and stores of elements of one dtype. Vectors and tables are given by addresses."""

    def __init__(self, builder: Any, dtype: Any) -> None:
        self._builder = builder
        self._kind = {types.float64: _DOUBLE, types.float32: ir.FloatType()}[dtype]
        self.size = dtype.bitwidth // 8
        """Bytes of an element."""

    def address_of(self, vector: Any, index: Any) -> Any:
        """The address of an element; that of the vector is that of its first."""
        return self._builder.add(vector, self._builder.mul(index, _I64(self.size)))

    def load(self, vector: Any, index: Any, width: int) -> Any:
        """``width`` elements as one vector."""
        pointer = self._pointer(vector, index, ir.VectorType(self._kind, width))
        return self._builder.load(pointer, align=self.size)

    def load_wide(self, vector: Any, index: Any) -> Any:
        """``LANES`` elements as float64."""
        values = self.load(vector, index, LANES)
        if self._kind == _DOUBLE:
            return values
        return self._builder.fpext(values, ir.VectorType(_DOUBLE, LANES))

    def store(self, values: Any, vector: Any, index: Any) -> None:
        """Store an element or a vector of elements."""
        self._builder.store(values, self._pointer(vector, index, values.type), align=self.size)

    def at(self, table: Any, position: int) -> Any:
        """An element of a table."""
        return self._builder.load(self._pointer(table, _I64(position), self._kind))

    def vector_at(self, table: Any, position: int) -> Any:
        """The address of a vector, of a table of such."""
        pointer = self._builder.inttoptr(table, _I64.as_pointer())
        return self._builder.load(self._builder.gep(pointer, [_I64(position)]))

    def splat(self, value: Any, width: int) -> Any:
        """``width`` times the same element."""
        empty = ir.Constant(ir.VectorType(self._kind, width), ir.Undefined)
        one = self._builder.insert_element(empty, value, _I32(0))
        everywhere = ir.Constant(ir.VectorType(_I32, width), [0] * width)
        return self._builder.shuffle_vector(one, one, everywhere)

    def prefetch(self, vector: Any, index: Any) -> None:
        """Ask for a line of memory, for reading, in the second-level cache.

        No address can fault.
        """
        builder = self._builder
        kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", (_BYTE_POINTER,), kind)
        pointer = builder.bitcast(self._pointer(vector, index, ir.IntType(8)), _BYTE_POINTER)
        builder.call(function, [pointer, _I32(0), _I32(2), _I32(1)])

    def _pointer(self, vector: Any, index: Any, kind: Any) -> Any:
        return self._builder.inttoptr(self.address_of(vector, index), kind.as_pointer())


def _chunk_sums(builder: Any, terms: Callable[[Any], list[Any]], count: int) -> list[Any]:
    """The sums of ``count`` sequences of ``CHUNK`` terms: ``terms(i)`` are those from ``i`` on.

    Leaf by leaf: memory is read in its order, and that is what takes the time.
    """
    sums: list[list[Any]] = [[] for _ in range(count)]
    end = _unknown(builder, LEAF)
    for first in range(0, CHUNK, LEAF):
        lanes = [_zeros(builder) for _ in range(count)]
        with cgutils.for_range_slice(builder, _I64(0), end, _I64(LANES), intp=_I64) as (i, _):
            for term, lane in zip(terms(builder.add(i, _I64(first))), lanes, strict=True):
                builder.store(builder.fadd(builder.load(lane), term), lane)
        for leaves, lane in zip(sums, lanes, strict=True):
            leaves.append(_joined(builder, builder.load(lane)))
    return [_by_neighbours(builder, leaves) for leaves in sums]


def _unknown(builder: Any, number: int) -> Any:
    """A number of which the compiler cannot know that it is this one.

    It would unroll loops of so few rounds and mix them: then memory is read here and there, twice
    as slowly.
    """
    kind = ir.FunctionType(_I64, [_I64])
    return builder.asm(kind, "", "=r,0", [_I64(number)], side_effect=False)


def _zeros(builder: Any) -> Any:
    zero = ir.Constant(ir.VectorType(_DOUBLE, LANES), [0.0] * LANES)
    return cgutils.alloca_once_value(builder, zero)  # type: ignore[no-untyped-call]


def _joined(builder: Any, lanes: Any) -> Any:
    """The sum of the lanes: each is added to its neighbour until one is left."""
    width = LANES
    while width > 1:
        width //= 2
        indices = ir.VectorType(_I32, width)
        even, odd = (
            builder.shuffle_vector(lanes, lanes, ir.Constant(indices, list(range(k, 2 * width, 2))))
            for k in (0, 1)
        )
        lanes = builder.fadd(even, odd)
    return builder.extract_element(lanes, _I32(0))


def _by_neighbours(builder: Any, sums: list[Any]) -> Any:
    """One sum of so many as are a power of two, in the tree of ``program.summation_order``."""
    while len(sums) > 1:
        sums = [builder.fadd(a, b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_KINDS = {
    "bool": _I8,
    "int8": _I8,
    "uint8": _I8,
    "int16": _I16,
    "uint16": _I16,
    "int32": _I32,
    "uint32": _I32,
    "int64": _I64,
    "uint64": _I64,
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
}

Text = Callable[..., Any]
"""Given the builder, the global index of an element and arguments: the code of the result."""
Loop = tuple[Sequence[Any], Any, Text]
"""Kinds of the arguments, that of the result, and how it is computed."""


def _select(builder: Any, _: Any, mask: Any, first: Any, second: Any) -> Any:
    return builder.select(builder.icmp_signed("!=", mask, _I8(0)), first, second)


def _index(builder: Any, index: Any) -> Any:
    return index


def _sigmoid(builder: Any, _: Any, x: Any, e: Any) -> Any:
    """Of x, given exp(-|x|)."""
    one = x.type(1.0)
    positive = builder.fcmp_ordered(">=", x, x.type(0.0))
    return builder.fdiv(builder.select(positive, one, e), builder.fadd(one, e))


def _converted(name: str, kind: Any) -> Text:
    """By the instruction of that name."""
    return lambda builder, _, x: getattr(builder, name)(x, kind)


def _same(builder: Any, _: Any, x: Any) -> Any:
    return x


_CASTS = {
    ("bool", "int32"): "zext",
    ("bool", "int64"): "zext",
    ("bool", "float32"): "uitofp",
    ("bool", "float64"): "uitofp",
    ("int32", "int64"): "sext",
    ("int32", "float64"): "sitofp",
    ("int64", "int32"): "trunc",
    ("int64", "float64"): "sitofp",
    ("float32", "float64"): "fpext",
    ("float64", "float32"): "fptrunc",
}
"""What rounds at most: of floats as integers C leaves it open what they are."""


_DRAWS: dict[str, Text] = {"uniform": _uniform, "normal": _normal}
"""By op: of vectors of elements as well as of one."""
_WIDTH = LINE // _WORD


@cache
def _rows() -> dict[tuple[str, tuple[Any, ...]], Loop]:
    """By op and dtypes; what only moves elements goes by their size."""
    rows: dict[tuple[str, tuple[Any, ...]], Loop] = {("iota", ()): ((), _I64, _index)}
    for kind in (_I8, _I16, _I32, _I64):
        rows["where", (kind.width,)] = (_I8, kind, kind), kind, _select
        rows["copy", (kind.width,)] = (kind,), kind, _same
    for name in ("float32", "float64"):
        kind = _KINDS[name]
        rows["sigmoid_of_exp", (name, name, name)] = (kind, kind), kind, _sigmoid
    for op, text in _DRAWS.items():
        dtypes = ops.TABLE[op].dtypes
        rows[op, dtypes] = (_I64,) * (len(dtypes) - 1), _DOUBLE, text
    for (source, target), name in _CASTS.items():
        kind = _KINDS[target]
        rows["cast", (source, target)] = (_KINDS[source],), kind, _converted(name, kind)
    return rows


MOST = 64
"""More than the number of any loop, and less than every address."""
_SUMS = ("int64", "int32", "bool")
SUM_OF_FLOATS = len(_SUMS)


def own_loop(op: str, dtypes: tuple[str, ...]) -> int | None:
    """The number of the loop of ``op``; ``dtypes`` of the arguments, then of the result."""
    *taken, result = dtypes
    if result not in _KINDS:
        return None
    key: tuple[str, tuple[Any, ...]] = op, dtypes
    if op == "iota":
        key = op, ()
    elif op == "where":
        key = (op, (_bits(result),)) if taken == ["bool", result, result] else ("", ())
    elif op in ("cast", "copy", "fill"):
        key = ("copy", (_bits(result),)) if taken == [result] else ("cast", dtypes)
    return {row: number for number, row in enumerate(_rows())}.get(key)


def own_sum(dtype: str) -> int | None:
    """The number of the reduction that adds up elements of ``dtype``."""
    if dtype == "float64":
        return SUM_OF_FLOATS
    dtype = "int64" if dtype == "uint64" else dtype
    return _SUMS.index(dtype) if dtype in _SUMS else None


def _bits(dtype: str) -> int:
    kind = _KINDS[dtype]
    return {"float": 32, "double": 64}.get(str(kind)) or kind.width


@intrinsic
def run_own(typing, loop, table, length, index):  # type: ignore[no-untyped-def]
    """Run a loop on ``length`` elements at the addresses in ``table``, the last being the result's.

    ``index`` is the global index of the first.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loop, table, length, index = args
        for kinds, result, text in _cases(builder, loop, _rows().values()):
            arrays = [_array(builder, table, k, kind) for k, kind in enumerate((*kinds, result))]
            first = _I64(0)
            if text in _DRAWS.values():
                first = builder.and_(length, _I64(-_WIDTH))
                _each(builder, _I64(0), first, _WIDTH, index, arrays, text)
            _each(builder, first, length, 1, index, arrays, text)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


def _each(
    builder: Any, first: Any, past: Any, width: int, index: Any, arrays: Sequence[Any], text: Text
) -> None:
    """Compute the elements from ``first`` on, ``width`` at a time: as vectors, if it is not 1."""
    with cgutils.for_range_slice(builder, first, past, _I64(width), intp=_I64) as (i, _):
        places = [builder.gep(array, [i]) for array in arrays]
        if width > 1:
            kinds = [ir.VectorType(place.type.pointee, width) for place in places]
            places = [
                builder.bitcast(place, kind.as_pointer())
                for place, kind in zip(places, kinds, strict=True)
            ]
        values = [builder.load(place, align=None if width == 1 else _WORD) for place in places[:-1]]
        value = text(builder, builder.add(index, i), *values)
        builder.store(value, places[-1], align=None if width == 1 else _WORD)


def _drawer(op: str) -> Any:
    """``f(key, ..., index)``: one element."""
    count = len(ops.TABLE[op].dtypes) - 1
    text, kind = _DRAWS[op], types.float64(*[types.int64] * count)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return text(builder, None, *args)

    return kind, generate


@intrinsic
def uniform(typing, key, index):  # type: ignore[no-untyped-def]
    """As ``philox.uniform``, of numbers."""
    return _drawer("uniform")


@intrinsic
def normal(typing, radius_key, angle_key, index):  # type: ignore[no-untyped-def]
    """As ``philox.normal``, of numbers."""
    return _drawer("normal")


@intrinsic
def sum_of_integers(typing, number, data, length):  # type: ignore[no-untyped-def]
    """The sum of ``length`` elements from ``data`` on, by the loop of that number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, data, length = args
        total = cgutils.alloca_once_value(builder, _I64(0))  # type: ignore[no-untyped-call]
        for name in _cases(builder, number, _SUMS):
            array = builder.inttoptr(data, _KINDS[name].as_pointer())
            widen = builder.zext if name == "bool" else builder.sext
            with cgutils.for_range(builder, length) as step:
                value = widen(builder.load(builder.gep(array, [step.index])), _I64)
                builder.store(builder.add(builder.load(total), value), total)
        return builder.load(total)

    return types.int64(*[types.int64] * 3), generate


def _cases(builder: Any, number: Any, rows: Any) -> Iterator[Any]:
    """Each of ``rows``, with the builder where the code for its number goes."""
    end = builder.append_basic_block("end")
    switch = builder.switch(number, end)
    for at, row in enumerate(rows):
        block = builder.append_basic_block(f"case{at}")
        switch.add_case(_I64(at), block)
        builder.position_at_end(block)
        yield row
        builder.branch(end)
    builder.position_at_end(end)


def _array(builder: Any, table: Any, place: int, kind: Any) -> Any:
    """The address in that place of ``table``."""
    address = builder.load(
        builder.inttoptr(builder.add(table, _I64(_WORD * place)), _I64.as_pointer())
    )
    return builder.inttoptr(address, kind.as_pointer())
