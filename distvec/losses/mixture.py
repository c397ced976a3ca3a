"""The likelihood of a mixture of normal distributions, and steps that increase it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.loss import Arrays, Loss, Parameter, Sums, weights_of
from distvec.losses.row_losses import sum_once_rounded
from distvec.losses.rows import Floats, Rows, blocks


class Normals(NamedTuple):
    """Normal distributions, and the share of each."""

    shares: Floats
    means: Floats
    """``(k, d)``."""
    covariances: Floats
    """``(k, d, d)``."""


@dataclass(frozen=True)
class Mixture(Loss):
    """``-sum c ln sum_j p_j N(x; mean_j, covariance_j)`` of ``k`` normal distributions.

    ``sums`` has no gradient but the moments that a step of expectation maximization needs, in the
    shapes of the parameters: the weights of the components, and the weighted sums of ``z`` and
    ``z z^T`` with ``z = x - center``.
    """

    count: int
    features: int
    _needs_labels: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        k, d = self.count, self.features
        return (
            Parameter("frame", row=(d,)),
            Parameter("constants", rows=1, row=(k,)),
            Parameter("means", rows=k, row=(d,)),
            Parameter("factors", rows=k * d, row=(d,)),
        )

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        k, d, values = self.count, self.features, []
        sizes, sums, squares = np.zeros((1, k)), np.zeros((k, d)), np.zeros((k, d, d))
        z = rows.margins(arrays[0], intercept=intercept)
        for part in blocks(len(rows)):
            near = z[part]
            logs = self._logs(near, arrays)
            most = logs.max(axis=1, keepdims=True)
            shares = np.exp(logs - most)
            total = shares.sum(axis=1, keepdims=True)
            costs = -(np.log(total) + most)[:, 0]
            shares /= total
            weights = weights_of(rows, part)
            if weights is not None:
                shares *= weights[:, None]
                costs *= weights
            values.append(float(costs.sum()))
            sizes += shares.sum(axis=0)
            sums += shares.T @ near
            for j in range(k):
                squares[j] += (near * shares[:, j, None]).T @ near
        moments = np.zeros((rows.columns + intercept, d)), sizes, sums, squares.reshape(-1, d)
        return Sums(sum_once_rounded(values), rows.weight_sum, moments)

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """The logarithm of the density of each component, times its share."""
        return self._logs(rows.margins(arrays[0], intercept=intercept), arrays)

    def _logs(self, z: Floats, arrays: Arrays) -> Floats:
        _, constants, means, factors = arrays
        found = np.empty((len(z), self.count))
        for j, factor in enumerate(np.asarray(factors).reshape(self.count, -1, self.features)):
            far = (z - means[j]) @ factor
            found[:, j] = constants[0, j] - 0.5 * np.einsum("ij,ij->i", far, far)
        return found

    def probabilities(self, scores: Floats) -> Floats:
        terms = np.exp(scores - scores.max(axis=1, keepdims=True))
        found: Floats = terms / terms.sum(axis=1, keepdims=True)
        return found

    def predictions(self, scores: Floats) -> Floats:
        found: Floats = scores.argmax(axis=1).astype(np.float64)
        return found


def arrays_of(normals: Normals, center: Floats) -> tuple[npt.NDArray[Any], ...]:
    """The parameters of ``Mixture``, which stand for ``normals``.

    A covariance without full rank has a density on its subspace, as in MLlib.
    """
    k, d = normals.means.shape
    constants, factors = np.empty((1, k)), np.empty((k, d, d))
    for j, covariance in enumerate(normals.covariances):
        sizes, turns = np.linalg.eigh(covariance)
        is_used = sizes > np.finfo(float).eps * max(sizes.max(), 0.0) * d
        if not is_used.any():
            raise ValueError(
                f"component {j} of the mixture has the covariance 0: its rows are equal; use fewer "
                "components"
            )
        roots = np.sqrt(np.where(is_used, sizes, 1.0))
        factors[j] = turns * np.where(is_used, 1.0 / roots, 0.0)
        constants[0, j] = -np.log(roots).sum() - 0.5 * d * math.log(2.0 * math.pi)
    with np.errstate(divide="ignore"):  # no row may belong to a component
        constants += np.log(normals.shares)
    frame = np.vstack([np.eye(d), -center])
    return frame, constants, normals.means - center, factors.reshape(k * d, d)


def normals_in(arrays: Arrays) -> Normals:
    """The distributions in the parameters of ``Mixture``, up to rounding."""
    frame, constants, means, factors = map(np.asarray, arrays)
    k, d = means.shape
    covariances, shares = np.empty((k, d, d)), np.empty(k)
    for j, factor in enumerate(factors.reshape(k, d, d)):
        lengths = np.square(factor).sum(axis=0)  # those of the turned axes, inverted
        is_used = lengths > 0.0
        axes = factor[:, is_used] / lengths[is_used]
        covariances[j] = axes @ axes.T
        constant = 0.5 * np.log(lengths[is_used]).sum() - 0.5 * d * math.log(2.0 * math.pi)
        shares[j] = np.exp(constants[0, j] - constant)
    return Normals(shares, means - frame[-1], covariances)


def normals_of(moments: Arrays, center: Floats, before: Normals) -> Normals:
    """The distributions of the greatest likelihood; those of components without rows stay."""
    sizes, sums = np.asarray(moments[1])[0], np.asarray(moments[2])
    squares = np.asarray(moments[3]).reshape(before.covariances.shape)
    means, covariances = before.means.copy(), before.covariances.copy()
    for j in np.flatnonzero(sizes > 0.0):
        near = sums[j] / sizes[j]
        means[j] = center + near
        found = squares[j] / sizes[j] - np.outer(near, near)
        covariances[j] = (found + found.T) / 2.0
    return Normals(sizes / sizes.sum(), means, covariances)
