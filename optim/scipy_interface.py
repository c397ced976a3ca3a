"""SciPy's `minimize`: objectives, options, callbacks and results in the terms of the solvers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import isabstract
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from optim.core.arrays import Array
from optim.core.checkpoints.policy import Place
from optim.core.result import Result, State
from optim.core.run import Callback, Progress
from optim.core.solver import Solver
from optim.core.trees import Structure, Tree, as_start, as_tree, as_user_structure, is_structure
from optim.gradient.conjugate_gradient import ConjugateGradient
from optim.gradient.gradient_descent import GradientDescent
from optim.gradient.spectral_projected_gradient import SpectralProjectedGradient
from optim.newton.truncated_newton import TruncatedNewton
from optim.objectives import DIFFERENCES, differences
from optim.proximal.admm import ADMM
from optim.proximal.projections import Box
from optim.proximal.proximal_gradient import ProximalGradient
from optim.quasi_newton.lbfgs import LBFGS
from optim.quasi_newton.lbfgsb import LBFGSB, Bounds, box_like
from optim.quasi_newton.owlqn import OWLQN
from optim.quasi_newton.projected_quasi_newton import ProjectedQuasiNewton
from optim.stochastic.ftrl import FTRL
from optim.stochastic.minibatches import is_sampled
from optim.stochastic.sgd import SGD, AdaDelta, AdaGrad, Adam, AdamW, RMSProp
from optim.stochastic.variance_reduced import SAG, SVRG

# Our names of SciPy's options; all others are the same or unknown.
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
# SciPy's methods that optim lacks, with the nearest ones that it has.
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
    box     all differences are taken inside
    calls   of fun so far
    """

    def __init__(
        self, fun: Callable[..., Any], jac: Any, args: tuple[Any, ...], box: Box | None, eps: Any
    ) -> None:
        self.fun, self.jac, self.args, self.box, self.eps = fun, jac, args, box, eps
        self.calls = 0

    def recount(self, calls: int) -> None:
        """Continue counting from there, as a resumed run does."""
        self.calls = calls

    def __call__(self, x: Any) -> Any:
        given = copy_arrays(x)  # SciPy's users may write to x.
        returned = self._call(given)
        if callable(self.jac):
            # The same array as `fun` had, so that a cache by identity finds it.
            gradient = self.jac(given if _equal(given, x) else copy_arrays(x), *self.args)
        elif self.jac is True or (self.jac is None and isinstance(returned, (tuple, list))):
            if not isinstance(returned, (tuple, list)) or len(returned) != 2:
                return returned  # The problem checks it and raises an error.
            returned, gradient = returned
        else:
            gradient = self._differences(x, _number(returned))
        return _number(returned), _vectors(gradient, x)

    def _call(self, x: Any) -> Any:
        self.calls += 1
        return self.fun(x, *self.args)

    def _differences(self, x: Any, value: Any) -> Any:
        """Array by array of a structure; a single array is a structure of one."""
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
                "hess: not available if x is a dict, tuple or list of arrays; give products with "
                "it, hessp=lambda x, v: ..., in the structure of x"
            )
        hessian = hess(x, *args)
        # The matrix may be of any kind: sparse, or a scipy.sparse.linalg.LinearOperator.
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
    except ValueError:  # Some built-in functions have no signature.
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


METHODS: dict[str, type[Solver]] = {
    "L-BFGS": LBFGS,
    "L-BFGS-B": LBFGSB,
    "CG": ConjugateGradient,
    "trust-ncg": TruncatedNewton,
    "OWL-QN": OWLQN,
    "SGD": SGD,
    "AdaGrad": AdaGrad,
    "AdaDelta": AdaDelta,
    "RMSProp": RMSProp,
    "Adam": Adam,
    "AdamW": AdamW,
    "FTRL": FTRL,
    "SAG": SAG,
    "SVRG": SVRG,
    "gradient-descent": GradientDescent,
    "SPG": SpectralProjectedGradient,
    "PQN": ProjectedQuasiNewton,
    "proximal-gradient": ProximalGradient,
    "ADMM": ADMM,
}


def minimize(
    fun: Callable[..., Any],
    x0: Array,
    args: Sequence[Any] = (),
    method: str | None = None,
    jac: bool | str | Callable[..., Array] | None = None,
    hess: Callable[..., Any] | None = None,
    hessp: Callable[..., Array] | None = None,
    bounds: Bounds | None = None,
    constraints: Sequence[Any] = (),
    tol: float | None = None,
    callback: Callback | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    progress: Progress = False,
    checkpoint: Place = None,
    every: int = 20,
    resume: bool = False,
) -> Result:
    """Minimise a function; the arguments are as in ``scipy.optimize.minimize``.

    Parameters
    ----------
    fun : callable
        Objective ``fun(x, *args)``, which returns ``(value, gradient)``, or the value alone; see
        `jac`.
    x0 : Array or structure of arrays
        Start, of any shape, which x and the gradient have as well. With a dict, tuple or list of
        arrays, such as ``{"w": np.zeros(3), "V": table}``, ``fun`` gets x and returns the gradient
        in this structure.
    args : sequence, default ()
        Further arguments of ``fun``, ``jac``, ``hess`` and ``hessp``.
    method : str, optional
        For instance "L-BFGS", "CG", "trust-ncg", "OWL-QN" or "SGD"; an unknown name raises an error
        that lists all. Default: "L-BFGS-B" if there are bounds, otherwise "L-BFGS".
    jac : bool, callable or str, optional
        True: ``fun`` returns ``(value, gradient)``. A function ``jac(x, *args)``: it returns the
        gradient. For NumPy arrays also "2-point", "3-point" or "cs": finite differences of values;
        by default "2-point" if ``fun`` returns a number. If the array library differentiates, as
        ``distvec`` does, ``fun`` may return the value alone.
    hess : callable, optional
        For "trust-ncg": ``hess(x, *args)`` returns the Hessian; of shape ``x.shape + x.shape`` if x
        is a table.
    hessp : callable, optional
        For "trust-ncg": ``hessp(x, v, *args)`` returns the Hessian at x times v.
    bounds : Box, scipy.optimize.Bounds, sequence of pairs or structure, optional
        For "L-BFGS-B": one pair ``(lower, upper)`` for each element of x, or a `Box`. If x is a
        structure of arrays: such bounds for each array, in the same structure.
    constraints : sequence, default ()
        Not supported: must be empty. For convex sets use method "SPG" or "PQN".
    tol : float, optional
        The same as ``options={"gradient_tolerance": tol}``; the option wins if both are given.
    callback : callable, optional
        Called after each iteration as ``callback(intermediate_result=OptimizeResult)`` or
        ``callback(state)`` if its parameter has that name, otherwise as ``callback(x)``. It stops
        the run by returning True or by raising ``StopIteration``.
    options : dict, optional
        Parameters of the method's class, such as `LBFGS`. SciPy's names ``maxiter``, ``maxfun``,
        ``maxfev``, ``maxcor``, ``gtol``, ``ftol`` and ``xtol`` are understood. Penalties are
        options: ``method="OWL-QN", options={"l1": 0.1}``. ``disp`` prints how the run ended;
        ``eps`` is the step of finite differences.
    progress : bool or callable, default False
        True shows a tqdm bar with value and gradient norm. A function is called with each state.
    checkpoint : str, os.PathLike or False, optional
        Directory for checkpoints, as for `Solver.minimize`.
    every : int, default 20
        Number of iterations between checkpoints.
    resume : bool, default False
        True: resume from the newest checkpoint, or begin at `x0` if there is no checkpoint.

    Returns
    -------
    Result
        SciPy's ``OptimizeResult``, with ``outcome``, ``history`` and ``plot()``.

    Raises
    ------
    ValueError
        If the method, an option or `jac` is unknown; the text lists the allowed ones.
    NotImplementedError
        If the method does not use an argument, such as `bounds`; the text names a method that does.

    See Also
    --------
    Solver.minimize : The same for a solver object.

    Notes
    -----
    With finite differences ``nfev`` counts all calls of ``fun``, and ``max_evaluations`` limits
    only the evaluations of a value with its gradient. "2-point" and "cs" take n calls for a
    gradient of n elements, "3-point" 2 n.

    Examples
    --------
    >>> fun = lambda x: float((x - 1) @ (x - 1))
    >>> result = optim.minimize(fun, np.zeros(2), bounds=[(0, 0.5), (None, None)])
    >>> np.round(result.x, 4), result.success
    (array([0.5, 1. ]), True)
    """
    if method is None:
        method = "L-BFGS" if bounds is None else "L-BFGS-B"
    cls = solver_class(method)
    rest = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if callable(hess) and hessp is None and "hessp" in _fields(cls):
        hessp = hessian_products(hess)
        hess = None
    _refuse(cls, method, hess=hess, hessp=hessp, bounds=bounds, constraints=constraints)
    given: dict[str, Any] = {} if tol is None else {"gradient_tolerance": tol}
    if bounds is not None:
        given["bounds"] = bounds
    if hessp is not None:
        given["hessp"] = lambda x, v: hessp(x, v, *rest)
    wanted = own_options(options or {}, _fields(cls))
    disp, eps = wanted.pop("disp", False), wanted.pop("eps", None)
    _check_options(cls, method, wanted)
    solver = cls(**{**given, **wanted})
    objective, x0, own_jac = _objective(fun, x0, jac, rest, solver, eps)
    result = solver.minimize(
        objective,
        x0,
        args=() if isinstance(objective, NumPyObjective) else rest,
        jac=own_jac,
        callback=adapted_callback(callback),
        progress=progress,
        checkpoint=checkpoint,
        every=every,
        resume=resume,
    )
    if isinstance(objective, NumPyObjective):
        result["nfev"] = objective.calls
    if disp:
        summary = f"{result.message} f = {result.fun}, {result.nit} iterations, {result.nfev} calls"
        sys.stdout.write(f"{summary}\n")
    return result


def _objective(
    fun: Callable[..., Any], x0: Any, jac: Any, args: tuple[Any, ...], solver: Solver, eps: Any
) -> tuple[Callable[..., Any], Any, Any]:
    """fun, x0 and jac for the solver; on NumPy arrays all that SciPy allows."""
    if isinstance(jac, str) and jac not in DIFFERENCES:
        raise ValueError(f"jac={jac!r}: must be True, callable, or one of {', '.join(DIFFERENCES)}")
    if not callable(fun) or is_sampled(fun):
        return fun, x0, True if jac is None else jac
    if _is_local(x0):
        x = as_start(x0 if is_structure(x0) else np.atleast_1d(np.asarray(x0)))
        bounds = getattr(solver, "bounds", None)
        box = None if bounds is None else box_like(bounds, x)
        objective = NumPyObjective(fun, False if jac is False else jac, args, box, eps)
        return objective, as_user_structure(x), True
    if jac is None or jac is False:
        jac = True
    if isinstance(jac, str):
        raise ValueError(
            f"jac={jac!r}: finite differences are for NumPy arrays only, because each one costs a "
            "pass over the data; return (value, gradient) from fun, give jac=..., or minimise "
            "on x0.numpy()"
        )
    return fun, x0, jac


def _is_local(x0: Any) -> bool:
    """Whether `x0` is NumPy arrays, or numbers to make them of."""
    if is_structure(x0):
        return all(map(_is_local, as_tree(x0).leaves))
    other = hasattr(x0, "__array_namespace__") and not isinstance(x0, (np.ndarray, np.generic))
    return not (other or hasattr(x0, "detach"))


def exported_solvers() -> dict[str, type[Solver]]:
    """The solvers that ``optim`` has, by the names of their classes."""
    found = vars(
        sys.modules["optim"]
    ).values()  # `optim` imports this module, so it cannot be imported here.
    kinds = (one for one in found if isinstance(one, type) and issubclass(one, Solver))
    return {kind.__name__: kind for kind in kinds if not isabstract(kind)}


def solver_class(method: str) -> type[Solver]:
    """The solver of SciPy's name, or of its class's; ValueError for any other."""
    wanted = _plain(method) if isinstance(method, str) else method
    known = {_plain(name): cls for name, cls in (exported_solvers() | METHODS).items()}
    if wanted not in known:
        near = {_plain(name): other for name, other in NEAREST.items()}
        hint = f"; the nearest is {near[wanted]}" if wanted in near else ""
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}{hint}")
    return known[wanted]


def _refuse(cls: type[Solver], method: str, **given: Any) -> None:
    """Arguments of SciPy's that the method has no use for."""
    for name, value in given.items():
        absent = value is None or (isinstance(value, (tuple, list)) and not value)
        if absent or name in _fields(cls):
            continue
        methods = [known for known, other in METHODS.items() if name in _fields(other)]
        instead = f"use method {' or '.join(methods)}" if methods else f"leave {name} out"
        if name == "hess":
            instead = "give products with it, hessp=lambda x, v: hess(x) @ v, to method trust-ncg"
        raise NotImplementedError(
            f"minimize({name}=...) is not available with method {method}; {instead}"
        )


def _check_options(cls: type[Solver], method: str, options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _fields(cls):
            allowed = ", ".join([*_fields(cls), "disp", "eps"])
            raise ValueError(f"unknown option {name!r} for {method}; allowed are {allowed}")


def _fields(cls: type[Solver]) -> list[str]:
    return [field.name for field in fields(cls)]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
