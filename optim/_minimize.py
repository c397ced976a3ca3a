"""SciPy's `minimize`, as far as it makes sense here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from scipy.optimize import OptimizeResult

from ._arrays import Array
from ._driver import Callback, Progress
from ._lbfgs import LBFGS
from ._owlqn import OWLQN
from ._sgd import SGD
from ._solver import Solver
from ._state import State

METHODS: dict[str, type[Solver]] = {"L-BFGS": LBFGS, "OWL-QN": OWLQN, "SGD": SGD}

# What SciPy calls the options of its L-BFGS-B, to tell a user what to type.
_NAMES_IN_SCIPY = {
    "maxiter": "max_iterations",
    "maxfun": "max_evaluations",
    "maxcor": "history",
    "gtol": "gradient_tolerance",
    "ftol": "value_tolerance",
    "disp": "progress (an argument of minimize)",
}


def minimize(
    fun: Callable[..., Any],
    x0: Array,
    args: Sequence[Any] = (),
    method: str = "L-BFGS",
    jac: bool | Callable[..., Array] = True,
    tol: float | None = None,
    callback: Callback | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    progress: Progress = False,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
) -> OptimizeResult:
    """Minimise `fun(x, *args)` from `x0`.

    method      "L-BFGS", "OWL-QN" (penalty in options={"l1": ...}) or "SGD"
    jac         True: fun returns (value, gradient); or a callable jac(x, *args)
    tol         the same as options={"gradient_tolerance": tol}, which wins if both are given
    callback    as callback(state), or as callback(intermediate_result=OptimizeResult) if its
                parameter has that name; True or StopIteration stops the run
    options     parameters of the solver's class: LBFGS, OWLQN or SGD
    progress    True for a progress bar, or a callable(state)
    """
    _refuse(hess=hess, hessp=hessp, bounds=bounds, constraints=constraints)
    solver = _solver(method, tol, options or {})
    return solver.minimize(
        fun, x0, args=args, jac=jac, callback=_adapted(callback), progress=progress
    )


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not (isinstance(value, (tuple, list)) and not value):
            what = "no second derivatives" if name.startswith("hess") else "unconstrained problems"
            raise NotImplementedError(
                f"minimize({name}=...) is not available: the methods here use {what} only; "
                f"leave {name} out and choose a method of {', '.join(METHODS)}"
            )


def _solver(method: str, tol: float | None, options: Mapping[str, Any]) -> Solver:
    wanted = _plain(method) if isinstance(method, str) else method
    known = {_plain(name): cls for name, cls in METHODS.items()}
    if wanted not in known:
        hint = " (without bounds, use L-BFGS)" if wanted == "lbfgsb" else ""
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}{hint}")
    cls = known[wanted]
    allowed = [field.name for field in fields(cls)]
    for name in options:
        if name not in allowed:
            hint = f"; {name} is called {_NAMES_IN_SCIPY[name]}" if name in _NAMES_IN_SCIPY else ""
            raise ValueError(
                f"unknown option {name!r} for {method}{hint}; allowed are {', '.join(allowed)}"
            )
    tolerance = {} if tol is None else {"gradient_tolerance": tol}
    return cls(**{**tolerance, **options})


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _adapted(callback: Callback | None) -> Callback | None:
    """SciPy's callbacks with a parameter named intermediate_result get what they expect."""
    if callback is None or "intermediate_result" not in inspect.signature(callback).parameters:
        return callback

    def adapted(state: State) -> Any:
        result = OptimizeResult()
        result.update(x=state.x, fun=state.value, jac=state.gradient, nit=state.iteration)
        return callback(intermediate_result=result)  # type: ignore[call-arg]

    return adapted
