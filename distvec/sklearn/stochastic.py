"""Linear models by stochastic gradient descent, one row after the other."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import sklearn.linear_model
from sklearn.utils import check_random_state

from distvec.losses.rows import Matrix
from distvec.session import Session
from distvec.sklearn import row_steps
from distvec.sklearn.base import Array, Served
from distvec.sklearn.row_steps import Rule

_LOSSES = {
    "hinge": (row_steps.HINGE, 1.0),
    "perceptron": (row_steps.HINGE, 0.0),
    "squared_hinge": (row_steps.SQUARED_HINGE, 1.0),
    "log_loss": (row_steps.LOGISTIC, 0.0),
    "modified_huber": (row_steps.MODIFIED_HUBER, 1.0),
    "squared_error": (row_steps.SQUARED, 0.0),
    "huber": (row_steps.HUBER, None),
    "epsilon_insensitive": (row_steps.EPSILON_INSENSITIVE, None),
    "squared_epsilon_insensitive": (row_steps.SQUARED_EPSILON_INSENSITIVE, None),
}
"""The number of each loss, and its threshold; None: the parameter ``epsilon``."""

_RULES = {
    "constant": row_steps.CONSTANT,
    "optimal": row_steps.OPTIMAL,
    "invscaling": row_steps.INVSCALING,
    "adaptive": row_steps.ADAPTIVE,
    "pa1": row_steps.PA1,
    "pa2": row_steps.PA2,
}

_SPARSE_INTERCEPT = 0.01
_LARGEST_SEED = np.iinfo(np.int32).max
_BLOCK_ROWS = 1024
"""The columns of so many rows are pulled from servers together."""


class _Vectors(NamedTuple):
    """The vector of the coefficients, their average, and the l1 penalty that they had. The last
    two are empty if they are not needed."""

    vector: Any
    averages: Any
    spent: Any


class _Epochs:
    """The model of one class or target while it is trained."""

    def __init__(
        self, rule: Rule, X: Matrix, y: Array, weights: Array, vectors: _Vectors, state: Array
    ) -> None:
        self.rule, self.X, self.y, self.weights = rule, X, y, weights
        self.vectors, self.state = vectors, state
        if isinstance(X, np.ndarray):
            self.elements: tuple[Any, Any, Any] = (X.reshape(-1), None, None)
        else:
            self.elements = (X.data, X.indices, X.indptr)

    def run(self, order: Array) -> None:
        """Take a step for each row."""
        self._take_steps(order, *self.elements, self.y, self.weights, *self.vectors)

    def _take_steps(self, *arrays: Any) -> None:
        step: Any = row_steps.take_steps
        step(self.rule, *arrays, self.state)

    @property
    def is_finite(self) -> bool:
        """Whether the model is."""
        intercept = self.state[row_steps.INTERCEPT]
        return math.isfinite(intercept) and bool(np.isfinite(self.vectors.vector).all())

    def coefficients(self) -> Array:
        """The coefficients, in this process."""
        return np.asarray(self.vectors.vector * self.state[row_steps.SCALE])

    def finish(self) -> _Vectors:
        """The coefficients and their average, in this process."""
        row_steps.fold(self.vectors.vector, self.vectors.averages, self.state)
        return self.vectors


class _ServedEpochs(_Epochs):
    """The same with the vectors on servers; results are bitwise identical."""

    def __init__(self, session: Session, *args: Any) -> None:
        super().__init__(*args)
        self.held = _Vectors(*(session.array(one) for one in self.vectors))
        self.were_finite = True

    def run(self, order: Array) -> None:
        """Take a step for each row: two requests for each vector and block of rows."""
        for start in range(0, len(order), _BLOCK_ROWS):
            block = order[start : start + _BLOCK_ROWS]
            data, indices, ends, columns = self._compact(block)
            parts = [one.pull(columns) if len(one) else np.array(one) for one in self.held]
            self.state[row_steps.VECTOR_BY_VECTOR :] = 1.0, 1.0, 0.0
            labels = (self.y[block], self.weights[block])
            self._take_steps(np.arange(len(block)), data, indices, ends, *labels, *parts)
            self.were_finite &= bool(np.isfinite(parts[0]).all())
            self._fold(*self.state[row_steps.VECTOR_BY_VECTOR :])
            for one, part in zip(self.held, parts, strict=True):
                if len(one):
                    one[columns] = part

    def _compact(self, block: Array) -> tuple[Any, Any, Any, Array]:
        """The elements of some rows, with numbers from 0 for the columns that they have."""
        rows: Any = self.X[block]
        if isinstance(rows, np.ndarray):
            return rows.reshape(-1), None, None, np.arange(rows.shape[1])
        columns, indices = np.unique(rows.indices, return_inverse=True)
        return rows.data, indices.astype(rows.indices.dtype), rows.indptr, columns

    @property
    def is_finite(self) -> bool:
        """Whether the model is; each part of it was seen before it went to the servers."""
        return self.were_finite and math.isfinite(self.state[row_steps.INTERCEPT])

    def _fold(self, by_vector: float, by_averages: float, across: float) -> None:
        """Do to all elements on the servers what a fold did to those of a block."""
        vector, averages = self.held.vector, self.held.averages
        if len(averages) and (by_averages != 1.0 or across != 0.0):
            averages[:] = by_averages * averages + across * vector
        if by_vector != 1.0:
            vector[:] = by_vector * vector

    def coefficients(self) -> Array:
        """The coefficients, in this process."""
        return np.asarray(self.held.vector.pull() * self.state[row_steps.SCALE])

    def finish(self) -> _Vectors:
        """The coefficients and their average, in this process."""
        for mine, theirs in zip(self.vectors, self.held, strict=True):
            if len(mine):
                mine[:] = theirs.pull()
        return super().finish()


class _Stochastic(Served):
    """What both have: the epochs."""

    loss: str
    penalty: str | None
    alpha: float
    l1_ratio: float | None
    learning_rate: str
    eta0: float
    power_t: float
    epsilon: float
    shuffle: bool
    early_stopping: bool
    n_iter_no_change: int
    average: int
    verbose: int
    random_state: Any
    t_: float
    _average_coef: Array
    _average_intercept: Array
    _standard_coef: Array
    _standard_intercept: Array

    def _get_loss_function(self, loss: str) -> tuple[int, float]:
        """The number of the loss, and its threshold."""
        number, threshold = _LOSSES[loss]
        return number, float(self.epsilon if threshold is None else threshold)

    def _rule(self, X: Matrix, positive: float, negative: float) -> Rule:
        loss, threshold = self._get_loss_function(self.loss)
        part = {"l2": 0.0, "l1": 1.0, "elasticnet": self.l1_ratio}.get(self.penalty or "", 0.0)
        delay = 0.0
        if self.learning_rate == "optimal":
            typical = math.sqrt(1.0 / math.sqrt(self.alpha))
            steep = row_steps.slope(loss, threshold, 1.0, -typical)
            delay = max(1.0, steep) / (typical * self.alpha)
        factor = 1.0 if isinstance(X, np.ndarray) else _SPARSE_INTERCEPT
        return Rule(
            loss=loss,
            threshold=threshold,
            alpha=float(self.alpha) if self.penalty else 0.0,
            l1_ratio=float(part),  # type: ignore[arg-type]
            step_rule=_RULES[self.learning_rate],
            step_size=float(self.eta0),
            power=float(self.power_t),
            delay=delay,
            step_alpha=float(self.alpha),
            positive=float(positive),
            negative=float(negative),
            intercept_factor=factor if self.fit_intercept else 0.0,
            average_from=int(self.average),
            least_scale=row_steps.least_scale(X.dtype),
        )

    def _train(
        self,
        X: Matrix,
        y: Array,
        weights: Array,
        coef: Array,
        average_coef: Array | None,
        intercepts: tuple[float, float],
        rule: Rule,
        seed: int,
        most: int,
        is_validation: Array,
        score: Callable[..., float] | None,
    ) -> tuple[float, float, int]:
        """Change ``coef`` and ``average_coef``; the intercept, its average, and the epochs."""
        none = np.zeros(0, coef.dtype)
        averages = none if average_coef is None else average_coef
        spent = np.zeros_like(coef) if rule.alpha and rule.l1_ratio else none
        state = np.zeros(row_steps.AVERAGES_BY_VECTOR + 1)
        state[[row_steps.STEPS, row_steps.STEP_SIZE]] = self.t_, self.eta0
        state[[row_steps.INTERCEPT, row_steps.AVERAGE_INTERCEPT]] = intercepts
        state[[row_steps.SCALE, row_steps.B]] = 1.0
        state[row_steps.SQUARES] = np.square(coef, dtype=np.float64).sum()
        state[row_steps.ABSOLUTE] = np.abs(coef, dtype=np.float64).sum()
        parts = (rule, X, y, weights, _Vectors(coef, averages, spent), state)
        epochs = _Epochs(*parts) if self.session is None else _ServedEpochs(self.session, *parts)
        order = np.arange(len(y))
        rows = int((~is_validation).sum())
        stop = self._stop(rows, score)
        epoch = 0
        for epoch in range(1, most + 1):
            if self.shuffle:
                row_steps.shuffle(order, seed)
            state[row_steps.OBJECTIVE] = 0.0
            epochs.run(order[~is_validation[order]] if self.early_stopping else order)
            if not epochs.is_finite:
                raise ValueError(
                    "Floating-point under-/overflow occurred at epoch"
                    f" #{epoch}. Scaling input data with StandardScaler or"
                    " MinMaxScaler might help."
                )
            if self.verbose:
                sys.stdout.write(_report(epoch, epochs, rows))
            if stop(epochs):
                break
        epochs.finish()
        ends = state[[row_steps.INTERCEPT, row_steps.AVERAGE_INTERCEPT]]
        return float(ends[0]), float(ends[1]), epoch

    def _stop(self, rows: int, score: Callable[..., float] | None) -> Callable[[_Epochs], bool]:
        """A function that says after each epoch whether it was the last."""
        tol = -math.inf if self.tol is None else self.tol
        best, same = -math.inf, 0

        def stop(epochs: _Epochs) -> bool:
            nonlocal best, same
            state = epochs.state
            if score is not None:
                gain = float(score(epochs.coefficients(), float(state[row_steps.INTERCEPT])))
            else:
                gain = -float(state[row_steps.OBJECTIVE]) / rows
            same = same + 1 if tol > -math.inf and gain < best + tol else 0
            best = max(best, gain)
            if same < self.n_iter_no_change:
                return False
            if self.learning_rate != "adaptive" or state[row_steps.STEP_SIZE] <= 1e-6:
                return True
            state[row_steps.STEP_SIZE] /= 5.0
            same = 0
            return False

        return stop


def _report(epoch: int, epochs: _Epochs, rows: int) -> str:
    """A line of progress."""
    norm = float(np.linalg.norm(epochs.coefficients()))
    objective = epochs.state[row_steps.OBJECTIVE] / rows
    intercept = epochs.state[row_steps.INTERCEPT]
    return f"epoch {epoch}: mean objective {objective:.6g}, |coef| {norm:.4g}, {intercept=:.4g}\n"


class SGDClassifier(_Stochastic, sklearn.linear_model.SGDClassifier):
    """Linear classifiers by stochastic gradient descent, one against the rest for many classes.

    It minimizes ``mean(w loss) + alpha ((1 - l1_ratio) / 2 |coef|^2 + l1_ratio |coef|_1)``.

    Parameters
    ----------
    loss, penalty, alpha, l1_ratio, fit_intercept, max_iter, tol, shuffle, verbose, epsilon : Any
        As in scikit-learn's class.
    n_jobs : int, optional
        No effect.
    random_state, learning_rate, eta0, power_t, early_stopping, validation_fraction : Any
        As in scikit-learn's class.
    n_iter_no_change, class_weight, warm_start, average : Any
        As in scikit-learn's class.
    session : Session, optional
        A session of ``distvec``: coefficients and their average are on its servers while they are
        trained. By default they are in this process.

    Notes
    -----
    Steps, step sizes and the order of the rows are scikit-learn's, so coefficients agree up to
    rounding. With ``early_stopping`` the score of an epoch belongs to its coefficients;
    scikit-learn leaves out the scale of the coefficients there and can stop in another epoch. With
    ``average`` a ``partial_fit`` continues from the last intercept, so parts give the same model as
    one epoch over all rows; scikit-learn continues from an earlier intercept.

    With a session an epoch takes two requests for each server, vector and 1024 rows.

    Examples
    --------
    >>> from distvec.sklearn import SGDClassifier
    >>> X, y = [[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 3.0]], ["a", "a", "b", "b"]
    >>> model = SGDClassifier(random_state=0).fit(X, y)
    >>> model.predict(X).tolist()
    ['a', 'a', 'b', 'b']
    """

    _expanded_class_weight: Array
    classes_: Array

    def _fit_binary(
        self,
        X: Matrix,
        y: Array,
        alpha: float,
        sample_weight: Array,
        learning_rate: str,
        max_iter: int,
    ) -> None:
        negative, positive = self._expanded_class_weight
        rule = self._rule(X, positive, negative)
        intercept, epochs = self._fit_one(
            1, X, y, sample_weight, max_iter, rule, self.random_state, None
        )
        self._count(epochs, X)
        if not self.average:
            self.coef_, self.intercept_ = self.coef_.reshape(1, -1), np.atleast_1d(intercept)
            return
        self._standard_intercept = np.atleast_1d(intercept)
        self._choose_average((1, -1))

    def _fit_multiclass(
        self,
        X: Matrix,
        y: Array,
        alpha: float,
        learning_rate: str,
        sample_weight: Array,
        max_iter: int,
    ) -> None:
        mask = self._make_validation_split(y, sample_mask=sample_weight > 0)
        random = check_random_state(self.random_state)
        seeds = random.randint(_LARGEST_SEED, size=len(self.classes_))
        most, intercepts = 0, self._standard_intercept if self.average else self.intercept_
        for i, seed in enumerate(seeds):
            rule = self._rule(X, self._expanded_class_weight[i], 1.0)
            found = self._fit_one(i, X, y, sample_weight, max_iter, rule, seed, mask)
            intercepts[i], most = found[0], max(most, found[1])
        self._count(most, X)
        if self.average:
            self._choose_average(self._standard_coef.shape)

    def _fit_one(
        self,
        i: int,
        X: Matrix,
        y: Array,
        weights: Array,
        most: int,
        rule: Rule,
        random_state: Any,
        mask: Array | None,
    ) -> tuple[float, int]:
        """Train the coefficients of a class against the others; the intercept and the epochs."""
        signs = np.where(y == self.classes_[i], 1.0, -1.0).astype(X.dtype)
        place = 0 if len(self.classes_) == 2 else i
        random = check_random_state(random_state)
        random.randint(1, _LARGEST_SEED)  # scikit-learn draws it for another use
        if mask is None:
            mask = self._make_validation_split(signs, sample_mask=weights > 0)
        classes = np.array([-1, 1], dtype=signs.dtype)
        score = self._make_validation_score_cb(mask, X, signs, weights, classes=classes)
        is_averaged = bool(self.average)
        coef = self._standard_coef if is_averaged else self.coef_
        intercepts = self._standard_intercept if is_averaged else self.intercept_
        intercept, average, epochs = self._train(
            X,
            signs,
            weights,
            coef.reshape(-1, X.shape[1])[place],
            self._average_coef.reshape(-1, X.shape[1])[place] if is_averaged else None,
            (intercepts[place], self._average_intercept[place] if is_averaged else 0.0),
            rule,
            random.randint(_LARGEST_SEED),
            most,
            mask,
            score,
        )
        if is_averaged:
            self._average_intercept[place] = average
        return intercept, epochs

    def _count(self, epochs: int, X: Matrix) -> None:
        self.t_ += epochs * X.shape[0]
        self.n_iter_ = epochs

    def _choose_average(self, shape: tuple[int, ...]) -> None:
        is_ready = self.average <= self.t_ - 1.0
        coef = self._average_coef if is_ready else self._standard_coef
        self.coef_ = coef.reshape(shape)
        self.intercept_ = self._average_intercept if is_ready else self._standard_intercept


class SGDRegressor(_Stochastic, sklearn.linear_model.SGDRegressor):
    """Linear regression by stochastic gradient descent.

    It minimizes ``mean(w loss) + alpha ((1 - l1_ratio) / 2 |coef|^2 + l1_ratio |coef|_1)``.

    Parameters
    ----------
    loss, penalty, alpha, l1_ratio, fit_intercept, max_iter, tol, shuffle, verbose, epsilon : Any
        As in scikit-learn's class.
    random_state, learning_rate, eta0, power_t, early_stopping, validation_fraction : Any
        As in scikit-learn's class.
    n_iter_no_change, warm_start, average : Any
        As in scikit-learn's class.
    session : Session, optional
        A session of ``distvec``: coefficients and their average are on its servers while they are
        trained. By default they are in this process.

    See Also
    --------
    SGDClassifier : For the differences from scikit-learn.

    Examples
    --------
    >>> from distvec.sklearn import SGDRegressor
    >>> X = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> model = SGDRegressor(eta0=0.1, tol=1e-6, random_state=0).fit(X, 3.0 * X[:, 0] + 1.0)
    >>> model.predict([[0.5]]).round(1)
    array([2.5])
    """

    def _fit_regressor(
        self,
        X: Matrix,
        y: Array,
        alpha: float,
        loss: str,
        learning_rate: str,
        sample_weight: Array,
        max_iter: int,
    ) -> None:
        if not hasattr(self, "t_"):
            self.t_ = 1.0
        mask = self._make_validation_split(y, sample_mask=sample_weight > 0)
        score = self._make_validation_score_cb(mask, X, y, sample_weight)
        random = check_random_state(self.random_state)
        seed = random.randint(0, _LARGEST_SEED)
        random.randint(1, _LARGEST_SEED)  # scikit-learn draws it for another use
        is_averaged = bool(self.average)
        coef = self._standard_coef if is_averaged else self.coef_
        first = (self._standard_intercept if is_averaged else self.intercept_)[0]
        intercept, average, self.n_iter_ = self._train(
            X,
            y,
            sample_weight,
            coef,
            self._average_coef if is_averaged else None,
            (first, self._average_intercept[0] if is_averaged else 0.0),
            self._rule(X, 1.0, 1.0),
            seed,
            max_iter,
            mask,
            score,
        )
        self.t_ += self.n_iter_ * X.shape[0]
        self.intercept_ = np.atleast_1d(intercept)
        if is_averaged:
            self._average_intercept = np.atleast_1d(average)
            self._standard_intercept = self.intercept_
            self.coef_ = coef
            if self.average <= self.t_ - 1.0:
                self.coef_, self.intercept_ = self._average_coef, self._average_intercept
