"""The batches of a problem, for objectives that have any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from optim.core.arrays import Array, Scalar
from optim.core.problem import Problem
from optim.core.trees import as_tree, as_user_structure


@dataclass(frozen=True)
class Batches:
    """One batch at a time of `problem`'s objective; calling the problem itself evaluates the whole.

    A batch counts as one evaluation, however many items it has.
    """

    problem: Problem
    objective: Sampled

    @classmethod
    def of(cls, problem: Problem) -> Batches | None:
        """The batches of `problem`; None if its objective has no batches."""
        objective = problem.fun
        if not is_sampled(objective):
            return None
        if problem.jac is not True:
            raise ValueError(
                f"jac={problem.jac!r}: the batches of {type(objective).__name__} give the "
                "gradient themselves; leave jac out and return (value, gradient)"
            )
        return cls(problem, objective)

    @property
    def per_epoch(self) -> int:
        """Number of batches after which each item was seen once."""
        return self.objective.batches_per_epoch

    def evaluate(self, x: Array, k: int) -> Evaluation:
        """Value (perhaps a lazy rank-0 array) and gradient of batch k at `x`."""
        self.problem.evaluations += 1
        return self.problem.part(self.objective.batch(k))(x)


Indices: TypeAlias = npt.NDArray[np.int64]
Evaluation: TypeAlias = tuple[Scalar, Array]  # value and gradient


class Sampled(Protocol):
    """The attributes by which a stochastic solver recognises an objective with batches."""

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches after which each item was seen once."""

    def batch(self, k: int) -> Callable[..., Evaluation]:
        """The objective on batch k = 0, 1, ...: a function of x (and further arguments)."""

    def __call__(self, x: Array, *args: Any) -> Evaluation:
        """The whole objective."""


def is_sampled(objective: Any) -> TypeGuard[Sampled]:
    """Whether `objective` has batches."""
    return hasattr(objective, "batch") and hasattr(objective, "batches_per_epoch")


def is_eager(objective: Any) -> bool:
    """Whether a call of `objective` computes the arrays it returns, by its attribute `eager`.

    Others may return lazy arrays that are not computed yet.
    """
    return bool(getattr(objective, "eager", False))


@dataclass(frozen=True)
class Order:
    """0 .. count - 1, again and again, in a new random order each time or always in the same.

    The order of an epoch costs O(count) once; the newest one is kept.
    """

    count: int
    shuffle: bool
    seed: int
    _kept: dict[int, Indices] = field(default_factory=dict, init=False, repr=False, compare=False)

    def number(self, k: int) -> int:
        """The k-th number, k = 0, 1, ..."""
        epoch, place = divmod(k, self.count)
        return int(self.epoch(epoch)[place])

    def epoch(self, number: int) -> Indices:
        """All numbers in the order of epoch `number`."""
        number = number if self.shuffle else 0
        order = self._kept.get(number)
        if order is None:
            order = self._draw(number)
            self._kept.clear()
            self._kept[number] = order
        return order

    def _draw(self, number: int) -> Indices:
        if not self.shuffle:
            return np.arange(self.count)
        return np.random.default_rng((self.seed, number)).permutation(self.count)


@dataclass(frozen=True)
class Minibatches:
    """An objective that is the mean over items, with batches drawn without replacement.

    Parameters
    ----------
    fun : callable
        ``fun(x, indices, *args)`` returns ``(value, gradient)``, both means over the items
        `indices`, an int64 NumPy array.
    count : int
        Number of items.
    batch_size : int
        Number of items in a batch, between 1 and `count`.
    shuffle : bool, default True
        Draw a new order of the items for each epoch. False: always ``0 .. count - 1``.
    drop_last : bool, default False
        Leave out the last batch of an epoch if it is smaller than the others.
    seed : int, default 0
        Seed of the orders, 0 or more.

    Attributes
    ----------
    order : Order
        The order of the items in each epoch.

    Raises
    ------
    TypeError
        If ``fun`` is not callable.
    ValueError
        If `count`, `batch_size` or `seed` is out of its range.

    See Also
    --------
    FiniteSum : For solvers that keep a gradient for each term, such as SAG.

    Notes
    -----
    A call evaluates the whole objective: one call of ``fun`` with all indices.

    Examples
    --------
    >>> data = np.array([1.0, 2.0, 3.0, 6.0])
    >>> def mean_square(x, indices):
    ...     d = x - data[indices].mean()
    ...     return 0.5 * float(d @ d), d
    >>> batches = optim.Minibatches(mean_square, count=4, batch_size=2, shuffle=False)
    >>> batches.batches_per_epoch, batches.indices(1)
    (2, array([2, 3]))
    >>> batches(np.zeros(1))
    (4.5, array([-3.]))
    """

    fun: Callable[..., Evaluation]
    count: int
    batch_size: int
    shuffle: bool = True
    drop_last: bool = False
    seed: int = 0
    order: Order = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_sampling(self, self.fun, self.count, self.seed)
        if not 1 <= self.batch_size <= self.count:
            raise ValueError(
                f"Minibatches(batch_size={self.batch_size!r}): must be between 1 and "
                f"count={self.count}"
            )
        object.__setattr__(self, "order", Order(self.count, self.shuffle, self.seed))

    @classmethod
    def of(
        cls,
        fun: Callable[..., Evaluation],
        *data: Array,
        batch_size: int,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
    ) -> Minibatches:
        """Make batches of the rows of arrays.

        Parameters
        ----------
        fun : callable
            ``fun(x, *rows, *args)`` returns ``(value, gradient)``, both means over the rows. Each
            of `rows` is ``data[indices]``.
        *data : Array or sparse matrix
            Arrays with equally many rows, such as features and labels.
        batch_size : int
            Number of rows in a batch.
        shuffle : bool, default True
            Draw a new order of the rows for each epoch. False: always in the given order.
        drop_last : bool, default False
            Leave out the last batch of an epoch if it is smaller than the others.
        seed : int, default 0
            Seed of the orders, 0 or more.

        Returns
        -------
        Minibatches
            With the rows as items.

        Raises
        ------
        ValueError
            If the arrays differ in their number of rows, or there is no array.
        """
        lengths = [part.shape[0] for part in data]
        if not data or len(set(lengths)) > 1:
            raise ValueError(
                f"Minibatches.of(fun, *data): data must be arrays with equally many rows, got "
                f"{lengths or 'no arrays'}; give for instance features, labels"
            )

        def on_rows(x: Array, indices: Indices, *args: Any) -> Evaluation:
            return fun(x, *(part[indices] for part in data), *args)

        return cls(on_rows, lengths[0], batch_size, shuffle, drop_last, seed)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches after which each item was seen once.

        Returns
        -------
        int
            1 or more.
        """
        full, rest = divmod(self.count, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def indices(self, k: int) -> Indices:
        """Return the items of a batch.

        Parameters
        ----------
        k : int
            Number of the batch: 0, 1, ... through all epochs.

        Returns
        -------
        numpy.ndarray
            Their indices, of dtype int64.
        """
        epoch, place = divmod(k, self.batches_per_epoch)
        first = place * self.batch_size
        return self.order.epoch(epoch)[first : first + self.batch_size]

    def batch(self, k: int) -> Callable[..., Evaluation]:
        """Return the objective on a batch.

        Parameters
        ----------
        k : int
            Number of the batch: 0, 1, ... through all epochs.

        Returns
        -------
        callable
            A function of x (and further arguments) that returns ``(value, gradient)``.
        """
        return lambda x, *args: self.fun(x, self.indices(k), *args)

    def __call__(self, x: Array, *args: Any) -> Evaluation:
        """The mean over all items."""
        return self.fun(x, np.arange(self.count), *args)


@dataclass(frozen=True)
class FiniteSum:
    """An objective that is the mean of terms, each an objective of its own that keeps its number.

    Parameters
    ----------
    fun : callable
        ``fun(x, i, *args)`` returns ``(value, gradient)`` of term i: one item, or a fixed batch of
        them. Batches must have the same size, or their mean weighs items differently.
    count : int
        Number of terms.
    shuffle : bool, default True
        Draw a new order of the terms for each epoch. False: always ``0 .. count - 1``.
    seed : int, default 0
        Seed of the orders, 0 or more.

    Attributes
    ----------
    order : Order
        The order of the terms in each epoch.

    See Also
    --------
    SAG : The solver that needs such a sum.
    Minibatches : Batches that change from epoch to epoch.

    Notes
    -----
    A call evaluates the whole objective: `count` calls of ``fun``.

    Examples
    --------
    >>> centres = np.array([[1.0, 0.0], [2.0, 3.0], [3.0, 6.0]])
    >>> def term(x, i):
    ...     d = x - centres[i]
    ...     return 0.5 * float(d @ d), d
    >>> optim.FiniteSum(term, 3)(np.array([2.0, 3.0]))[1]
    array([0., 0.])
    """

    fun: Callable[..., Evaluation]
    count: int
    shuffle: bool = True
    seed: int = 0
    order: Order = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_sampling(self, self.fun, self.count, self.seed)
        object.__setattr__(self, "order", Order(self.count, self.shuffle, self.seed))

    @property
    def terms(self) -> Order:
        """The order of the terms: an objective that has one keeps the same terms in all epochs.

        Returns
        -------
        Order
            The same as ``order``.
        """
        return self.order

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches after which each term was seen once.

        Returns
        -------
        int
            The number of terms.
        """
        return self.count

    def batch(self, k: int) -> Callable[..., Evaluation]:
        """Return the term that an evaluation sees.

        Parameters
        ----------
        k : int
            Number of the evaluation: 0, 1, ... through all epochs.

        Returns
        -------
        callable
            A function of x (and further arguments) that returns ``(value, gradient)``.
        """
        return lambda x, *args: self.fun(x, self.order.number(k), *args)

    def __call__(self, x: Array, *args: Any) -> Evaluation:
        """The mean of all terms."""
        value, gradient = self.fun(x, 0, *args)
        gradient = as_tree(gradient)
        for i in range(1, self.count):
            term = self.fun(x, i, *args)
            value, gradient = value + term[0], gradient + as_tree(term[1])
        return value / self.count, as_user_structure(gradient / self.count)


def _check_sampling(objective: object, fun: Any, count: int, seed: int) -> None:
    name = type(objective).__name__
    if not callable(fun):
        raise TypeError(f"{name}: fun must be callable, got {type(fun).__name__}")
    if not count >= 1:
        raise ValueError(f"{name}(count={count!r}): must be 1 or more")
    if not seed >= 0:
        raise ValueError(f"{name}(seed={seed!r}): must be 0 or more")
