"""Forward mode: derivatives of elementwise functions on NumPy arrays.

A dual number carries the value of an element and how fast it changes with the argument. NumPy hands
its ufuncs on them to the column of derivatives of the op table. Second derivatives are those of
dual numbers of dual numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from distvec.autodiff.logarithms import LOGARITHMS, Terms
from distvec.autodiff.steps import NotDifferentiable, name_of, why_not
from ps_backend.program import ops

_REMEDY = "give the derivative: return (values, slopes)"
_HUGE = 1e150
"""Squares of larger numbers are infinite."""
Floats = npt.NDArray[Any]


def derivatives(
    function: Callable[..., Any], x: Any, *constants: Any, order: Literal[1, 2] = 1
) -> tuple[Floats, ...]:
    """``(values, first)``, or ``(values, first, second)``, of ``function(x, *constants)`` in ``x``.

    The function is elementwise in ``x`` and written with NumPy's ufuncs, operators, ``np.where``,
    ``np.clip``, masks and ``scipy.special``'s ufuncs; float64, or ``x``'s own dtype of floats.
    Kinks as ``ps_backend.program.derivatives`` says. Costs about as much as the function and its
    derivatives written by hand. ``NotDifferentiable``, a ``TypeError``, names what has none.

    Where something on the way is too large for a float, the function runs once more, by rules that
    take limits: ``log(cosh(x))`` has the slope 1 at 1000, and ``1 / (1 + exp(x))`` the slope 0. The
    values are NumPy's all the same.
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order!r}")
    values = np.array(x)  # its own, as the function may assign to it
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    told = _run(Dual, function, values.copy(), constants, order)
    wrong = ~np.logical_and.reduce([np.isfinite(one) for one in told])
    if wrong.any():
        limits = _run(Extended, function, values, constants, order)
        for one, limit in zip(told[1:], limits[1:], strict=True):
            one[wrong] = limit[wrong]
    return told


def _run(
    kind: type[Dual],
    function: Callable[..., Any],
    values: Floats,
    constants: tuple[Any, ...],
    order: int,
) -> tuple[Floats, ...]:
    point = kind(values, np.ones_like(values))
    if order == 2:
        point = kind(point, kind(np.ones_like(values), np.zeros_like(values)))
    with np.errstate(all="ignore"):
        result = function(point, *constants)
    return _parse_result(result, values, order)


def _parse_result(result: Any, values: Floats, order: int) -> tuple[Floats, ...]:
    """What the result of the function says: value and derivatives, of the shape of ``values``."""
    if not isinstance(result, Dual):
        result = _constant(result, values.shape)
    if result.shape != values.shape:
        raise ValueError(
            f"the function must be elementwise: for an argument of shape {values.shape} it "
            f"returned shape {result.shape}"
        )
    told: tuple[Any, ...] = (result.value, result.slope)
    if order == 2:
        (value, first), second = _pair(result.value), _pair(result.slope)[1]
        told = (value, first, second)
    return tuple(np.array(np.broadcast_to(one, values.shape)) for one in told)


def _constant(result: Any, shape: tuple[int, ...]) -> Dual:
    """What does not depend on the argument, with slopes of 0; a number is that of all elements."""
    try:
        value = np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"the function must return an array of values, got {type(result).__name__}"
        ) from None
    value = value if value.shape else np.full(shape, value)
    return Dual(value, np.zeros_like(value))


def _pair(one: Any) -> tuple[Any, Any]:
    return (one.value, one.slope) if isinstance(one, Dual) else (one, 0.0)


class Dual(NDArrayOperatorsMixin):
    """An array of dual numbers ``value + slope e`` where ``e**2 = 0``.

    Both are arrays of one shape, or are such arrays of dual numbers themselves.
    """

    __slots__ = ("slope", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, slope: Any) -> None:
        self.value = value
        self.slope = slope

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return np.shape(self.value)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> Any:
        """Of the values."""
        return self.value.dtype

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.slope!r})"

    def __getitem__(self, mask: Any) -> Dual:
        _check_mask(mask)
        return type(self)(self.value[mask], self.slope[mask])

    def __setitem__(self, mask: Any, given: Any) -> None:
        _check_mask(mask)
        self.value[mask], self.slope[mask] = _pair(given)

    def __float__(self) -> float:
        raise NotDifferentiable(f"a number read from an array has no derivative; {_REMEDY}")

    __int__ = __index__ = __float__

    def __bool__(self) -> bool:
        raise NotDifferentiable(f"write np.where(condition, x, y) instead of if; or {_REMEDY}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        raise NotDifferentiable(
            "the argument was copied into a NumPy array, by a function or an assignment without "
            f"derivatives; start from np.zeros_like(x), or {_REMEDY}"
        )

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise NotDifferentiable(f"method .{name} has no derivative here; {_REMEDY}")
        raise AttributeError(name)

    def copy(self) -> Dual:
        """One that can be changed without changing this one."""
        return type(self)(self.value.copy(), self.slope.copy())

    def astype(self, dtype: Any, **keywords: Any) -> Any:
        """In another dtype: of floats; of what is none, the values alone."""
        if np.dtype(dtype).kind != "f":
            return _plain(self).astype(dtype, **keywords)
        return type(self)(
            self.value.astype(dtype, **keywords), self.slope.astype(dtype, **keywords)
        )

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Limited to ``[min, max]``."""
        return _clip(self, min, max)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        (out,) = keywords.pop("out", (None,)) if ufunc.nout == 1 else (None,)
        if method != "__call__":
            raise _not_differentiable(f"{ufunc.__name__}.{method}", ": it is not elementwise")
        if keywords:
            raise _not_differentiable(
                ufunc.__name__, f" with {', '.join(f'{key}=' for key in keywords)}"
            )
        if ufunc in ops.PARTS:
            return tuple(_apply_chain_rule(ops.TABLE[name], inputs) for name in ops.PARTS[ufunc])
        name = ops.name_of(ufunc)
        if name is None:
            raise _not_differentiable(ufunc.__name__)
        result = _apply_chain_rule(ops.TABLE[name], inputs)
        return result if out is None else _store_result(out, result)

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        if function not in _FUNCTIONS:
            raise _not_differentiable(name_of(function))
        return _FUNCTIONS[function](*args, **keywords)


def _not_differentiable(name: str, why: str = "") -> NotDifferentiable:
    return NotDifferentiable(f"{name} has no derivative here{why}; {_REMEDY}")


def _check_mask(mask: Any) -> None:
    if mask is not Ellipsis and getattr(mask, "dtype", None) != np.bool_ and mask != slice(None):
        raise NotDifferentiable(
            "only masks can select elements, as in x[x > 0], because the function must be "
            f"elementwise; or {_REMEDY}"
        )


def _store_result(out: Any, result: Any) -> Any:
    """The in-place operators' result, and that of ``out=``."""
    if not isinstance(out, Dual):
        raise NotDifferentiable(
            f"the argument cannot be added to a NumPy array in place; write y = y + x, or {_REMEDY}"
        )
    out[...] = result
    return out


def _apply_chain_rule(row: ops.Op, inputs: tuple[Any, ...]) -> Any:
    """What an operation gives of arrays of which some are dual numbers: the rule of the chain."""
    values = [one.value if isinstance(one, Dual) else one for one in inputs]
    result = row.numpy(*values)
    if not row.derivatives:
        raise _not_differentiable(name_of(row.numpy), why_not(row.name))
    slope: Any = None
    for one, derivative in zip(inputs, row.derivatives, strict=True):
        if derivative is None or not isinstance(one, Dual):
            continue
        change = derivative(one.slope, result, *values)
        change = change.copy() if change is one.slope else change  # either may be assigned to
        slope = change if slope is None else slope + change
    if slope is None:
        return result
    shape = np.shape(result)  # arguments may be of several
    slope = slope if np.shape(slope) == shape else slope + np.zeros(shape)
    if any(isinstance(one, Extended) for one in inputs):
        return Extended.of(row, inputs, result, slope)
    return Dual(result, slope)


class Extended(Dual):
    """Dual numbers that remember how they were computed, for derivatives beyond the floats.

    What they remember are the arguments as they were: an assignment makes new arrays.
    """

    __slots__ = ("parts",)

    def __init__(self, value: Any, slope: Any) -> None:
        super().__init__(value, slope)
        self.parts: tuple[str, tuple[Any, ...]] | None = None
        """The op and its arguments; None after an assignment."""

    @classmethod
    def of(cls, row: ops.Op, inputs: tuple[Any, ...], result: Any, slope: Any) -> Extended:
        """The result of an operation, with the limit of the slope where ``slope`` has none."""
        if row.name in LOGARITHMS:
            slope = _limit_of_logarithm(row.name, inputs[0], slope)
        # A function of something huge that is finite tends to a constant there, so if its
        # slope has a limit it is 0; the chain rule makes 0 * inf or inf / inf of it.
        values = [_plain(one) for one in inputs if isinstance(one, Dual)]
        is_huge = np.logical_or.reduce([np.abs(value) > _HUGE for value in values])
        flat = is_huge & np.isfinite(_plain(result)) & ~_is_finite(slope)
        if flat.any():
            slope = np.where(flat, 0.0, slope)
        made = cls(result, slope)
        made.parts = row.name, tuple(map(_snapshot, inputs))
        return made

    def __setitem__(self, mask: Any, given: Any) -> None:
        _check_mask(mask)
        self.value, self.slope, self.parts = self.value.copy(), self.slope.copy(), None
        self.value[mask], self.slope[mask] = _pair(given)

    def __getitem__(self, mask: Any) -> Dual:
        _check_mask(mask)
        if getattr(mask, "dtype", None) != np.bool_:
            return self  # all of it, as a view would be
        return super().__getitem__(mask)


def _snapshot(one: Any) -> Any:
    """An argument as it is now, whatever is assigned to it later."""
    if not isinstance(one, Extended):
        return one
    same = Extended(one.value, one.slope)
    same.parts = one.parts
    return same


def _limit_of_logarithm(op: str, u: Any, slope: Any) -> Any:
    """The slope of a logarithm of ``u``, by logarithmic derivatives where it has no other."""
    x = _plain(u) + (op == "log1p")
    wrong = ~np.isfinite(x) | (x == 0.0) | ~_is_finite(slope)
    pairs = _terms().of_logarithm(op, u, 1.0) if wrong.any() else None
    if pairs is None:
        return slope
    return np.where(wrong, sum(factor * one.slope for one, factor in pairs), slope)


def _is_finite(one: Any) -> Any:
    """Where all of the numbers of a dual number are."""
    if isinstance(one, Dual):
        return _is_finite(one.value) & _is_finite(one.slope)
    return np.isfinite(one)


def _plain(one: Any) -> Any:
    """The values, of which the derivatives are forgotten."""
    return _plain(one.value) if isinstance(one, Dual) else one


def _where(condition: Any, *choices: Any) -> Any:
    if len(choices) != 2:
        return np.where(_plain(condition))
    return _apply_chain_rule(ops.TABLE["where"], (_plain(condition), *choices))


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _select(conditions: Any, choices: Any, default: Any = 0) -> Any:
    result = default
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        result = _where(condition, choice, result)
    return result


def _full(x: Any, number: Any, dtype: Any = None, **_: Any) -> Any:
    """``np.full_like``: dual numbers again, so that some can be assigned to it."""
    if dtype is not None and np.dtype(dtype).kind != "f":
        return np.full_like(_plain(x), number, dtype=dtype)
    made = _zeros(x) if dtype is None else _zeros(x).astype(dtype)
    made[...] = number
    return made


def _zeros(x: Any) -> Any:
    return type(x)(_zeros(x.value), _zeros(x.slope)) if isinstance(x, Dual) else np.zeros_like(x)


def _terms() -> Terms:
    return Terms(
        lambda one: one.parts if isinstance(one, Extended) else None,
        lambda one: one.value if isinstance(one, Dual) else one,
        lambda one: isinstance(one, Dual),
    )


_FUNCTIONS: MappingProxyType[Any, Callable[..., Any]] = MappingProxyType(
    {
        np.where: _where,
        np.select: _select,
        np.clip: _clip,
        np.copy: lambda x: x.copy(),
        np.full_like: _full,
        np.zeros_like: lambda x, dtype=None, **_: _full(x, 0, dtype),
        np.empty_like: lambda x, dtype=None, **_: _full(x, 0, dtype),
        np.ones_like: lambda x, dtype=None, **_: _full(x, 1, dtype),
        np.round: lambda x, decimals=0: np.round(_plain(x), decimals),
        np.shape: lambda x: x.shape,
        np.ndim: lambda x: x.ndim,
        np.size: lambda x: x.size,
    }
)
"""Of NumPy's functions that are no ufuncs those that are elementwise, or ask for the shape."""
