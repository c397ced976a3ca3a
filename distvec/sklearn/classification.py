"""Linear classifiers."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import sklearn.linear_model
import sklearn.svm
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from distvec.losses.classification import Logistic, Softmax, SquaredHinge
from distvec.losses.rows import Floats, Matrix, Rows
from distvec.sklearn.base import Array, Served, multiplied, with_constant
from distvec.sklearn.dual_steps import minimize_dual

_NEWTON = ("newton-cg", "newton-cholesky")

_SMALLER = 0.01
"""Newton's method gains two digits in an iteration, which also separable classes need."""


class _LinearClassifier(Served):
    """The common part of both: classes as numbers, and their weights."""

    class_weight: Any
    classes_: Array

    def _classified_rows(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Matrix, Array, Floats | None, Floats]:
        """Features, the number of each row's class, row weights, and the weight of each class."""
        X, y, weights = self._rows(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"the data has one class, {self.classes_[0]}; {type(self).__name__} needs rows of "
                "at least 2 classes"
            )
        by_class = np.ones(len(self.classes_))
        if self.class_weight is not None:
            by_class[:] = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y, sample_weight=weights
            )
        return X, codes, weights, by_class


class LogisticRegression(_LinearClassifier, sklearn.linear_model.LogisticRegression):
    """Logistic regression, multinomial for more than two classes.

    It minimizes ``C sum(w loss) + (1 - l1_ratio) / 2 |coef|^2 + l1_ratio |coef|_1``.

    Parameters
    ----------
    penalty, C, l1_ratio, dual, tol, fit_intercept, intercept_scaling, class_weight : Any
        As in scikit-learn's class.
    random_state, solver, max_iter, verbose, warm_start, n_jobs : Any
        As in scikit-learn's class. See Notes for ``solver``.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Notes
    -----
    ``tol`` bounds the largest element of the gradient of the objective divided by ``C sum(w)``.

    The name of the solver chooses the method: Newton's for ``"newton-cg"`` and
    ``"newton-cholesky"``, L-BFGS for the others. Two classes with up to 32 dense features always
    take Newton's, which is faster there. With ``l1_ratio`` above 0 coordinate descent finds each
    step of Newton's; more than two classes and rows with a session take OWL-QN. With
    ``"liblinear"`` the intercept is penalized, as in scikit-learn.

    Examples
    --------
    >>> from distvec.sklearn import LogisticRegression
    >>> X, y = [[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 3.0]], ["a", "a", "b", "b"]
    >>> model = LogisticRegression(C=10.0).fit(X, y)
    >>> model.predict(X).tolist(), model.predict_proba([[1.0, 1.0]]).round(2)
    (['a', 'a', 'b', 'b'], array([[0.59, 0.41]]))
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,)
            The classes.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        C, l1_ratio = self._penalty()
        X, codes, weights, by_class = self._classified_rows(X, y, sample_weight)
        weights = multiplied(weights, by_class[codes])
        count, is_binary = len(self.classes_), len(self.classes_) == 2
        penalized = self.fit_intercept and self.solver == "liblinear"
        if penalized and not is_binary:
            raise ValueError("solver='liblinear' takes two classes only; use solver='lbfgs'")
        matrix = with_constant(X, self.intercept_scaling) if penalized else X
        strength = 1.0 / (C * (len(codes) if weights is None else weights.sum()))
        method = "OWL-QN" if l1_ratio else "trust-ncg" if self.solver in _NEWTON else "L-BFGS"
        x = self._fit_rows(
            Rows(matrix, codes.astype(np.float64), weights),
            Logistic() if is_binary else Softmax(count),
            self._start(X.shape[1], 1 if is_binary else count),
            method,
            l1_ratio * strength,
            (1.0 - l1_ratio) * strength,
        )
        table = x.reshape(len(x), -1).T.astype(X.dtype, copy=False)
        self.n_iter_ = np.array([self.n_iter_], np.int32)
        self.coef_, self.intercept_ = table[:, : X.shape[1]], np.zeros(len(table), X.dtype)
        if self.fit_intercept:
            self.intercept_ = table[:, -1] * (self.intercept_scaling if penalized else 1.0)
        return self

    @property
    def set_callbacks(self) -> Any:
        """Raise ``AttributeError``: the solvers of distvec call no callbacks of scikit-learn.

        A pipeline or a search with callbacks warns of it.
        """
        raise AttributeError(
            f"{type(self).__name__} of distvec has no callbacks; use verbose=1 to see the progress"
        )

    def _penalty(self) -> tuple[float, float]:
        """``C`` and ``l1_ratio``, also from the deprecated ``penalty``."""
        penalty = getattr(self, "penalty", "deprecated")
        self._warn_of_parameters(penalty)
        if penalty == "elasticnet" and self.l1_ratio is None:
            raise ValueError("penalty='elasticnet' needs l1_ratio, a number between 0 and 1")
        C = np.inf if penalty is None else self.C
        ratios = {"deprecated": self.l1_ratio, "elasticnet": self.l1_ratio, "l1": 1.0}
        return C, 0.0 if np.isinf(C) else ratios.get(penalty) or 0.0

    def _warn_of_parameters(self, penalty: Any) -> None:
        """Warn of the parameters that scikit-learn deprecates, and of those without effect."""
        wanted = {"l1": 1.0, "l2": 0.0, None: 0.0}.get(penalty, self.l1_ratio)
        ignored = [] if self.l1_ratio == wanted else [f"l1_ratio={self.l1_ratio}"]
        ignored += [f"C={self.C}"] if penalty is None and self.C != 1.0 else []
        known: list[tuple[type[Warning], str]] = [
            (UserWarning, f"penalty={penalty!r} has priority over {one}") for one in ignored
        ]
        if penalty != "deprecated":
            known.append((FutureWarning, "'penalty' was deprecated; use C and l1_ratio"))
        elif self.l1_ratio is None:
            known.append((FutureWarning, "'l1_ratio=None' was deprecated; use l1_ratio=0.0"))
        if getattr(self, "n_jobs", None) is not None:
            known.append((FutureWarning, "'n_jobs' has no effect; leave it out"))
        for category, text in known:
            warnings.warn(text, category, stacklevel=4)

    def _start(self, features: int, columns: int) -> Array:
        """Zeros, or with ``warm_start`` the model that was fitted before."""
        start = np.zeros((features + bool(self.fit_intercept), columns))
        known = getattr(self, "coef_", None) if self.warm_start else None
        if known is not None and known.shape == (columns, features):
            start[:features] = known.T
            if self.fit_intercept:
                start[-1] = self.intercept_
        return start if columns > 1 else start[:, 0]


class LinearSVC(_LinearClassifier, sklearn.svm.LinearSVC):
    """Linear support vector machine, one against the rest for more than two classes.

    It minimizes ``C sum(w loss) + |coef|^2 / 2``, or ``|coef|_1`` instead of the latter. The
    intercept is penalized like a coefficient.

    Parameters
    ----------
    penalty, loss, dual, tol, C : Any
        As in scikit-learn's class. ``dual`` has no effect: the minimum is the same.
    multi_class : str, default "ovr"
        Only ``"ovr"``.
    fit_intercept, intercept_scaling, class_weight, verbose, random_state, max_iter : Any
        As in scikit-learn's class. ``random_state`` has no effect.
    session : Session, optional
        A session of ``distvec``: the solver's vectors are on its servers. By default they are in
        this process.

    Notes
    -----
    With fewer rows than columns the dual problem is solved by coordinate descent in this process,
    and ``tol`` bounds the spread of its slopes. Otherwise ``tol`` is relative to the gradient at
    the start and to the share of the smaller class. Both are LIBLINEAR's. With more rows, or a
    session, the dual problem of the hinge loss is solved by L-BFGS-B.

    Examples
    --------
    >>> from distvec.sklearn import LinearSVC
    >>> X, y = [[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 3.0]], [1, 1, 0, 0]
    >>> LinearSVC().fit(X, y).predict([[3.0, 1.0], [0.0, 2.0]])
    array([1, 0])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : array, (rows,)
            The classes.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        if self.multi_class != "ovr":
            raise ValueError(f"multi_class={self.multi_class!r}; only 'ovr' is available")
        if self.penalty == "l1" and self.loss == "hinge":
            raise ValueError("penalty='l1' takes loss='squared_hinge'; give that, or penalty='l2'")
        X, codes, weights, by_class = self._classified_rows(X, y, sample_weight)
        matrix = with_constant(X, self.intercept_scaling) if self.fit_intercept else X
        is_binary, found, iterations = len(self.classes_) == 2, [], 0
        for number in [1] if is_binary else range(len(self.classes_)):
            is_positive = codes == number
            # In LIBLINEAR the rest has the weight 1 if there are more than two classes.
            rest = by_class[0] if is_binary else 1.0
            factors = np.where(is_positive, by_class[number], rest)
            rows = Rows(matrix, np.where(is_positive, 1.0, -1.0), multiplied(weights, factors))
            found.append(self._fit_rows_against(rows))
            iterations = max(iterations, self.n_iter_)
        table = np.array(found).astype(X.dtype, copy=False)
        self.n_iter_ = iterations
        self.coef_, self.intercept_ = np.ascontiguousarray(table[:, : X.shape[1]]), 0.0
        if self.fit_intercept:
            self.intercept_ = self.intercept_scaling * table[:, -1]
        return self

    def _fit_rows_against(self, rows: Rows) -> Array:
        """The coefficients of one class against the rest."""
        is_wide = len(rows) < rows.columns
        if not is_wide or self.session is not None or self.penalty == "l1":
            return self._fit_hinge(rows) if self.loss == "hinge" else self._fit_smooth(rows)
        squared = self.loss == "squared_hinge"
        x, self.n_iter_, is_small = minimize_dual(
            rows, self.C, squared=squared, tol=self.tol, most=self.max_iter
        )
        if not is_small:
            self._warn_of_limit()
        return np.asarray(x)

    def _fit_smooth(self, rows: Rows) -> Array:
        strength = 1.0 / (self.C * rows.weight_sum)
        l1, l2 = (strength, 0.0) if self.penalty == "l1" else (0.0, strength)
        start, method = np.zeros(rows.columns), "OWL-QN" if l1 else "trust-ncg"
        fewer = min(int((rows.labels == sign).sum()) for sign in (-1.0, 1.0))
        relative = _SMALLER * self.tol * fewer / len(rows)
        stops = {"gradient_tolerance": None, "gradient_rtol": relative}
        return self._fit_rows(rows, SquaredHinge(), start, method, l1, l2, **stops)

    def _fit_hinge(self, rows: Rows) -> Array:
        """``|X^T (y a)|^2 / 2 - sum(a)`` is minimized over ``0 <= a <= C w``."""

        def function(a: Array) -> tuple[float, Array]:
            x = rows.gradient(a * rows.labels, intercept=False)
            margins = rows.labels * rows.margins(x, intercept=False)
            return 0.5 * float(x @ x) - float(a.sum()), margins - 1.0

        most = self.C * (np.ones(len(rows)) if rows.weights is None else rows.weights)
        found = self._minimize(
            function,
            np.zeros(len(rows)),
            "L-BFGS-B",
            upper=most,
            max_iterations=self.max_iter,
            gradient_tolerance=self.tol,
        )
        self.n_iter_ = max(1, found.nit)
        self._warn_unless_converged(found)
        return rows.gradient(found.x * rows.labels, intercept=False)
