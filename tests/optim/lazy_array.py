"""A test double: NumPy behind lazy arrays that count how often somebody waits for a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class LazyNamespace:
    """The part of the array API that `optim` needs; `messages` counts round trips."""

    float64 = np.float64

    def __init__(self) -> None:
        self.messages = 0
        self.deepest = 0

    def array(self, value: Any) -> LazyArray:
        return LazyArray(self, None, value=np.asarray(value))

    def evaluate(self, *arrays: LazyArray) -> None:
        """Materialise all of them in one message."""
        pending = [a for a in arrays if isinstance(a, LazyArray) and a.pending]
        if pending:
            self.messages += 1
            for array in pending:
                array.compute()

    def finfo(self, dtype: Any) -> Any:
        return np.finfo(dtype)

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        return bool(np.isdtype(dtype, kind))

    def asarray(self, value: Any) -> LazyArray:
        return value if isinstance(value, LazyArray) else self.array(value)

    def astype(self, x: LazyArray, dtype: Any) -> LazyArray:
        return self.apply(lambda a: a.astype(dtype), x)

    def __getattr__(self, name: str) -> Callable[..., LazyArray]:
        if name not in {
            "abs",
            "exp",
            "log1p",
            "max",
            "maximum",
            "min",
            "minimum",
            "sign",
            "sqrt",
            "sum",
            "where",
        }:
            raise AttributeError(name)
        function = getattr(np, name)
        return lambda *args: self.apply(function, *args)

    def apply(self, function: Callable[..., Any], *args: Any) -> LazyArray:
        return LazyArray(self, function, args)


class LazyArray:
    """An expression, or its value once somebody has evaluated it."""

    __array_ufunc__ = None  # NumPy's operators step aside

    def __init__(
        self,
        xp: LazyNamespace,
        function: Callable[..., Any] | None,
        args: tuple[Any, ...] = (),
        value: Any = None,
    ) -> None:
        self._xp, self._function, self._args, self._value = xp, function, args, value
        lazy = [a for a in args if isinstance(a, LazyArray)]
        self.depth = 1 + max((a.depth for a in lazy if a.pending), default=0)
        xp.deepest = max(xp.deepest, self.depth)
        if value is None:
            probes = [np.ones_like(a.probe) if isinstance(a, LazyArray) else a for a in args]
            self.probe = np.asarray(function(*probes)) if function else None
        else:
            self.probe = np.asarray(value)
        self.shape, self.dtype = self.probe.shape, self.probe.dtype

    @property
    def pending(self) -> bool:
        return self._value is None

    def compute(self) -> Any:
        """The value; intermediate results are not kept, as on servers."""
        if self._value is None:
            value = self._computed({})
            self._value, self._args = value, ()
        return self._value

    def _computed(self, memo: dict[int, Any]) -> Any:
        if self._value is not None:
            return self._value
        if id(self) not in memo:
            args = [a._computed(memo) if isinstance(a, LazyArray) else a for a in self._args]
            memo[id(self)] = np.asarray(self._function(*args))
        return memo[id(self)]

    def __array_namespace__(self, api_version: str | None = None) -> LazyNamespace:
        return self._xp

    def __float__(self) -> float:
        self._xp.evaluate(self)
        return float(self._value)

    def __bool__(self) -> bool:
        self._xp.evaluate(self)
        return bool(self._value)

    def __iter__(self) -> Any:
        raise TypeError("a distributed vector cannot be iterated")

    def __getitem__(self, key: Any) -> Any:
        raise TypeError("a distributed vector cannot be indexed")

    __setitem__ = None
    __hash__ = object.__hash__


def _operator(name: str) -> Callable[..., LazyArray]:
    def apply(self: LazyArray, *others: Any) -> LazyArray:
        def function(a: Any, *rest: Any) -> Any:
            result = getattr(np.asarray(a), name)(*rest)
            assert result is not NotImplemented
            return result

        return self._xp.apply(function, self, *others)

    return apply


_ARITHMETIC = ["add", "sub", "mul", "truediv", "pow", "matmul", "radd", "rsub", "rmul", "rtruediv"]
_COMPARISON = ["eq", "ne", "lt", "le", "gt", "ge", "or", "and"]
for _name in [*_ARITHMETIC, *_COMPARISON, "neg", "abs"]:
    setattr(LazyArray, f"__{_name}__", _operator(f"__{_name}__"))
