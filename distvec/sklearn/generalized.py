"""Regression with other losses: generalized linear models, Huber's, quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.optimize
import scipy.sparse as sp
import sklearn.linear_model

from distvec.losses.regression import Gamma, Poisson, Squared, Tweedie
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats, Rows, blocks
from distvec.sklearn.base import Array, Served
from distvec.sklearn.newton import has_few_columns, minimize_by_newton, weighted_gram


@dataclass(frozen=True)
class _Deviance(RowLoss):
    """Half the deviance of any power but 1 and 2, less the terms of the label alone."""

    formula: ClassVar[str] = "mu^(2 - p) / (2 - p) - y mu^(1 - p) / (1 - p), mu = m or exp(m)"
    power: float
    is_log: bool

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        p, mean = self.power, self._mean(margins)
        values = mean ** (2.0 - p) / (2.0 - p) - labels * mean ** (1.0 - p) / (1.0 - p)
        slopes = mean**-p * (mean - labels)
        outside = np.isnan(mean)
        return np.where(outside, np.inf, values), slopes * mean if self.is_log else slopes

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        p, mean = self.power, self._mean(margins)
        if self.is_log:
            return (2.0 - p) * mean ** (2.0 - p) - (1.0 - p) * labels * mean ** (1.0 - p)
        return (1.0 - p) * mean**-p + p * labels * mean ** (-p - 1.0)

    def _mean(self, margins: Floats) -> Floats:
        return np.exp(margins) if self.is_log else np.where(margins > 0.0, margins, np.nan)


@dataclass(frozen=True)
class _IdentityDeviance(RowLoss):
    """The same of the powers 1 and 2, for the mean itself."""

    formula: ClassVar[str] = "m - y ln(m), or ln(m) + y / m"
    power: float

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        mean = np.where(margins > 0.0, margins, np.nan)
        if self.power == 1.0:
            values, slopes = mean - labels * np.log(mean), 1.0 - labels / mean
        else:
            values, slopes = np.log(mean) + labels / mean, (1.0 - labels / mean) / mean
        return np.where(np.isnan(mean), np.inf, values), slopes

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        p = self.power
        return (1.0 - p) * margins**-p + p * labels * margins ** (-p - 1.0)


def _tweedie(power: float, *, is_log: bool) -> RowLoss:
    """The loss of that power and link."""
    if is_log and power in (1.0, 2.0):
        return Poisson() if power == 1.0 else Gamma()
    if is_log and 1.0 < power < 2.0:
        return Tweedie(power=float(power))
    if power in (1.0, 2.0):
        return _IdentityDeviance(float(power))
    return Squared() if power == 0.0 and not is_log else _Deviance(float(power), is_log)


class _GeneralizedLinear(Served):
    """The common part of the three: the fit."""

    alpha: float
    solver: str
    warm_start: bool

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,)
            The targets.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        X, y, weights = self._rows(X, y, sample_weight, y_numeric=True)
        # scikit-learn's predictions and scores ask it for the link and the deviance.
        self._base_loss = self._get_loss()  # type: ignore[attr-defined]
        y = y.astype(np.float64)
        if not self._base_loss.in_y_true_range(y):
            raise ValueError(
                "Some value(s) of y are out of the valid range of the loss of "
                f"{type(self).__name__}; a power of 1 to 2 takes 0 or more, a power of 2 or more "
                "only numbers above 0"
            )
        start = np.zeros(X.shape[1] + bool(self.fit_intercept))
        if self.warm_start and hasattr(self, "coef_"):
            start[: X.shape[1]] = self.coef_
            if self.fit_intercept:
                start[-1] = self.intercept_
        elif self.fit_intercept:
            start[-1] = self._base_loss.link.link(np.average(y, weights=weights))
        x = self._fit_rows(
            Rows(X, y, weights),
            self._loss(),
            start,
            "L-BFGS" if self.solver == "lbfgs" else "trust-ncg",
            0.0,
            float(self.alpha),
        ).astype(X.dtype, copy=False)
        self.coef_, self.intercept_ = x[: X.shape[1]], x[-1] if self.fit_intercept else 0.0
        return self

    def _loss(self) -> RowLoss:
        raise NotImplementedError


class PoissonRegressor(_GeneralizedLinear, sklearn.linear_model.PoissonRegressor):
    """Regression of counts; their mean is the exponential of a linear function.

    It minimizes half the mean deviance plus ``alpha / 2 |coef|^2``.

    Parameters
    ----------
    alpha, fit_intercept, solver, max_iter, tol, warm_start, verbose : Any
        As in scikit-learn's class.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Examples
    --------
    >>> from distvec.sklearn import PoissonRegressor
    >>> model = PoissonRegressor(alpha=0.0, tol=1e-8).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    >>> model.predict([[3.0]]).round(3)
    array([8.])
    """

    def _loss(self) -> RowLoss:
        return Poisson()


class GammaRegressor(_GeneralizedLinear, sklearn.linear_model.GammaRegressor):
    """Regression of positive numbers; their mean is the exponential of a linear function.

    It minimizes half the mean deviance plus ``alpha / 2 |coef|^2``.

    Parameters
    ----------
    alpha, fit_intercept, solver, max_iter, tol, warm_start, verbose : Any
        As in scikit-learn's class.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Examples
    --------
    >>> from distvec.sklearn import GammaRegressor
    >>> model = GammaRegressor(alpha=0.0, tol=1e-8).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    >>> model.predict([[3.0]]).round(3)
    array([8.])
    """

    def _loss(self) -> RowLoss:
        return Gamma()


class TweedieRegressor(_GeneralizedLinear, sklearn.linear_model.TweedieRegressor):
    """Regression of numbers with a variance that is a power of the mean.

    It minimizes half the mean deviance plus ``alpha / 2 |coef|^2``.

    Parameters
    ----------
    power, alpha, fit_intercept, link, solver, max_iter, tol, warm_start, verbose : Any
        As in scikit-learn's class.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Examples
    --------
    >>> from distvec.sklearn import TweedieRegressor
    >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0]
    >>> TweedieRegressor(power=1.5, alpha=0.0, tol=1e-8).fit(X, y).predict([[3.0]]).round(3)
    array([8.])
    """

    def _loss(self) -> RowLoss:
        is_log = self.link == "log" or (self.link == "auto" and self.power > 0)
        return _tweedie(self.power, is_log=is_log)


_LEAST_SCALE = 1e-8
"""Of the residuals, relative to the labels: with a scale of 0 the function has kinks."""


class HuberRegressor(Served, sklearn.linear_model.HuberRegressor):
    """Linear regression that outliers hardly change, with the scale of the residuals.

    It minimizes ``sum(w (s + H(r / s) s)) + alpha |coef|^2`` over coefficients, intercept and the
    scale ``s``. ``H`` is squared up to ``epsilon``, and linear beyond.

    Parameters
    ----------
    epsilon, max_iter, alpha, warm_start, fit_intercept, tol : Any
        As in scikit-learn's class.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Notes
    -----
    The scale is at least 1e-8 times the standard deviation of the labels: with a scale of 0 the
    function has kinks. Up to 32 features take Newton's method, more take L-BFGS.

    References
    ----------
    P. J. Huber, E. M. Ronchetti, Robust Statistics, 2nd edition (2009), section 7.7: the estimate
    of coefficients and scale together.

    Examples
    --------
    >>> from distvec.sklearn import HuberRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [1.0, 3.1, 4.9, 7.0, 50.0]
    >>> model = HuberRegressor().fit(X, y)
    >>> model.coef_.round(1), model.outliers_
    (array([2.1]), array([False, False, False, False,  True]))
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,)
            The targets.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        X, y, weights = self._rows(X, y, sample_weight, y_numeric=True)
        y = y.astype(np.float64)
        each = np.ones(len(y)) if weights is None else weights
        # Labels have the standard deviation 1, so that scale and coefficients are alike.
        unit = math.sqrt(np.average((y - np.average(y, weights=each)) ** 2, weights=each)) or 1.0
        rows = Rows(X, y / unit, weights)
        start = np.zeros(X.shape[1] + bool(self.fit_intercept) + 1)
        if self.warm_start and hasattr(self, "coef_"):
            known = [self.intercept_ / unit] * bool(self.fit_intercept)
            more = max(self.scale_ / unit - _LEAST_SCALE, _LEAST_SCALE)
            start = np.concatenate([self.coef_ / unit, known, [math.log(more)]])
        function = _HuberFunction(rows, each, self.epsilon, self.alpha * unit, self.fit_intercept)
        taken = 0
        if self.session is None and has_few_columns(rows, "L-BFGS"):
            least = minimize_by_newton(
                function, start, max_iterations=self.max_iter, gradient_tolerance=self.tol
            )
            start, taken = least.x, least.iterations
        stops: dict[str, Any] = {"max_iterations": self.max_iter - taken}
        found = self._minimize(function, start, "L-BFGS", gradient_tolerance=self.tol, **stops)
        if found.x[-1] < math.log(_LEAST_SCALE) and not self._has_converged(found):
            # The residuals are 0, and the curvature there is large: Newton's method comes nearer to
            # the minimum. It ends where rounding hides the gain.
            stops |= {"gradient_tolerance": 0.0, "hessp": function.hessp}
            found = self._minimize(function, start, "trust-ncg", **stops)
        if not math.isfinite(found.fun):
            raise ValueError(
                f"HuberRegressor convergence failed: {found.message} Scale the features"
            )
        self._warn_unless_converged(found)
        self.n_iter_, self.scale_ = taken + found.nit, unit * (_LEAST_SCALE + math.exp(found.x[-1]))
        x = (unit * found.x[:-1]).astype(X.dtype, copy=False)
        self.coef_, self.intercept_ = x[: X.shape[1]], x[-1] if self.fit_intercept else 0.0
        residuals = y - rows.margins(x, intercept=self.fit_intercept)
        self.outliers_ = np.abs(residuals) > self.scale_ * self.epsilon
        return self


@dataclass(frozen=True)
class _HuberFunction:
    """The function of coefficients, intercept, and the logarithm of the scale less its least."""

    rows: Rows
    weights: Floats
    epsilon: float
    alpha: float
    intercept: bool

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Value and gradient."""
        with np.errstate(over="ignore", invalid="ignore"):
            scale, residuals, near = self._parts(x)
            total = scale * float(self.weights.sum())
            # Of each row the part of the value in the scale itself: H(z) s = n (2 r - n) / s.
            parts = self.weights * near / scale
            coefficients = x[: self.rows.columns]
            gradient = np.empty_like(x)
            gradient[:-1] = self.rows.gradient(-2.0 * parts, intercept=self.intercept)
            gradient[: self.rows.columns] += 2.0 * self.alpha * coefficients
            gradient[-1] = (total - float(parts @ near)) / scale * float(np.exp(x[-1]))
            value = total + float(parts @ (2.0 * residuals - near))
        return value + self.alpha * float(coefficients @ coefficients), gradient

    def hessp(self, x: Floats, v: Floats) -> Floats:
        """The Hessian times ``v``."""
        with np.errstate(over="ignore", invalid="ignore"):
            scale, residuals, near = self._parts(x)
            free = float(np.exp(x[-1]))
            inside = np.where(near == residuals, 2.0 * self.weights / scale, 0.0)
            changes = self.rows.margins(v[:-1], intercept=self.intercept)
            across = residuals * (free / scale)
            product = np.empty_like(x)
            product[:-1] = self.rows.gradient(
                inside * (changes + across * v[-1]), intercept=self.intercept
            )
            product[: self.rows.columns] += 2.0 * self.alpha * v[: self.rows.columns]
            slope = free * float(self.weights.sum() - self.weights @ (near / scale) ** 2)
            bend = slope + float(inside @ across**2)
            product[-1] = float(inside @ (across * changes)) + bend * v[-1]
        return product

    def hessian(self, x: Floats) -> Floats:
        """The whole Hessian, made positive.

        Its only part that can be negative is the slope along the scale, which is 0 at the minimum.
        """
        scale, residuals, near = self._parts(x)
        free, features = float(np.exp(x[-1])), self.rows.columns
        inside = np.where(near == residuals, 2.0 * self.weights / scale, 0.0)
        found = np.zeros((len(x), len(x)))
        for part in blocks(len(self.rows)):
            matrix: Any = self.rows[part].matrix
            table = np.ones((len(residuals[part]), len(x)))
            table[:, :features] = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            table[:, -1] = residuals[part] * (free / scale)
            found += weighted_gram(table, inside[part])
        found[range(features), range(features)] += 2.0 * self.alpha
        slope = free * float(self.weights.sum() - self.weights @ (near / scale) ** 2)
        found[-1, -1] += abs(slope)
        return found

    def _parts(self, x: Floats) -> tuple[float, Floats, Floats]:
        """The scale, the residuals, and the same without what is far."""
        scale = _LEAST_SCALE + float(np.exp(x[-1]))
        residuals = self.rows.labels - self.rows.margins(x[:-1], intercept=self.intercept)
        return scale, residuals, np.clip(residuals, -self.epsilon * scale, self.epsilon * scale)


class QuantileRegressor(Served, sklearn.linear_model.QuantileRegressor):
    """Linear regression of a quantile.

    It minimizes the mean quantile loss plus ``alpha |coef|_1``.

    Parameters
    ----------
    quantile, alpha, fit_intercept, solver, solver_options : Any
        As in scikit-learn's class.
    session : Session, optional
        Without effect: the linear program is solved in this process.

    Notes
    -----
    SciPy solves the dual of the linear program, which has a variable for each row, and two
    constraints for each feature.

    Examples
    --------
    >>> from distvec.sklearn import QuantileRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 2.0, 4.0, 60.0]
    >>> QuantileRegressor(alpha=0.0).fit(X[:3], y[:3]).coef_.round(6)
    array([2.])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,)
            The targets.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        if self.solver == "interior-point":
            raise ValueError(
                "solver='interior-point' was removed from SciPy; use 'highs-ipm', the interior "
                "point method of HiGHS"
            )
        X, y, weights = self._rows(X, y, sample_weight, y_numeric=True)
        each = np.ones(len(y)) if weights is None else weights
        used = each > 0.0
        matrix, y, each = X[used].astype(np.float64), y[used].astype(np.float64), each[used]
        columns: Any = matrix.T if isinstance(matrix, np.ndarray) else sp.csr_array(matrix.T)
        count, most = X.shape[1], self.alpha * float(each.sum())
        stack = np.vstack if isinstance(matrix, np.ndarray) else sp.vstack
        program: Any = scipy.optimize.linprog
        found = program(
            -y,
            A_ub=stack([columns, -columns]),
            b_ub=np.full(2 * count, most),
            A_eq=np.ones((1, len(y))) if self.fit_intercept else None,
            b_eq=[0.0] if self.fit_intercept else None,
            bounds=np.column_stack([(self.quantile - 1.0) * each, self.quantile * each]),
            method=self.solver,
            options=self.solver_options,
        )
        if not found.success:
            self._warn_of_limit(f"the linear program was not solved: {found.message}.")
        slopes: Array = -np.asarray(found.ineqlin.marginals)
        self.coef_ = slopes[:count] - slopes[count:]
        self.n_iter_ = found.nit
        self.intercept_ = -float(found.eqlin.marginals[0]) if self.fit_intercept else 0.0
        return self
