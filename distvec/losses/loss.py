"""What a loss is: parameters, and sums over rows of one process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from distvec.losses.rows import Floats, Rows

Arrays: TypeAlias = tuple[npt.NDArray[Any], ...]
"""An array for each parameter, in the order of ``Loss.parameters``."""


SCORES, PROBABILITIES, PREDICTIONS = "scores", "probabilities", "predictions"
"""Questions to a model about rows."""


class Parameter(NamedTuple):
    """An array that a loss is a function of: one row a feature.

    ``name`` is empty where there is one parameter only, which users then see as a bare array; else
    they see a dict by names.
    """

    name: str = ""
    row: tuple[int, ...] = ()
    """Shape of what belongs to one feature: () in a vector, (k,) in a table."""
    takes_intercept: bool = True
    """Has one more row, the last, in an objective with an intercept."""
    spread: float = 0.0
    """Standard deviation of the random values it starts from; 0: it starts from zeros."""


class Sums(NamedTuple):
    """What rows contribute to an objective; the objective is the sum of the values divided by that
    of the weights."""

    value: float
    weight: float
    gradients: Arrays
    """Of ``value``, by parameter; ``(columns [+ 1], *row)``."""


class Loss(ABC):
    """A loss: a frozen dataclass that pickles. All methods are pure."""

    labels: ClassVar[str] = "real"
    """Which labels there may be: a key of ``labels.RULES``."""
    order: ClassVar[str] = ""
    """How rows must lie together: "" in any order, "group" by groups, "time" by labels."""

    @property
    def has_products(self) -> bool:
        """Whether ``products`` is there."""
        return False

    @property
    def has_kinks(self) -> bool:
        """Whether its gradient jumps somewhere, as that of the hinge loss."""
        return False

    def bind(self, labels: Sequence[float]) -> Loss:
        """This loss for data with these distinct labels (known for "classes" and "signs")."""
        return self

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What it is a function of."""
        return (Parameter(),)

    @property
    def takes_intercept(self) -> bool:
        """Whether an intercept changes anything; known also before ``bind``."""
        return any(one.takes_intercept for one in self.parameters)

    @abstractmethod
    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        """Weighted sums over ``rows``; arrays are ``(columns [+ 1], *row)`` each."""

    def weight(self, rows: Rows) -> float:
        """What ``rows`` add to that by which the mean divides."""
        return rows.weight_sum

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        """The Hessian of ``sums(...).value`` at ``arrays`` times ``directions``."""
        raise NotImplementedError(f"{type(self).__name__} has no products with its Hessian")

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """What the model says of each row: ``(rows,)``, or ``(rows, k)`` for k classes."""
        return rows.margins(arrays[0], intercept=intercept)

    def probabilities(self, scores: Floats) -> Floats:
        """Of each class where the model has these scores, ``(rows, k)``; of two, that of -1 comes
        first."""
        raise NotImplementedError(
            f"{self} tells no probabilities, as Logistic and Softmax do; ask for the scores"
        )

    def predictions(self, scores: Floats) -> Floats:
        """The label expected where the model has these scores: -1 or 1, a class, a number."""
        if self.labels == "signs" and not self.order:
            return np.where(scores > 0.0, 1.0, -1.0)
        if self.labels == "real" and not self.order:
            return scores
        raise NotImplementedError(f"{self} tells no labels of rows; ask for the scores")


class PhasedLoss(Loss):
    """A loss that needs to know something of all rows before it can sum over some of them.

    In each phase every partition (rows that lie together, in the order of ``order``) tells a small
    array, and is told another one. What it was told in all phases so far goes along, and what was
    ``prepared`` of its rows, once an evaluation where they stay. With directions all this is for
    products with the Hessian.
    """

    phases: ClassVar[int] = 1

    @abstractmethod
    def prepare(
        self, rows: Rows, arrays: Arrays, directions: Arrays = (), *, intercept: bool
    ) -> Floats:
        """What all phases need of these rows alone, as their margins."""

    @abstractmethod
    def summary(self, phase: int, rows: Rows, prepared: Floats, told: Sequence[Floats]) -> Floats:
        """What these rows tell: a small vector, always of one length."""

    @abstractmethod
    def merge(self, phase: int, summaries: Sequence[Floats]) -> list[Floats]:
        """What each partition is told, from the summaries in the order of the partitions."""

    @abstractmethod
    def sums_told(
        self, rows: Rows, prepared: Floats, told: Sequence[Floats], *, intercept: bool
    ) -> Sums:
        """``sums``, given what was told in each phase."""

    def products_told(
        self, rows: Rows, prepared: Floats, told: Sequence[Floats], *, intercept: bool
    ) -> Arrays:
        """``products``, given what was told in each phase."""
        raise NotImplementedError(f"{type(self).__name__} has no products with its Hessian")

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        """Over rows that are all there are."""
        prepared = self.prepare(rows, arrays, intercept=intercept)
        return self.sums_told(rows, prepared, self.alone(rows, prepared), intercept=intercept)

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        """The same, of the Hessian times ``directions``."""
        prepared = self.prepare(rows, arrays, directions, intercept=intercept)
        return self.products_told(rows, prepared, self.alone(rows, prepared), intercept=intercept)

    def alone(self, rows: Rows, prepared: Floats) -> list[Floats]:
        """What rows are told that are all there are."""
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
            f"intercept=True: {loss} compares margins with one another, so an intercept changes "
            "nothing; leave it out"
        )


def check_features(count: int, *, intercept: bool, name: str = "the features") -> None:
    """ValueError where there is nothing to fit; an intercept alone is a model."""
    if not count and not intercept:
        raise ValueError(
            f"{name}: every row has 0 of them, so there is nothing to fit; give features, or "
            "intercept=True for a model of it alone"
        )


def positive_weight(loss: Loss, weight: float) -> float:
    """What a mean divides by; ValueError where rows have no say at all."""
    if weight > 0.0:
        return weight
    what = "no two rows of a group have different labels" if loss.order == "group" else "all are 0"
    raise ValueError(f"{loss}: there is nothing to average over: the weights sum to 0, as {what}")


def as_arrays(given: Any, parameters: Sequence[Parameter]) -> tuple[Any, ...]:
    """A bare array, or a dict by names, as arrays in the order of ``parameters``. TypeError."""
    if len(parameters) == 1 and not parameters[0].name:
        return (given,)
    names = [one.name for one in parameters]
    if not hasattr(given, "keys") or set(given.keys()) != set(names):
        what = sorted(given.keys()) if hasattr(given, "keys") else type(given).__name__
        raise TypeError(f"the parameters are a dict with {names}; {what} was given")
    return tuple(given[name] for name in names)


def as_given(arrays: Sequence[Any], parameters: Sequence[Parameter]) -> Any:
    """The opposite: what users see."""
    if len(parameters) == 1 and not parameters[0].name:
        return arrays[0]
    return {one.name: array for one, array in zip(parameters, arrays, strict=True)}


def shape_of(parameter: Parameter, features: int, *, intercept: bool) -> tuple[int, ...]:
    """The shape of the whole array over so many features."""
    return (features + (intercept and parameter.takes_intercept), *parameter.row)


def zeros(loss: Loss, features: int, *, intercept: bool) -> Arrays:
    """NumPy zeros for each parameter."""
    return tuple(np.zeros(shape_of(one, features, intercept=intercept)) for one in loss.parameters)


def answer(what: str, loss: Loss, classes: Sequence[float], scores: Floats) -> Floats:
    """The answer of a model of ``loss`` to ``what``, one of the above, for rows of these scores."""
    if what == SCORES:
        return scores
    if what == PROBABILITIES:
        return loss.probabilities(scores)
    found = loss.predictions(scores)
    return np.where(found > 0.0, classes[1], classes[0]) if loss.labels == "signs" else found
