"""Clusters around means."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import sklearn.cluster
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from distvec.losses.compiled import njit
from distvec.losses.rows import Floats
from distvec.sklearn.base import Array, warn_of_limit, without_empty_columns

_AT_ONCE = 1 << 16
"""So many distances are computed at a time: they stay in the cache."""
_FEWEST_ROWS = 256
"""At least so many rows at a time."""

_ROUNDING = 16.0
"""Distances are differences of squares, and have so many times the rounding of these."""


class _Clusters(NamedTuple):
    centers: Floats
    labels: Array
    inertia: float
    iterations: int


class KMeans(sklearn.cluster.KMeans):
    """K-means clusters by Lloyd's iterations.

    Parameters
    ----------
    n_clusters, init, n_init, max_iter, tol, verbose, random_state, copy_x, algorithm : Any
        As in scikit-learn's class. Both algorithms give the same clusters.

    Examples
    --------
    >>> from distvec.sklearn import KMeans
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> np.sort(model.cluster_centers_, axis=0), model.inertia_
    (array([[0. , 0.5],
           [9. , 0.5]]), 1.0)
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, (rows, features)
            The features.
        y : Any, optional
            Ignored.
        sample_weight : array, (rows,), optional
            The row weights. By default all are 1.

        Returns
        -------
        Self
            The estimator.
        """
        self._validate_params()
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        self._check_params_vs_input(X)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        random = check_random_state(self.random_state)
        init = self.init
        if not isinstance(init, str) and not callable(init):
            init = np.array(init, np.float64)
            self._validate_center_shape(X, init)
        means = np.zeros(X.shape[1])
        matrix: Any = X
        if isinstance(X, np.ndarray):
            means = X.mean(axis=0, dtype=np.float64)
            matrix = X - means.astype(X.dtype)
            if isinstance(init, np.ndarray):
                init = init - means
        is_occupied = np.ones(X.shape[1], bool)
        if isinstance(init, str):  # other centers may be where no row is
            matrix, is_occupied = without_empty_columns(matrix)
        norms = _squares(matrix)
        allowed = self.tol * _sum_of_variances(matrix, norms) / X.shape[1]
        best = _Clusters(np.zeros(0), np.zeros(0), np.inf, 0)
        for _ in range(self._n_init):
            centers = self._init_centroids(
                matrix,
                x_squared_norms=norms.astype(X.dtype),
                init=init,
                random_state=random,
                sample_weight=weights.astype(X.dtype),
            ).astype(np.float64)
            report = _report if self.verbose else None
            if report:
                report("Initialization complete")
            found = _lloyd(matrix, norms, weights, centers, self.max_iter, allowed, report)
            best = min(best, found, key=attrgetter("inertia"))
        distinct = len(np.unique(best.labels))
        if distinct < self.n_clusters:
            warn_of_limit(
                self,
                f"{distinct} distinct clusters were found, fewer than n_clusters="
                f"{self.n_clusters}; rows may be repeated.",
            )
        self.cluster_centers_ = np.zeros((self.n_clusters, X.shape[1]), X.dtype)
        self.cluster_centers_[:, is_occupied] = best.centers + means[is_occupied]
        self.labels_, self.inertia_ = best.labels.astype(np.int32), best.inertia
        self.n_iter_, self._n_threads = best.iterations, 1
        # scikit-learn names so many columns of `transform`.
        self._n_features_out = self.n_clusters
        return self


def _report(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _lloyd(
    X: Any,
    norms: Floats,
    weights: Floats,
    centers: Floats,
    most: int,
    allowed: float,
    report: Callable[[str], None] | None,
) -> _Clusters:
    """Until labels stay the same, or centers move less than ``allowed`` together."""
    labels, distances, same = np.full(X.shape[0], -1), norms, False
    iteration = 0
    while iteration < most:
        iteration += 1
        new, distances = _nearest(X, norms, centers)
        same, labels = bool((new == labels).all()), new
        if report:
            report(f"Iteration {iteration}, inertia {weights @ distances:.6g}")
        if same:
            break
        moved = _centers(X, norms, weights, labels, distances, centers)
        shift = float(np.square(moved - centers).sum())
        centers = moved
        if report and shift <= allowed:
            report(f"Ended: center shift {shift:.3g} is within tolerance {allowed:.3g}")
        if shift <= allowed:
            break
    if report and same:
        report("Ended: strict convergence, labels stayed the same")
    if not same:
        labels, distances = _nearest(X, norms, centers)
    return _Clusters(centers, labels, float(weights @ distances), iteration)


def _nearest(X: Any, norms: Floats, centers: Floats) -> tuple[Array, Floats]:
    """Of each row the center, and the squared distance to it."""
    squares = 0.5 * np.einsum("ij,ij->i", centers, centers)
    labels, distances = np.zeros(X.shape[0], np.intp), np.full(X.shape[0], np.inf)
    centers = centers.astype(X.dtype, copy=False)
    step = max(_FEWEST_ROWS, _AT_ONCE // len(centers))
    find_least = _find_least if hasattr(_find_least, "py_func") else _find_least_by_numpy
    for start in range(0, X.shape[0], step):
        part = slice(start, start + step)
        products = np.ascontiguousarray(centers @ X[part].T)
        find_least(squares, products, labels[part], distances[part])
    distances *= 2.0
    distances += norms
    return labels, np.maximum(distances, 0.0, out=distances)


@njit(cache=True, nogil=True)
def _find_least(squares: Floats, products: Floats, labels: Array, least: Floats) -> None:
    """Of each column of ``squares - products`` the least element and its row.

    ``labels`` is 0, and ``least`` infinite.
    """
    for row in range(len(squares)):
        for column in range(len(labels)):  # without branches: it is compiled for vector registers
            value = squares[row] - products[row, column]
            is_less = value < least[column]
            labels[column] = row if is_less else labels[column]
            least[column] = value if is_less else least[column]


def _find_least_by_numpy(squares: Floats, products: Floats, labels: Array, least: Floats) -> None:
    """The same, without a compiler."""
    differences = squares[:, None] - products
    differences.argmin(axis=0, out=labels)
    differences.min(axis=0, out=least)


def _centers(
    X: Any, norms: Floats, weights: Floats, labels: Array, distances: Floats, centers: Floats
) -> Floats:
    """The means of the rows of each center; one without rows takes the farthest row.

    Rows at their centers, up to rounding, stay there.
    """
    count = len(centers)
    totals = np.bincount(labels, weights, count)
    empty = np.flatnonzero(totals == 0.0)
    if empty.size:
        farthest = np.argsort(-distances, kind="stable")[: empty.size]
        labels = labels.copy()
        least = _ROUNDING * np.finfo(X.dtype).eps * norms[farthest]
        farthest = farthest[distances[farthest] > least]
        labels[farthest] = empty[: len(farthest)]
        totals = np.bincount(labels, weights, count)
    places = (weights.astype(X.dtype, copy=False), labels, np.arange(len(labels) + 1))
    members: Any = sp.csr_array(places, shape=(len(labels), count))
    sums: Any = members.T @ X
    table = np.asarray(sums if isinstance(X, np.ndarray) else sums.toarray(), np.float64)
    known = totals > 0.0
    table[known] /= totals[known, None]
    table[~known] = centers[~known]
    return table


def _squares(X: Any) -> Floats:
    if isinstance(X, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    return np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel()


def _sum_of_variances(X: Any, norms: Floats) -> float:
    """Of all columns; of dense rows the means are 0."""
    total = float(np.mean(norms))
    if isinstance(X, np.ndarray):
        return total
    return total - float(np.square(np.asarray(X.mean(axis=0))).sum())
