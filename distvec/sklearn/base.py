"""The common part of the estimators: the parameter ``session``, rows, weights, and the solvers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import wraps
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, validate_data

from distvec.losses.loss import Loss
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats, Matrix, Rows
from distvec.objectives.local import Objective
from distvec.session import Session
from distvec.sklearn.coordinate_descent import minimize_by_coordinates, takes_coordinates
from distvec.sklearn.newton import MeanLoss, Minimum, minimize_by_newton, pays
from optim import Box, ElasticNet, Outcome, Result
from optim.scipy_interface import solver_class

Array = npt.NDArray[Any]
Product = Callable[[Array, Array], Array]

_SLIGHT = 1e-6
"""A gradient so small, relative to the value, is at the limit of rounding for some solvers."""


class Served:
    """Mixin, left of a class of scikit-learn: adds the parameter ``session``.

    Parameters, validation of parameters, tags and predictions are scikit-learn's.
    """

    session: Session | None = None
    fit_intercept: bool
    max_iter: int
    tol: float
    n_iter_: Any
    coef_: Any
    intercept_: Any
    scale_: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        is_derived = any(issubclass(base, Served) and _is_estimator(base) for base in cls.__bases__)
        if is_derived or not _is_estimator(cls):  # it has the parameter, or is a mixin
            return
        parent = super(cls, cls).__init__
        signature = inspect.signature(parent)

        @wraps(parent)
        def init(self: Any, *args: Any, session: Session | None = None, **kwargs: Any) -> None:
            parent(self, *args, **kwargs)
            self.session = session

        more = inspect.Parameter("session", inspect.Parameter.KEYWORD_ONLY, default=None)
        known = list(signature.parameters.values())
        init.__signature__ = signature.replace(parameters=[*known, more])  # type: ignore[attr-defined]
        cls.__init__ = init  # type: ignore[method-assign]

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's, but of arrays NumPy's alone."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.array_api_support = False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Without the session, which belongs to this process."""
        state: Any = super().__getstate__()
        return {**state, "session": None}

    def __sklearn_clone__(self) -> Any:
        """A clone uses the same session: it is no copy."""
        session, self.session = self.session, None
        try:
            clone = super().__sklearn_clone__()  # type: ignore[misc]
        finally:
            self.session = session
        clone.session = session
        return clone

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, **checks: Any
    ) -> tuple[Matrix, Array, Floats | None]:
        """Features by rows, labels, and the weights as float64; None: all 1."""
        checks = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"} | checks
        self._validate_params()  # type: ignore[attr-defined]
        X, y = validate_data(self, X, y, **checks)
        if sample_weight is None:
            return X, y, None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, weights

    def _fit_rows(
        self, rows: Rows, loss: Loss, start: Array, method: str, l1: float, l2: float, **more: Any
    ) -> Array:
        """The minimum of the mean loss plus the penalty; sets ``n_iter_``.

        ``start`` has a last row for the intercept if it is longer than the features are many. The
        solver has no part of columns without elements: there a penalty has its minimum at 0.
        """
        matrix, is_occupied = without_empty_columns(rows.matrix)
        kept = np.append(is_occupied, np.ones(len(start) - rows.columns, bool))
        found = np.zeros_like(start) if l1 or l2 else start.copy()
        rows = replace(rows, matrix=matrix)
        found[kept] = self._fit_columns(rows, loss, start[kept], method, l1, l2, **more)
        return found

    def _fit_columns(
        self, rows: Rows, loss: Loss, start: Array, method: str, l1: float, l2: float, **more: Any
    ) -> Array:
        """``_fit_rows``, of all columns."""
        intercept = len(start) > rows.columns
        penalty = ElasticNet(l1=l1, l2=l2)
        objective = Objective(rows, loss=loss, penalty=penalty, intercept=intercept)
        options = {"max_iterations": self.max_iter, "gradient_tolerance": self.tol, **more}
        known, least = 0, None
        if getattr(self, "verbose", 0):
            options["progress"] = True
        elif self.session is None:
            least = _newton_minimum(objective.data, loss, start, method, l1, l2, options)
        if least is not None:
            if least.converged:
                self.n_iter_ = least.iterations
                return least.x
            start, known = least.x, least.iterations
            options["max_iterations"] = max(self.max_iter - known, 0)
        if self.session is None:
            found = objective.minimize(start, method, **options)
        else:
            weights = np.full(start.shape, l1)
            if intercept:
                weights[-1] = 0.0
            found = self._minimize(objective, start, method, weights, objective.hessp, **options)
        self.n_iter_ = known + found.nit
        self._warn_unless_converged(found)
        x: Array = found.x
        return x

    def _minimize(
        self,
        function: Any,
        start: Array,
        method: str,
        l1: Array | None = None,
        hessp: Product | None = None,
        upper: Array | None = None,
        **options: Any,
    ) -> Result:
        """The minimum of a function of NumPy arrays, between 0 and ``upper`` if it is given, by a
        solver whose vectors are on the servers if there is a session."""
        kind = solver_class(method)
        progress = options.pop("progress", False)
        put: Any = np.asarray if self.session is None else self.session.array
        pull: Any = np.asarray if self.session is None else lambda x: x.numpy()

        def served(x: Any) -> tuple[float, Any]:
            value, gradient = function(pull(x))
            return float(value), put(gradient)

        known = {field.name for field in fields(kind)}
        if upper is not None:
            options["bounds"] = Box(0.0, put(upper))
        if hessp is not None and "hessp" in known:
            options["hessp"] = lambda x, v: put(hessp(pull(x), pull(v)))
        if l1 is not None and "l1" in known:
            options["l1"] = put(l1)
        found = kind(**options).minimize(served, put(start), progress=progress)
        found.update(x=pull(found.x), jac=pull(found.jac))
        return found

    def _warn_unless_converged(self, found: Result) -> None:
        if not self._has_converged(found):
            self._warn_of_limit(found.message)

    def _has_converged(self, found: Result) -> bool:
        """Whether the gradient is small, or as small as rounding allows."""
        slope = float(np.abs(np.asarray(found.jac)).max(initial=0.0))
        limits = (Outcome.LIMIT_ITERATIONS, Outcome.LIMIT_EVALUATIONS)
        slight = _SLIGHT * max(1.0, abs(float(found.fun)))
        return bool(found.success or (found.outcome not in limits and slope <= slight))

    def _warn_of_limit(self, reason: str = "the limit of iterations was reached.") -> None:
        warn_of_limit(self, f"{reason} Increase max_iter or tol, or scale the features")


def without_empty_columns(matrix: Matrix) -> tuple[Matrix, npt.NDArray[np.bool_]]:
    """The columns that have elements, and which of all these are.

    All columns unless more than half of them are empty: else it is not worth a copy.
    """
    every = np.ones(matrix.shape[1], bool)
    if isinstance(matrix, np.ndarray):
        return matrix, every
    chosen = np.zeros_like(every)
    chosen[matrix.indices] = True
    count = np.count_nonzero(chosen)
    if not 0 < 2 * count < len(chosen):
        return matrix, every
    numbers = (np.cumsum(chosen) - 1).astype(matrix.indices.dtype)
    arrays = (matrix.data, numbers[matrix.indices], matrix.indptr)
    return sp.csr_array(arrays, shape=(matrix.shape[0], count), copy=False), chosen


def _newton_minimum(
    rows: Rows,
    loss: Loss,
    start: Array,
    method: str,
    l1: float,
    l2: float,
    options: dict[str, Any],
) -> Minimum | None:
    """By Newton's method in place of the method; None where it does not suit."""
    if pays(rows, loss, method):
        function = MeanLoss(rows, cast(RowLoss, loss), l2, intercept=len(start) > rows.columns)
        return minimize_by_newton(function, start, **options)
    if takes_coordinates(rows, loss, method):
        return minimize_by_coordinates(rows, cast(RowLoss, loss), start, l1, l2, **options)
    return None


def _is_estimator(cls: type) -> bool:
    return issubclass(cls, BaseEstimator)


def warn_of_limit(estimator: object, reason: str) -> None:
    """A ConvergenceWarning in the name of an estimator."""
    text = f"{type(estimator).__name__}: {reason}"
    warnings.warn(text, ConvergenceWarning, stacklevel=5)


def with_constant(X: Matrix, constant: float) -> Matrix:
    """The features and a last one that is the same in all rows."""
    column = np.full((X.shape[0], 1), constant, X.dtype)
    if isinstance(X, np.ndarray):
        return np.hstack([X, column])
    return sp.csr_array(sp.hstack([X, sp.csr_array(column)]))


def multiplied(weights: Floats | None, factors: Floats) -> Floats | None:
    """Row weights times other factors; None if all are 1."""
    if weights is not None:
        return weights * factors
    return None if (factors == 1.0).all() else factors
