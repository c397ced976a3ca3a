"""Smooth functions as proximal operators: minimised near a point by another solver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from optim.core.arrays import Array, Scalar, vdot
from optim.core.problem import Problem
from optim.core.result import State
from optim.core.solver import Solver
from optim.core.trees import Tree
from optim.proximal.operators import Proximal
from optim.quasi_newton.lbfgs import LBFGS

Function: TypeAlias = Callable[[Array], tuple[Scalar, Array]]


@dataclass(frozen=True)
class SmoothTerm(Proximal):
    """A smooth function x -> (value, gradient) as a term of ADMM: its prox is found by `solver`.

    What that costs is not counted in the result of ADMM.
    """

    fun: Function
    solver: Solver = field(
        default_factory=lambda: LBFGS(gradient_tolerance=1e-9, value_tolerance=0.0)
    )

    def value(self, x: Array) -> Scalar:
        """The function at `x`."""
        return self._function(x)(x)[0]

    def prox(self, x: Array, step: float) -> Array:
        """The minimum of fun(u) + |u - x|^2 / (2 * step), sought from `x`."""
        fun = near(self._function(x), x, 1.0 / step)
        return last_of(self.solver.iterations(fun, x, checkpoint=False)).x

    def _function(self, x: Array) -> Function:
        return Problem(self.fun, structured=True) if isinstance(x, Tree) else self.fun


def near(fun: Function, centre: Array, weight: float) -> Function:
    """fun(x) + weight / 2 * |x - centre|^2 and its gradient."""

    def pulled(x: Array) -> tuple[Scalar, Array]:
        value, gradient = fun(x)
        d = x - centre
        return value + 0.5 * weight * vdot(d, d), gradient + weight * d

    return pulled


def last_of(states: Iterator[State]) -> State:
    """The last state, not the lowest: near a minimum values are noise, but gradients are not."""
    return deque(states, maxlen=1).pop()
