"""Other variables for an objective: coefficients times the standard deviations of their features.

In these MLlib penalises and minimises. Data is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distvec.losses.loss import Parameter, as_arrays, as_given
from distvec.losses.penalties import in_dtype_of
from optim import Result, Solver, State
from optim.core.arrays import Array, fetch, namespace
from optim.stochastic.minibatches import is_sampled

Arrays = tuple[Array, ...]
Callback = Callable[[State], Any]


@dataclass(frozen=True)
class Scales:
    """A factor for each row of each parameter, ``(rows, 1, ...)``; 0: the row has no part."""

    factors: Arrays
    inverses: Arrays
    """0 where the factor is."""
    parts: Arrays | None
    """True where the factor is not 0; None: nowhere it is."""

    @classmethod
    def of(cls, factors: Sequence[Array]) -> Scales:
        """With factors of 0 or more. One message."""
        parts = tuple(factor > 0.0 for factor in factors)
        inverses = tuple(
            namespace(part).where(part, 1.0 / namespace(part).where(part, factor, 1.0), 0.0)
            for part, factor in zip(parts, factors, strict=True)
        )
        least = fetch(*(namespace(one).min(one) for one in factors), also=(*factors, *inverses))
        return cls(tuple(factors), inverses, None if min(least) > 0.0 else parts)

    def scaled(self, arrays: Arrays) -> Arrays:
        """The variables that are penalised."""
        return _products(self.factors, arrays)

    def unscaled(self, arrays: Arrays) -> Arrays:
        """The opposite: 0 for rows that have no part."""
        return _products(self.inverses, arrays)

    def used(self, arrays: Arrays) -> Arrays:
        """With 0 for rows that have no part."""
        if self.parts is None:
            return arrays
        pairs = zip(self.parts, arrays, strict=True)
        return tuple(namespace(array).where(part, array, 0.0) for part, array in pairs)


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
        return self.original(product)

    def scaled(self, x: Any) -> Any:
        """The variables that are minimised over."""
        return self._mapped(self.scales.scaled, x)

    def original(self, u: Any) -> Any:
        """Those of the objective; also what a gradient by these is by ``u``."""
        return self._mapped(self.scales.unscaled, u)

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
            self.scaled(x0),
            callback=None if callback is None else self._seen(callback),
            progress=self._seen(progress) if callable(progress) else progress,
            **kept,
        )
        found.update(x=self.original(found.x), jac=self.scaled(found.jac))
        return found

    def _seen(self, function: Callback) -> Callback:
        return lambda state: function(
            replace(state, x=self.original(state.x), gradient=self.scaled(state.gradient))
        )

    def _evaluated(self, function: Callable[[Any], tuple[Any, Any]], u: Any) -> tuple[Any, Any]:
        value, gradient = function(self.original(u))
        return value, self.original(gradient)

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
