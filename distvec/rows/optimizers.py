"""The row optimizers by name: ``dv.rows.adagrad(0.05)``. All take what ``RowOptimizer`` tells of.

``step_size`` is a number, or a schedule of ``optim``: a function of the calls so far, 0, 1, ...
"""

from __future__ import annotations

from distvec.rows.optimizer import RowOptimizer
from optim import FTRL, SGD, AdaDelta, AdaGrad, Adam, RMSProp
from optim.stochastic.ftrl import GroupFTRL, RowwiseAdaGrad
from optim.stochastic.schedules import Schedule

StepSize = float | Schedule


def sgd(
    step_size: StepSize = 0.1, *, bound: float | None = None, weight_decay: float = 0.0
) -> RowOptimizer:
    """``w - step_size * gradient``: no state. Formula: ``optim.SGD``."""
    return RowOptimizer(SGD(step_size=step_size), bound, weight_decay)


def momentum(
    step_size: StepSize = 0.1,
    momentum: float = 0.9,
    *,
    nesterov: bool = False,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """SGD with a velocity for each element. Formula: ``optim.SGD``."""
    solver = SGD(step_size=step_size, momentum=momentum, nesterov=nesterov)
    return RowOptimizer(solver, bound, weight_decay)


def adagrad(
    step_size: StepSize = 0.1,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    epsilon: float = 1e-10,
    accumulator: float = 0.0,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """A step size for each element, by its squared gradients. Formula: ``optim.AdaGrad``."""
    solver = AdaGrad(step_size=step_size, l1=l1, l2=l2, epsilon=epsilon, accumulator=accumulator)
    return RowOptimizer(solver, bound, weight_decay)


def rowwise_adagrad(
    step_size: StepSize = 0.1,
    *,
    epsilon: float = 1e-10,
    accumulator: float = 0.0,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """One step size for each row, by the mean of its squared gradients: one number of state.

    Formula and sources: ``optim.stochastic.ftrl.RowwiseAdaGrad``.
    """
    solver = RowwiseAdaGrad(step_size=step_size, epsilon=epsilon, accumulator=accumulator)
    return RowOptimizer(solver, bound, weight_decay)


def adam(
    step_size: StepSize = 1e-3,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """Adam; its bias is undone by how many steps the row has had. Formula: ``optim.Adam``.

    So a row does not depend on what else was in its batches. With ``weight_decay``: AdamW.
    """
    solver = Adam(step_size=step_size, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return RowOptimizer(solver, bound, weight_decay)


def ftrl(
    step_size: float = 0.1,
    *,
    beta: float = 1.0,
    l1: float = 0.0,
    l2: float = 0.0,
    bound: float | None = None,
) -> RowOptimizer:
    """Follow the regularised leader: exactly 0 below ``l1``. Formula: ``optim.FTRL``."""
    return RowOptimizer(FTRL(step_size=step_size, beta=beta, l1=l1, l2=l2), bound)


def group_ftrl(
    step_size: float = 0.1,
    *,
    beta: float = 1.0,
    l1: float = 0.0,
    l2: float = 0.0,
    l21: float = 0.0,
    bound: float | None = None,
) -> RowOptimizer:
    """FTRL whose rows are exactly 0 as a whole below ``l21 * sqrt(k)``.

    Formula and source: ``optim.stochastic.ftrl.GroupFTRL``.
    """
    return RowOptimizer(GroupFTRL(step_size=step_size, beta=beta, l1=l1, l2=l2, l21=l21), bound)


def rmsprop(
    step_size: StepSize = 0.01,
    *,
    decay: float = 0.99,
    momentum: float = 0.0,
    centered: bool = False,
    epsilon: float = 1e-8,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """By the running mean of squared gradients. Formula: ``optim.RMSProp``."""
    solver = RMSProp(
        step_size=step_size, decay=decay, momentum=momentum, centered=centered, epsilon=epsilon
    )
    return RowOptimizer(solver, bound, weight_decay)


def adadelta(
    step_size: StepSize = 1.0,
    *,
    decay: float = 0.9,
    epsilon: float = 1e-6,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """Steps in the units of the weights. Formula: ``optim.AdaDelta``."""
    return RowOptimizer(
        AdaDelta(step_size=step_size, decay=decay, epsilon=epsilon), bound, weight_decay
    )
