"""A loss: parameters, and sums over rows of one process; the error of one that users wrote; and a
function of margins and labels, block by block of rows, with checks of what it gives.
"""

from __future__ import annotations

import math
import os
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from distvec.losses.rows import Floats, Ints, Rows, blocks, read_only

_LIBRARIES = tuple(
    str(folder) + os.sep
    for folder in (
        Path(np.__file__).parent,
        Path(scipy.__file__).parent,
        Path(__file__).parents[1],
    )
)
"""Frames of these say nothing of the user's code."""


class LossError(RuntimeError):
    """Raised when a loss function fails, or returns an invalid value or derivative.

    Parameters
    ----------
    loss : str
        The loss.
    place : str
        The block of rows, and in Spark the partition.
    problem : str
        The exception, or the reason why the result is invalid.

    Notes
    -----
    The three texts are ``args``, so the error pickles.
    """

    def __init__(self, loss: str, place: str, problem: str) -> None:
        super().__init__(loss, place, problem)

    def __str__(self) -> str:
        loss, place, problem = self.args
        return f"the loss {loss} failed in {place}: {problem}"

    def within(self, outer: str) -> LossError:
        """Return the same error with its place inside a larger one.

        Parameters
        ----------
        outer : str
            The larger place, such as ``"partition 3"``.

        Returns
        -------
        LossError
            An error of the same class.
        """
        loss, place, problem = self.args
        return type(self)(loss, f"{outer}, {place}", problem)


class NotFinite(LossError, ArithmeticError):
    """Raised when a loss or its slope is NaN at finite margins, or overflows.

    A solver that took too long a step shortens it. At the start of a run the error is raised.

    Parameters
    ----------
    loss : str
        The loss.
    place : str
        The block of rows, and in Spark the partition.
    problem : str
        The number that is not finite.
    """


def loss_error(loss: str, place: str, error: Exception) -> LossError:
    """A ``LossError`` for an exception that a loss raised."""
    kind = NotFinite if isinstance(error, ArithmeticError) else LossError
    return kind(loss, place, describe_exception(error))


def name_of_block(number: int, part: slice) -> str:
    """The place of a block of rows: its number, and its first and last row."""
    return f"row block {number}, rows {part.start:,} to {part.stop - 1:,}"


def describe_exception(error: Exception) -> str:
    """What was raised, and the last line of the user's code that it went through."""
    said = "".join(traceback.format_exception_only(error)).strip()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_LIBRARIES):
            line = f": {frame.line}" if frame.line else ""
            return f"{said} ({frame.filename}, line {frame.lineno}, in {frame.name}{line})"
    return said


def check_number(loss: object, name: str, allowed: bool, what: str) -> None:
    """ValueError unless the field is a finite number that is ``allowed``; ``what`` says which."""
    value = getattr(loss, name)
    if not (math.isfinite(value) and allowed):
        raise ValueError(f"{type(loss).__name__}({name}={value!r}): must be {what}")


def check_smoothing(loss: object) -> None:
    """The field ``smoothing``."""
    smoothing = getattr(loss, "smoothing")  # noqa: B009
    check_number(loss, "smoothing", smoothing >= 0.0, "0 or more; 0 is not smooth")


Arrays: TypeAlias = tuple[npt.NDArray[Any], ...]
"""An array for each parameter, in the order of ``Loss.parameters``."""


MARGINS, PROBABILITIES, PREDICTIONS = "margins", "probabilities", "predictions"
"""Questions to a model about rows."""


class Parameter(NamedTuple):
    """Describe an array that a loss depends on: it has one row for each feature, or a fixed number.

    Parameters
    ----------
    name : str, default ""
        The name. A loss with one unnamed parameter is given an array. Any other loss is given a
        dict by names.
    row : tuple of int, default ()
        The shape of the part that belongs to one feature: ``()`` in a vector, ``(k,)`` in a table
        of ``k`` columns.
    takes_intercept : bool, default True
        Whether the array has one more row, the last, in an objective with an intercept.
    spread : float, default 0.0
        Standard deviation of the random start. 0 starts from zeros.
    rows : int, optional
        The number of rows of an array that belongs to no feature, such as a scale. It takes no
        intercept and is not penalised. By default there is one row for each feature.
    seed : int, optional
        Seed of the random start. By default the objective decides.
    start : array, optional
        The values of an array without features that a fit starts from. By default ``spread``
        decides.

    Examples
    --------
    >>> from distvec.losses import FactorizationMachine
    >>> [(one.name, one.row) for one in FactorizationMachine(factors=3).parameters]
    [('w', ()), ('V', (3,))]
    """

    name: str = ""
    row: tuple[int, ...] = ()
    takes_intercept: bool = True
    spread: float = 0.0
    rows: int | None = None
    seed: int | None = None
    start: npt.NDArray[Any] | None = None

    @property
    def is_of_features(self) -> bool:
        """Whether there is one row for each feature."""
        return self.rows is None

    def has_intercept(self, intercept: bool) -> bool:
        """Return whether the last row is an intercept, in an objective with ``intercept``.

        Parameters
        ----------
        intercept : bool
            Whether the objective has an intercept.

        Returns
        -------
        bool
            True if the array has a row for it.
        """
        return intercept and self.takes_intercept and self.rows is None


class Sums(NamedTuple):
    """Hold the contribution of some rows to an objective.

    The objective is the sum of the values divided by the sum of the weights.

    Parameters
    ----------
    value : float
        The weighted sum of the losses.
    weight : float
        The contribution to the denominator of the mean.
    gradients : tuple of arrays
        The gradient of ``value`` for each parameter, ``(columns [+ 1], *row)``.

    Examples
    --------
    >>> from distvec.losses import Rows, Squared
    >>> rows = Rows(np.eye(2), np.array([1.0, 3.0]))
    >>> Squared().sums(rows, (np.zeros(2),), intercept=False)
    Sums(value=5.0, weight=2.0, gradients=(array([-1., -3.]),))
    """

    value: float
    weight: float
    gradients: Arrays


class Loss(ABC):
    """Base class of losses: frozen dataclasses that pickle, with pure methods.

    Use a built-in loss, or write a function with ``row_loss`` or ``block_loss``. Subclasses
    implement ``sums``.

    See Also
    --------
    RowLoss : Base class of losses that depend on one margin for each row.
    row_loss : Make a loss of a function of margins and labels.
    block_loss : Make a loss of a function of rows and parameters.

    Examples
    --------
    >>> from distvec.losses import Huber, Logistic, Loss
    >>> isinstance(Huber(), Loss), Logistic().labels
    (True, 'signs')
    """

    formula: ClassVar[str] = ""
    """For the documentation: the value of a row of margin m and label y."""
    labels: ClassVar[str] = "real"
    """Which labels there may be: a key of ``labels.RULES``."""
    _needs_labels: ClassVar[bool] = True
    """Whether rows have labels; a loss without them describes the features alone."""
    order: ClassVar[str] = ""
    """How rows must lie together: "" in any order, "group" by groups, "time" by labels."""
    takes_events: ClassVar[bool] = False
    """Whether labels are survival times, of which some may be censored."""
    takes_missing: ClassVar[bool] = False
    """Whether features may be NaN."""

    @property
    def takes_tables(self) -> bool:
        """Whether rows come as tables with all features, as dense networks need them."""
        return False

    @property
    def has_products(self) -> bool:
        """Whether the loss has products with its Hessian."""
        return False

    @property
    def has_kinks(self) -> bool:
        """Whether the gradient has jumps, as the gradient of the hinge loss has."""
        return False

    def bind(self, labels: Sequence[float]) -> Loss:
        """Return this loss for data with the given distinct labels.

        Parameters
        ----------
        labels : sequence of float
            The distinct labels. They are known for losses of classes.

        Returns
        -------
        Loss
            The loss itself, unless it depends on the labels.
        """
        return self

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the model, one for each array."""
        return (Parameter(),)

    @property
    def takes_intercept(self) -> bool:
        """Whether an intercept changes the loss."""
        return any(one.has_intercept(True) for one in self.parameters)

    @abstractmethod
    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        """Return weighted sums over rows.

        Parameters
        ----------
        rows : Rows
            The rows.
        arrays : tuple of arrays
            An array for each parameter, ``(columns [+ 1], *row)``.
        intercept : bool
            Whether the last row of the arrays is the intercept.

        Returns
        -------
        Sums
            Value, weight and gradients.

        Raises
        ------
        LossError
            If a function of the user fails or returns something else than columns of numbers.

        Notes
        -----
        Losses of one margin make two passes over the matrix.
        """

    def weight(self, rows: Rows) -> float:
        """Return the contribution of rows to the denominator of the mean.

        Parameters
        ----------
        rows : Rows
            The rows.

        Returns
        -------
        float
            The sum of the row weights. For rankings, the sum of the weights of pairs.
        """
        return rows.weight_sum

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        """Return the product of the Hessian of ``sums(...).value`` with directions.

        Parameters
        ----------
        rows : Rows
            The rows.
        arrays : tuple of arrays
            The point: an array for each parameter.
        directions : tuple of arrays
            The directions, like ``arrays``.
        intercept : bool
            Whether the last row of the arrays is the intercept.

        Returns
        -------
        tuple of arrays
            The products, like ``arrays``.

        Raises
        ------
        NotImplementedError
            If ``has_products`` is False.

        Notes
        -----
        Losses of one margin make three passes over the matrix.
        """
        raise NotImplementedError(f"{type(self).__name__} has no products with its Hessian")

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """Return the margins of rows.

        Parameters
        ----------
        rows : Rows
            The rows.
        arrays : tuple of arrays
            An array for each parameter.
        intercept : bool
            Whether the last row of the arrays is the intercept.

        Returns
        -------
        array of float64
            ``(rows,)``, or ``(rows, k)`` for ``k`` classes.
        """
        return rows.margins(arrays[0], intercept=intercept)

    def probabilities(self, scores: Floats) -> Floats:
        """Return the probability of each class for rows with the given margins.

        Parameters
        ----------
        scores : array of float64
            The margins, ``(rows,)`` or ``(rows, k)``.

        Returns
        -------
        array of float64, (rows, k)
            Of two classes, the negative class comes first.

        Raises
        ------
        NotImplementedError
            If the loss has no probabilities.
        """
        raise NotImplementedError(
            f"{self} has no probabilities, which Logistic and Softmax have; use margins()"
        )

    def predictions(self, scores: Floats) -> Floats:
        """Return the predicted labels of rows with the given margins.

        Parameters
        ----------
        scores : array of float64
            The margins, ``(rows,)`` or ``(rows, k)``.

        Returns
        -------
        array of float64, (rows,)
            -1 or 1, the number of a class, or a mean.

        Raises
        ------
        NotImplementedError
            If the loss does not predict labels.
        """
        if self.labels == "signs" and not self.order:
            return np.where(scores > 0.0, 1.0, -1.0)
        if self.labels == "real" and not self.order:
            return scores
        raise NotImplementedError(f"{self} does not predict labels; use margins()")


class TaskArrays(Protocol):
    """The arrays of an evaluation, to the task of a partition."""

    @property
    def partition(self) -> int:
        """The number of the partition."""

    @property
    def features(self) -> Ints:
        """The features of the columns of its rows, ascending."""

    def __call__(self, number: int, places: Ints | None = None) -> npt.NDArray[Any]:
        """Parameter ``number``, copied from the servers: at the features of the rows, at other
        ascending ``places``, or all of one without features.
        """


class StatefulLoss(Loss):
    """A loss whose tasks keep something of their rows from one evaluation to the next.

    Its sums are one array, perhaps in another shape than the parameters.
    """

    @abstractmethod
    def begin(self, rows: Rows, array: TaskArrays) -> Any:
        """What is kept of rows."""

    @abstractmethod
    def advance(self, state: Any, array: TaskArrays) -> Any:
        """The sums of an evaluation; it may change ``state``, and may be repeated.

        An array; or places, each once, and the sums there, which are 0 elsewhere.
        """


class PhasedLoss(Loss):
    """Base class of losses that need a summary of all rows before they can sum over some of them.

    The rows of a partition lie together, in the order that ``order`` names. In each phase every
    partition sends a small array and receives another one. The arrays received so far, and the
    result of ``prepare``, are passed to later phases. Resident tasks prepare once for each
    evaluation. With directions, all this is for products with the Hessian.

    Examples
    --------
    >>> from distvec.losses import Cox, PhasedLoss
    >>> isinstance(Cox(), PhasedLoss), Cox().phases
    (True, 2)
    """

    phases: ClassVar[int] = 1

    @abstractmethod
    def prepare(
        self, rows: Rows, arrays: Arrays, directions: Arrays = (), *, intercept: bool
    ) -> Floats:
        """Return the numbers that all phases need from these rows, such as their margins.

        Parameters
        ----------
        rows : Rows
            The rows of a partition.
        arrays : tuple of arrays
            An array for each parameter.
        directions : tuple of arrays, default ()
            For products with the Hessian: the directions, like ``arrays``.
        intercept : bool
            Whether the last row of the arrays is the intercept.

        Returns
        -------
        array of float64
            Any shape.
        """

    @abstractmethod
    def summary(self, phase: int, rows: Rows, prepared: Floats, told: Sequence[Floats]) -> Floats:
        """Return the summary of these rows for one phase.

        Parameters
        ----------
        phase : int
            The phase, from 0.
        rows : Rows
            The rows of a partition.
        prepared : array of float64
            The result of ``prepare``.
        told : sequence of arrays
            The array received in each earlier phase.

        Returns
        -------
        array of float64, (n,)
            A small vector of a fixed length.
        """

    @abstractmethod
    def merge(self, phase: int, summaries: Sequence[Floats]) -> list[Floats]:
        """Combine the summaries of all partitions.

        Parameters
        ----------
        phase : int
            The phase, from 0.
        summaries : sequence of arrays
            A summary for each partition, in the order of the partitions.

        Returns
        -------
        list of arrays
            The array that each partition receives.
        """

    @abstractmethod
    def sums_told(
        self, rows: Rows, prepared: Floats, told: Sequence[Floats], *, intercept: bool
    ) -> Sums:
        """Return weighted sums over the rows of a partition after all phases.

        Parameters
        ----------
        rows : Rows
            The rows of the partition.
        prepared : array of float64
            The result of ``prepare``.
        told : sequence of arrays
            The array received in each phase.
        intercept : bool
            Whether the parameters have a row for the intercept.

        Returns
        -------
        Sums
            Value, weight and gradients.
        """

    def products_told(
        self, rows: Rows, prepared: Floats, told: Sequence[Floats], *, intercept: bool
    ) -> Arrays:
        """Return products with the Hessian over the rows of a partition after all phases.

        Parameters
        ----------
        rows : Rows
            The rows of the partition.
        prepared : array of float64
            The result of ``prepare`` with directions.
        told : sequence of arrays
            The array received in each phase.
        intercept : bool
            Whether the parameters have a row for the intercept.

        Returns
        -------
        tuple of arrays
            A product for each parameter.

        Raises
        ------
        NotImplementedError
            If ``has_products`` is False.
        """
        raise NotImplementedError(f"{type(self).__name__} has no products with its Hessian")

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        prepared = self.prepare(rows, arrays, intercept=intercept)
        return self.sums_told(rows, prepared, self.alone(rows, prepared), intercept=intercept)

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        prepared = self.prepare(rows, arrays, directions, intercept=intercept)
        return self.products_told(rows, prepared, self.alone(rows, prepared), intercept=intercept)

    def alone(self, rows: Rows, prepared: Floats) -> list[Floats]:
        """Return the arrays that a single partition with all rows receives.

        Parameters
        ----------
        rows : Rows
            All rows.
        prepared : array of float64
            The result of ``prepare``.

        Returns
        -------
        list of arrays
            An array for each phase.
        """
        told: list[Floats] = []
        for phase in range(self.phases):
            mine = self.summary(phase, rows, prepared, told)
            told.append(self.merge(phase, [mine])[0])
        return told


def check_loss(loss: object) -> None:
    """TypeError for what is no loss."""
    if isinstance(loss, Loss):
        return
    if isinstance(loss, type):
        raise TypeError(f"loss is the class {loss.__name__}; call it: {loss.__name__}()")
    if callable(loss):
        name = getattr(loss, "__name__", type(loss).__name__)
        raise TypeError(f"loss is the function {name}; write @row_loss (or @block_loss) above it")
    raise TypeError(
        f"loss is {type(loss).__name__}; give a loss of distvec.losses, such as Logistic(), or "
        "your own function with @row_loss"
    )


def check_intercept(loss: Loss, intercept: bool) -> None:
    """ValueError for an intercept that the loss does not see, as it cancels out."""
    if intercept and not loss.takes_intercept:
        raise ValueError(
            f"intercept=True: {loss} compares margins with one another, so an intercept has no "
            "effect; leave it out"
        )


def check_features(count: int, *, intercept: bool, name: str = "the features") -> None:
    """ValueError where there is nothing to fit; an intercept alone is a model."""
    if not count and not intercept:
        raise ValueError(
            f"{name}: every row has 0 features; give at least one feature, or intercept=True to "
            "fit only an intercept"
        )


def positive_weight(loss: Loss, weight: float) -> float:
    """What a mean divides by; ValueError where rows have no say at all."""
    if weight > 0.0:
        return weight
    is_ranking = loss.order == "group"
    reason = "no two rows of a group have different labels" if is_ranking else "all are 0"
    raise ValueError(f"{loss}: the weights sum to 0, because {reason}; there is no mean")


def as_arrays(given: Any, parameters: Sequence[Parameter]) -> tuple[Any, ...]:
    """A bare array, or a dict by names, as arrays in the order of ``parameters``. TypeError."""
    if len(parameters) == 1 and not parameters[0].name:
        return (given,)
    names = [one.name for one in parameters]
    if not hasattr(given, "keys") or set(given.keys()) != set(names):
        found = sorted(given.keys()) if hasattr(given, "keys") else type(given).__name__
        raise TypeError(f"the parameters must be a dict with {names}, got {found}")
    return tuple(given[name] for name in names)


def as_given(arrays: Sequence[Any], parameters: Sequence[Parameter]) -> Any:
    """The opposite: what users see."""
    if len(parameters) == 1 and not parameters[0].name:
        return arrays[0]
    return {one.name: array for one, array in zip(parameters, arrays, strict=True)}


def warn_renamed(old: str, new: str) -> None:
    """A DeprecationWarning at the caller of a method that has another name now."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)


def shape_of(parameter: Parameter, features: int, *, intercept: bool) -> tuple[int, ...]:
    """The shape of the whole array over so many features."""
    rows = features if parameter.rows is None else parameter.rows
    return (rows + parameter.has_intercept(intercept), *parameter.row)


def zeros(loss: Loss, features: int, *, intercept: bool) -> Arrays:
    """NumPy zeros for each parameter."""
    return tuple(np.zeros(shape_of(one, features, intercept=intercept)) for one in loss.parameters)


def no_scores(loss: Loss, *, intercept: bool) -> Floats:
    """The margins of no rows: with a column for each class if there are several."""
    nothing = Rows(scipy.sparse.csr_array((0, 0)), np.zeros(0))
    return loss.scores(nothing, zeros(loss, 0, intercept=intercept), intercept=intercept)


def predict(what: str, loss: Loss, classes: Sequence[float], scores: Floats) -> Floats:
    """The answer of a model of ``loss`` to ``what``, one of the above, for rows of these scores."""
    if what == MARGINS:
        return scores
    if what == PROBABILITIES:
        return loss.probabilities(scores)
    found = loss.predictions(scores)
    return np.where(found > 0.0, classes[1], classes[0]) if loss.labels == "signs" else found


RowFunction: TypeAlias = Callable[[Floats, Floats], tuple[Any, ...]]
"""Of margins and labels, ``(rows,)`` each, to columns of as many numbers."""


def evaluate_by_blocks(
    function: RowFunction, loss: str, names: Sequence[str], rows: Rows, margins: Floats
) -> Iterator[tuple[slice, list[Floats]]]:
    """For each block of rows its columns, times the row weights; ``names`` says what they are.

    Raises LossError, in the name of ``loss``.
    """
    for number, part in enumerate(blocks(len(rows))):
        arguments = read_only(margins[part]), read_only(rows.labels[part])
        try:
            given = function(*arguments)
        except Exception as error:
            raise loss_error(loss, name_of_block(number, part), error) from error
        wrong = _why_not(given, names, *arguments)
        if wrong:
            raise LossError(loss, name_of_block(number, part), wrong)
        nan = _nan(given, names, *arguments, part.start)
        if nan:
            raise NotFinite(loss, name_of_block(number, part), nan)
        columns = [np.asarray(column, np.float64) for column in given]
        yield part, [multiply_weights(column, weights_of(rows, part)) for column in columns]


def weights_of(rows: Rows, part: slice) -> Floats | None:
    """Of some of the rows; None: all 1."""
    return None if rows.weights is None else rows.weights[part]


def multiply_weights(values: Floats, weights: Floats | None) -> Floats:
    """Their products, ``(..., rows)``. A row of weight 0 has no say, whatever is there."""
    if weights is None:
        return values
    products = values * weights
    if not math.isfinite(products.sum()):
        products[..., weights == 0.0] = 0.0
    return products


def _why_not(given: Any, names: Sequence[str], margins: Floats, labels: Floats) -> str:
    """Why these cannot be the columns; "" if they can."""
    wanted = f"it must return ({', '.join(names)}), each of the margins' shape {margins.shape}"
    if not isinstance(given, tuple) or len(given) != len(names):
        what = f"a tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__
        return f"it returned {what}, but {wanted}"
    for name, column in zip(names, map(np.asarray, given), strict=True):
        if column.shape != margins.shape:
            return f"the {name} have the shape {column.shape}, but {wanted}"
        if column.dtype.kind not in "fiub":
            return f"the {name} have the dtype {column.dtype}, but must be real numbers"
    return ""


def _nan(
    given: Sequence[Any], names: Sequence[str], margins: Floats, labels: Floats, start: int
) -> str:
    """Where the first NaN is that a finite margin gave; "" if there is none.

    Infinite values are for the solver to judge, which has no use for the slopes there.
    """
    judged = np.isfinite(margins)
    for name, column in zip(names, map(np.asarray, given), strict=True):
        if not math.isfinite(column.sum()):
            found = np.flatnonzero(np.isnan(column) & judged)
            if found.size:
                row = int(found[0])
                return (
                    f"the {name} are NaN in row {start + row:,}, where the margin is "
                    f"{float(margins[row])!r} and the label {float(labels[row])!r}"
                )
            judged &= np.isfinite(column)
    return ""
