"""Optimizers written once, against the Python array API standard.

They run unchanged on NumPy arrays, on other array API arrays and on lazy distributed vectors.

    from optim import LBFGS, OWLQN, SGD, minimize

    result = LBFGS(history=10).minimize(fun, x0)    # fun(x) -> (value, gradient)
    for state in OWLQN(l1=1e-4).iterations(fun, x0): ...
    Adam(step_size=0.01).minimize(Minibatches.of(loss, rows, labels, batch_size=256), x0)

An objective must not modify the vector it is given, nor later the gradient it returned.
"""

from optim.core.checkpoints.keeper import Corrupted as Corrupted
from optim.core.checkpoints.keeper import NotDurable as NotDurable
from optim.core.problem import Problem as Problem
from optim.core.result import Outcome as Outcome
from optim.core.result import Record as Record
from optim.core.result import Result as Result
from optim.core.result import State as State
from optim.core.solver import Solver as Solver
from optim.gradient.conjugate_gradient import ConjugateGradient as ConjugateGradient
from optim.gradient.gradient_descent import GradientDescent as GradientDescent
from optim.gradient.spectral_projected_gradient import (
    SpectralProjectedGradient as SpectralProjectedGradient,
)
from optim.gradient.spectral_projected_gradient import StepBounds as StepBounds
from optim.line_search import Backtracking as Backtracking
from optim.line_search import HagerZhang as HagerZhang
from optim.line_search import HighestOf as HighestOf
from optim.line_search import MeanOf as MeanOf
from optim.line_search import NonMonotone as NonMonotone
from optim.line_search import StrongWolfe as StrongWolfe
from optim.newton.linear_systems import LinearOutcome as LinearOutcome
from optim.newton.linear_systems import LinearResult as LinearResult
from optim.newton.linear_systems import conjugate_gradient as conjugate_gradient
from optim.newton.truncated_newton import TruncatedNewton as TruncatedNewton
from optim.objectives import Cached as Cached
from optim.objectives import Counted as Counted
from optim.objectives import GradientCheck as GradientCheck
from optim.objectives import check_gradient as check_gradient
from optim.objectives import hessian_product as hessian_product
from optim.objectives import with_l1 as with_l1
from optim.objectives import with_l2 as with_l2
from optim.proximal.admm import ADMM as ADMM
from optim.proximal.admm import SmoothTerm as SmoothTerm
from optim.proximal.operators import ElasticNet as ElasticNet
from optim.proximal.operators import GroupLasso as GroupLasso
from optim.proximal.operators import Huber as Huber
from optim.proximal.operators import L1Norm as L1Norm
from optim.proximal.operators import L2Norm as L2Norm
from optim.proximal.operators import Proximal as Proximal
from optim.proximal.operators import SquaredL2Norm as SquaredL2Norm
from optim.proximal.projections import Box as Box
from optim.proximal.projections import ConvexSet as ConvexSet
from optim.proximal.projections import Hyperplane as Hyperplane
from optim.proximal.projections import L1Ball as L1Ball
from optim.proximal.projections import L2Ball as L2Ball
from optim.proximal.projections import NonNegative as NonNegative
from optim.proximal.projections import Simplex as Simplex
from optim.proximal.proximal_gradient import ProximalGradient as ProximalGradient
from optim.proximal.separable import Separable as Separable
from optim.quasi_newton.lbfgs import LBFGS as LBFGS
from optim.quasi_newton.lbfgsb import LBFGSB as LBFGSB
from optim.quasi_newton.owlqn import OWLQN as OWLQN
from optim.quasi_newton.projected_quasi_newton import ProjectedQuasiNewton as ProjectedQuasiNewton
from optim.scipy_interface import minimize as minimize
from optim.stochastic.base import StochasticSolver as StochasticSolver
from optim.stochastic.ftrl import FTRL as FTRL
from optim.stochastic.minibatches import FiniteSum as FiniteSum
from optim.stochastic.minibatches import Minibatches as Minibatches
from optim.stochastic.schedules import Constant as Constant
from optim.stochastic.schedules import Cosine as Cosine
from optim.stochastic.schedules import Exponential as Exponential
from optim.stochastic.schedules import InversePower as InversePower
from optim.stochastic.schedules import InverseTime as InverseTime
from optim.stochastic.schedules import StepDecay as StepDecay
from optim.stochastic.schedules import Warmup as Warmup
from optim.stochastic.sgd import SGD as SGD
from optim.stochastic.sgd import AdaDelta as AdaDelta
from optim.stochastic.sgd import AdaGrad as AdaGrad
from optim.stochastic.sgd import Adam as Adam
from optim.stochastic.sgd import AdamW as AdamW
from optim.stochastic.sgd import RMSProp as RMSProp
from optim.stochastic.variance_reduced import SAG as SAG
from optim.stochastic.variance_reduced import SVRG as SVRG
