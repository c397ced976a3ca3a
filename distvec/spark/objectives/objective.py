"""An objective over a DataFrame's rows: its parameters and gradients live on parameter servers."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.sql import DataFrame

import distvec
from distvec import DistArray
from distvec.array.core.handle import Handle
from distvec.array.manipulation.join import concatenate
from distvec.losses import labels as label_rules
from distvec.losses.classification import Logistic
from distvec.losses.loss import (
    Loss,
    Parameter,
    PhasedLoss,
    as_arrays,
    as_given,
    check_features,
    check_intercept,
    check_loss,
    positive_weight,
    shape_of,
    warn_renamed,
)
from distvec.objectives.base import ObjectiveBase, known_features
from distvec.objectives.model import Weights
from distvec.objectives.penalties import Penalty
from distvec.spark.context import PSContext
from distvec.spark.data.columns import Columns, check_columns, check_data, feature_names
from distvec.spark.data.dataset import Dataset, FrameStandIn, PartitionedRows
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.keyed.objective import KeyedObjective
from distvec.spark.objectives.evaluation_task import LossSpec
from distvec.spark.objectives.evaluator import Evaluator, LossSums, standing_tasks
from distvec.spark.objectives.features import Moments, active_features, moments, rows_at_features
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.partition import HeldOut, Part, Sample
from optim import ElasticNet
from optim.stochastic.minibatches import Order
from ps_backend.arguments import check_choice

_MODES = ("job", "resident")
_DTYPES = ("float64", "float32")


class Objective(ObjectiveBase):
    """Mean of a loss over the rows of a DataFrame, plus a penalty.

    Parameters and gradients live on the parameter servers, rows on the executors.
    ``objective(x)`` returns value and gradient, with the smooth part of the penalty.
    ``minimize`` and ``fit`` pass the rest of it to the solver.

    Parameters
    ----------
    data : DataFrame
        The rows. They are read once, by one Spark job, and kept as blocks on the executors' disks.
    loss : Loss
        The loss, such as ``Logistic()``, or a function with ``row_loss`` or ``block_loss``.
    penalty : Proximal, list or dict, optional
        The penalty, such as ``optim.ElasticNet(l1=0.0, l2=1e-4)``. A list is a sum. A dict has a
        penalty for each parameter.
    features : str or list of str, default "features"
        A column of ml vectors or arrays, or several columns of numbers.
    label : str or None, default "label"
        The column of labels, as the loss takes them. None is for losses without labels: the label
        of a row is its number in its partition.
    weight : str, optional
        The column of row weights, 0 or more.
    offset : str, optional
        The column of offsets, which are added to the margins.
    group : str, optional
        The column that tells which rows are ranked together.
    event : str, optional
        For survival times: the column with 1 if the event was observed, 0 if the row was censored.
    held_out : str, optional
        The column with true or 1 for rows that do not train: ``held_out_value`` is their mean loss.
    intercept : bool, default False
        Whether the parameters have one more row, the last, which is added to every margin and not
        penalised.
    standardization : bool, default False
        Whether the penalty applies to the coefficients of standardized features, as in MLlib.
        Costs two evaluations.
    positive_label : float, optional
        For losses of two classes, the label of the positive class. By default labels are {0, 1} or
        {-1, 1}.
    mode : {"resident", "job"}, default "resident"
        The tasks of an evaluation. Results are bitwise identical. ``"resident"`` tasks stay
        between evaluations, so an evaluation starts quickly; this suits solvers, which evaluate
        often. ``"job"`` starts a Spark job for each evaluation, some 40 ms more, and leaves the
        slots free for other jobs in between. ``LogisticLoss`` has the default ``"job"``.
    dtype : {"float64", "float32"}, default "float64"
        The dtype of the stored features. ``"float32"`` rounds them and halves their size.
    compact : bool, default False
        Whether the parameters have rows only for features that occur in some row. ``expand`` makes
        arrays over all features of them. The other weights are 0, as at the optimum under a
        penalty. Costs two Spark jobs.
    ps : PSContext, optional
        The servers. By default the running ``PSContext``.

    Attributes
    ----------
    ps : PSContext
        The servers.
    loss : Loss
        The loss, bound to the classes of the data.
    classes : tuple of float or None
        The labels of the negative and the positive class of a loss of two classes.
    features : int
        The number of features that the parameters have rows for.
    coordinates : DistArray or None
        With ``compact``, the features that occur, as int64.

    Raises
    ------
    TypeError, ValueError
        If columns, labels, loss and penalty do not fit together. Bad rows are named with their
        place.
    LossError
        In an evaluation, if a function of the loss fails. It names partition, row block and rows.
        The objective can be evaluated again.

    See Also
    --------
    LogisticLoss : The same for logistic regression, with other defaults.
    KeyedObjective : For features that have no dense index.
    distvec.losses.Objective : The same for rows in memory, without Spark.

    Notes
    -----
    In an evaluation each task pulls the coordinates that its rows use, and pushes their part of
    the gradient. A repeated task counts once. Each partition sends two numbers and one id to the
    driver.

    Resident tasks occupy one slot for each partition, or all free slots, so other Spark jobs may
    have to wait. They end with ``close``, with the next objective, with
    ``PSContext.release_slots``, or after three seconds without an evaluation.

    ``close`` removes the blocks. The end of the last reference does so, too, soon after.

    Examples
    --------
    >>> from distvec.losses import Logistic
    >>> from distvec.spark import Objective
    >>> penalty = optim.SquaredL2Norm(0.1)
    >>> with Objective(train, loss=Logistic(), penalty=penalty, ps=ps) as objective:
    ...     result = objective.minimize()
    ...     model = objective.model(result.x)
    >>> result.success, result.x.numpy().round(2)
    (True, array([ 0.22, -1.07,  1.07, -0.22]))
    >>> model.predict(train).select("label", "prediction").show(2)
    +-----+----------+
    |label|prediction|
    +-----+----------+
    |  1.0|       1.0|
    |  0.0|       0.0|
    +-----+----------+
    only showing top 2 rows
    """

    _stack_of_user: ClassVar[int] = 2
    """Where the caller of ``__init__`` stands, for warnings: subclasses stand between."""

    def __init__(
        self,
        data: DataFrame,
        *,
        loss: Loss,
        penalty: Penalty | None = None,
        features: str | Sequence[str] = "features",
        label: str | None = "label",
        weight: str | None = None,
        offset: str | None = None,
        group: str | None = None,
        event: str | None = None,
        held_out: str | None = None,
        intercept: bool = False,
        standardization: bool = False,
        positive_label: float | None = None,
        mode: str = "resident",
        dtype: str = "float64",
        compact: bool = False,
        ps: PSContext | None = None,
    ) -> None:
        check_choice(mode, _MODES, "mode")
        check_choice(dtype, _DTYPES, "dtype")
        check_loss(loss)
        check_intercept(loss, intercept)
        names = feature_names(features)
        how = loss.takes_missing, loss.takes_tables
        columns = Columns(names, label, weight, offset, group, event, held_out, *how)
        check_columns(loss, columns)
        rule = label_rules.rule(loss.labels, positive_label)
        self.data: PartitionedRows
        if isinstance(data, FrameStandIn):
            self.data = data.read(columns, rule, dtype, loss.order, compact=compact)
            self.ps: PSContext = data.context
        else:
            self.ps = PSContext.active() if ps is None else ps
            check_data(data, self.ps)
            # If this is a notebook's cell that runs again, tasks of its last run hold the slots.
            self.ps.release_slots()
            use_driver_python(data)
            self.data = Dataset(data, columns, rule, dtype, loss.order, compact=compact)
        if loss.labels == "signs" and len(self.data.labels) == 1:
            one_class = label_rules.one_class(str(label), self.data.labels[0], self.data.rows)
            warnings.warn(one_class, stacklevel=self._stack_of_user)
        self.intercept, self._features = intercept, columns.features
        self.classes = label_rules.classes(rule, self.data.labels)
        self.coordinates: DistArray | None = None
        """The features that occur, int64, if the space has no others; else None."""
        try:
            check_features(self.data.size, intercept=intercept, name=f"features={features!r}")
            self.loss = loss.bind(self.data.labels)
            self._evaluator = self._made_evaluator(mode)
            if compact:
                self.coordinates = active_features(self.ps, self.data)
            self.features = self.data.size if self.coordinates is None else len(self.coordinates)
            self._part: Part | Sample | None = None
            self._share: float | None = None
            self._set_penalty(penalty, standardization=standardization)
        except BaseException:
            self.data.close()
            raise

    def _made_evaluator(self, mode: str) -> Evaluator:
        work = LossSpec(self.loss, self.intercept)
        standing = None
        if mode == "resident" or not isinstance(self.data, Dataset):
            standing = standing_tasks(self.ps, self.data, work)
        evaluator = Evaluator(self.ps, self.data, work, standing)
        self._hold = self.ps.finalizers.hold(evaluator.close)
        return evaluator

    def _with_loss_options(self, **options: float) -> Self:
        """The same rows and tasks, and another value of some fields of the loss."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._evaluator = self._evaluator.with_options(options)
        other.loss = other._evaluator.work.loss
        return other

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.data.rows

    @property
    def weight_sum(self) -> float:
        """Sum of the row weights; the number of rows if there are no weights."""
        return self.data.weight_sum

    def held_out_value(self, x: Weights) -> float:
        """Return the mean loss over the rows that are held out, without the penalty.

        Parameters
        ----------
        x : array or dict of arrays
            The parameters.

        Returns
        -------
        float
            It costs as much as an evaluation of so many rows.

        Raises
        ------
        ValueError
            If no row is held out, or all that are have weight 0.
        """
        if not self.data.held_out:
            raise ValueError("no row is held out; name the column that tells which: held_out=...")
        arrays = self._used(self._arrays(x))
        found = self._evaluator.sums(arrays, self.coordinates, HeldOut())
        return float(found.value / positive_weight(self.loss, found.weight))

    @property
    def dimension(self) -> int:
        """Number of rows of the parameters: the features, plus one for an intercept."""
        return self.features + self.intercept

    @property
    def mode(self) -> str:
        """The tasks of an evaluation: ``"job"`` or ``"resident"``."""
        return "job" if self._evaluator.standing_tasks is None else "resident"

    @property
    def layouts(self) -> dict[int, str]:
        """For each partition, the order in which products take the elements, and the reason."""
        return dict(self.data.layouts)

    def minibatches(
        self, batch_size: int, *, shuffle: bool = True, replace: bool = False, seed: int = 0
    ) -> SampledObjective:
        """Return this objective with minibatches, for stochastic solvers such as ``"SGD"``.

        Parameters
        ----------
        batch_size : int
            About the number of rows of a batch.
        shuffle : bool, default True
            Whether the batches have a new order in each epoch.
        replace : bool, default False
            Whether each batch is drawn independently, so that some repeat before others occur.
        seed : int, default 0
            Seed of orders and draws. The same seed gives the same batches for any number of
            executors.

        Returns
        -------
        SampledObjective
            The objective, with its batches.

        Raises
        ------
        ValueError
            If the loss compares each row with all others, as ``Cox`` does; if an argument is out
            of range.

        Notes
        -----
        A batch has an equal share of the rows of each partition, always the same ones, as a random
        sample. Its value is the weighted sum of its losses, times the number of batches, divided
        by the sum of all weights, plus the penalty. So the mean over all batches is the objective.
        A step costs as much as an evaluation, minus the rows that it leaves out.
        """
        if isinstance(self.loss, PhasedLoss):
            raise ValueError(
                f"minibatches() is not available for {self.loss}, which needs all rows; use a "
                "full-batch solver, such as L-BFGS"
            )
        if not isinstance(batch_size, int | np.integer):
            raise TypeError(f"batch_size={batch_size!r}; must be a whole number")
        if not 1 <= batch_size <= self.rows:
            raise ValueError(
                f"batch_size={batch_size!r}; must be between 1 and {self.rows}, the number of rows"
            )
        if not seed >= 0:
            raise ValueError(f"seed={seed!r}; must be 0 or more")
        sampled = object.__new__(SampledObjective)
        sampled.__dict__.update(self.__dict__)
        count = -(-self.rows // batch_size)
        sampled._order = (Draws if replace else Order)(count, shuffle, seed)
        sampled._share = None
        sampled._batch_share = self._total_weight() / count
        return sampled

    def _total_weight(self) -> float:
        """What the mean over all rows divides by."""
        if type(self.loss).weight is Loss.weight:
            return self.weight_sum
        arrays = self._used(self._arrays(self.start()))
        return self._evaluator.sums(arrays, self.coordinates).weight

    def margins(self, data: DataFrame, x: Weights, *, output: str = "margin") -> DataFrame:
        """Add a column with the margins of a model; the same as ``model(x).margins(data)``.

        Margins are linear predictors. ``model(x).probabilities(data)`` adds probabilities.

        Parameters
        ----------
        data : DataFrame
            The rows.
        x : array or dict of arrays
            The parameters, such as ``result.x``.
        output : str, default "margin"
            The name of the new column.

        Returns
        -------
        DataFrame
            ``data`` with the column. Lazy.
        """
        return self.model(x).margins(data, output=output)  # type: ignore[no-any-return]

    def scores(self, data: DataFrame, x: Weights, *, output: str = "score") -> DataFrame:
        """Deprecated: use ``margins``, whose column is ``margin`` by default."""
        warn_renamed(f"{type(self).__name__}.scores()", "margins()")
        return self.margins(data, x, output=output)

    def model(self, x: Weights) -> Model:
        """Return parameters as a model with the loss, intercept and features of this objective.

        Parameters
        ----------
        x : array or dict of arrays
            The parameters, such as ``result.x`` or the result of ``expand``.

        Returns
        -------
        Model
            It predicts rows of DataFrames, and can be saved and exported to MLlib.
        """
        arrays = as_arrays(x, self.loss.parameters)
        whole = shape_of(self.loss.parameters[0], self.data.size, intercept=self.intercept)
        if self.coordinates is not None and getattr(arrays[0], "shape", None) == whole:
            return self._model_of(None)(x)
        return self._model_of(self.coordinates)(as_given(self._arrays(x), self.loss.parameters))

    def _model_of(self, coordinates: DistArray | None) -> Callable[[Any], Model]:
        return functools.partial(
            Model,
            loss=self.loss,
            intercept=self.intercept,
            num_features=self.data.size,
            coordinates=coordinates,
            classes=self.classes,
            features=self._features,
        )

    def _remember(self, x: Any) -> None:
        make = self._model_of(self.coordinates)
        for array in as_arrays(x, self.loss.parameters):
            self.ps.fitted.add(array, make)

    def expand(self, x: Weights) -> Any:
        """Return parameters over all features, with 0 for those that ``compact`` left out.

        Parameters
        ----------
        x : array or dict of arrays
            The parameters.

        Returns
        -------
        array or dict of arrays
            Lazy. Without ``compact`` it is ``x``.
        """
        self._arrays(x)
        return x if self.coordinates is None else self.model(x).whole().x

    def close(self) -> None:
        """End resident tasks and remove the stored rows.

        A later evaluation raises ValueError. Closing again has no effect.
        """
        self._evaluator.close()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.loss}, {self.rows:,} rows of {self.data.size:,} "
            f"features in {self.data.filled} partitions, dimension={self.dimension}, "
            f"penalty={self.penalty}, intercept={self.intercept}, mode={self.mode!r}"
            f"{', closed' * self.data.is_closed}>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled, because it starts Spark tasks itself; call "
            "it on the driver, outside of Spark tasks"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what ObjectiveBase asks for --------------------------------------------------------------

    def _mean(self, arrays: tuple[DistArray, ...]) -> tuple[Any, tuple[DistArray, ...]]:
        found = self._loss_sums(arrays)
        weight = self._share or positive_weight(self.loss, found.weight)
        value = self.ps.full((), found.value / weight)
        return value, tuple(gradient / weight for gradient in found.gradients)

    def _loss_sums(self, arrays: tuple[DistArray, ...]) -> LossSums:
        return self._evaluator.sums(arrays, self.coordinates, self._part)

    def _mean_product(
        self, arrays: tuple[DistArray, ...], directions: tuple[DistArray, ...]
    ) -> tuple[DistArray, ...]:
        found = self._evaluator.products(arrays, directions, self.coordinates)
        return tuple(product / found.weight for product in found.gradients)

    def _zeros(self, parameter: Parameter) -> DistArray:
        return self.ps.zeros(self._shape(parameter))

    def _start(self, parameter: Parameter) -> DistArray:
        if parameter.start is not None:
            return self.ps.array(parameter.start)
        if not parameter.spread:
            return self._zeros(parameter)
        shape = self._shape(parameter)
        drawn: DistArray = self.ps.random.normal(
            scale=parameter.spread, size=shape, seed=parameter.seed
        )
        return drawn

    def _continued(self, parameter: Parameter, given: Any, start: DistArray) -> DistArray:
        model: Any = given if isinstance(given, Handle) else self.ps.array(given)
        if self.coordinates is None or not parameter.is_of_features:
            return super()._continued(parameter, model, start)  # type: ignore[no-any-return]
        intercept = self._has_intercept(parameter)
        whole = shape_of(parameter, self.data.size, intercept=self.intercept)
        known = known_features(parameter, model.shape, whole, intercept=intercept)
        return rows_at_features(model, self.coordinates, known, start, intercept=intercept)

    def _is_penalised(self, parameter: Parameter) -> DistArray | None:
        if not parameter.is_of_features:
            return self.ps.zeros(self._shape(parameter), bool)
        if not self._has_intercept(parameter):
            return None
        length, *row = self._shape(parameter)
        is_weight = self.ps.arange(length) < length - 1
        return is_weight[:, None] if row else is_weight

    def _deviations(self, parameter: Parameter) -> DistArray:
        if not parameter.is_of_features:
            return self.ps.ones((parameter.rows or 0, *[1 for _ in parameter.row]))
        found = self._moments.deviations
        if self._has_intercept(parameter):
            found = concatenate([found, self.ps.ones(1)])
        return found[:, None] if parameter.row else found

    def _means(self) -> DistArray:
        return self._moments.means

    @functools.cached_property
    def _moments(self) -> Moments:
        return moments(self._evaluator, self.coordinates)

    def _arrays(self, x: Any) -> tuple[DistArray, ...]:
        """An array for each parameter, checked."""
        if self.ps.is_stopped:
            raise RuntimeError(
                "the PSContext of this objective was stopped; start one with "
                f"PSContext.get_or_create(spark), and create a new {type(self).__name__}"
            )
        arrays = as_arrays(x, self.loss.parameters)
        for parameter, array in zip(self.loss.parameters, arrays, strict=True):
            self._check(parameter.name or "w", array, self._shape(parameter))
        return arrays

    def _check(self, name: str, array: object, shape: Sequence[int]) -> None:
        if not isinstance(array, Handle):
            raise TypeError(
                f"{name} is {type(array).__name__}; create a DistArray: ps.array({name})"
            )
        if array.session is not self.ps:
            raise ValueError(
                f"{name} was created by another PSContext than this {type(self).__name__}; copy "
                f"it: objective.ps.array({name}.numpy())"
            )
        if array.shape != shape:
            is_more = self.intercept and shape[0] > self.features
            last = ", the last being the intercept" if is_more else ""
            raise ValueError(f"{name} has shape {array.shape}, this objective needs {shape}{last}")
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"{name} has dtype {array.dtype}; allowed are float64 and float32")

    def _shape(self, parameter: Parameter) -> tuple[int, ...]:
        return shape_of(parameter, self.features, intercept=self.intercept)

    def _has_intercept(self, parameter: Parameter) -> bool:
        return parameter.has_intercept(self.intercept)


class SampledObjective(Objective):
    """The result of ``minibatches``: the whole objective, and batches of it."""

    eager = True
    """A call evaluates: solvers need not ask for a gradient that their next step makes use of."""

    _order: Order
    _batch_share: float
    """Of the weights, what is divided by in a batch."""

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches after which each row was used once."""
        return self._order.count

    @property
    def terms(self) -> Order:
        """The order of the batches, which are the same in each epoch."""
        return self._order

    def batch(self, k: int) -> Objective:
        """Return the objective on one batch.

        Parameters
        ----------
        k : int
            The number of the batch, from 0, over all epochs.

        Returns
        -------
        Objective
            It shares the rows with this objective.
        """
        part = object.__new__(Objective)
        part.__dict__.update(self.__dict__)
        part._part = Part(self._order.number(k), self._order.count)
        part._share = self._batch_share
        return part


@dataclass(frozen=True)
class Draws(Order):
    """Numbers 0 .. count - 1 drawn with replacement: the k-th is a function of the seed and k."""

    def at(self, k: int) -> int:
        """The k-th number."""
        return int(np.random.default_rng((self.seed, k)).integers(self.count))


class LogisticLoss(Objective):
    """Mean logistic loss over the rows of a DataFrame, plus ``0.5 l2 ||w||^2``.

    It is ``Objective`` with ``loss=Logistic()`` and a squared l2 penalty. ``loss(w)`` returns
    value and gradient.

    Parameters
    ----------
    data : DataFrame
        The rows.
    l2 : float, default 0.0
        Factor of the penalty.
    mode : {"job", "resident"}, default "job"
        The tasks of an evaluation, as for ``Objective``. The default ``"job"`` occupies no slots
        between evaluations, which suits evaluations by hand. Use ``"resident"`` to run a solver
        faster.
    keys : bool, default False
        Whether features are keys without a dense index. It makes a ``KeyedObjective`` instead,
        which takes its own arguments and trains itself by minibatches.
    **options
        The other arguments of ``Objective``, or of ``KeyedObjective``.

    Raises
    ------
    TypeError, ValueError
        If an argument is unknown or out of range. Arguments of MLlib are translated.

    See Also
    --------
    Objective : For other losses and penalties.

    Notes
    -----
    The value is ``sum c ln(1 + exp(-y m)) / sum c + 0.5 l2 ||w||^2`` with margins ``m``, labels
    ``y`` +1 or -1 and row weights ``c``. The column ``label`` contains {0, 1}, {-1, 1}, or two
    values of which ``positive_label`` is +1.

    Examples
    --------
    >>> from distvec.spark import LogisticLoss
    >>> with LogisticLoss(train, l2=0.1, ps=ps) as loss:
    ...     value, gradient = loss(ps.zeros(loss.dimension))
    >>> round(float(value), 4), gradient.shape
    (0.6931, (4,))
    """

    _stack_of_user: ClassVar[int] = 3

    def __new__(
        cls,
        data: DataFrame | None = None,
        *,
        l2: float | None = None,
        mode: str | None = None,
        keys: bool = False,
        **options: Any,
    ) -> Any:
        """Make a loss over a dense index of features, or over ``keys``."""
        if not keys:
            return super().__new__(cls)
        given = {"l2": l2, "mode": mode}  # which it does not have: its error says so
        options |= {name: value for name, value in given.items() if value is not None}
        return KeyedObjective(data, **options)

    def __init__(
        self,
        data: DataFrame,
        *,
        l2: float = 0.0,
        mode: str = "job",
        keys: bool = False,
        **options: Any,
    ) -> None:
        check_options(options, _OPTIONS)
        self.l2 = _penalty_factor(l2, "l2")
        super().__init__(data, loss=Logistic(), penalty=_l2(l2), mode=mode, **options)

    def with_l2(self, l2: float) -> LogisticLoss:
        """Return the loss over the same rows with another penalty.

        Parameters
        ----------
        l2 : float
            Factor of the penalty.

        Returns
        -------
        LogisticLoss
            It shares the rows with this loss: closing one closes both.
        """
        other = self.with_penalty(_l2(_penalty_factor(l2, "l2")))
        other.l2 = float(l2)
        return other

    def l1_weights(self, l1: float) -> float | DistArray:
        """Return weights for ``OWLQN(l1=...)`` that leave the intercept free.

        Parameters
        ----------
        l1 : float
            Factor of the l1 norm.

        Returns
        -------
        float or DistArray
            ``l1``; with an intercept an array that is 0 there.
        """
        l1 = _penalty_factor(l1, "l1")
        is_weight = self._is_penalised(self.loss.parameters[0])
        return l1 if is_weight is None else distvec.where(is_weight, l1, 0.0).persist()


_OPTIONS = [
    name
    for name in inspect.signature(Objective.__init__).parameters
    if name not in ("self", "data", "loss", "penalty")
]


def _l2(l2: float) -> ElasticNet | None:
    return ElasticNet(0.0, l2) if l2 else None


def _penalty_factor(value: float, name: str) -> float:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name}={value}; must be finite and 0 or more")
    return float(value)


_OF_MLLIB = {
    "featuresCol": "features=",
    "labelCol": "label=",
    "weightCol": "weight=",
    "regParam": "l2=, or of Objective penalty=optim.ElasticNet(l1=, l2=)",
    "elasticNetParam": "Objective(data, loss=Logistic(), penalty=optim.ElasticNet(l1=, l2=))",
    "fitIntercept": "intercept=",
    "maxIter": "minimize(max_iterations=)",
    "tol": "minimize(gradient_tolerance=)",
}


def check_options(given: Collection[str], known: Collection[str]) -> None:
    """TypeError for an argument that ``LogisticLoss`` does not have, as those of MLlib."""
    for name in given:
        if name in ("loss", "penalty"):
            raise TypeError(
                f"LogisticLoss has no argument {name!r}, but l2=; write Objective(data, "
                "loss=Logistic(), penalty=...)"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"
            hint = f": write {_OF_MLLIB[name]}" if name in _OF_MLLIB else hint
            raise TypeError(f"LogisticLoss has no argument {name!r}{hint}")
