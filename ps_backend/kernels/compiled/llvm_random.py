"""LLVM code of ``program.philox``: the same operations on one element, or on a vector of them.

The compiler's own vectoriser takes a product of two 32-bit numbers for one of 64 bits, which is
slow, and leaves the loop as it is: a third of the speed of vectors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from ps_backend.program import philox

_I64, _DOUBLE = ir.IntType(64), ir.DoubleType()


class _Code:
    """Operations on values that are alike, and on constants."""

    def __init__(self, builder: Any, like: Any) -> None:
        self._builder, self._count = builder, getattr(like.type, "count", None)
        self.add, self.sub, self.mul = (
            partial(self._apply, name, _I64) for name in ("add", "sub", "mul")
        )
        self.xor, self.mask = (partial(self._apply, name, _I64) for name in ("xor", "and_"))
        self.left, self.right = (partial(self._apply, name, _I64) for name in ("shl", "lshr"))
        self.fadd, self.fsub, self.fmul, self.fdiv = (
            partial(self._apply, name, _DOUBLE) for name in ("fadd", "fsub", "fmul", "fdiv")
        )

    def _apply(self, name: str, kind: Any, first: Any, *others: Any) -> Any:
        result = self._constant(kind, first)
        for other in others:
            result = getattr(self._builder, name)(result, self._constant(kind, other))
        return result

    def _constant(self, kind: Any, value: Any) -> Any:
        if not isinstance(value, int | float):
            return value
        if self._count is None:
            return ir.Constant(kind, value)
        return ir.Constant(ir.VectorType(kind, self._count), [value] * self._count)

    def _kind(self, kind: Any) -> Any:
        return kind if self._count is None else ir.VectorType(kind, self._count)

    def bits_of(self, value: Any) -> Any:
        """Of floats."""
        return self._builder.bitcast(value, self._kind(_I64))

    def float_of_bits(self, value: Any) -> Any:
        """The float that has them."""
        return self._builder.bitcast(value, self._kind(_DOUBLE))

    def float_of(self, value: Any) -> Any:
        """Of an unsigned integer."""
        return self._builder.uitofp(value, self._kind(_DOUBLE))

    def unary(self, name: str, value: Any) -> Any:
        """An intrinsic of LLVM, of floats."""
        kind = ir.FunctionType(value.type, [value.type])
        name += ".f64" if self._count is None else f".v{self._count}f64"
        module = self._builder.module
        function = cgutils.get_or_insert_function(module, kind, name)  # type: ignore[no-untyped-call]
        return self._builder.call(function, [value])

    def polynomial(self, coefficients: Any, x: Any) -> Any:
        """By the rule of Horner."""
        *others, result = coefficients
        for coefficient in reversed(others):
            result = self.fadd(self.fmul(x, result), coefficient)
        return result


def uniform(builder: Any, _: Any, key: Any, index: Any) -> Any:
    """As ``philox.uniform``."""
    code = _Code(builder, index)
    low = 0xFFFFFFFF
    k0, k1 = code.mask(key, low), code.right(key, 32)
    c0, c1, c2, c3 = code.mask(index, low), code.right(index, 32), 0, 0
    for number in range(philox.ROUNDS):
        p0, p1 = (code.mul(c, m) for c, m in zip((c0, c2), philox.MULTIPLIERS, strict=True))
        w0, w1 = (code.mask(code.add(k, number * w & low), low)
                  for k, w in zip((k0, k1), philox.WEYL, strict=True))  # fmt: skip
        c0, c1 = code.xor(code.right(p1, 32), c1, w0), code.mask(p1, low)
        c2, c3 = code.xor(code.right(p0, 32), c3, w1), code.mask(p0, low)
    bits = code.xor(code.left(c0, 21), code.right(c1, 11))
    return code.fmul(code.float_of(bits), philox.TO_UNIT)


def normal(builder: Any, _: Any, radius_key: Any, angle_key: Any, index: Any) -> Any:
    """As ``philox.normal``."""
    code = _Code(builder, index)
    x = code.fsub(1.0, uniform(builder, _, radius_key, index))
    shifted = code.add(code.bits_of(x), philox.ONE - philox.ROOT_HALF)
    mantissa = code.add(code.mask(shifted, philox.MANTISSA), philox.ROOT_HALF)
    # Of small integers added to the bits of a large float: not every processor converts vectors.
    large = code.add(code.right(shifted, 52), philox.LARGE)
    exponent = code.fsub(code.float_of_bits(large), philox.LARGE_AND_BIAS)
    above_one = code.fsub(code.float_of_bits(mantissa), 1.0)
    s = code.fdiv(above_one, code.fadd(above_one, 2.0))
    logarithm = code.fmul(code.polynomial(philox.LOGARITHM, code.fmul(s, s)), s)
    radius = code.unary("llvm.sqrt", code.fadd(logarithm, code.fmul(exponent, philox.LN_QUARTER)))
    turned = code.fsub(uniform(builder, _, angle_key, index), 0.5)
    turn = code.fsub(code.unary("llvm.fabs", turned), 0.25)
    sine = code.fmul(code.polynomial(philox.SINE, code.fmul(turn, turn)), turn)
    return code.fmul(radius, sine)
