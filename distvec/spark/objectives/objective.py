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
from distvec.objectives.penalties import Penalty
from distvec.spark.context import PSContext
from distvec.spark.data.columns import Columns, check_columns, check_data, feature_names
from distvec.spark.data.dataset import Dataset
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.keyed.objective import KeyedObjective
from distvec.spark.objectives.evaluation_task import LossSpec
from distvec.spark.objectives.evaluator import Evaluator, StandingTasks
from distvec.spark.objectives.features import active_features, rows_at_features, standard_deviations
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.partition import Part
from optim import ElasticNet
from optim.stochastic.minibatches import Order
from ps_backend.arguments import check_choice

_MODES = ("job", "resident")
_DTYPES = ("float64", "float32")


class Objective(ObjectiveBase):
    """``objective(x) -> (value, gradient)``: the mean of a loss over rows in Spark, and a penalty.

        objective = Objective(train, loss=Huber(), penalty=ElasticNet(l1=0.0, l2=1e-4))
        result = objective.minimize()

    ``value`` is the weighted sum of the losses divided by the sum of the weights, with the smooth
    part of the ``penalty``; solvers that take the rest are told by ``minimize``. ``loss`` is one of
    ``distvec.losses`` or your own (``row_loss``, ``block_loss``). ``x`` is a DistArray, or a dict
    of them where the loss says so; ``objective.start()`` makes one. With ``intercept`` it has one
    more row, the last, which is added to every margin and not penalised.

    ``features`` is a column of ml vectors or arrays, or a list of columns of numbers, in their
    order; ``label`` holds what the loss takes;
    ``weight`` and ``offset`` hold a number for each row; ``group`` says which rows are ranked
    together, and ``event`` where a time of survival is an event (1) or was not seen to its end (0).

    Making one reads the data once (one Spark job) and keeps it as blocks on the executors' disks;
    ``close`` removes them, or, soon after it, the end of the last reference. Bad rows raise
    ValueError with their place. In an evaluation the tasks pull the coordinates that their rows
    touch and push those of the gradient, and a repeated task counts once. To the driver come two
    numbers and one id a partition. What a loss raises in a task is a LossError that names
    partition, row block and rows; the objective can be evaluated again.

    ``mode`` says which tasks, and changes no bit of the result. "job": those of a Spark job for
    each evaluation, which costs some 40 ms more. "resident": tasks that stay between evaluations.
    They hold a slot for each partition, or all that are free, so other Spark jobs may have to wait:
    until ``close``, until another objective is made, or until there was no evaluation for three
    seconds.

    ``dtype`` "float32" keeps the feature values so: they are rounded, and half the bytes.

    With ``compact`` the space has only the features that occur in some row, in their order, and
    ``expand`` makes arrays over all features of those over these. Of a sparse space of 1e8 features
    1e5 rows of 50 touch 5 %, and an optimizer's vectors shrink as much. The features left out have
    the weight 0, as the optimum has under a penalty. Costs two Spark jobs.

    ``standardization`` makes the penalty that of standardized features, as MLlib means it: two
    Spark jobs.
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
        label: str = "label",
        weight: str | None = None,
        offset: str | None = None,
        group: str | None = None,
        event: str | None = None,
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
        columns = Columns(feature_names(features), label, weight, offset, group, event)
        check_columns(loss, columns)
        rule = label_rules.rule(loss.labels, positive_label)
        self.ps = PSContext.active() if ps is None else ps
        check_data(data, self.ps)
        # If this is a notebook's cell that runs again, the tasks of its last run hold the slots.
        self.ps.release_slots()
        use_driver_python(data)
        self.data = Dataset(data, columns, rule, dtype, loss.order, compact=compact)
        if loss.labels == "signs" and len(self.data.labels) == 1:
            one_class = label_rules.one_class(label, self.data.labels[0], self.data.rows)
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
            self._part: Part | None = None
            self._share: float | None = None
            self._set_penalty(penalty, standardization=standardization)
        except BaseException:
            self.data.close()
            raise

    def _made_evaluator(self, mode: str) -> Evaluator:
        work, standing = LossSpec(self.loss, self.intercept), None
        if mode == "resident":
            standing = StandingTasks(self.ps, self.data, work)
            self.ps.standing_tasks.add(standing)
        evaluator = Evaluator(self.ps, self.data, work, standing)
        self._hold = self.ps.finalizers.hold(evaluator.close)
        return evaluator

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.data.rows

    @property
    def weight_sum(self) -> float:
        """Sum of the row weights; the number of rows if there are none."""
        return self.data.weight_sum

    @property
    def dimension(self) -> int:
        """Rows of the parameters: the number of features, and one more with an intercept."""
        return self.features + self.intercept

    @property
    def mode(self) -> str:
        """ "job" or "resident"."""
        return "job" if self._evaluator.standing_tasks is None else "resident"

    @property
    def layouts(self) -> dict[int, str]:
        """By partition that has rows: how products go over its elements, with what was measured."""
        return dict(self.data.layouts)

    def minibatches(
        self, batch_size: int, *, shuffle: bool = True, replace: bool = False, seed: int = 0
    ) -> SampledObjective:
        """This objective for solvers that see about ``batch_size`` rows at a time, such as "SGD".

        shuffle   a new order of the batches in each epoch; False: always the same
        replace   draw each batch anew, so that some come twice before others come once
        seed      of orders and draws: the same seed, the same batches, however many executors

        A batch has an equal share of the rows of each partition, always the same ones, a random
        sample. Its value is the weighted sum of its losses, times the number of batches, divided by
        the sum of all weights; with the penalty. So their mean is the objective. A step costs what
        an evaluation costs, less the rows that it leaves out. ValueError for losses that compare
        each row with all others, as Cox's.
        """
        if isinstance(self.loss, PhasedLoss):
            raise ValueError(f"{self.loss} needs all rows together: it has no minibatches")
        if not isinstance(batch_size, int | np.integer):
            raise TypeError(f"batch_size={batch_size!r}; it must be a whole number")
        if not 1 <= batch_size <= self.rows:
            raise ValueError(
                f"batch_size={batch_size!r}: must be between 1 and {self.rows}, the rows"
            )
        if not seed >= 0:
            raise ValueError(f"seed={seed!r}: must not be negative")
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

    def margins(self, data: DataFrame, x: Any, *, output: str = "margin") -> DataFrame:
        """``data`` with a column ``output``: the margins of the model ``x``; lazy. The same as
        ``model(x).margins(data)``."""
        return self.model(x).margins(data, output=output)  # type: ignore[no-any-return]

    def scores(self, data: DataFrame, x: Any, *, output: str = "score") -> DataFrame:
        """Deprecated: use ``margins``, whose column is ``margin`` by default."""
        warn_renamed(f"{type(self).__name__}.scores()", "margins()")
        return self.margins(data, x, output=output)

    def model(self, x: Any) -> Model:
        """``x`` as a model, which knows its loss, intercept, features and classes: it predicts, is
        saved and exported. ``x`` is such as ``minimize`` finds, or what ``expand`` makes of it."""
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

    def expand(self, x: Any) -> Any:
        """``x`` over all features (and the intercept): 0 where ``compact`` left a feature out.
        Lazy; ``x`` itself where none is left out."""
        self._arrays(x)
        return x if self.coordinates is None else self.model(x).whole().x

    def close(self) -> None:
        """End resident tasks, and remove the blocks: a later evaluation raises ValueError.

        Twice is harmless.
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
            f"{type(self).__name__} is evaluated on the driver, where it starts its own tasks, "
            "and cannot be pickled; call it outside of Spark tasks"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what ObjectiveBase asks for --------------------------------------------------------------

    def _mean(self, arrays: tuple[DistArray, ...]) -> tuple[Any, tuple[DistArray, ...]]:
        found = self._evaluator.sums(arrays, self.coordinates, self._part)
        weight = self._share or positive_weight(self.loss, found.weight)
        value = self.ps.full((), found.value / weight)
        return value, tuple(gradient / weight for gradient in found.gradients)

    def _mean_product(
        self, arrays: tuple[DistArray, ...], directions: tuple[DistArray, ...]
    ) -> tuple[DistArray, ...]:
        found = self._evaluator.products(arrays, directions, self.coordinates)
        return tuple(product / found.weight for product in found.gradients)

    def _zeros(self, parameter: Parameter) -> DistArray:
        return self.ps.zeros(self._shape(parameter))

    def _start(self, parameter: Parameter) -> DistArray:
        if not parameter.spread:
            return self._zeros(parameter)
        shape = self._shape(parameter)
        drawn: DistArray = self.ps.random.normal(scale=parameter.spread, size=shape)
        return drawn

    def _continued(self, parameter: Parameter, given: Any, start: DistArray) -> DistArray:
        model: Any = given if isinstance(given, Handle) else self.ps.array(given)
        if self.coordinates is None:
            return super()._continued(parameter, model, start)  # type: ignore[no-any-return]
        intercept = self._has_intercept(parameter)
        whole = shape_of(parameter, self.data.size, intercept=self.intercept)
        known = known_features(parameter, model.shape, whole, intercept=intercept)
        return rows_at_features(model, self.coordinates, known, start, intercept=intercept)

    def _is_penalised(self, parameter: Parameter) -> DistArray | None:
        if not self._has_intercept(parameter):
            return None
        length, *row = self._shape(parameter)
        is_weight = self.ps.arange(length) < length - 1
        return is_weight[:, None] if row else is_weight

    def _deviations(self, parameter: Parameter) -> DistArray:
        found = self._standard_deviations
        if self._has_intercept(parameter):
            found = concatenate([found, self.ps.ones(1)])
        return found[:, None] if parameter.row else found

    @functools.cached_property
    def _standard_deviations(self) -> DistArray:
        return standard_deviations(self.ps, self.data, self.coordinates)

    def _arrays(self, x: Any) -> tuple[DistArray, ...]:
        """An array for each parameter, checked."""
        if self.ps.is_stopped:
            raise RuntimeError(
                "the PSContext of this loss was stopped; start one again by "
                f"PSContext.get_or_create(spark), and make a new {type(self).__name__}"
            )
        arrays = as_arrays(x, self.loss.parameters)
        for parameter, array in zip(self.loss.parameters, arrays, strict=True):
            self._check(parameter.name or "w", array, self._shape(parameter))
        return arrays

    def _check(self, name: str, array: object, shape: Sequence[int]) -> None:
        if not isinstance(array, Handle):
            raise TypeError(f"{name} is {type(array).__name__}; make a DistArray: ps.array({name})")
        if array.session is not self.ps:
            raise ValueError(
                f"{name} was made by another session than the one of this {type(self).__name__}; "
                f"copy it there: objective.ps.array({name}.numpy())"
            )
        if array.shape != shape:
            is_more = self.intercept and shape[0] > self.features
            last = ", the last of which is the intercept" if is_more else ""
            raise ValueError(f"{name} has shape {array.shape}, this loss needs {shape}{last}")
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"{name} has dtype {array.dtype}; allowed are float64 and float32")

    def _shape(self, parameter: Parameter) -> tuple[int, ...]:
        return shape_of(parameter, self.features, intercept=self.intercept)

    def _has_intercept(self, parameter: Parameter) -> bool:
        return self.intercept and parameter.takes_intercept


class SampledObjective(Objective):
    """What ``minibatches`` makes: the whole objective, and batches of it."""

    eager = True
    """A call evaluates: solvers need not ask for a gradient that their next step makes use of."""

    _order: Order
    _batch_share: float
    """Of the weights, what is divided by in a batch."""

    @property
    def batches_per_epoch(self) -> int:
        """After how many batches each row was seen once."""
        return self._order.count

    @property
    def terms(self) -> Order:
        """The order of the batches, which are the same in each epoch."""
        return self._order

    def batch(self, k: int) -> Objective:
        """The objective on batch k = 0, 1, ..."""
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
    """``loss(w) -> (value, gradient)``: the mean logistic loss of a DataFrame's rows.

    ``value = sum c ln(1 + exp(-y m)) / sum c + 0.5 l2 ||w||^2`` with ``m = <x, w>``, labels ``y``
    +1 or -1 and row weights ``c`` (column ``weight``, else 1). It is ``Objective`` with that loss
    and penalty, whose other arguments it takes; ``mode`` is "job" unless said otherwise.
    ``label`` holds {0, 1} or {-1, 1}, or two values of which ``positive_label`` is +1.

    With ``keys=True`` it is a ``KeyedObjective`` instead, which takes its own arguments:
    features are keys that nobody numbered, and it trains itself, by minibatches.
    """

    _stack_of_user: ClassVar[int] = 3

    def __new__(cls, *args: Any, keys: bool = False, **options: Any) -> Any:
        """One over numbered features, or over ``keys``."""
        return KeyedObjective(*args, **options) if keys else super().__new__(cls)

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
        """The same rows (and the same blocks: closing one closes both) under another penalty."""
        other = self.with_penalty(_l2(_penalty_factor(l2, "l2")))
        other.l2 = float(l2)
        return other

    def l1_weights(self, l1: float) -> float | DistArray:
        """``l1`` for ``OWLQN(l1=...)``: with an intercept, an array that is 0 there."""
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
        raise ValueError(f"{name}={value}; it must be finite and 0 or more")
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
