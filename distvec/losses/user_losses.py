"""Losses of users: a function of margins and labels, or one of rows and parameters that gives value
and gradients.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, overload

import numpy as np

from distvec.autodiff.forward import derivatives
from distvec.losses.labels import rule
from distvec.losses.loss import (
    Arrays,
    Loss,
    LossError,
    NotFinite,
    Parameter,
    Sums,
    as_arrays,
    as_given,
    loss_error,
    name_of_block,
)
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats, Rows, read_only

_A_LABEL = {"signs": 1.0, "classes": 0.0, "real": 0.25, "counts": 1.0, "positive": 1.5}


@dataclass(frozen=True)
class UserRowLoss(RowLoss):
    """A loss that ``row_loss`` made of a function.

    Call it with further parameters of the function for a loss with those: ``my_loss(delta=0.5)``.
    """

    function: Callable[..., Any]
    labels: str = "real"  # type: ignore[misc]  # of each object, where other losses have it by class
    arguments: Mapping[str, Any] = field(default_factory=dict)
    _is_differentiated: bool = field(default=False, init=False, repr=False, compare=False)
    """Set at the first call, which says so."""

    def __post_init__(self) -> None:
        rule(self.labels)
        object.__setattr__(self, "__doc__", self.function.__doc__)

    def __call__(self, **arguments: Any) -> UserRowLoss:
        """The loss with these arguments in place of defaults. TypeError for others."""
        arguments = {**self.arguments, **arguments}
        try:
            inspect.signature(self.function).bind(None, None, **arguments)
        except TypeError as error:
            raise TypeError(f"the loss {_name(self.function)}: {error}") from None
        return replace(self, arguments=arguments)

    def row(self, margins: Floats, labels: Floats) -> tuple[Any, Any]:
        if not self._is_differentiated:
            given = self.function(margins, labels, **self.arguments)
            if isinstance(given, tuple) or np.shape(given) != margins.shape:
                return given  # type: ignore[no-any-return]  # looked at where it is used
            object.__setattr__(self, "_is_differentiated", True)
        values, slopes = derivatives(self._of_margins, margins, labels)
        return values, slopes

    @property
    def has_products(self) -> bool:
        """Whether the function returns values alone, which have second derivatives as well: seen
        by calling it with one row. What it raises is said where it meets rows."""
        one = np.array([0.625]), np.array([_A_LABEL[self.labels]])
        with suppress(Exception):
            self.row(*one)
            return self._is_differentiated and self.curvature(*one).size == 1
        return False

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return derivatives(self._of_margins, margins, labels, order=2)[2]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return _name(self.function) + (f"({given})" if given else "")

    __repr__ = __str__

    @property
    def _of_margins(self) -> Callable[..., Any]:
        return partial(self.function, **self.arguments)


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or repr(function)


@overload
def row_loss(function: Callable[..., Any], /) -> UserRowLoss: ...
@overload
def row_loss(*, labels: str = "real") -> Callable[[Callable[..., Any]], UserRowLoss]: ...
def row_loss(function: Callable[..., Any] | None = None, /, *, labels: str = "real") -> Any:
    """Make a loss of a function ``(margins, labels) -> (values, slopes)``.

    Use it as a decorator. Further parameters of the function are parameters of the loss.

    Parameters
    ----------
    function : callable
        It takes margins and labels, arrays of float64, ``(rows,)``. It returns the loss of each
        row and its derivative by the margin. If it consists of NumPy's elementwise operations, it
        may return the values alone: slopes and second derivatives are derived then.
    labels : str, default "real"
        The allowed labels: ``"real"`` numbers; ``"signs"``, two classes that the function gets as
        +1 and -1; ``"classes"`` 0, 1, ...; ``"counts"``, 0 or more; ``"positive"`` numbers.

    Returns
    -------
    RowLoss
        The loss; or, without ``function``, a decorator that makes it.

    See Also
    --------
    block_loss : For losses that need more than one margin for each row.
    check_loss : Compare the slopes with differences.

    Notes
    -----
    If the function raises, or returns arrays of other shapes, a ``LossError`` names the rows.
    Spark's tasks receive the function by value, like other functions of a notebook.

    Examples
    --------
    >>> from distvec.losses import Objective, row_loss
    >>> @row_loss
    ... def pseudo_huber(margins, labels, delta=1.0):
    ...     residuals = (margins - labels) / delta
    ...     return delta**2 * (np.sqrt(1 + residuals**2) - 1)
    >>> X, y = [[1.0], [1.0], [1.0]], [1.0, 2.0, 30.0]
    >>> model = Objective((X, y), loss=pseudo_huber(delta=0.5)).fit()
    >>> model.coefficients.round(1)
    array([2.])
    """
    if function is None:
        return partial(UserRowLoss, labels=labels)
    return UserRowLoss(function, labels)


Parameters: TypeAlias = "Mapping[str, tuple[int, ...]] | Sequence[Parameter] | None"


@dataclass(frozen=True)
class UserBlockLoss(Loss):
    """A loss that ``block_loss`` made of a function."""

    function: Callable[..., Any]
    of: tuple[Parameter, ...] = (Parameter(),)
    labels: str = "real"  # type: ignore[misc]  # of each object, where other losses have it by class

    def __post_init__(self) -> None:
        rule(self.labels)
        object.__setattr__(self, "__doc__", self.function.__doc__)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.of

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        if rows.offsets is not None:
            raise ValueError(f"{self} gets no offsets; give them as a feature, or use a row_loss")
        matrix = rows.with_ones if intercept else rows.matrix
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        seen = as_given([read_only(array) for array in arrays], self.of)
        place = name_of_block(0, slice(0, len(rows)))
        try:
            with np.errstate(all="ignore"):
                given = self.function(matrix, read_only(rows.labels), read_only(weights), seen)
        except Exception as error:
            raise loss_error(str(self), place, error) from error
        try:
            value, gradients = self._checked(given, arrays)
        except (TypeError, ValueError) as error:
            raise LossError(str(self), place, str(error)) from None
        if nan := _nan(value, gradients, arrays, self.of):
            raise NotFinite(str(self), place, nan)
        return Sums(value, rows.weight_sum, gradients)

    def _checked(self, given: Any, arrays: Arrays) -> tuple[float, Arrays]:
        """Value and gradients. TypeError or ValueError if they cannot be those."""
        if not isinstance(given, tuple) or len(given) != 2:
            what = f"a tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__
            raise TypeError(f"it returned {what}, but it must return (value, gradient)")
        value = float(given[0])
        gradients = tuple(map(np.asarray, as_arrays(given[1], self.of)))
        for one, gradient, array in zip(self.of, gradients, arrays, strict=True):
            of = f" by {one.name!r}" if one.name else ""
            if gradient.shape != array.shape:
                raise ValueError(
                    f"the gradient{of} has the shape {gradient.shape}, the parameter {array.shape}"
                )
            if gradient.dtype.kind not in "fiub":
                raise TypeError(f"the gradient{of} has the dtype {gradient.dtype}, not of floats")
        return value, gradients

    def predictions(self, scores: Floats) -> Floats:
        raise NotImplementedError(f"{self} does not predict labels")

    def __str__(self) -> str:
        return getattr(self.function, "__name__", None) or repr(self.function)

    __repr__ = __str__


def _nan(value: float, gradients: Arrays, arrays: Arrays, parameters: Sequence[Parameter]) -> str:
    """Where the first NaN is, at finite parameters; "" if there is none. An infinite value is for
    the solver to judge, which has no use for the gradient there."""
    if math.isinf(value) or not all(np.isfinite(array).all() for array in arrays):
        return ""
    if math.isnan(value):
        return "the value is NaN, where all parameters are finite"
    for one, gradient in zip(parameters, gradients, strict=True):
        if np.isnan(gradient).any():
            of, at = f" by {one.name!r}" if one.name else "", np.argwhere(np.isnan(gradient))[0]
            return f"the gradient{of} is NaN at {at.tolist()}, where all parameters are finite"
    return ""


@overload
def block_loss(function: Callable[..., Any], /) -> UserBlockLoss: ...
@overload
def block_loss(
    *, parameters: Parameters = None, labels: str = "real"
) -> Callable[[Callable[..., Any]], UserBlockLoss]: ...
def block_loss(
    function: Callable[..., Any] | None = None,
    /,
    *,
    parameters: Parameters = None,
    labels: str = "real",
) -> Any:
    """Make a loss of a function ``(X, y, weights, params) -> (value, gradient)``.

    Use it if the loss of a row depends on more than one margin. Value and gradient are weighted
    sums over the rows.

    Parameters
    ----------
    function : callable
        It takes the features ``X``, a ``scipy.sparse.csr_array`` or an array ``(rows, columns)``;
        labels and weights, ``(rows,)``; and the parameters. It returns a number and a gradient
        like the parameters.
    parameters : dict or list of Parameter, optional
        A dict of names to shapes for one feature: ``()`` for a vector, ``(k,)`` for a table of
        ``k`` columns. Parameters and gradient are then dicts. By default they are one vector. A
        list of ``Parameter`` can omit the row of the intercept, and start from random values.
    labels : str, default "real"
        The allowed labels, as in ``row_loss``.

    Returns
    -------
    Loss
        The loss; or, without ``function``, a decorator that makes it.

    See Also
    --------
    row_loss : For losses of one margin for each row.

    Notes
    -----
    With an intercept, ``X`` has one more column, the last, of ones. In Spark the rows are the rows
    of a partition. Its columns are the features that occur in it, and ``params`` has a row for
    each. If the function raises, or returns arrays of other shapes, a ``LossError`` names the
    rows. ``optim.check_gradient`` compares the gradient of an objective with differences.

    Examples
    --------
    >>> from distvec.losses import Objective, block_loss
    >>> @block_loss(parameters={"location": (), "scale": ()})
    ... def gaussian(X, y, weights, params):
    ...     residuals = y - X @ params["location"]
    ...     log_scales = X @ params["scale"]
    ...     scaled = residuals * np.exp(-log_scales)
    ...     value = weights @ (log_scales + 0.5 * scaled**2)
    ...     location = X.T @ (-weights * scaled * np.exp(-log_scales))
    ...     return value, {"location": location, "scale": X.T @ (weights * (1.0 - scaled**2))}
    >>> objective = Objective((np.ones((4, 1)), [1.0, 3.0, 1.0, 3.0]), loss=gaussian)
    >>> {name: value.round(3) + 0.0 for name, value in objective.minimize().x.items()}
    {'location': array([2.]), 'scale': array([0.])}
    """
    if function is None:
        return partial(UserBlockLoss, of=_as_parameters(parameters), labels=labels)
    return UserBlockLoss(function)


def _as_parameters(given: Parameters) -> tuple[Parameter, ...]:
    """TypeError or ValueError for what is none."""
    if given is None:
        return (Parameter(),)
    if isinstance(given, Mapping):
        given = [Parameter(name, _row(name, row)) for name, row in given.items()]
    found = tuple(given)
    names = [one.name for one in found if isinstance(one, Parameter)]
    if not found or len(names) < len(found):
        raise TypeError(
            f"parameters={given!r}: must be a dict of names to shapes, such as "
            '{"weights": (), "factors": (8,)}, or a list of Parameter'
        )
    if len(set(names)) < len(names) or ("" in names and len(names) > 1):
        raise ValueError(f"parameters have the names {names}; names must differ")
    return found


def _row(name: str, row: Any) -> tuple[int, ...]:
    if not isinstance(row, tuple) or len(row) > 1 or not all(isinstance(k, int) for k in row):
        raise TypeError(
            f"parameters[{name!r}]={row!r}: must be () for a vector, or (k,) for a table of k "
            "columns"
        )
    return row
