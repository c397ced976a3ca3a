"""The inner loops that NumPy does not hand out: selections, conversions, sums of integers.

A row is an op with the dtypes of its arguments and of its result; its number, which stands where
NumPy's loops have an address, is its place. The loops read and write contiguous elements. They are
written as LLVM code: numba takes ten times as long to compile the same in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from ps_backend.kernels.compiled.simd import intrinsic

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
_WORD = 8  # bytes of an address

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
            with cgutils.for_range(builder, length) as step:
                values = [builder.load(builder.gep(x, [step.index])) for x in arrays[:-1]]
                value = text(builder, builder.add(index, step.index), *values)
                builder.store(value, builder.gep(arrays[-1], [step.index]))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


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
