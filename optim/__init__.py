"""Optimizers written once, against the Python array API standard.

They run unchanged on NumPy arrays, on other array API arrays, on PyTorch tensors and on lazy
distributed vectors:

    from optim import LBFGS, OWLQN, Adam, Minibatches, minimize

    result = LBFGS(history=10).minimize(fun, x0)  # fun(x) returns (value, gradient)
    for state in OWLQN(l1=1e-4).iterations(fun, x0): ...
    Adam(step_size=0.01).minimize(Minibatches.of(loss, rows, labels, batch_size=256), x0)

An objective must not modify the vector that it gets, nor later the gradient that it returned.
"""

from optim.core.checkpoints.keeper import Corrupted, NotDurable
from optim.core.problem import Problem
from optim.core.result import Outcome, Record, Result, State
from optim.core.run import observe
from optim.core.solver import Solver
from optim.eigenvalues import EigenPairs, largest_eigenpairs
from optim.gradient.conjugate_gradient import ConjugateGradient
from optim.gradient.gradient_descent import GradientDescent
from optim.gradient.spectral_projected_gradient import (
    SpectralProjectedGradient,
    StepBounds,
)
from optim.line_search import Backtracking, HagerZhang, HighestOf, MeanOf, NonMonotone, StrongWolfe
from optim.newton.linear_systems import LinearOutcome, LinearResult, conjugate_gradient
from optim.newton.truncated_newton import TruncatedNewton
from optim.objectives import (
    Cached,
    Counted,
    GradientCheck,
    check_gradient,
    hessian_product,
    with_l1,
    with_l2,
)
from optim.proximal.admm import ADMM, SmoothTerm
from optim.proximal.operators import (
    ElasticNet,
    GroupLasso,
    Huber,
    L1Norm,
    L2Norm,
    Proximal,
    SquaredL2Norm,
)
from optim.proximal.projections import (
    Box,
    ConvexSet,
    Hyperplane,
    L1Ball,
    L2Ball,
    NonNegative,
    Simplex,
)
from optim.proximal.proximal_gradient import ProximalGradient
from optim.proximal.separable import Separable
from optim.quasi_newton.lbfgs import LBFGS
from optim.quasi_newton.lbfgsb import LBFGSB
from optim.quasi_newton.owlqn import OWLQN
from optim.quasi_newton.projected_quasi_newton import ProjectedQuasiNewton
from optim.scipy_interface import minimize
from optim.stochastic.base import StochasticSolver
from optim.stochastic.ftrl import FTRL
from optim.stochastic.minibatches import FiniteSum, Minibatches
from optim.stochastic.schedules import (
    Constant,
    Cosine,
    Exponential,
    InversePower,
    InverseTime,
    StepDecay,
    Warmup,
)
from optim.stochastic.sgd import SGD, AdaDelta, AdaGrad, Adam, AdamW, RMSProp
from optim.stochastic.variance_reduced import SAG, SVRG

__all__ = [
    "ADMM",
    "FTRL",
    "LBFGS",
    "LBFGSB",
    "OWLQN",
    "SAG",
    "SGD",
    "SVRG",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Backtracking",
    "Box",
    "Cached",
    "ConjugateGradient",
    "Constant",
    "ConvexSet",
    "Corrupted",
    "Cosine",
    "Counted",
    "EigenPairs",
    "ElasticNet",
    "Exponential",
    "FiniteSum",
    "GradientCheck",
    "GradientDescent",
    "GroupLasso",
    "HagerZhang",
    "HighestOf",
    "Huber",
    "Hyperplane",
    "InversePower",
    "InverseTime",
    "L1Ball",
    "L1Norm",
    "L2Ball",
    "L2Norm",
    "LinearOutcome",
    "LinearResult",
    "MeanOf",
    "Minibatches",
    "NonMonotone",
    "NonNegative",
    "NotDurable",
    "Outcome",
    "Problem",
    "ProjectedQuasiNewton",
    "Proximal",
    "ProximalGradient",
    "RMSProp",
    "Record",
    "Result",
    "Separable",
    "Simplex",
    "SmoothTerm",
    "Solver",
    "SpectralProjectedGradient",
    "SquaredL2Norm",
    "State",
    "StepBounds",
    "StepDecay",
    "StochasticSolver",
    "StrongWolfe",
    "TruncatedNewton",
    "Warmup",
    "check_gradient",
    "conjugate_gradient",
    "hessian_product",
    "largest_eigenpairs",
    "minimize",
    "observe",
    "with_l1",
    "with_l2",
]
