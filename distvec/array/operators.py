"""Operators of arrays, made from the names of ops: each returns the method of one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distvec.graph import build

if TYPE_CHECKING:
    from distvec.array.dist_array import DistArray


def binary(name: str) -> Callable[[DistArray, Any], DistArray]:
    """``x OP other``."""

    def operator(self: DistArray, other: Any) -> DistArray:
        return build.elementwise(self.session, name, self, other)

    return operator


def reflected(name: str) -> Callable[[DistArray, Any], DistArray]:
    """``other OP x``."""

    def operator(self: DistArray, other: Any) -> DistArray:
        return build.elementwise(self.session, name, other, self)

    return operator


def in_place(name: str) -> Callable[[DistArray, Any], DistArray]:
    """``x OP= other``: the handle stands for the result, in its own dtype."""

    def operator(self: DistArray, other: Any) -> DistArray:
        with self.turn:
            return updated(self, build.elementwise(self.session, name, self, other), name)

    return operator


def updated(x: DistArray, result: DistArray, name: str) -> DistArray:
    """What ``x OP= other`` leaves in x; a scalar never changes, as in NumPy: the name moves on."""
    return x.assign(result, name) if x.ndim else result


def unary(name: str) -> Callable[[DistArray], DistArray]:
    """``OP x``."""

    def operator(self: DistArray) -> DistArray:
        return build.elementwise(self.session, name, self)

    return operator
