"""SciPy's `minimize`, as far as it makes sense here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from scipy.optimize import OptimizeResult

from ._adadelta import AdaDelta
from ._adagrad import AdaGrad
from ._adam import Adam, AdamW
from ._admm import ADMM
from ._arrays import Array
from ._conjugate_gradient import ConjugateGradient
from ._driver import Callback, Progress
from ._ftrl import FTRL
from ._gradient_descent import GradientDescent
from ._lbfgs import LBFGS
from ._lbfgsb import LBFGSB
from ._owlqn import OWLQN
from ._projected_quasi_newton import ProjectedQuasiNewton
from ._proximal_gradient import ProximalGradient
from ._rmsprop import RMSProp
from ._sag import SAG
from ._sgd import SGD
from ._solver import Solver
from ._spectral_projected_gradient import SpectralProjectedGradient
from ._state import State
from ._svrg import SVRG
from ._truncated_newton import TruncatedNewton

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
    method: str | None = None,
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

    method      such as "L-BFGS", "CG", "trust-ncg", "OWL-QN", "SGD"; an unknown one raises an error
                that lists all. None: "L-BFGS-B" if there are bounds, else "L-BFGS". Penalties are
                options, for instance method="OWL-QN", options={"l1": 0.1}
    jac         True: fun returns (value, gradient); or a callable jac(x, *args)
    tol         the same as options={"gradient_tolerance": tol}, which wins if both are given
    callback    as callback(state), or as callback(intermediate_result=OptimizeResult) if its
                parameter has that name; True or StopIteration stops the run
    options     parameters of the method's class, such as LBFGS
    progress    True for a progress bar, or a callable(state)
    hessp       for "trust-ncg": hessp(x, v, *args), the Hessian at x times v
    bounds      for "L-BFGS-B": a pair (lower, upper) for each element of x, or what its class takes
    """
    if method is None:
        method = "L-BFGS" if bounds is None else "L-BFGS-B"
    cls = _solver_class(method)
    _refuse(cls, method, hess=hess, hessp=hessp, bounds=bounds, constraints=constraints)
    given: dict[str, Any] = {} if tol is None else {"gradient_tolerance": tol}
    if bounds is not None:
        given["bounds"] = bounds
    if hessp is not None:
        rest = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        given["hessp"] = lambda x, v: hessp(x, v, *rest)
    _check_options(cls, method, options or {})
    solver = cls(**{**given, **(options or {})})
    return solver.minimize(
        fun, x0, args=args, jac=jac, callback=_adapted(callback), progress=progress
    )


def _solver_class(method: str) -> type[Solver]:
    wanted = _plain(method) if isinstance(method, str) else method
    known = {_plain(name): cls for name, cls in METHODS.items()}
    if wanted not in known:
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}")
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
            hint = f"; {name} is called {_NAMES_IN_SCIPY[name]}" if name in _NAMES_IN_SCIPY else ""
            allowed = ", ".join(_fields(cls))
            raise ValueError(f"unknown option {name!r} for {method}{hint}; allowed are {allowed}")


def _fields(cls: type[Solver]) -> list[str]:
    return [field.name for field in fields(cls)]


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
