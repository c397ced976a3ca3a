"""Products with the Hessian, by differences of gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from optim.core.arrays import Array, machine_epsilon, namespace, vdot
from optim.core.boundary import as_start, like
from optim.core.problem import Problem
from optim.core.structure import is_structure
from optim.core.trees import arranged


def hessian_product(
    fun: Callable[..., Any],
    x: Array,
    *,
    args: Sequence[Any] = (),
    jac: bool | Callable[..., Array] = True,
) -> Callable[[Array], Array]:
    """v -> the Hessian of `fun` at `x` times v, by differences of gradients.

    `fun`, `args` and `jac` are as for `minimize`. One evaluation now, and one for each product,
    which has about half of the digits of the gradients.
    """
    problem = Problem(fun, args, jac, structured=is_structure(x))
    x = as_start(x)
    product = difference_hessian(problem.gradient, x, problem.gradient(x))
    return lambda v: arranged(product(like(v, x, "v"))) if problem.structured else product(v)


def difference_hessian(
    gradient: Callable[[Array], Array], x: Array, at_x: Array
) -> Callable[[Array], Array]:
    """v -> the Hessian at `x` times v, by forward differences of `gradient`; `at_x` is that at x.

    The step along v has the 2-norm sqrt(machine epsilon) * (1 + |x|), which balances the rounding
    of the gradients against the Hessian's change; about half of the digits are good.
    """
    xp = namespace(x)
    length = math.sqrt(machine_epsilon(x)) * (1.0 + xp.sqrt(vdot(x, x)))

    def product(v: Array) -> Array:
        step = length / xp.sqrt(vdot(v, v))
        return (gradient(x + step * v) - at_x) / step

    return product
