"""Linear regression by least squares, with penalties or without."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg
import sklearn.linear_model

from distvec.losses.rows import Floats
from distvec.sklearn.base import Served, without_empty_columns
from distvec.sklearn.quadratic import Quadratic, minimize_in_orthants
from optim import conjugate_gradient

_WELL_CONDITIONED = 1e-8
"""Of the normal equations: as many digits are left for the solution as are lost here."""

_TIGHT = 1e-12

_SLOPES = 0.01
"""Slopes so small, times ``tol``, leave duality gaps about as small as scikit-learn's."""


class _Form(NamedTuple):
    """How the attributes look, where the function has only some of the coefficients."""

    dtype: Any
    is_vector: bool
    """Whether ``y`` is one."""
    is_occupied: npt.NDArray[np.bool_]
    """The columns that the function has; the coefficients of the others are 0."""


class _LeastSquares(Served):
    """The common part of all: targets, one or more, and the intercept that follows from means."""

    def _quadratic(
        self, X: Any, y: Any, sample_weight: Any, **checks: Any
    ) -> tuple[Quadratic, _Form]:
        """The function of the columns that have elements, and the form of the attributes."""
        X, y, weights = self._rows(X, y, sample_weight, multi_output=True, y_numeric=True, **checks)
        X, is_occupied = without_empty_columns(X)
        with np.errstate(over="ignore", invalid="ignore"):
            quadratic = Quadratic(X, y, weights, intercept=self.fit_intercept)
        if not np.isfinite(quadratic.linear).all():
            raise ValueError(
                "products of the features and targets are beyond the largest number of "
                f"{X.dtype}; scale the features or the targets"
            )
        return quadratic, _Form(X.dtype, y.ndim == 1, is_occupied)

    def _set(
        self, quadratic: Quadratic, found: Floats, form: _Form, *, is_flat: bool = True
    ) -> Self:
        """Set the attributes from coefficients, a row for each target.

        With ``is_flat`` a single target has a vector of them, also if ``y`` has two dimensions.
        """
        dtype, is_one, is_occupied = form
        intercepts = quadratic.y_means - found @ quadratic.means
        table = np.zeros((len(found), len(is_occupied)), dtype)
        table[:, is_occupied] = found
        self.coef_ = table[0] if is_one or (is_flat and len(table) == 1) else table
        self.intercept_ = 0.0
        if self.fit_intercept:
            self.intercept_ = dtype.type(intercepts[0]) if is_one else intercepts.astype(dtype)
        return self

    def _minimum(
        self,
        quadratic: Quadratic,
        target: int,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        start: Floats | None = None,
        tolerance: float = _TIGHT,
        max_iterations: int = 1000,
    ) -> tuple[Floats, int]:
        """Coefficients and the number of iterations."""
        b, positive = quadratic.linear[:, target], bool(getattr(self, "positive", False))
        start = np.zeros(b.shape) if start is None else start
        if l1 == 0.0 < l2 and not positive and self.session is None and quadratic.has_factors:
            return _ridge(quadratic, target, l2), 1
        allowed = tolerance * float(np.abs(b).max(initial=0.0))
        if self.session is None:
            found = minimize_in_orthants(
                quadratic,
                b,
                start,
                l1=l1,
                l2=l2,
                positive=positive,
                tolerance=allowed,
                max_iterations=max_iterations,
            )
            if not found.converged and found.iterations == max_iterations:
                self._warn_of_limit()
            return found.x, found.iterations

        def function(x: Floats) -> tuple[float, Floats]:
            bent = quadratic.product(x) + l2 * x
            return float(x @ bent) / 2.0 - float(shifted @ x), bent - shifted

        shifted = b - l1 if positive else b
        method = "L-BFGS-B" if positive else "OWL-QN" if l1 else "L-BFGS"
        result = self._minimize(
            function,
            start,
            method,
            np.full(b.shape, l1),
            upper=np.full(b.shape, np.inf) if positive else None,
            gradient_tolerance=allowed,
            max_iterations=max_iterations,
        )
        self._warn_unless_converged(result)
        return result.x, result.nit


class LinearRegression(_LeastSquares, sklearn.linear_model.LinearRegression):
    """Ordinary least squares.

    Parameters
    ----------
    fit_intercept, copy_X, tol, n_jobs, positive : Any
        As in scikit-learn's class.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Notes
    -----
    Dense features: the normal equations if they are well conditioned, otherwise by singular values,
    with the solution of least norm. Sparse features: conjugate gradients.

    Examples
    --------
    >>> from distvec.sklearn import LinearRegression
    >>> model = LinearRegression().fit([[1.0], [2.0], [3.0]], [3.0, 5.0, 7.0])
    >>> model.coef_.round(6), round(float(model.intercept_), 6)
    (array([2.]), 1.0)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,) or (rows, targets)
            The targets.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        accepts = {"accept_sparse": False if self.positive else "csr"}
        quadratic, form = self._quadratic(X, y, sample_weight, **accepts)
        targets = range(quadratic.linear.shape[1])
        if self.positive or self.session is not None:
            tolerance = _TIGHT if self.positive else self.tol
            found = [self._minimum(quadratic, t, tolerance=tolerance)[0] for t in targets]
        elif quadratic.is_dense:
            found = list(self._solved(quadratic).T)
        else:
            found = [
                conjugate_gradient(quadratic.product, quadratic.linear[:, t], rtol=self.tol).x
                for t in targets
            ]
        return self._set(quadratic, np.array(found), form, is_flat=False)

    def _solved(self, quadratic: Quadratic) -> Floats:
        """The normal equations' solution, or that of least norm."""
        if quadratic.has_gram:
            values = scipy.linalg.eigvalsh(quadratic.gram)
            if values[0] > _WELL_CONDITIONED * values[-1]:
                self.rank_ = len(values)
                self.singular_ = np.sqrt(values[::-1] * quadratic.total)
                found: Floats = scipy.linalg.solve(quadratic.gram, quadratic.linear, assume_a="pos")
                return found
        found, _, self.rank_, self.singular_ = scipy.linalg.lstsq(
            quadratic.matrix, quadratic.y, cond=self.tol
        )
        return found


class Ridge(_LeastSquares, sklearn.linear_model.Ridge):
    """Least squares with the penalty ``alpha |coef|^2``.

    Parameters
    ----------
    alpha, fit_intercept, copy_X, max_iter, tol : Any
        As in scikit-learn's class.
    solver : str, default "auto"
        ``"sparse_cg"``, ``"lsqr"``, ``"sag"`` and ``"saga"`` choose conjugate gradients. So does
        ``"auto"`` for sparse features; otherwise Cholesky's factors solve the normal equations.
    positive, random_state : Any
        As in scikit-learn's class. ``random_state`` has no effect.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Examples
    --------
    >>> from distvec.sklearn import Ridge
    >>> model = Ridge(alpha=1.0).fit([[1.0], [2.0], [3.0]], [3.0, 5.0, 7.0])
    >>> model.coef_.round(6), round(float(model.intercept_), 6)
    (array([1.333333]), 2.333333)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,) or (rows, targets)
            The targets.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        quadratic, form = self._quadratic(X, y, sample_weight)
        targets = range(quadratic.linear.shape[1])
        alphas = np.asarray(self.alpha, np.float64).ravel()
        if alphas.size not in (1, len(targets)):
            raise ValueError(
                f"Number of targets and number of penalties do not correspond: {alphas.size} != "
                f"{len(targets)}"
            )
        l2 = np.broadcast_to(alphas / quadratic.total, (len(targets),))
        iterative = self.solver in ("sparse_cg", "lsqr", "sag", "saga")
        self.n_iter_ = None
        if self.positive or self.session is not None:
            self.solver_, most = "lbfgs", self.max_iter or 15000
            # In this process the last iteration is exact.
            tolerance = _TIGHT if self.session is None else self.tol
            each = [
                self._minimum(quadratic, t, 0.0, l2[t], tolerance=tolerance, max_iterations=most)
                for t in targets
            ]
            found, self.n_iter_ = [x for x, _ in each], np.array([n for _, n in each])
        elif iterative or not quadratic.has_factors:
            self.solver_, most = "sparse_cg", self.max_iter
            solved = [
                conjugate_gradient(
                    partial(_ridge_product, quadratic, float(l2[t])),
                    quadratic.linear[:, t],
                    rtol=self.tol,
                    max_iterations=most,
                )
                for t in targets
            ]
            found = [one.x for one in solved]
            self.n_iter_ = np.array([one.iterations for one in solved], np.int32)
        else:
            self.solver_ = "cholesky"
            found = [_ridge(quadratic, t, float(l2[t])) for t in targets]
        return self._set(quadratic, np.array(found), form)


def _ridge_product(quadratic: Quadratic, l2: float, x: Floats) -> Floats:
    return quadratic.product(x) + l2 * x


def _ridge(quadratic: Quadratic, target: int, l2: float) -> Floats:
    """By the normal equations of the columns, or of the rows if they are fewer."""
    matrix = quadratic.matrix
    try:
        if quadratic.has_gram:
            square = quadratic.gram + l2 * np.eye(len(quadratic.gram))
            found: Floats = scipy.linalg.solve(square, quadratic.linear[:, target], assume_a="pos")
            return found
        square = matrix @ matrix.T + l2 * quadratic.total * np.eye(len(matrix))
        solution = scipy.linalg.solve(square, quadratic.y[:, target], assume_a="pos")
        return np.asarray(matrix.T @ solution)
    except scipy.linalg.LinAlgError:
        if not quadratic.is_dense:
            product = partial(_ridge_product, quadratic, l2)
            return np.asarray(
                conjugate_gradient(product, quadratic.linear[:, target], rtol=_TIGHT).x
            )
        rows = np.vstack([matrix, np.sqrt(l2 * quadratic.total) * np.eye(matrix.shape[1])])
        right = np.append(quadratic.y[:, target], np.zeros(matrix.shape[1]))
        return np.asarray(scipy.linalg.lstsq(rows, right)[0])


class _ElasticNets(_LeastSquares):
    """The common part of both: the fit of an elastic net."""

    alpha: float
    l1_ratio: float
    positive: bool
    warm_start: bool

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,) or (rows, targets)
            The targets.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.
        check_input : bool, default True
            Without effect: input is always checked.

        Returns
        -------
        Self
            The estimator.
        """
        quadratic, form = self._quadratic(X, y, sample_weight)
        l1, l2 = self.alpha * self.l1_ratio, self.alpha * (1.0 - self.l1_ratio)
        targets = quadratic.linear.shape[1]
        known = getattr(self, "coef_", None) if self.warm_start else None
        starts = np.zeros((targets, len(form.is_occupied)))
        if known is not None and known.size == starts.size:
            starts = known.reshape(starts.shape).astype(np.float64)
        each = [
            self._minimum(
                quadratic,
                target,
                l1,
                l2,
                start=start[form.is_occupied],
                tolerance=_SLOPES * self.tol,
                max_iterations=self.max_iter,
            )
            for target, start in enumerate(starts)
        ]
        iterations: Any = [count for _, count in each]
        gaps = np.array(
            [quadratic.gap(x, t, l1, l2, positive=self.positive) for t, (x, _) in enumerate(each)]
        )
        is_one = targets == 1
        self.n_iter_ = iterations[0] if is_one else iterations
        self.dual_gap_ = gaps[0] if is_one else gaps
        return self._set(quadratic, np.array([x for x, _ in each]), form)


class ElasticNet(_ElasticNets, sklearn.linear_model.ElasticNet):
    """Least squares with l1 and l2 penalties.

    It minimizes half the mean of the squared residuals, plus
    ``alpha l1_ratio |coef|_1 + alpha (1 - l1_ratio) / 2 |coef|^2``.

    Parameters
    ----------
    alpha, l1_ratio, fit_intercept, precompute, max_iter, copy_X, tol, warm_start, positive : Any
        As in scikit-learn's class. ``precompute`` and ``copy_X`` have no effect.
    random_state, selection : Any
        Accepted, without effect: coefficients change together, not in turns.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Notes
    -----
    ``tol`` bounds the slopes, relative to the largest at coefficients of 0. In this process the
    signs of the coefficients are found, and then the solution of linear equations, so results are
    exact up to rounding.

    Examples
    --------
    >>> from distvec.sklearn import ElasticNet
    >>> X, y = [[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]], [3.0, 5.0, 7.0]
    >>> ElasticNet(alpha=0.1).fit(X, y).coef_.round(4)
    array([1.7907, 0.    ])
    """


class Lasso(_ElasticNets, sklearn.linear_model.Lasso):
    """Least squares with the penalty ``alpha |coef|_1``.

    The loss is half the mean of the squared residuals.

    Parameters
    ----------
    alpha, fit_intercept, precompute, copy_X, max_iter, tol, warm_start, positive : Any
        As in scikit-learn's class. ``precompute`` and ``copy_X`` have no effect.
    random_state, selection : Any
        Accepted, without effect: coefficients change together, not in turns.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    See Also
    --------
    ElasticNet : For the meaning of ``tol``.

    Examples
    --------
    >>> from distvec.sklearn import Lasso
    >>> X, y = [[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]], [3.0, 5.0, 7.0]
    >>> Lasso(alpha=0.1).fit(X, y).coef_.round(4)
    array([1.85, 0.  ])
    """
