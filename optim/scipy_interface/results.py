"""What SciPy's users write, in the terms of the solvers: objectives, options, callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import OptimizeResult

from optim.core.arrays import Array
from optim.core.driver import Callback
from optim.core.state import State
from optim.proximal.projections import Box

Index: TypeAlias = tuple[int, ...]

DIFFERENCES = ("2-point", "3-point", "cs")

# SciPy's names of options, in ours; the rest are the same or unknown.
OPTIONS = {
    "maxiter": "max_iterations",
    "maxfun": "max_evaluations",
    "maxfev": "max_evaluations",
    "maxcor": "history",
    "gtol": "gradient_tolerance",
    "ftol": "value_tolerance",
    "xtol": "step_tolerance",
    "xrtol": "step_tolerance",
}

_BOUNDED = "L-BFGS-B for bounds, SPG or PQN with options={'projection': ...} for convex sets"
_NO_GRADIENT = "L-BFGS, or L-BFGS-B with bounds; without jac they take differences of values"
# SciPy's methods that are not here, and what comes next to them.
NEAREST = {
    "Nelder-Mead": _NO_GRADIENT,
    "Powell": _NO_GRADIENT,
    "COBYLA": _NO_GRADIENT,
    "COBYQA": _NO_GRADIENT,
    "BFGS": "L-BFGS",
    "Newton-CG": "trust-ncg",
    "TNC": "L-BFGS-B",
    "SLSQP": _BOUNDED,
    "trust-constr": _BOUNDED,
    "dogleg": "trust-ncg",
    "trust-krylov": "trust-ncg",
    "trust-exact": "trust-ncg",
}


class NumPyObjective:
    """`fun` and `jac` as SciPy allows them, for NumPy arrays: returns (value, gradient).

    jac     True: fun returns a pair; a callable; "2-point", "3-point" or "cs": by differences,
            which cost n, 2 n or n calls of fun; None: True if fun returns a pair, else "2-point"
    box     differences are taken inside
    calls   of fun so far
    """

    def __init__(
        self, fun: Callable[..., Any], jac: Any, args: tuple[Any, ...], box: Box | None, eps: Any
    ) -> None:
        self.fun, self.jac, self.args, self.box, self.eps = fun, jac, args, box, eps
        self.calls = 0

    def __call__(self, x: Array) -> Any:
        given = x.copy()  # SciPy's users may write to it
        returned = self._called(given)
        if callable(self.jac):
            # The same array as `fun` had, so that what caches by it finds it.
            gradient = self.jac(given if np.array_equal(given, x) else x.copy(), *self.args)
        elif self.jac is True or (self.jac is None and isinstance(returned, (tuple, list))):
            if not isinstance(returned, (tuple, list)) or len(returned) != 2:
                return returned  # refused where it is checked
            returned, gradient = returned
        else:
            gradient = self._differences(x, _number(returned))
        return _number(returned), _vector(gradient, x)

    def _called(self, x: Array) -> Any:
        self.calls += 1
        return self.fun(x, *self.args)

    def _differences(self, x: Array, value: Any) -> Array:
        kind = self.jac or "2-point"
        power = {"2-point": 1.0 / 2.0, "3-point": 1.0 / 3.0, "cs": 1.0 / 2.0}[kind]
        steps = np.finfo(x.dtype).eps ** power * np.maximum(np.abs(x), 1.0)
        if self.eps is not None:
            steps = np.broadcast_to(np.asarray(self.eps, x.dtype), x.shape)
        slopes = [self._derivative(kind, x, value, i, steps[i]) for i in np.ndindex(x.shape)]
        return np.reshape(slopes, x.shape)

    def _derivative(self, kind: str, x: Array, value: Any, i: Index, step: float) -> Any:
        def at(change: complex) -> Any:
            moved = x.astype(complex) if kind == "cs" else x.copy()
            moved[i] += change
            return _number(self._called(moved))

        if kind == "cs":
            return at(1j * step).imag / step
        below, above = (np.inf, np.inf) if self.box is None else self._room(x, i)
        if kind == "3-point" and min(below, above) >= step:
            return (at(step) - at(-step)) / (2.0 * step)
        step = step if above >= min(step, below) else -step
        step = np.sign(step) * min(abs(step), above if step > 0.0 else below) or abs(step)
        step = (x[i] + step) - x[i]  # as far as x really moves
        return (at(step) - value) / step

    def _room(self, x: Array, i: Index) -> tuple[float, float]:
        lower, upper = (
            np.broadcast_to(bound, x.shape)[i]
            for bound in (self.box.lower, self.box.upper)  # type: ignore[union-attr]
        )
        return float(x[i] - lower), float(upper - x[i])


def hessian_products(hess: Callable[..., Any]) -> Callable[..., Array]:
    """Products with the Hessian, for a function that returns all of it."""

    def product(x: Array, v: Array, *args: Any) -> Array:
        hessian = hess(x, *args)
        # A matrix beside a vector, of any kind: sparse, or scipy.sparse.linalg.LinearOperator.
        return hessian @ v if v.ndim == 1 else np.tensordot(hessian, v, v.ndim)

    return product


def _number(value: Any) -> Any:
    """An array of one element as its element."""
    return value.reshape(())[()] if isinstance(value, np.ndarray) and value.size == 1 else value


def _vector(gradient: Any, x: Array) -> Any:
    """Lists and numbers as arrays."""
    if isinstance(gradient, (list, tuple, int, float)):
        gradient = np.asarray(gradient, dtype=x.dtype)
    whole = getattr(gradient, "shape", None) == ()
    return gradient.reshape((1,) * x.ndim) if whole else gradient


def adapted_callback(callback: Callback | None) -> Callback | None:
    """By the name of the parameter: `intermediate_result`, as in SciPy; `state`; else x."""
    if callback is None:
        return None
    try:
        names = list(inspect.signature(callback).parameters)
    except ValueError:  # some built-in functions have none
        names = []
    if "state" in names:
        return callback

    def adapted(state: State) -> Any:
        if names != ["intermediate_result"]:
            return callback(_copied(state.x))
        result = OptimizeResult()
        result.update(x=_copied(state.x), fun=state.value, jac=state.gradient, nit=state.iteration)
        return callback(intermediate_result=result)  # type: ignore[call-arg]

    return adapted


def _copied(x: Array) -> Array:
    return x.copy() if isinstance(x, np.ndarray) else x


def own_options(options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """With our names instead of SciPy's; one that is given twice is refused."""
    translated: dict[str, Any] = {}
    for name, value in options.items():
        own = name if name in known else OPTIONS.get(name, name)
        if own in translated:
            raise ValueError(f"options: {own} is given twice, also as {name!r}; leave one out")
        translated[own] = value
    return translated
