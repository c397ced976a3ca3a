"""The objective as solvers see it: counted, checked, evaluated once per point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optim.core.arrays import Array, Scalar, fetch, max_norm, namespace, quiet
from optim.core.trees import as_user_structure, lift, like, named_leaves

_HOW_TO_GIVE_A_GRADIENT = (
    "return (value, gradient) from fun with jac=True, or give the gradient's function as jac"
)


@dataclass(frozen=True)
class Point:
    """A vector with the objective there; the norm is the max norm."""

    x: Array
    value: float
    gradient: Array
    gradient_norm: float

    @property
    def finite(self) -> bool:
        """Whether value and gradient are numbers."""
        return math.isfinite(self.value) and math.isfinite(self.gradient_norm)


class Problem:
    """`fun(x, *args)` with its gradient. Arrays that it returns are never written to.

    Where fun raises an ArithmeticError, as an OverflowError, it counts as not finite; at the first
    point, from which there is no way back, that is raised.

    `jac=True`: fun returns (value, gradient); or the value alone, where the library of that array
    has `value_and_grad`. A callable `jac(x, *args)`: fun returns the value.
    `max_evaluations` bounds the calls; searches ask for what `remaining` allows.
    `structured`: x are trees, and fun and jac know them as the user's structure of arrays.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        args: Sequence[Any] = (),
        jac: bool | Callable[..., Array] = True,
        max_evaluations: int | None = None,
        *,
        structured: bool = False,
    ) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, but is {type(fun).__name__}")
        if jac is not True and not callable(jac):
            raise ValueError(
                f"jac={jac!r}: a gradient is needed and none is made up by differences; "
                f"{_HOW_TO_GIVE_A_GRADIENT}"
            )
        self.fun = fun
        self.args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        self.jac = jac
        self._max_evaluations = math.inf if max_evaluations is None else max_evaluations
        self.structured = structured
        self.evaluations = 0
        self._library: Any = None  # the one that differentiates fun
        self._differentiated: Callable[..., Any] | None = None

    @property
    def remaining(self) -> float:
        """How many more evaluations are allowed; inf without a limit."""
        return self._max_evaluations - self.evaluations

    @property
    def calls(self) -> int | None:
        """What fun has counted by itself, as where it takes differences; None if it does not."""
        return getattr(self.fun, "calls", None) if hasattr(self.fun, "recount") else None

    def recount(self, evaluations: int, calls: int | None) -> None:
        """Go on counting from these."""
        self.evaluations = evaluations
        if calls is not None and hasattr(self.fun, "recount"):
            self.fun.recount(calls)

    def __call__(self, x: Array) -> tuple[Scalar, Array]:
        """Value (perhaps a lazy rank-0 array) and gradient at `x`."""
        self.evaluations += 1
        given = as_user_structure(x) if self.structured else x
        try:
            if callable(self.jac):
                value, gradient = self.fun(given, *self.args), self.jac(given, *self.args)
            else:
                value, gradient = self._pair_at(given)
        except ArithmeticError:
            if self.evaluations == 1:
                raise
            return math.nan, math.nan * x
        _check_value(value)
        return value, like(gradient, x, "gradient")

    def gradient(self, x: Array) -> Array:
        """The gradient alone; an evaluation all the same."""
        if not callable(self.jac):
            return self(x)[1]
        self.evaluations += 1
        given = as_user_structure(x) if self.structured else x
        return like(self.jac(given, *self.args), x, "gradient")

    def _pair_at(self, given: Any) -> tuple[Scalar, Array]:
        """Value and gradient as fun returns them, or as its array library finds them."""
        if self._differentiated is None:
            returned = self.fun(given, *self.args)
            library = _differentiating_library(returned)
            if library is None:
                return _pair(returned)
            self._library, self._differentiated = library, library.value_and_grad(self.fun)
        return _pair(self._differentiated(given, *self.args))

    def differentiated(self, x: Array) -> None:
        """Know what the first evaluation tells: the library of `x` differentiates fun."""
        if self._differentiated is None:
            _, leaf = next(iter(named_leaves(x)))
            self._library = namespace(leaf)
            self._differentiated = self._library.value_and_grad(self.fun)

    @property
    def hessp(self) -> Callable[[Array, Array], Array] | None:
        """Products with the Hessian, where the array library has differentiated fun."""
        if not hasattr(self._library, "hessian_product"):
            return None
        product = self._library.hessian_product(self.fun)
        return lift(lambda x, v: product(x, v, *self.args), "hessp(x, v)")

    def part(self, fun: Callable[..., Any]) -> Problem:
        """The same for a part of the objective, which returns (value, gradient)."""
        return Problem(fun, self.args, structured=self.structured)

    def at(self, x: Array) -> Point:
        """The objective at `x`, read with the max norm of its gradient in one message."""
        value, gradient = self(x)
        with quiet():
            number, norm = fetch(value, max_norm(gradient), also=(x, gradient))
        return Point(x, number, gradient, norm)


def _differentiating_library(returned: Any) -> Any:
    """The library of a number that fun returned in the place of a pair, if it differentiates."""
    is_number = hasattr(returned, "__array_namespace__") and tuple(returned.shape) == ()
    library = namespace(returned) if is_number else None
    return library if hasattr(library, "value_and_grad") else None


def _pair(returned: Any) -> tuple[Scalar, Array]:
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        given = f"{type(returned).__name__}" + (
            f" of length {len(returned)}" if isinstance(returned, (tuple, list)) else ""
        )
        raise TypeError(
            f"fun must return the pair (value, gradient), but returned {given}; "
            f"{_HOW_TO_GIVE_A_GRADIENT}"
        )
    value, gradient = returned
    return value, gradient


def _check_value(value: Scalar) -> None:
    shape = getattr(value, "shape", ())
    if tuple(shape) != () or not hasattr(value, "__float__"):
        what = f"shape {tuple(shape)}" if shape else f"type {type(value).__name__}"
        raise TypeError(
            f"the objective's value must be one number, but has {what}; return for instance "
            "float(value), or the sum or mean over its elements"
        )
