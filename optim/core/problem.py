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
    """A vector with value and gradient of the objective there.

    Parameters
    ----------
    x : Array
        The point.
    value : float
        The objective's value.
    gradient : Array
        Its gradient, of the shape of `x`.
    gradient_norm : float
        Max norm of the gradient.
    """

    x: Array
    value: float
    gradient: Array
    gradient_norm: float

    @property
    def finite(self) -> bool:
        """Whether value and gradient are numbers."""
        return math.isfinite(self.value) and math.isfinite(self.gradient_norm)


class Problem:
    """The objective as a solver calls it: counted, checked, and read in few requests.

    Solvers get a problem from `Solver.minimize`; tests of a solver may make one. Call
    ``problem.at(x)`` for numbers, or ``problem(x)`` for a value that may still be lazy.

    Parameters
    ----------
    fun : callable
        Objective ``fun(x, *args)``, which returns ``(value, gradient)``; or the value alone if its
        array library has ``value_and_grad``, or if `jac` is a function.
    args : sequence, default ()
        Further arguments of ``fun`` and ``jac``. A single other object counts as one argument.
    jac : bool or callable, default True
        True: ``fun`` returns the gradient. Otherwise a function ``jac(x, *args)`` that returns it.
    max_evaluations : int, optional
        Limit that `remaining` counts down from. Default: no limit.
    structured : bool, default False
        Whether ``x`` is a tree of several arrays, which ``fun`` and ``jac`` see in the user's
        structure.

    Attributes
    ----------
    evaluations : int
        Number of evaluations so far.

    Raises
    ------
    TypeError
        If ``fun`` is not callable.
    ValueError
        If `jac` is not True and not callable.

    Notes
    -----
    If ``fun`` raises an ``ArithmeticError``, such as ``OverflowError``, the point counts as not
    finite. At the first evaluation the error is raised. Arrays that ``fun`` returns are never
    written to; NumPy arrays are copied, because ``fun`` may fill the same buffer again.

    Examples
    --------
    >>> problem = optim.Problem(lambda x: (float(x @ x), 2 * x), max_evaluations=10)
    >>> point = problem.at(np.array([3.0, 4.0]))
    >>> point.value, point.gradient_norm, problem.remaining
    (25.0, 8.0, 9)
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
            raise TypeError(f"fun must be callable, got {type(fun).__name__}")
        if jac is not True and not callable(jac):
            raise ValueError(
                f"jac={jac!r}: a solver needs a gradient and takes no differences of values; "
                f"{_HOW_TO_GIVE_A_GRADIENT}"
            )
        self.fun = fun
        self.args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        self.jac = jac
        self._max_evaluations = math.inf if max_evaluations is None else max_evaluations
        self.structured = structured
        self.evaluations = 0
        self._library: Any = None  # The library that differentiates fun.
        self._differentiated: Callable[..., Any] | None = None

    @property
    def remaining(self) -> float:
        """Number of evaluations that are still allowed.

        Returns
        -------
        float
            A whole number, or ``inf`` without a limit.
        """
        return self._max_evaluations - self.evaluations

    @property
    def calls(self) -> int | None:
        """Number of calls that ``fun`` counted itself, such as those for finite differences.

        Returns
        -------
        int or None
            ``None`` if ``fun`` does not count.
        """
        return getattr(self.fun, "calls", None) if hasattr(self.fun, "recount") else None

    def recount(self, evaluations: int, calls: int | None) -> None:
        """Continue counting from these numbers, as a resumed run does.

        Parameters
        ----------
        evaluations : int
            Number of evaluations so far.
        calls : int or None
            Number of calls that ``fun`` counted itself, if it counts.
        """
        self.evaluations = evaluations
        if calls is not None and hasattr(self.fun, "recount"):
            self.fun.recount(calls)

    def __call__(self, x: Array) -> tuple[Scalar, Array]:
        """Evaluate the objective; its value may be a lazy scalar.

        Parameters
        ----------
        x : Array
            The point.

        Returns
        -------
        tuple of (Scalar, Array)
            Value, of rank 0, and gradient, of the shape of `x`.
        """
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
        """Evaluate the gradient alone; this also counts as an evaluation.

        Parameters
        ----------
        x : Array
            The point.

        Returns
        -------
        Array
            The gradient, of the shape of `x`; it may be lazy.
        """
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
        """Declare that the array library of `x` differentiates ``fun``.

        The first evaluation finds this out; a run that continues from a state skips it.

        Parameters
        ----------
        x : Array
            Any point; only its library counts.
        """
        if self._differentiated is None:
            _, leaf = next(iter(named_leaves(x)))
            self._library = namespace(leaf)
            self._differentiated = self._library.value_and_grad(self.fun)

    @property
    def hessp(self) -> Callable[[Array, Array], Array] | None:
        """Product with the Hessian, if the array library differentiates ``fun``.

        Returns
        -------
        callable or None
            A function ``hessp(x, v)``, or ``None`` if the library has no ``hessian_product``.
        """
        if not hasattr(self._library, "hessian_product"):
            return None
        product = self._library.hessian_product(self.fun)
        return lift(lambda x, v: product(x, v, *self.args), "hessp(x, v)")

    def part(self, fun: Callable[..., Any]) -> Problem:
        """Return the problem of a part of the objective, such as one batch.

        Parameters
        ----------
        fun : callable
            The part: ``fun(x, *args)``, which returns ``(value, gradient)``.

        Returns
        -------
        Problem
            With the same further arguments, and a count of its own.
        """
        return Problem(fun, self.args, structured=self.structured)

    def at(self, x: Array) -> Point:
        """Evaluate the objective and read value and gradient norm as numbers.

        Parameters
        ----------
        x : Array
            The point.

        Returns
        -------
        Point
            With the fields ``x``, ``value``, ``gradient`` and ``gradient_norm`` (the max norm), and
            the property ``finite``.

        Notes
        -----
        One evaluation. On distributed vectors it is one request per server, which computes `x` and
        the gradient as well.
        """
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
