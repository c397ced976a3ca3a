"""What SciPy's users write, in the terms of the solvers: objectives, options, callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from optim.core.arrays import Array
from optim.core.result import State
from optim.core.run import Callback
from optim.core.trees import Structure, Tree, is_structure
from optim.objectives.derivatives import differences
from optim.proximal.projections import Box

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
    """`fun` and `jac` as SciPy allows them, for NumPy arrays or structures of such.

    Returns (value, gradient).

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

    def recount(self, calls: int) -> None:
        """Go on counting from there, as a run that was resumed."""
        self.calls = calls

    def __call__(self, x: Any) -> Any:
        given = copy_arrays(x)  # SciPy's users may write to it
        returned = self._call(given)
        if callable(self.jac):
            # The same array as `fun` had, so that what caches by it finds it.
            gradient = self.jac(given if _equal(given, x) else copy_arrays(x), *self.args)
        elif self.jac is True or (self.jac is None and isinstance(returned, (tuple, list))):
            if not isinstance(returned, (tuple, list)) or len(returned) != 2:
                return returned  # refused where it is checked
            returned, gradient = returned
        else:
            gradient = self._differences(x, _number(returned))
        return _number(returned), _vectors(gradient, x)

    def _call(self, x: Any) -> Any:
        self.calls += 1
        return self.fun(x, *self.args)

    def _differences(self, x: Any, value: Any) -> Any:
        """Array by array of a structure, which one array is as well, with nothing around it."""
        structure = Structure.of(x)
        leaves = list(structure.arrays(x, "x"))
        steps = list(structure.arrays(self.eps, "eps", numbers=True))
        found = []
        for number, leaf in enumerate(leaves):

            def fun(moved: Array, number: int = number) -> Any:
                given = [moved if k == number else own.copy() for k, own in enumerate(leaves)]
                return _number(self._call(structure.arranged(iter(given))))

            room = None if self.box is None else _leaf_of(self.box, number)
            found.append(differences(fun, leaf, value, self.jac or "2-point", room, steps[number]))
        return structure.arranged(iter(found))


def _leaf_of(box: Box, number: int) -> tuple[Any, Any]:
    """The bounds of one array of the parameters."""
    ends = (box.lower, box.upper)
    lower, upper = (end.leaves[number] if isinstance(end, Tree) else end for end in ends)
    return lower, upper


def hessian_products(hess: Callable[..., Any]) -> Callable[..., Array]:
    """Products with the Hessian, for a function that returns all of it."""

    def product(x: Array, v: Array, *args: Any) -> Array:
        if is_structure(x):
            raise TypeError(
                "hess: parameters in several arrays have no matrix of second derivatives here; "
                "give products with it, hessp=lambda x, v: ..., arranged as x"
            )
        hessian = hess(x, *args)
        # A matrix beside a vector, of any kind: sparse, or scipy.sparse.linalg.LinearOperator.
        return hessian @ v if v.ndim == 1 else np.tensordot(hessian, v, v.ndim)

    return product


def _number(value: Any) -> Any:
    """An array of one element as its element."""
    return value.reshape(())[()] if isinstance(value, np.ndarray) and value.size == 1 else value


def _vectors(gradient: Any, x: Any) -> Any:
    """Lists and numbers as arrays."""
    if not is_structure(x):
        return _vector(gradient, x)
    structure = Structure.of(x)
    pairs = zip(structure.arrays(gradient, "gradient"), structure.arrays(x, "x"), strict=True)
    return structure.arranged(_vector(own, leaf) for own, leaf in pairs)


def _vector(gradient: Any, x: Array) -> Any:
    if isinstance(gradient, (list, tuple, int, float)):
        gradient = np.asarray(gradient, dtype=x.dtype)
    whole = getattr(gradient, "shape", None) == ()
    return gradient.reshape((1,) * x.ndim) if whole else gradient


def _equal(x: Any, y: Any) -> bool:
    """Whether all elements of two structures of NumPy arrays are the same."""
    structure = Structure.of(y)
    return all(map(np.array_equal, structure.arrays(x, "x"), structure.arrays(y, "x")))


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
            return callback(copy_arrays(state.x))
        result = OptimizeResult()
        result.update(
            x=copy_arrays(state.x), fun=state.value, jac=state.gradient, nit=state.iteration
        )
        return callback(intermediate_result=result)  # type: ignore[call-arg]

    return adapted


def copy_arrays(x: Any) -> Any:
    """A structure with copies of its NumPy arrays."""
    structure = Structure.of(x)
    return structure.arranged(
        leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in structure.arrays(x, "x")
    )


def own_options(options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """With our names instead of SciPy's; one that is given twice is refused."""
    translated: dict[str, Any] = {}
    for name, value in options.items():
        own = name if name in known else OPTIONS.get(name, name)
        if own in translated:
            raise ValueError(f"options: {own} is given twice, also as {name!r}; leave one out")
        translated[own] = value
    return translated
