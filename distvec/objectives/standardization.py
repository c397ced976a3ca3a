"""Other variables for an objective: coefficients times the standard deviations of their features,
and the intercept of centered features; and bounds of its parameters, as boxes, in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from distvec.losses.loss import Parameter, as_arrays, as_given
from distvec.objectives.penalties import in_dtype_of
from optim import Box, NonNegative, Result, Solver, State
from optim.core.arrays import Array, fetch, namespace
from optim.core.trees import Tree
from optim.quasi_newton.lbfgsb import box_like
from optim.stochastic.minibatches import is_sampled

Arrays = tuple[Array, ...]
Callback = Callable[[State], Any]


class Center(NamedTuple):
    """Of a parameter with an intercept, its last row: arrays like its factors."""

    means: Array
    """Of the features; 0 in the last row."""
    last: Array
    """1 in the last row, 0 in others."""


@dataclass(frozen=True)
class Scales:
    """A factor for each row of each parameter, ``(rows, 1, ...)``; 0: the row has no part."""

    factors: Arrays
    inverses: Arrays
    """0 where the factor is."""
    parts: Arrays | None
    """True where the factor is not 0; None: nowhere it is."""
    centers: tuple[Center | None, ...] = ()
    """By parameter the means of the features; None if it has no intercept."""

    @classmethod
    def of(cls, factors: Sequence[Array], centers: Sequence[Center | None] = ()) -> Scales:
        """With factors of 0 or more. One message."""
        parts = tuple(factor > 0.0 for factor in factors)
        inverses = tuple(
            namespace(part).where(part, 1.0 / namespace(part).where(part, factor, 1.0), 0.0)
            for part, factor in zip(parts, factors, strict=True)
        )
        least = fetch(*(namespace(one).min(one) for one in factors), also=(*factors, *inverses))
        parted = None if min(least) > 0.0 else parts
        return cls(tuple(factors), inverses, parted, tuple(centers))

    def without_centers(self) -> Scales:
        """The same, whose variables have the intercept of features as they are."""
        return replace(self, centers=())

    def scaled(self, arrays: Arrays) -> Arrays:
        """The variables that are penalised."""
        return _products(self.factors, arrays)

    def variables(self, x: Arrays) -> Arrays:
        """What a solver works on: coefficients times deviations, and the intercept of centered
        features, ``b + <means, w>``, so that it hardly depends on the coefficients."""
        return self._with_intercepts(self.scaled(x), x, 1.0)

    def original(self, u: Arrays) -> Arrays:
        """The parameters of such variables: 0 for rows that have no part."""
        x = _products(self.inverses, u)
        return self._with_intercepts(x, x, -1.0)

    def slopes(self, gradient: Arrays) -> Arrays:
        """The gradient by the variables, of that by the parameters."""
        return _products(self.inverses, self._with_slopes(gradient, -1.0))

    def original_slopes(self, gradient: Arrays) -> Arrays:
        """The gradient by the parameters, of that by the variables."""
        return self._with_slopes(_products(self.factors, gradient), 1.0)

    def _with_intercepts(self, arrays: Arrays, x: Arrays, sign: float) -> Arrays:
        """``arrays`` with ``sign <means, x>`` more in the row of the intercept."""
        if not any(self.centers):
            return arrays
        each = zip(arrays, x, self.centers, strict=True)
        return tuple(
            a if c is None else a + in_dtype_of(a, c.last) * (sign * _sum(c.means, w))
            for a, w, c in each
        )

    def _with_slopes(self, gradients: Arrays, sign: float) -> Arrays:
        """``gradients`` with that of the intercept, times ``sign`` and the means, more."""
        if not any(self.centers):
            return gradients
        each = zip(gradients, self.centers, strict=True)
        return tuple(
            g if c is None else g + in_dtype_of(g, c.means) * (sign * _sum(c.last, g))
            for g, c in each
        )

    def used(self, arrays: Arrays) -> Arrays:
        """With 0 for rows that have no part."""
        if self.parts is None:
            return arrays
        pairs = zip(self.parts, arrays, strict=True)
        return tuple(namespace(array).where(part, array, 0.0) for part, array in pairs)


def _sum(weights: Array, array: Array) -> Any:
    """Of each column, weighted."""
    return (in_dtype_of(array, weights) * array).sum(axis=0)


def _products(factors: Arrays, arrays: Arrays) -> Arrays:
    pairs = zip(factors, arrays, strict=True)
    return tuple(in_dtype_of(array, factor) * array for factor, array in pairs)


class Standardized:
    """``objective`` as a function of the scaled variables ``u``."""

    def __init__(self, objective: Any, scales: Scales, parameters: Sequence[Parameter]) -> None:
        self.objective, self.scales, self.parameters = objective, scales, parameters

    @classmethod
    def over(cls, objective: Any, scales: Scales, parameters: Sequence[Parameter]) -> Standardized:
        """One with minibatches if the objective has them."""
        kind = _SampledStandardized if is_sampled(objective) else cls
        return kind(objective, scales, parameters)

    def __call__(self, u: Any) -> tuple[Any, Any]:
        """Value, and gradient by ``u``."""
        return self._evaluated(self.objective, u)

    def hessp(self, u: Any, v: Any) -> Any:
        """The Hessian by ``u`` times ``v``."""
        product = self.objective.hessp(self.original(u), self.original(v))
        return self._mapped(self.scales.slopes, product)

    def original(self, u: Any) -> Any:
        """The parameters of the objective."""
        return self._mapped(self.scales.original, u)

    def minimized_by(
        self,
        solver: Solver,
        x0: Any,
        callback: Callback | None,
        progress: bool | Callback,
        **kept: Any,
    ) -> Result:
        """The result of ``solver`` from ``x0``, in the variables of the objective, as are the
        states that callbacks see. ``kept``: what its ``minimize`` takes about checkpoints."""
        found = solver.minimize(
            self,
            self._mapped(self.scales.variables, x0),
            callback=None if callback is None else self._seen(callback),
            progress=self._seen(progress) if callable(progress) else progress,
            **kept,
        )
        found.update(x=self.original(found.x), jac=self._original_slopes(found.jac))
        return found

    def _seen(self, function: Callback) -> Callback:
        return lambda state: function(
            replace(
                state,
                x=self.original(state.x),
                gradient=self._original_slopes(state.gradient),
            )
        )

    def _original_slopes(self, gradient: Any) -> Any:
        return self._mapped(self.scales.original_slopes, gradient)

    def _evaluated(self, function: Callable[[Any], tuple[Any, Any]], u: Any) -> tuple[Any, Any]:
        value, gradient = function(self.original(u))
        return value, self._mapped(self.scales.slopes, gradient)

    def _mapped(self, function: Callable[[Arrays], Arrays], given: Any) -> Any:
        return as_given(function(as_arrays(given, self.parameters)), self.parameters)


class _SampledStandardized(Standardized):
    """The same, batch by batch."""

    @property
    def batches_per_epoch(self) -> int:
        return int(self.objective.batches_per_epoch)

    def batch(self, k: int) -> Callable[[Any], tuple[Any, Any]]:
        function = self.objective.batch(k)
        return lambda u: self._evaluated(function, u)


def box_of(bounds: Any, like: Array, mask: Array | None) -> Box:
    """The box of one parameter, an array like ``like``.

    Numbers bound the features alone, and so do pairs for them alone; an intercept is bounded where
    there are arrays or pairs with an element for it.
    """
    if bounds is None:
        return Box()
    if isinstance(bounds, NonNegative):
        bounds = Box(0.0, math.inf)
    if mask is not None and isinstance(bounds, Sequence) and len(bounds) == like.shape[0] - 1:
        bounds = [*bounds, (None, None)]
    box = box_like(bounds, like)
    ends = ((box.lower, -math.inf), (box.upper, math.inf))
    return Box(*(in_dtype_of(like, _of_features(bound, none, mask)) for bound, none in ends))


def scaled_boxes(boxes: Sequence[Box], likes: Sequence[Array], scales: Scales) -> list[Box]:
    """The boxes of the scaled parameters, arrays like ``likes``; a row without a part has none."""
    parts = scales.parts or [None] * len(boxes)
    return [
        Box(
            _scale_bound(box.lower, -math.inf, in_dtype_of(like, factor), part),
            _scale_bound(box.upper, math.inf, in_dtype_of(like, factor), part),
        )
        for box, like, factor, part in zip(boxes, likes, scales.factors, parts, strict=True)
    ]


def _scale_bound(bound: Any, none: float, factor: Array, part: Array | None) -> Any:
    if isinstance(bound, float) and math.isinf(bound):
        return bound
    product = factor * bound
    if part is None:
        return product
    return in_dtype_of(product, namespace(part).where(part, product, none))


def by_name(bounds: Any, parameters: Sequence[Parameter]) -> list[Any]:
    """What was given for each parameter."""
    if len(parameters) == 1 and not parameters[0].name:
        return [bounds]
    names = [one.name for one in parameters]
    if isinstance(bounds, Box):
        return [Box(_part_of(bounds.lower, name), _part_of(bounds.upper, name)) for name in names]
    if not isinstance(bounds, Mapping) or set(bounds) - set(names):
        what = sorted(bounds) if isinstance(bounds, Mapping) else type(bounds).__name__
        raise TypeError(f"bounds are a dict by parameters, of {names}; {what} was given")
    return [bounds.get(name) for name in names]


def _part_of(bound: Any, name: str) -> Any:
    return bound.arranged()[name] if isinstance(bound, Tree) else bound


def _of_features(bound: Any, none: float, mask: Array | None) -> Any:
    if mask is None or not isinstance(bound, float) or bound == none:
        return bound
    return namespace(mask).where(mask, bound, none)
