"""The factorization machines of ``pyspark.ml.classification`` and ``pyspark.ml.regression``."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml.classification import ProbabilisticClassificationModel, ProbabilisticClassifier
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import DenseMatrix, Matrix, MatrixUDT, Vector, Vectors, VectorUDT
from pyspark.ml.regression import RegressionModel, Regressor, _FactorizationMachinesParams
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import distvec
from distvec import DistArray
from distvec.losses.classification import Logistic
from distvec.losses.factorization import FactorizationMachine
from distvec.losses.loss import Loss, Parameter
from distvec.losses.regression import Squared
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats
from distvec.spark.context import PSContext
from distvec.spark.ml.files import frame_of
from distvec.spark.ml.fits import ServerEstimator
from distvec.spark.ml.models import MARGIN, BinaryLogistic, ServerModel, argmax, kept
from distvec.spark.ml.params import HasFeatures, Range, at_least, one_of
from distvec.spark.ml.summary import BinaryClassificationSummary, Training, TrainingSummary
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.objective import Objective
from distvec.spark.objectives.partition import Sample
from optim import SGD, Adam, InversePower, Outcome, Problem, Result, State, StochasticSolver
from optim.core.arrays import fetch, vdot

_FIRST_SEED = 43
"""Of the rows of the first batch, as in MLlib; the next batch has the next one."""
_NEXT_SEED = 1 << 32
"""Added where a batch has no row: it is drawn again."""
_DRAWN_AT_ONCE = 1 << 20
_FIRST_STOP = 2
"""The first iteration after which MLlib compares the parameters with the previous ones."""


class _MachineParams(_FactorizationMachinesParams, HasFeatures):
    """Params of both estimators and their models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "factorSize": at_least(1),
        "regParam": at_least(0.0),
        "miniBatchFraction": Range(lambda x: 0.0 < x <= 1.0, "above 0 and at most 1"),
        "initStd": Range(lambda x: 0.0 < x < math.inf, "finite and above 0"),
        "maxIter": at_least(0),
        "stepSize": Range(lambda x: 0.0 < x < math.inf, "finite and above 0"),
        "tol": at_least(0.0),
        "solver": one_of("gd", "adamw"),
    }

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(seed=0)


# --- the objective and its steps ------------------------------------------------------------------


class _Machine(Objective):
    """The objective of MLlib's factorization machines: their start, penalty and masks."""

    _params: _MachineParams
    _penalty_has_slopes: bool
    """Whether the gradient has the penalty's; with weight decay only the value has it."""

    @classmethod
    def over(cls, objective: Objective, params: _MachineParams, *, slopes: bool) -> Self:
        """It shares the rows with ``objective``."""
        made = object.__new__(cls)
        made.__dict__.update(objective.__dict__)
        made._params, made._penalty_has_slopes = params, slopes
        return made

    def __call__(self, x: Any) -> tuple[Any, Any]:
        value, gradient = super().__call__(x)
        strength = self._params.getRegParam()
        if strength:
            value = value + 0.5 * strength * _squared_norm(self._arrays(x))
        return value, self._adjusted(x, gradient)

    def hessp(self, x: Any, v: Any) -> Any:
        return self._adjusted(v, super().hessp(x, v))

    def _adjusted(self, x: Any, slopes: Any) -> Any:
        """``slopes`` with the penalty's at ``x``; 0 for parameters that are not fitted."""
        strength = self._params.getRegParam() if self._penalty_has_slopes else 0.0
        found = {
            name: one + strength * x[name] if strength else one for name, one in slopes.items()
        }
        if not self._params.getFitLinear():
            of = self.loss.parameters[0]
            mask, zeros = self._is_penalised(of), self._zeros(of)
            found["w"] = zeros if mask is None else distvec.where(mask, zeros, found["w"])
        return found

    def _start(self, parameter: Parameter) -> DistArray:
        """As MLlib draws it, row by row."""
        start = self._zeros(parameter)
        if not parameter.row:
            return start
        drawn, (length, columns) = JavaGaussians(self._params.getSeed()), start.shape
        rows = max(1, _DRAWN_AT_ONCE // columns)
        for low in range(0, length, rows):
            places = np.arange(low, min(low + rows, length))
            values = drawn.take(places.size * columns) * self._params.getInitStd()
            start.push(places, values.reshape(-1, columns))
        return start


@dataclass(frozen=True, kw_only=True)
class _MachineSteps(StochasticSolver):
    """Ends as MLlib does: at a step shorter than ``tolerance`` times the length of x, at least 1.

    It is a part of the solver, so that a run from a checkpoint ends where the first run did.
    """

    tolerance: float

    def step(self, problem: Problem, state: State) -> State:
        made = super().step(problem, state)
        arrays = made.x.leaves
        # step_length has largest elements instead of lengths, which cost a request.
        most = self.tolerance * math.sqrt(sum(one.size for one in arrays))
        if made.iteration < _FIRST_STOP or not made.step_length < most:
            return made
        moves = (made.x - state.x).leaves
        length, norm = map(math.sqrt, fetch(_squared_norm(moves), _squared_norm(arrays)))
        is_short = length < self.tolerance * max(norm, 1.0)
        return replace(made, outcome=Outcome.CONVERGED_STEP) if is_short else made


@dataclass(frozen=True, kw_only=True)
class _Descent(_MachineSteps, SGD):
    """MLlib's gradient descent."""


@dataclass(frozen=True, kw_only=True)
class _AdamW(_MachineSteps, Adam):
    """MLlib's: the decay is not multiplied by the step size. Its order of operations, too."""

    decay: float = 0.0

    def update(self, memory: Any, x: Any, gradient: Any, k: int) -> tuple[Any, Any]:
        m, v = memory
        m = m * self.beta1 + (1.0 - self.beta1) * gradient
        v = v * self.beta2 + (1.0 - self.beta2) * (gradient * gradient)
        mean, mean_square = (
            moment / (1.0 - math.prod([beta] * (k + 1)))
            for moment, beta in ((m, self.beta1), (v, self.beta2))
        )
        step = self.step_size_at(k) * mean / (mean_square**0.5 + self.epsilon)
        return x - (step + self.decay * x if self.decay else step), (m, v)


class _Batches(_Machine):
    """The same with MLlib's steps, batch by batch.

    Each row is in a batch with the probability that is asked for.
    """

    eager = True

    @property
    def batches_per_epoch(self) -> int:
        """About so many batches have as many rows as there are."""
        return max(1, round(1.0 / self._params.getMiniBatchFraction()))

    def batch(self, k: int) -> Objective:
        """The objective on batch k = 0, 1, ..."""
        fraction = self._params.getMiniBatchFraction()
        if fraction == 1.0:
            return self
        part = _Batch.over(self, self._params, slopes=self._penalty_has_slopes)
        part._part = Sample(fraction, _FIRST_SEED + k)
        return part

    def minimize(self, x0: Any = None, method: str | None = None, **options: Any) -> Result:
        """Take steps; only the limit and the options of the run matter."""
        step = self._params.getStepSize()
        limits: Any = {
            "max_iterations": options["max_iterations"],
            "full_every": 0,
            "tolerance": self._params.getTol(),
        }
        if self._penalty_has_slopes:
            solver: StochasticSolver = _Descent(step_size=InversePower(step, 0.5), **limits)
        else:
            solver = _AdamW(step_size=step, decay=self._params.getRegParam(), **limits)
        kept = ("progress", "checkpoint", "every", "resume")
        given = {name: one for name, one in options.items() if name in kept}
        return solver.minimize(self, self.start() if x0 is None else x0, **given)


class _Batch(_Machine):
    def _loss_sums(self, arrays: tuple[DistArray, ...]) -> Any:
        found = super()._loss_sums(arrays)
        while found.weight == 0.0:
            fraction, seed = self._part  # type: ignore[misc]  # a Sample
            self._part = Sample(fraction, seed + _NEXT_SEED)
            found = super()._loss_sums(arrays)
        return found


def _squared_norm(arrays: Any) -> Any:
    return sum(vdot(one, one) for one in arrays)


class JavaGaussians:
    """The numbers of ``nextGaussian`` of Java's ``Random``.

    The generator is linear congruential with 48 bits, as ``java.util.Random`` documents it. Normal
    numbers come from it by the polar method of Marsaglia. Logarithms may differ in the last bit.

    Parameters
    ----------
    seed : int
        The seed.
    """

    _FACTOR, _SUMMAND, _MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ self._FACTOR) & self._MASK
        self._left = np.empty(0)

    def take(self, count: int) -> Floats:
        """Return the next numbers, ``(count,)``."""
        parts = [self._left]
        missing = count - self._left.size
        while missing > 0:
            parts.append(self._draw(min(missing + 16, _DRAWN_AT_ONCE)))
            missing -= parts[-1].size
        found = np.concatenate(parts)
        self._left = found[count:]
        return found[:count]

    def _draw(self, pairs: int) -> Floats:
        """The numbers from so many pairs, of which some are rejected."""
        states = self._states(4 * pairs)
        highs, lows = states[0::2] >> np.uint64(22), states[1::2] >> np.uint64(21)
        uniform = ((highs << np.uint64(27)) + lows).astype(np.float64) * 2.0**-53
        points = 2.0 * uniform.reshape(-1, 2) - 1.0
        squares = np.square(points).sum(axis=1)
        is_inside = (squares < 1.0) & (squares != 0.0)
        points, squares = points[is_inside], squares[is_inside]
        scaled: Floats = points * np.sqrt(-2.0 * np.log(squares) / squares)[:, None]
        return scaled.ravel()

    def _states(self, count: int) -> Any:
        """The next states: all at a time, as powers of the factor modulo 2**64 wrap around."""
        powers = np.multiply.accumulate(np.full(count, self._FACTOR, np.uint64))
        sums = np.cumsum(np.concatenate([np.ones(1, np.uint64), powers[:-1]]), dtype=np.uint64)
        states = powers * np.uint64(self._state) + sums * np.uint64(self._SUMMAND)
        states &= np.uint64(self._MASK)
        self._state = int(states[-1])
        return states


# --- estimators -----------------------------------------------------------------------------------


class _MachineEstimator(ServerEstimator, _MachineParams):
    """Both estimators."""

    _row: ClassVar[RowLoss]

    @abstractmethod
    def _check_labels(self, objective: Objective) -> None:
        """``ValueError`` for labels that MLlib does not take."""

    def _data_key(self) -> tuple[Any, ...]:
        names = ("labelCol", "factorSize", "fitIntercept")
        return (*(self.getOrDefault(name) for name in names), str(self._features))

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=FactorizationMachine(self.getFactorSize(), self._row),
            features=self._features,
            label=self.getLabelCol(),
            intercept=self.getFitIntercept(),
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> Any:
        self._check_labels(objective)
        result = self._steps(objective)
        history = [record.value for record in result.history]
        row = Logistic() if isinstance(self._row, Logistic) else Squared()
        loss = FactorizationMachine(self.getFactorSize(), row)
        fitted = kept(result.x, loss, self._features, intercept=objective.intercept)
        model = self._copyValues(self._model(fitted)._resetUid(self.uid))
        model._training = Training(dataset, history)
        return model

    @abstractmethod
    def _model(self, fitted: Model) -> Any: ...

    def _steps(self, objective: Objective) -> Result:
        """MLlib's steps, or those of ``optimizer`` on all rows."""
        if self._given("optimizer"):
            return self._minimize(_Machine.over(objective, self, slopes=True))
        slopes = self.getSolver().lower() == "gd"
        machine = _Batches.over(objective, self, slopes=slopes)
        return self._minimize(machine)


class FMClassifier(_MachineEstimator, ProbabilisticClassifier):
    """Factorization machine for two classes, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.classification.FMClassifier``, by name. ``featuresCol`` may also
        be a list of columns of numbers, or the name of an array column.

    See Also
    --------
    distvec.losses.FactorizationMachine : The loss, for other losses of a margin.

    Notes
    -----
    Start and steps are MLlib's, so results agree except for rounding. With ``optimizer`` another
    solver minimizes the same objective over all rows; then ``solver``, ``stepSize`` and
    ``miniBatchFraction`` have no effect.

    With ``miniBatchFraction`` below 1 each row is in a batch with this probability, as in MLlib.
    The rows are drawn by NumPy, from the numbers of the batch and the partition, so they are other
    rows than MLlib's. Repeated fits draw the same rows.

    ``seed`` is 0 by default. ``weightCol`` has no effect on the training, as in MLlib.

    Examples
    --------
    >>> from distvec.spark.ml.classification import FMClassifier
    >>> model = FMClassifier(factorSize=2, stepSize=0.1, maxIter=50).fit(train)
    >>> model.transform(train).select("label", "prediction").show(2)
    +-----+----------+
    |label|prediction|
    +-----+----------+
    |  1.0|       1.0|
    |  0.0|       0.0|
    +-----+----------+
    only showing top 2 rows
    """

    _module = "distvec.spark.ml.classification"
    _row: ClassVar[RowLoss] = BinaryLogistic()

    def _check_labels(self, objective: Objective) -> None:
        bad = [label for label in objective.data.labels if label not in (0.0, 1.0)]
        if bad:
            raise ValueError(
                f"Labels MUST be in {{0, 1}}, but got {bad[0]}, in column {self.getLabelCol()!r}"
            )

    def _model(self, fitted: Model) -> FMClassificationModel:
        return FMClassificationModel(fitted)


@dataclass(frozen=True)
class _SquaredError(Squared):
    """Without the factor 1/2."""

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        residuals = margins - labels
        return residuals * residuals, 2.0 * residuals

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return np.full(margins.shape, 2.0)


class FMRegressor(_MachineEstimator, Regressor[Any]):
    """Factorization machine for regression, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.regression.FMRegressor``, by name. ``featuresCol`` may also be a
        list of columns of numbers, or the name of an array column.

    See Also
    --------
    FMClassifier : Notes on start, steps, batches and seeds.
    distvec.losses.FactorizationMachine : The loss, for other losses of a margin.

    Notes
    -----
    The loss is the mean of the squared residuals. Start and steps are MLlib's, as for
    ``FMClassifier``.

    Examples
    --------
    >>> from distvec.spark.ml.regression import FMRegressor
    >>> model = FMRegressor(factorSize=2, stepSize=0.1).fit(train)
    >>> model.numFeatures, model.linear.size, (model.factors.numRows, model.factors.numCols)
    (4, 4, (4, 2))
    """

    _module = "distvec.spark.ml.regression"
    _row: ClassVar[RowLoss] = _SquaredError()

    def _check_labels(self, objective: Objective) -> None:
        """Any number is a label."""

    def _model(self, fitted: Model) -> FMRegressionModel:
        return FMRegressionModel(fitted)


# --- models ---------------------------------------------------------------------------------------


class _MachineModel(ServerModel, _MachineParams):
    """Both models."""

    _row_loss: ClassVar[RowLoss]

    @property
    def linear(self) -> Vector:
        """The coefficients of single features."""
        if not self.getFitLinear():
            return Vectors.sparse(self.numFeatures, [], [])
        return Vectors.dense(self._linear)

    @property
    def factors(self) -> Matrix:
        """The factors: a row for each feature."""
        table = self._local().x["V"]
        # 1 for True: such is the flag that the JVM's matrices come with, also when printed.
        rows, columns = table.shape
        return DenseMatrix(rows, columns, table.ravel().tolist(), 1)  # type: ignore[arg-type]

    def _describe(self, classes: str = "") -> str:
        return (
            f"{type(self).__name__}: uid={self.uid}, {classes}numFeatures={self.numFeatures}, "
            f"factorSize={self.getFactorSize()}, fitLinear={str(self.getFitLinear()).lower()}, "
            f"fitIntercept={str(self.getFitIntercept()).lower()}"
        )

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        w = np.append(attributes.linear.toArray(), attributes.intercept)
        table = attributes.factors.toArray()
        loss: Loss = FactorizationMachine(table.shape[1], cls._row_loss)
        return Model({"w": w, "V": table}, loss=loss, intercept=True)

    def _data(self, session: SparkSession) -> DataFrame:
        return frame_of(
            session,
            intercept=(DoubleType(), self.intercept),
            linear=(VectorUDT(), self.linear),
            factors=(MatrixUDT(), self.factors),
        )


class FMClassificationModel(_MachineModel, ProbabilisticClassificationModel):
    """A fitted factorization machine of two classes; ``FMClassifier.fit`` makes one.

    Parameters
    ----------
    fitted : Model, optional
        The parameters, with the loss ``FactorizationMachine``.

    Notes
    -----
    Models of more than 16 million parameters stay on the parameter servers. Then read them with
    ``fitted``: ``linear`` and ``factors`` raise ``ValueError``.

    Examples
    --------
    >>> from distvec.spark.ml.classification import FMClassifier
    >>> model = FMClassifier(factorSize=2, stepSize=0.1, maxIter=50).fit(train)
    >>> model.numClasses, model.numFeatures, model.summary().accuracy
    (2, 4, 1.0)
    """

    _module = "distvec.spark.ml.classification"
    _row_loss: ClassVar[RowLoss] = Logistic()

    @property
    def numClasses(self) -> int:
        """The number of classes: 2."""
        return 2

    def __repr__(self) -> str:
        return self._describe("numClasses=2, ")

    def predict(self, value: Vector) -> float:
        """Predict the class of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The class.
        """
        scores = self.predictRaw(value).toArray()
        if self.isSet("thresholds"):
            with np.errstate(divide="ignore"):
                scores = self.predictProbability(value).toArray() / np.array(self.getThresholds())
        return float(scores.argmax())

    def predictRaw(self, value: Vector) -> Vector:
        """Return the margins of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            A margin for each class.
        """
        (margin,) = self._margins(value)
        return Vectors.dense([-margin, margin])

    def predictProbability(self, value: Vector) -> Vector:
        """Return the probabilities of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            A probability for each class.
        """
        with np.errstate(over="ignore"):
            positive = 1.0 / (1.0 + np.exp(-self._margins(value)[0]))
        return Vectors.dense([1.0 - positive, positive])

    def _outputs(self) -> dict[str, Column]:
        margin = F.col(MARGIN)
        positive = 1.0 / (1.0 + F.exp(-margin))
        probability = F.array(1.0 - positive, positive)
        prediction = (margin > 0.0).cast("double")
        if self.isSet("thresholds"):
            prediction = argmax(probability, self.getThresholds())
        return {
            self.getRawPredictionCol(): array_to_vector(F.array(-margin, margin)),
            self.getProbabilityCol(): array_to_vector(probability),
            self.getPredictionCol(): prediction,
        }

    def summary(self) -> FMClassificationTrainingSummary:
        """Return metrics on the training data.

        Returns
        -------
        FMClassificationTrainingSummary
            Metrics, which are computed when they are read.

        Raises
        ------
        RuntimeError
            If the model was not made by ``fit`` just now.
        """
        training = self._known_training()
        made = FMClassificationTrainingSummary(*self._predictions(training.dataset))
        made._history = training.history
        return made

    def evaluate(self, dataset: DataFrame) -> FMClassificationSummary:
        """Return metrics of the predictions on a DataFrame.

        Parameters
        ----------
        dataset : DataFrame
            Rows with labels.

        Returns
        -------
        FMClassificationSummary
            Metrics, which are computed when they are read.
        """
        return FMClassificationSummary(*self._predictions(dataset))

    def _predictions(self, dataset: DataFrame) -> tuple[DataFrame, dict[str, str]]:
        return self._scored(dataset, "probabilityCol", "predictionCol")


class FMRegressionModel(_MachineModel, RegressionModel[Vector]):
    """A fitted factorization machine; ``FMRegressor.fit`` makes one.

    Parameters
    ----------
    fitted : Model, optional
        The parameters, with the loss ``FactorizationMachine``.

    Notes
    -----
    Models of more than 16 million parameters stay on the parameter servers. Then read them with
    ``fitted``: ``linear`` and ``factors`` raise ``ValueError``.

    Examples
    --------
    >>> from distvec.spark.ml.regression import FMRegressor
    >>> model = FMRegressor(factorSize=2, stepSize=0.1).fit(train)
    >>> model.transform(train).columns
    ['label', 'features', 'prediction']
    """

    _module = "distvec.spark.ml.regression"
    _row_loss: ClassVar[RowLoss] = Squared()

    def __repr__(self) -> str:
        return self._describe()

    def predict(self, value: Vector) -> float:
        """Predict the label of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The prediction.
        """
        return float(self._margins(value)[0])

    def _outputs(self) -> dict[str, Column]:
        return {self.getPredictionCol(): F.col(MARGIN)}


class FMClassificationSummary(BinaryClassificationSummary):
    """Metrics of a factorization machine on a DataFrame; ``model.evaluate`` makes one."""


class FMClassificationTrainingSummary(FMClassificationSummary, TrainingSummary):
    """Metrics on the training data, and the course of the training."""
