"""Wrappers of objectives: penalties, a memory of the last call, a counter of calls."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from optim.core.arrays import Array, Scalar, vdot
from optim.core.trees import as_tree, as_user_structure, is_structure, named_leaves
from optim.quasi_newton.owlqn import L1

Objective: TypeAlias = Callable[..., tuple[Scalar, Array]]


def with_l2(fun: Objective, weight: Any) -> Objective:
    """fun(x) + sum(weight * x^2) / 2, with its gradient.

    weight  a number, or an array like x: 0 for an intercept. Of parameters in several arrays each
            has its weight: {"w": 1.0, "V": 0.1}
    """
    weights = _weights("with_l2", weight)

    def penalised(x: Array, *args: Any) -> tuple[Scalar, Array]:
        value, gradient = fun(x, *args)
        whole = as_tree(x)
        slope = weights * whole
        return value + 0.5 * vdot(slope, whole), as_user_structure(as_tree(gradient) + slope)

    return penalised


def with_l1(fun: Objective, weight: Any) -> Objective:
    """fun(x) + sum(weight * |x|), with the element of least norm in its subdifferential.

    weight  as for `with_l2`

    For subgradient methods and to evaluate a result. Solvers for smooth objectives do not see the
    kinks: `OWLQN(l1=weight)` takes the objective without the penalty.
    """
    penalty = L1(_weights("with_l1", weight), free=False)

    def penalised(x: Array, *args: Any) -> tuple[Scalar, Array]:
        value, gradient = fun(x, *args)
        whole = as_tree(x)
        penalised_gradient = penalty.pseudo_gradient(whole, as_tree(gradient))
        return value + penalty.value(whole), as_user_structure(penalised_gradient)

    return penalised


def _weights(name: str, weight: Any) -> Any:
    """A number, an array or a tree of them, checked."""
    weights = as_tree(weight)
    for place, own in named_leaves(weights):
        if isinstance(own, (int, float)):
            if not own >= 0.0:
                raise ValueError(f"{name}(weight{place}={own!r}): must be 0 or more")
        elif not hasattr(own, "dtype"):
            raise TypeError(
                f"{name}: weight{place} must be a number or an array like x{place}, but is "
                f"{type(own).__name__}; give for instance numpy.asarray(weight{place})"
            )
    return weights


class Cached:
    """`fun`, called once for calls in a row with the same array object.

    For an objective whose value and gradient are asked for separately, as a pair of functions:
    `minimize(cached.value, x0, jac=cached.gradient)`. Arrays are compared by identity, never by
    value, so `x` must not be written to between the calls. `hits` counts the calls saved.
    """

    def __init__(self, fun: Objective) -> None:
        self.hits = 0
        self._fun = fun
        self._given: tuple[Any, ...] = ()
        self._returned: Any = None

    def __call__(self, x: Array, *args: Any) -> tuple[Scalar, Array]:
        """(value, gradient) at `x`."""
        given = (x, *args)
        if len(given) == len(self._given) and all(map(_same, given, self._given)):
            self.hits += 1
        else:
            self._returned = self._fun(*given)
            self._given = given
        value, gradient = self._returned
        return value, gradient

    def value(self, x: Array, *args: Any) -> Scalar:
        """The value alone."""
        return self(x, *args)[0]

    def gradient(self, x: Array, *args: Any) -> Array:
        """The gradient alone."""
        return self(x, *args)[1]


def _same(new: Any, old: Any) -> bool:
    """Whether two arguments are the same object, or structures of the same arrays."""
    if new is old or not is_structure(new) or not is_structure(old):
        return new is old
    new, old = as_tree(new), as_tree(old)
    return new.structure == old.structure and all(map(operator.is_, new.leaves, old.leaves))


class Counted:
    """`fun` with the number of its `calls`."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.calls = 0
        self._fun = fun

    def __call__(self, *args: Any) -> Any:
        """What `fun` returns."""
        self.calls += 1
        return self._fun(*args)
