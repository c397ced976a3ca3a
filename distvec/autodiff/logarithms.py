"""Logarithms of what grows like ``exp``: derivatives also where the argument is beyond all floats.

By the chain rule ``log(cosh(x))`` has the slope ``sinh(x) / cosh(x)``, which is inf / inf from
x = 711 on, though its limit is 1. So logarithms ask for the change of ``log(u)`` itself, the
logarithmic derivative: that of ``exp(x)`` is the change of x, that of ``cosh(x)`` is ``tanh(x)``
times it, that of a product the sum of those of the factors, and that of a sum their mean, weighted
by the shares that the terms have of the sum.

A ``Terms`` knows how a result was computed: nodes of a graph for reverse mode, dual numbers for
forward mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, pi, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from ps_backend.program import scipy_ufuncs as special

LOGARITHMS: Mapping[str, float] = MappingProxyType(
    {"log": 1.0, "log1p": 1.0, "log2": 1 / log(2), "log10": 1 / log(10)}
)
"""By op how many times the natural logarithm it is."""

_GROWING: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "exp": lambda t, x: t,
        "exp2": lambda t, x: log(2) * t,
        "expm1": lambda t, x: -t / np.expm1(-x),
        "cosh": lambda t, x: t * np.tanh(x),
        "sinh": lambda t, x: t / np.tanh(x),
        "sigmoid": lambda t, x: t * special.expit(-x),
        "ndtr": lambda t, x: sqrt(2 / pi) * t / special.erfcx(-x / sqrt(2)),
        "erfc": lambda t, x: -2 / sqrt(pi) * t / special.erfcx(x),
    }
)
"""By op, from ``(t, x)``: the change of the logarithm of the result where x changes by ``t``. These
are the functions that leave the range of floats for arguments of some hundreds."""

_LOGS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "exp": lambda x: x,
        "exp2": lambda x: log(2) * x,
        "cosh": lambda x: np.abs(x) + np.log1p(np.exp(-2 * np.abs(x))) - log(2),
        "sigmoid": special.log_expit,
    }
)
"""Of those that are positive the logarithm."""

_POWERS: Mapping[str, float] = MappingProxyType(
    {
        **dict.fromkeys(("copy", "cast", "positive", "abs", "fabs", "negative"), 1.0),
        "square": 2.0,
        "sqrt": 0.5,
        "cbrt": 1 / 3,
        "reciprocal": -1.0,
    }
)
"""By op which power the result is, but for the sign."""

_SUMS: Mapping[str, float] = MappingProxyType({"add": 1.0, "subtract": -1.0})
_DEPTH = 8
"""So many operations between a logarithm and what grows are looked through."""

GROWING = frozenset({"exp", "exp2", "expm1", "cosh", "sinh"})
"""What becomes infinite of arguments of some hundreds, and so do its slopes."""


@dataclass(frozen=True)
class Terms:
    """How results were computed.

    parts    of a result its op and arguments; None where it is to be taken as it is
    value    of a result: a number where it is known, else an operand
    varies   whether a result depends on what the derivative is by
    """

    parts: Callable[[Any], tuple[str, Sequence[Any]] | None]
    value: Callable[[Any], Any]
    varies: Callable[[Any], bool]
    _growing: dict[int, bool] = field(default_factory=dict)

    def of_logarithm(self, op: str, u: Any, t: Any) -> list[tuple[Any, Any]] | None:
        """Of ``op(u)``, a logarithm, that changes by ``t`` (or comes back with ``t``): which
        arguments of what grows, and other terms, it follows, and by which factors. None where
        nothing in ``u`` grows, so that the chain rule is right."""
        if not self._grows(u):
            return None
        factor = LOGARITHMS[op]
        t = t if factor == 1.0 else factor * t
        if op == "log1p":
            t = t * self._share(u, None, 1.0)
        return list(self._pairs(u, t))

    def _grows(self, u: Any, depth: int = _DEPTH) -> bool:
        """Whether something that varies and grows is a factor or a term of ``u``."""
        known = self._growing.get(id(u))
        if known is None:
            parts = self.parts(u) if depth and self.varies(u) else None
            known = parts is not None and (
                parts[0] in _GROWING
                or (
                    (parts[0] in _POWERS or parts[0] in _SUMS or self._is_product(*parts))
                    and any(self._grows(arg, depth - 1) for arg in parts[1])
                )
            )
            self._growing[id(u)] = known
        return known

    def _is_product(self, op: str, args: Sequence[Any]) -> bool:
        known_power = op in ("pow", "float_power") and _is_number(self.value(args[1]))
        return op in ("multiply", "divide") or known_power

    def _pairs(self, u: Any, t: Any) -> Iterator[tuple[Any, Any]]:
        """Of a change by ``t`` of ``log|u|``."""
        if not self.varies(u):
            return
        if not self._grows(u):
            yield u, t / self.value(u)
            return
        op, args = self.parts(u)  # type: ignore[misc]  # it grows
        if op in _GROWING:
            yield args[0], _GROWING[op](t, self.value(args[0]))
        elif op in _POWERS:
            yield from self._pairs(args[0], t if _POWERS[op] == 1.0 else _POWERS[op] * t)
        elif op in _SUMS:
            yield from self._pairs_of_sum(u, _SUMS[op], args, t)
        elif op == "multiply" or op == "divide":
            yield from self._pairs(args[0], t)
            yield from self._pairs(args[1], t if op == "multiply" else -t)
        else:
            yield from self._pairs(args[0], self.value(args[1]) * t)

    def _pairs_of_sum(
        self, u: Any, sign: float, args: Sequence[Any], t: Any
    ) -> Iterator[tuple[Any, Any]]:
        for mine, other, direction in ((*args, 1.0), (*args[::-1], sign)):
            if self._grows(mine):
                yield from self._pairs(mine, t * self._share(mine, other, sign))
            elif self.varies(mine):
                change = t / self.value(u)
                yield mine, change if direction == 1.0 else -change

    def _share(self, mine: Any, other: Any, sign: float) -> Any:
        """Of ``mine`` in its sum with ``sign`` times ``other``, None for 1."""
        logs = self._log(mine), 0.0 if other is None else self._log(other)
        if sign == 1.0 and logs[0] is not None and logs[1] is not None:
            known_zero = _is_number(logs[1]) and logs[1] == 0.0
            return special.expit(logs[0] if known_zero else logs[0] - logs[1])
        part = (1.0 if other is None else self.value(other)) / self.value(mine)
        return 1.0 / (1.0 + part if sign == 1.0 else 1.0 - part)

    def _log(self, u: Any) -> Any:
        """The logarithm of a term that is surely positive; None of others."""
        value = self.value(u)
        if _is_number(value):
            return log(value) if value > 0.0 else None
        if not self._grows(u):
            return None
        op, args = self.parts(u)  # type: ignore[misc]  # it grows
        if op in _LOGS:
            return _LOGS[op](self.value(args[0]))
        if op in _GROWING or op == "negative" or op == "subtract":
            return None
        first = self._log(args[0])
        if first is None:
            return None
        if op in _POWERS or op in ("pow", "float_power"):
            power = _POWERS[op] if op in _POWERS else self.value(args[1])
            return first if power == 1.0 else power * first
        second = self._log(args[1])
        if second is None:
            return None
        if op == "add":
            return np.logaddexp(first, second)
        return first + second if op == "multiply" else first - second


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
