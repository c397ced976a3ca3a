"""``Bounded``: a NumPy array that knows how far the same array on servers may be from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from distvec.testing import error_bounds, estimates
from distvec.testing.error_bounds import Undecidable
from distvec.testing.strategies import ELEMENTWISE
from ps_backend.program import ops
from ps_backend.program.types import DTYPES


def _in_place(name: str) -> Callable[[Bounded, Any], Bounded]:
    """Return the operator ``x OP= other``, which returns a new scalar for a scalar."""
    update = getattr(NDArrayOperatorsMixin, f"__i{name}__")
    apply = getattr(NDArrayOperatorsMixin, f"__{name}__")

    def operator(self: Bounded, other: Any) -> Bounded:
        result: Bounded = (update if self.shape else apply)(self, other)
        return result

    return operator


class Bounded(NDArrayOperatorsMixin):
    """A NumPy array with a bound on the difference from the servers' result.

    Code for NumPy arrays and distributed arrays runs on it unchanged. If a result depends on
    digits in which servers may differ from NumPy, it raises ``Undecidable``. Scalars have rank 0.

    Parameters
    ----------
    value : array_like
        NumPy's values.
    error : float or array_like of float, default 0.0
        Bound on the difference of each element; 0 means bitwise identical.
    magnitude : numpy.ndarray, optional
        Size of the terms of a linear combination, regardless of cancellation. Default: the size of
        the values.

    Examples
    --------
    >>> from distvec.testing import Bounded
    >>> x = Bounded(np.array([0.1, 0.2, 0.3]))
    >>> total = np.sum(x)
    >>> x.exact, total.exact, bool(total.error < 1e-12)
    (True, False, True)
    """

    __iadd__, __isub__, __imul__ = map(_in_place, ("add", "sub", "mul"))
    __itruediv__, __ifloordiv__ = map(_in_place, ("truediv", "floordiv"))
    __imod__, __ipow__ = map(_in_place, ("mod", "pow"))

    def __init__(
        self,
        value: npt.ArrayLike,
        error: npt.NDArray[np.float64] | float = 0.0,
        magnitude: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """Store values and bounds; see the class."""
        self.value: npt.NDArray[Any] = np.asarray(value)
        self.error: npt.NDArray[np.float64] = np.broadcast_to(error, self.value.shape)
        size = np.abs(np.asarray(self.value, np.float64))
        self.magnitude = size if magnitude is None else np.maximum(magnitude, size)
        if self.value.dtype.name not in DTYPES:
            raise Undecidable(f"servers have no {self.value.dtype}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values.

        Returns
        -------
        numpy.dtype
            The dtype.
        """
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values.

        Returns
        -------
        tuple of int
            ``()`` or ``(n,)``.
        """
        return self.value.shape

    @property
    def exact(self) -> bool:
        """Whether the servers' result is bitwise identical.

        Returns
        -------
        bool
            True if all bounds are 0.
        """
        return not self.error.any()

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Bounded({self.value!r}, error={self.error.max(initial=0.0):.3g})"

    def copy(self) -> Bounded:
        """Return a copy.

        Returns
        -------
        Bounded
            An independent array with the same values and bounds.
        """
        return Bounded(self.value.copy(), self.error, self.magnitude)

    def numpy(self) -> Bounded:
        """Return a copy, which a test compares within its bounds.

        Returns
        -------
        Bounded
            An independent array with the same values and bounds.
        """
        return self.copy()

    def astype(self, dtype: npt.DTypeLike) -> Bounded:
        """Cast to another dtype.

        Parameters
        ----------
        dtype : dtype
            The new dtype.

        Returns
        -------
        Bounded
            The cast array.

        Raises
        ------
        Undecidable
            If a cast to integers or booleans depends on inexact digits.
        """
        with np.errstate(all="ignore"):
            value = self.value.astype(dtype)
        if self.exact or value.dtype.kind == "f":
            error = np.where(self.error > 0, self.error + 2 * _unit(value), 0.0)
            return Bounded(value, error, self.magnitude)
        if value.dtype.kind == "b":
            unclear = error_bounds.unclear_truth(self.value, self.error)
        else:
            unclear = np.trunc(self.value - self.error) != np.trunc(self.value + self.error)
        if np.any(unclear):
            raise Undecidable(f"astype({value.dtype}) of values that may be off")
        return Bounded(value)

    def push(self, indices: Sequence[int], values: npt.ArrayLike) -> Self:
        """Add values at indices, as ``DistArray.push`` does.

        Parameters
        ----------
        indices : sequence of int
            Positions; they may repeat.
        values : array_like
            One value for each index.

        Returns
        -------
        Bounded
            This array.

        Raises
        ------
        TypeError
            If the values cannot be cast to the dtype of the array.
        """
        added = np.asarray(values)
        if not np.can_cast(added.dtype, self.dtype, "same_kind"):
            raise TypeError(f"push: cannot add {added.dtype} to {self.dtype}")
        value = self.value.copy()
        with np.errstate(all="ignore"):
            np.add.at(value, indices, added.astype(self.dtype))
        touched = np.zeros(value.shape)
        np.add.at(touched, indices, 2.0)
        error = np.where(self.error > 0, self.error + touched * _unit(value), 0.0)
        return self._become(Bounded(value, error))

    def pull(self, indices: Sequence[int]) -> Bounded:
        """Return the elements at indices.

        Parameters
        ----------
        indices : sequence of int
            Positions; they may repeat.

        Returns
        -------
        Bounded
            One element for each index.
        """
        chosen = list(indices)
        return Bounded(self.value[chosen], self.error[chosen])

    def __getitem__(self, key: Any) -> Bounded:
        chosen = key.value if isinstance(key, Bounded) else key
        return Bounded(self.value[chosen].copy(), self.error[chosen], self.magnitude[chosen])

    def __setitem__(self, key: Any, new: Any) -> None:
        chosen = key.value if isinstance(key, Bounded) else key
        given = new if isinstance(new, Bounded) else Bounded(new)
        value, error = self.value.copy(), self.error.copy()
        with np.errstate(all="ignore"):
            value[chosen] = given.value
        if not given.exact and value.dtype.kind != "f":
            raise Undecidable("assignment of floats that may be off")
        error[chosen] = given.error if given.exact else given.error + 2 * _unit(value[chosen])
        self._become(Bounded(value, error))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.matmul:
            return Bounded(*estimates.dot(*inputs))
        name = ops.name_of(ufunc)
        if name is None or method != "__call__":
            return NotImplemented
        (out,) = kwargs.pop("out", (None,))
        given = [x.value if isinstance(x, Bounded) else x for x in inputs]
        with np.errstate(all="ignore"):
            result = _with_bound(name, inputs, np.asarray(ufunc(*given, **kwargs)))
            if out is None:
                return result
            cast = np.asarray(ufunc(*given, out=out.value.copy(), **kwargs))
        return out._become(_with_bound(name, inputs, cast))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.where:
            given = [x.value if isinstance(x, Bounded) else x for x in args]
            return _with_bound("where", args, np.where(*given))
        if func in _COMPOSED:
            return _COMPOSED[func](*args)
        estimate = _ESTIMATES.get(func)
        return NotImplemented if estimate is None else Bounded(*estimate(*args, **kwargs))

    def _become(self, other: Bounded) -> Self:
        self.value, self.error, self.magnitude = other.value, other.error, other.magnitude
        return self


def _norm(x: Bounded) -> Bounded:
    """Return the Euclidean norm."""
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    doubles = x.astype(np.float64)
    wide: Bounded = np.sqrt(Bounded(*estimates.dot(doubles, doubles)))
    return wide if wide.dtype == dtype else wide.astype(dtype)


def _var(x: Any) -> Any:
    """The mean of the squared deviations from the mean, in float64 as the servers do."""
    wide = x.astype(np.float64)
    away = wide - np.mean(wide)
    result = np.sum(away * away) / x.value.size
    return result.astype(x.dtype) if x.dtype.kind == "f" else result


def _ptp(x: Any) -> Any:
    return np.max(x) - np.min(x)


_ESTIMATES = estimates.REDUCTION_ESTIMATES | estimates.MOVEMENT_ESTIMATES

_COMPOSED: dict[Any, Callable[..., Any]] = {np.linalg.norm: _norm, np.var: _var, np.ptp: _ptp}
"""What is made of other reductions."""


def _with_bound(name: str, inputs: Sequence[Any], value: npt.NDArray[Any]) -> Bounded:
    operands = [x if isinstance(x, Bounded) else Bounded(x) for x in inputs]
    values, errors = [x.value for x in operands], [x.error for x in operands]
    error = error_bounds.elementwise(name, values, errors, value, _ULPS[name])
    return Bounded(value, error, _magnitude(name, operands, value))


def _magnitude(
    name: str, operands: Sequence[Bounded], value: npt.NDArray[Any]
) -> npt.NDArray[np.float64] | None:
    """Size of the terms of a linear combination; None for what is not one."""
    sizes = [x.magnitude for x in operands]
    with np.errstate(all="ignore"):
        if ops.TABLE[name].error == "sum":
            return np.broadcast_to(sum(sizes), value.shape)
        if name == "multiply" and min(x.value.size for x in operands) == 1:
            return np.broadcast_to(sizes[0] * sizes[1], value.shape)
        if name == "divide" and operands[1].value.size == 1:
            quotient = sizes[0] / np.abs(np.asarray(operands[1].value, np.float64))
            return np.broadcast_to(quotient, value.shape)
    return None


def _unit(value: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return error_bounds.unit_in_last_place(value)


_ULPS = {operation.name: operation.ulps for operation in ELEMENTWISE}
