"""An objective over rows in the memory of this process, all of them or some at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.losses.input_rows import Features, InputRows, rows_for
from distvec.losses.loss import (
    Arrays,
    Loss,
    Parameter,
    PhasedLoss,
    check_features,
    check_intercept,
    check_loss,
    positive_weight,
    shape_of,
    warn_renamed,
)
from distvec.losses.rows import Floats, Rows, column_sums, standard_deviations
from distvec.objectives.base import ObjectiveBase
from distvec.objectives.model import Model, Weights
from distvec.objectives.penalties import Penalty
from optim.stochastic.minibatches import Order


@dataclass(frozen=True)
class Batches:
    """Batch k = 0, 1, ... of ``rows``: a function of the orders' seed and k alone.

    One of ``order``, of all rows, and ``terms``, of batches that are the same in each epoch, is
    given.
    """

    rows: Rows
    size: int
    order: Order | None
    terms: Order | None

    @classmethod
    def of(cls, rows: Rows, size: int, *, shuffle: bool, fixed: bool, seed: int) -> Batches:
        """ValueError for a size that there is not. Rows of ``fixed`` batches are copied once."""
        if not 1 <= size <= len(rows):
            raise ValueError(
                f"batch_size={size!r}; must be between 1 and {len(rows)}, the number of rows"
            )
        if not seed >= 0:
            raise ValueError(f"seed={seed!r}; must be 0 or more")
        if not fixed:
            return cls(rows, size, Order(len(rows), shuffle, seed), None)
        sample = Order(len(rows), True, seed).epoch(0)
        return cls(rows.take(sample), size, None, Order(-(-len(rows) // size), shuffle, seed))

    @property
    def per_epoch(self) -> int:
        """After how many each row was seen once; the last of them may be smaller."""
        return -(-len(self.rows) // self.size)

    def at(self, k: int) -> Rows:
        """The rows of batch k: a copy, where their order is new."""
        epoch, place = divmod(k, self.per_epoch)
        if self.order is not None and self.order.shuffle:
            return self.rows.take(self.order.epoch(epoch)[self._part(place)])
        return self.rows[self._part(place if self.terms is None else self.terms.number(k))]

    def _part(self, place: int) -> slice:
        start = place * self.size
        return slice(start, min(start + self.size, len(self.rows)))


Values = npt.NDArray[Any]


class Objective(ObjectiveBase):
    """Mean of a loss over rows in memory, plus a penalty.

    ``objective(x)`` returns value and gradient. Value and gradient contain the smooth part of the
    penalty. ``minimize`` and ``fit`` pass the rest of it to the solver.

    Parameters
    ----------
    rows : Rows or tuple
        A pair of features and labels, or ``Rows(X, y, weights=..., offsets=..., groups=...,
        events=...)``. Features are a SciPy sparse matrix or an array, ``(rows, n)``.
    loss : Loss
        The loss, such as ``Logistic()``, or a function with ``row_loss`` or ``block_loss``.
    penalty : Proximal, list or dict, optional
        The penalty, such as ``optim.ElasticNet(l1=0.0, l2=1e-4)``. A list is a sum. A dict has a
        penalty for each parameter.
    intercept : bool, default False
        Whether the parameters have one more row, the last, which is added to every margin and not
        penalised.
    standardization : bool, default False
        Whether the penalty applies to the coefficients of standardized features, as in MLlib.
    positive_label : float, optional
        For losses of two classes, the label of the positive class. By default labels are {0, 1} or
        {-1, 1}.
    seed : int, default 0
        Seed of the random values that some losses start from.

    Raises
    ------
    TypeError, ValueError
        If rows, labels, loss and penalty do not fit together, or if numbers are not finite.

    See Also
    --------
    distvec.spark.Objective : The same for the rows of a DataFrame.

    Notes
    -----
    The mean is the weighted sum of the losses divided by the sum of the weights. Features keep the
    dtype float32. Sparse features over many columns are also stored by columns if an evaluation is
    faster so.

    Examples
    --------
    >>> from distvec.losses import Huber, Objective
    >>> X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([2.0, 4.0, 6.0, 50.0])
    >>> objective = Objective((X, y), loss=Huber(), penalty=optim.SquaredL2Norm(0.01))
    >>> result = objective.minimize()
    >>> result.success, result.x.round(1)
    (True, array([2.3]))
    >>> objective.fit().predict([[10.0]]).round(0)
    array([23.])
    """

    def __init__(
        self,
        rows: InputRows,
        *,
        loss: Loss,
        penalty: Penalty | None = None,
        intercept: bool = False,
        standardization: bool = False,
        positive_label: float | None = None,
        seed: int = 0,
    ) -> None:
        check_loss(loss)
        check_intercept(loss, intercept)
        ready, self.loss, self.classes = rows_for(rows, loss, positive_label)
        check_features(ready.columns, intercept=intercept)
        self.data = ready.for_many_products()
        """The rows as the loss sees them."""
        self.intercept, self.seed = intercept, seed
        self._share: float | None = None
        self._set_penalty(penalty, standardization=standardization)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.data)

    @property
    def features(self) -> int:
        """Number of features."""
        return self.data.columns

    @property
    def dimension(self) -> int:
        """Number of rows of the parameters: the features, plus one for an intercept."""
        return self.features + self.intercept

    @property
    def layouts(self) -> dict[int, str]:
        """The order in which products take the elements, and the reason, under the key 0."""
        return {0: self.data.layout}

    @property
    def weight_sum(self) -> float:
        """Sum of the row weights; the number of rows if there are no weights."""
        return self.data.weight_sum

    def minibatches(
        self, batch_size: int, *, shuffle: bool = True, fixed: bool = True, seed: int = 0
    ) -> SampledObjective:
        """Return this objective with minibatches, for stochastic solvers such as ``"SGD"``.

        Parameters
        ----------
        batch_size : int
            The number of rows of a batch.
        shuffle : bool, default True
            Whether each epoch has a new order.
        fixed : bool, default True
            Whether the batches are the same in each epoch, as random samples, so that only their
            order changes. The rows are copied once. With False the order of the rows changes and
            each batch is a copy. Solvers that store a gradient for each batch (``"SAG"``) need
            True.
        seed : int, default 0
            Seed of samples and orders.

        Returns
        -------
        SampledObjective
            The objective, with its batches.

        Raises
        ------
        ValueError
            If the loss compares rows with one another, as ``Cox`` does; if an argument is out of
            range.

        Notes
        -----
        The value of a batch is the weighted sum of its losses, times the number of batches,
        divided by the sum of all weights, plus the penalty. So the mean over all batches is the
        objective.
        """
        if isinstance(self.loss, PhasedLoss) or self.loss.order:
            raise ValueError(
                f"minibatches() is not available for {self.loss}, which compares rows with one "
                "another; use a full-batch solver, such as L-BFGS"
            )
        sampled = object.__new__(SampledObjective)
        sampled.__dict__.update(self.__dict__)
        sampled._batches = Batches.of(
            self.data, batch_size, shuffle=shuffle, fixed=fixed, seed=seed
        )
        return sampled

    def margins(self, x: Weights, features: Features | None = None) -> Floats:
        """Return the margins of rows: linear predictors rather than probabilities.

        Parameters
        ----------
        x : array or dict of arrays
            The parameters.
        features : array or SciPy sparse matrix, optional
            Other rows, ``(rows, n)``. By default the rows of this objective, with their offsets.

        Returns
        -------
        array of float64, (rows,) or (rows, k)
            A margin, or one for each of ``k`` classes.

        See Also
        --------
        model : For probabilities and labels.
        """
        if features is not None:
            return self.model(x).margins(features)
        return self.loss.scores(self.data, self._arrays(x), intercept=self.intercept)

    def scores(self, x: Weights, features: Features | None = None) -> Floats:
        """Deprecated: use ``margins``."""
        warn_renamed("Objective.scores()", "margins()")
        return self.margins(x, features)

    def model(self, x: Weights) -> Model:
        """Return parameters as a model with the loss, intercept and classes of this objective.

        Parameters
        ----------
        x : array or dict of arrays
            The parameters, such as ``result.x``.

        Returns
        -------
        Model
            It predicts, and can be saved.
        """
        arrays = self._arrays(x)
        return Model(
            self._given(arrays),
            loss=self.loss,
            intercept=self.intercept,
            num_features=self.features,
            classes=self.classes,
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.loss}, {self.rows:,} rows of "
            f"{self.features:,} features, penalty={self.penalty}, intercept={self.intercept}>"
        )

    # --- what ObjectiveBase asks for --------------------------------------------------------------

    def _mean(self, arrays: Arrays) -> tuple[np.float64, Arrays]:
        found = self.loss.sums(self.data, arrays, intercept=self.intercept)
        weight = self._share or positive_weight(self.loss, found.weight)
        return np.float64(found.value) / weight, _means_like(arrays, found.gradients, weight)

    def _mean_product(self, arrays: Arrays, directions: Arrays) -> Arrays:
        found = self.loss.products(self.data, arrays, directions, intercept=self.intercept)
        return _means_like(arrays, found, self._share or self.loss.weight(self.data))

    def _zeros(self, parameter: Parameter) -> Values:
        return np.zeros(self._shape(parameter))

    def _start(self, parameter: Parameter) -> Values:
        if parameter.start is not None:
            return parameter.start.copy()
        if not parameter.spread:
            return self._zeros(parameter)
        seed = self.seed if parameter.seed is None else parameter.seed
        rng = np.random.default_rng((seed, *parameter.name.encode()))  # each has its own numbers
        return rng.normal(0.0, parameter.spread, self._shape(parameter))

    def _is_penalised(self, parameter: Parameter) -> Values | None:
        if not parameter.is_of_features:
            return np.zeros(self._shape(parameter), bool)
        if not parameter.has_intercept(self.intercept):
            return None
        mask = np.ones(self._shape(parameter), bool)
        mask[-1] = False
        return mask

    def _deviations(self, parameter: Parameter) -> Floats:
        if not parameter.is_of_features:
            return np.ones((parameter.rows or 0, *[1 for _ in parameter.row]))
        found = standard_deviations(self.data)
        if parameter.has_intercept(self.intercept):
            found = np.append(found, 1.0)
        return found[:, None] if parameter.row else found

    def _means(self) -> Floats:
        means: Floats = column_sums(self.data) / self.data.weight_sum
        return means

    def _arrays(self, given: Any) -> Arrays:
        """An array for each parameter, checked."""
        arrays = tuple(map(np.asarray, super()._arrays(given)))
        for parameter, array in zip(self.loss.parameters, arrays, strict=True):
            name, shape = parameter.name or "x", self._shape(parameter)
            if array.shape != shape:
                raise ValueError(f"{name} has the shape {array.shape}, {self.loss} needs {shape}")
            if array.dtype.kind not in "fiu":
                raise TypeError(f"{name} has the dtype {array.dtype}; must be real numbers")
        return arrays

    def _shape(self, parameter: Parameter) -> tuple[int, ...]:
        return shape_of(parameter, self.features, intercept=self.intercept)


class SampledObjective(Objective):
    """The result of ``minibatches``: the whole objective, and batches of it."""

    _batches: Batches

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches after which each row was used once."""
        return self._batches.per_epoch

    @property
    def terms(self) -> Order | None:
        """The order of the batches if they are the same in each epoch, else None."""
        return self._batches.terms

    def batch(self, k: int) -> Objective:
        """Return the objective on one batch.

        Parameters
        ----------
        k : int
            The number of the batch, from 0, over all epochs.

        Returns
        -------
        Objective
            The objective over the rows of the batch.
        """
        part = object.__new__(Objective)
        part.__dict__.update(self.__dict__)
        part.data = self._batches.at(k)
        part._share = self.loss.weight(self.data) / self.batches_per_epoch
        return part


def _means_like(arrays: Arrays, sums: Arrays, weight: float) -> Arrays:
    """Means of ``sums``, in the dtypes of ``arrays``."""
    pairs = zip(sums, arrays, strict=True)
    return tuple((one / weight).astype(_float(like), copy=False) for one, like in pairs)


def _float(like: Values) -> np.dtype[Any]:
    return like.dtype if like.dtype.kind == "f" else np.dtype(np.float64)
