"""Objectives: penalties, a memory and a counter of calls, derivatives by finite differences."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from optim.core.arrays import (
    Array,
    Scalar,
    Weights,
    fetch,
    machine_epsilon,
    max_norm,
    namespace,
    quiet,
    size,
    vdot,
)
from optim.core.problem import Problem
from optim.core.progress import rounding_of
from optim.core.trees import (
    array_of,
    as_start,
    as_tree,
    as_user_structure,
    coordinate,
    is_structure,
    like,
    named_leaves,
)
from optim.quasi_newton.owlqn import L1

Objective: TypeAlias = Callable[..., tuple[Scalar, Array]]


def with_l2(fun: Objective, weight: Weights) -> Objective:
    """Add ``sum(weight * x^2) / 2`` and its gradient to an objective.

    Parameters
    ----------
    fun : callable
        Objective ``fun(x, *args)``, which returns ``(value, gradient)``.
    weight : float, Array or structure
        A number >= 0, or one for each element of x in an array: 0 for an intercept. If x is a
        structure of arrays, each may have its own weight: ``{"w": 1.0, "V": 0.1}``.

    Returns
    -------
    callable
        The penalised objective, with the same arguments as `fun`.

    See Also
    --------
    SquaredL2Norm : The same penalty by its proximal operator.

    Examples
    --------
    >>> fun = optim.with_l2(lambda x: (float(x.sum()), np.ones(2)), 2.0)
    >>> value, gradient = fun(np.array([3.0, 4.0]))
    >>> float(value), gradient
    (32.0, array([7., 9.]))
    """
    weights = _weights("with_l2", weight)

    def penalised(x: Array, *args: Any) -> tuple[Scalar, Array]:
        value, gradient = fun(x, *args)
        whole = as_tree(x)
        slope = weights * whole
        return value + 0.5 * vdot(slope, whole), as_user_structure(as_tree(gradient) + slope)

    return penalised


def with_l1(fun: Objective, weight: Weights) -> Objective:
    """Add ``sum(weight * |x|)`` and its subgradient of least norm to an objective.

    Use it for subgradient methods and to evaluate a result. Solvers for smooth objectives do not
    see the kinks: ``OWLQN(l1=weight)`` takes the objective without the penalty.

    Parameters
    ----------
    fun : callable
        Objective ``fun(x, *args)``, which returns ``(value, gradient)``.
    weight : float, Array or structure
        A number >= 0, or one for each element of x in an array: 0 for an intercept. If x is a
        structure of arrays, each may have its own weight: ``{"w": 1.0, "V": 0.1}``.

    Returns
    -------
    callable
        The penalised objective, with the same arguments as `fun`.

    See Also
    --------
    L1Norm : The same penalty by its proximal operator.

    Examples
    --------
    >>> fun = optim.with_l1(lambda x: (float(x.sum()), np.ones(2)), 2.0)
    >>> value, gradient = fun(np.array([3.0, 0.0]))
    >>> float(value), gradient
    (9.0, array([3., 0.]))
    """
    penalty = L1(_weights("with_l1", weight), free=False)

    def penalised(x: Array, *args: Any) -> tuple[Scalar, Array]:
        value, gradient = fun(x, *args)
        whole = as_tree(x)
        penalised_gradient = penalty.pseudo_gradient(whole, as_tree(gradient))
        return value + penalty.value(whole), as_user_structure(penalised_gradient)

    return penalised


def _weights(name: str, weight: Any) -> Any:
    """A number, an array or a tree of them, checked."""
    weights = as_tree(weight)
    for place, own in named_leaves(weights):
        if isinstance(own, (int, float)):
            if not own >= 0.0:
                raise ValueError(f"{name}(weight{place}={own!r}): must be 0 or more")
        elif not hasattr(own, "dtype"):
            raise TypeError(
                f"{name}: weight{place} must be a number or an array like x{place}, got "
                f"{type(own).__name__}; give for instance numpy.asarray(weight{place})"
            )
    return weights


class Cached:
    """An objective that is called once for calls in a row with the same array object.

    Use it if a caller asks for value and gradient separately.

    Parameters
    ----------
    fun : callable
        Objective ``fun(x, *args)``, which returns ``(value, gradient)``.

    Attributes
    ----------
    hits : int
        Number of calls of ``fun`` that were saved.

    Notes
    -----
    Arrays are compared by identity, not by value, so x must not be written to between the calls.

    Examples
    --------
    >>> cached = optim.Cached(lambda x: (float(x @ x), 2 * x))
    >>> x = np.array([3.0, 4.0])
    >>> cached.value(x), cached.gradient(x), cached.hits
    (25.0, array([6., 8.]), 1)
    """

    def __init__(self, fun: Objective) -> None:
        self.hits = 0
        self._fun = fun
        self._given: tuple[Any, ...] = ()
        self._returned: Any = None

    def __call__(self, x: Array, *args: Any) -> tuple[Scalar, Array]:
        """Return (value, gradient) at `x`."""
        given = (x, *args)
        if len(given) == len(self._given) and all(map(_same, given, self._given)):
            self.hits += 1
        else:
            self._returned = self._fun(*given)
            self._given = given
        value, gradient = self._returned
        return value, gradient

    def value(self, x: Array, *args: Any) -> Scalar:
        """Return the value alone.

        Parameters
        ----------
        x : Array
            The point.
        *args : object
            Further arguments of ``fun``.

        Returns
        -------
        Scalar
            The value.
        """
        return self(x, *args)[0]

    def gradient(self, x: Array, *args: Any) -> Array:
        """Return the gradient alone.

        Parameters
        ----------
        x : Array
            The point.
        *args : object
            Further arguments of ``fun``.

        Returns
        -------
        Array
            The gradient.
        """
        return self(x, *args)[1]


def _same(new: Any, old: Any) -> bool:
    """Whether two arguments are the same object, or structures of the same arrays."""
    if new is old or not is_structure(new) or not is_structure(old):
        return new is old
    new, old = as_tree(new), as_tree(old)
    return new.structure == old.structure and all(map(operator.is_, new.leaves, old.leaves))


class Counted:
    """A function that counts its calls.

    Parameters
    ----------
    fun : callable
        The function.

    Attributes
    ----------
    calls : int
        Number of calls so far.

    Examples
    --------
    >>> fun = optim.Counted(lambda x: (float(x @ x), 2 * x))
    >>> optim.LBFGS().minimize(fun, [3.0, 4.0]).nfev == fun.calls
    True
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.calls = 0
        self._fun = fun

    def __call__(self, *args: Any) -> Any:
        """Call ``fun`` and return its result."""
        self.calls += 1
        return self._fun(*args)


def hessian_product(
    fun: Callable[..., Any],
    x: Array,
    *,
    args: Sequence[Any] = (),
    jac: bool | Callable[..., Array] = True,
) -> Callable[[Array], Array]:
    """Make a function that multiplies vectors with the Hessian, by differences of gradients.

    Parameters
    ----------
    fun : callable
        Objective ``fun(x, *args)``, which returns ``(value, gradient)``.
    x : Array or structure of arrays
        The point.
    args : sequence, default ()
        Further arguments of ``fun`` and ``jac``.
    jac : bool or callable, default True
        True: ``fun`` returns the gradient. Otherwise a function ``jac(x, *args)`` that returns it;
        ``fun`` then returns the value alone.

    Returns
    -------
    callable
        A function of v that returns the Hessian at `x` times v.

    Notes
    -----
    One evaluation now, and one for each product. A product has about half of the digits of the
    gradients.

    Examples
    --------
    >>> product = optim.hessian_product(lambda x: (float(x @ x), 2 * x), np.array([3.0, 4.0]))
    >>> np.round(product(np.array([1.0, 0.0])), 4)
    array([2., 0.])
    """
    problem = Problem(fun, args, jac, structured=is_structure(x))
    x = as_start(x)
    product = difference_hessian(problem.gradient, x, problem.gradient(x))
    return lambda v: (
        as_user_structure(product(like(v, x, "v"))) if problem.structured else product(v)
    )


def difference_hessian(
    gradient: Callable[[Array], Array], x: Array, at_x: Array
) -> Callable[[Array], Array]:
    """v -> the Hessian at `x` times v, by forward differences of `gradient`, which is `at_x` at x.

    The step along v has the 2-norm sqrt(machine epsilon) * (1 + |x|), which balances the rounding
    of the gradients against the Hessian's change; about half of the digits are good.
    """
    xp = namespace(x)
    length = math.sqrt(machine_epsilon(x)) * (1.0 + xp.sqrt(vdot(x, x)))

    def product(v: Array) -> Array:
        step = length / xp.sqrt(vdot(v, v))
        return (gradient(x + step * v) - at_x) / step

    return product


Index: TypeAlias = tuple[int, ...]

DIFFERENCES = ("2-point", "3-point", "cs")


def differences(
    fun: Callable[[Array], Any],
    x: Array,
    value: Any,
    kind: str,
    bounds: tuple[Any, Any] | None,
    eps: Any,
) -> Array:
    """The partial derivatives of `fun` at `x`, given its `value` there; n calls, "3-point" 2 n.

    bounds      of x, each a number or an array like x: all evaluations are inside
    eps         the step, a number or an array like x; None: by the precision and the size of x
    """
    power = {"2-point": 1.0 / 2.0, "3-point": 1.0 / 3.0, "cs": 1.0 / 2.0}[kind]
    steps = np.finfo(x.dtype).eps ** power * np.maximum(np.abs(x), 1.0)
    if eps is not None:
        steps = np.broadcast_to(np.asarray(eps, x.dtype), x.shape)
    room = None if bounds is None else [np.broadcast_to(bound, x.shape) for bound in bounds]
    slopes = [_derivative(fun, kind, x, value, i, steps[i], room) for i in np.ndindex(x.shape)]
    return np.reshape(slopes, x.shape)


def _derivative(
    fun: Callable[[Array], Any],
    kind: str,
    x: Array,
    value: Any,
    i: Index,
    step: float,
    bounds: list[Array] | None,
) -> Any:
    def at(change: complex) -> Any:
        moved = x.astype(complex) if kind == "cs" else x.copy()
        moved[i] += change
        return fun(moved)

    if kind == "cs":
        return at(1j * step).imag / step
    below, above = (np.inf, np.inf) if bounds is None else _room(x, i, *bounds)
    if kind == "3-point" and min(below, above) >= step:
        return (at(step) - at(-step)) / (2.0 * step)
    step = step if above >= min(step, below) else -step
    step = np.sign(step) * min(abs(step), above if step > 0.0 else below) or abs(step)
    step = (x[i] + step) - x[i]  # The step that x takes after rounding.
    return (at(step) - value) / step


def _room(x: Array, i: Index, lower: Array, upper: Array) -> tuple[float, float]:
    return float(x[i] - lower[i]), float(upper[i] - x[i])


@dataclass(frozen=True)
class Derivative:
    """A directional derivative, computed twice; `allowed` is the error that they may differ by."""

    direction: str
    by_gradient: float
    by_differences: float
    allowed: float
    columns: ClassVar[str] = (
        f"{'direction':16}{'by gradient':>16}{'by differences':>16}{'allowed error':>16}"
    )

    def __str__(self) -> str:
        numbers = f"{self.by_gradient:16.8g}{self.by_differences:16.8g}{self.allowed:16.2g}"
        return f"{self.direction:16}{numbers}"

    @property
    def error(self) -> float:
        """The difference; inf if one is not a number."""
        error = abs(self.by_gradient - self.by_differences)
        return error if math.isfinite(error) else math.inf

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class GradientCheck:
    """The result of a gradient check: true if all derivatives agree; prints as a table.

    Parameters
    ----------
    derivatives : sequence of Derivative
        The directional derivatives, each by the gradient and by differences.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), np.array([2 * x[0], 3 * x[1]]))
    >>> check = optim.check_gradient(fun, np.ones(2), directions=0)
    >>> bool(check), check.worst.direction
    (False, 'x[1]')
    """

    derivatives: Sequence[Derivative]

    def __bool__(self) -> bool:
        return all(derivative.ok for derivative in self.derivatives)

    @property
    def worst(self) -> Derivative:
        """The derivative with the largest error, as a multiple of the allowed error.

        Returns
        -------
        Derivative
            With the fields ``direction``, ``by_gradient``, ``by_differences`` and ``allowed``.
        """
        return max(self.derivatives, key=lambda one: one.error / max(one.allowed, 1e-300))

    def __str__(self) -> str:
        wrong = [one for one in self.derivatives if not one.ok]
        heading = f"{len(wrong)} of {len(self.derivatives)} derivatives differ"
        if not wrong:
            return f"{heading}; the largest error is {self.worst.error:.3g}, {self.worst.direction}"
        return "\n".join((heading, wrong[0].columns, *map(str, wrong)))


def check_gradient(
    fun: Callable[..., Any],
    x: Array,
    *,
    args: Sequence[Any] = (),
    jac: bool | Callable[..., Array] = True,
    coordinates: int = 20,
    directions: int = 5,
    rtol: float = 1e-5,
    seed: int = 0,
) -> GradientCheck:
    """Compare a gradient with central differences of the value.

    Parameters
    ----------
    fun : callable
        Objective ``fun(x, *args)``, which returns ``(value, gradient)``.
    x : Array or structure of arrays
        The point.
    args : sequence, default ()
        Further arguments of ``fun`` and ``jac``.
    jac : bool or callable, default True
        True: ``fun`` returns the gradient. Otherwise a function ``jac(x, *args)`` that returns it;
        ``fun`` then returns the value alone.
    coordinates : int, default 20
        Number of partial derivatives to check, drawn at random if x has more elements.
    directions : int, default 5
        Number of derivatives along random arrays of +1 and -1, which depend on all elements.
    rtol : float, default 1e-5
        Relative error that is allowed, beside the rounding of the differences.
    seed : int, default 0
        Seed of the random choices.

    Returns
    -------
    GradientCheck
        True if all derivatives agree; it prints the wrong ones.

    Notes
    -----
    Two evaluations for each derivative, and one for the gradient. On distributed vectors each
    derivative takes two requests per server, one of which sends a vector.

    Examples
    --------
    >>> assert optim.check_gradient(lambda x: (float(x @ x), 2 * x), np.ones(3))
    >>> print(optim.check_gradient(lambda x: (float(x @ x), 3 * x), np.ones(3), directions=0))
    3 of 3 derivatives differ
    direction            by gradient  by differences   allowed error
    x[0]                           3               2         3e-05
    x[1]                           3               2         3e-05
    x[2]                           3               2         3e-05
    """
    problem = Problem(fun, args, jac, structured=is_structure(x))
    x = as_start(x)
    rng = np.random.default_rng(seed)
    with quiet():
        value, gradient = problem(x)
        number, x_norm = fetch(value, max_norm(x), also=(gradient,))
        epsilon = machine_epsilon(x)
        step = epsilon ** (1.0 / 3.0) * max(x_norm, 1.0)
        noise = rounding_of(number, epsilon) / step
        found = []
        for name, values in _directions(x, coordinates, directions, rng):
            v = array_of(values, x)
            above, below = problem(x + step * v)[0], problem(x - step * v)[0]
            slope, high, low = fetch(vdot(gradient, v), above, below)
            difference = (high - low) / (2.0 * step)
            allowed = rtol * max(abs(slope), abs(difference)) + noise
            found.append(Derivative(name, slope, difference, allowed))
    return GradientCheck(tuple(found))


def _directions(
    x: Array, coordinates: int, directions: int, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Names and elements of the derivatives to check."""
    n = size(x)
    for i in np.sort(rng.choice(n, min(n, coordinates), replace=False)):
        unit = np.zeros(n)
        unit[i] = 1.0
        yield f"x{coordinate(x, i)}", unit
    for k in range(directions):
        yield f"random {k}", rng.choice([-1.0, 1.0], n)
