"""Optimizers written once, against the Python array API standard.

They run unchanged on NumPy arrays, on other array API arrays and on lazy distributed vectors.

    from optim import LBFGS, OWLQN, SGD, minimize

    result = LBFGS(history=10).minimize(fun, x0)    # fun(x) -> (value, gradient)
    for state in OWLQN(l1=1e-4).iterations(fun, x0): ...
    Adam(step_size=0.01).minimize(Minibatches.of(loss, rows, labels, batch_size=256), x0)

An objective must not modify the vector it is given, nor later the gradient it returned.
"""

from ._adadelta import AdaDelta as AdaDelta
from ._adagrad import AdaGrad as AdaGrad
from ._adam import Adam as Adam
from ._adam import AdamW as AdamW
from ._admm import ADMM as ADMM
from ._conjugate_gradient import ConjugateGradient as ConjugateGradient
from ._differences import hessian_product as hessian_product
from ._ftrl import FTRL as FTRL
from ._gradient_check import GradientCheck as GradientCheck
from ._gradient_check import check_gradient as check_gradient
from ._gradient_descent import GradientDescent as GradientDescent
from ._lbfgs import LBFGS as LBFGS
from ._lbfgsb import LBFGSB as LBFGSB
from ._line_search import Backtracking as Backtracking
from ._line_search import HagerZhang as HagerZhang
from ._line_search import HighestOf as HighestOf
from ._line_search import MeanOf as MeanOf
from ._line_search import NonMonotone as NonMonotone
from ._line_search import StrongWolfe as StrongWolfe
from ._linear import LinearOutcome as LinearOutcome
from ._linear import LinearResult as LinearResult
from ._linear import conjugate_gradient as conjugate_gradient
from ._minibatches import FiniteSum as FiniteSum
from ._minibatches import Minibatches as Minibatches
from ._minimize import minimize as minimize
from ._objectives import Cached as Cached
from ._objectives import Counted as Counted
from ._objectives import with_l1 as with_l1
from ._objectives import with_l2 as with_l2
from ._outcome import Outcome as Outcome
from ._owlqn import OWLQN as OWLQN
from ._problem import Problem as Problem
from ._projected_quasi_newton import ProjectedQuasiNewton as ProjectedQuasiNewton
from ._projections import Box as Box
from ._projections import ConvexSet as ConvexSet
from ._projections import Hyperplane as Hyperplane
from ._projections import L1Ball as L1Ball
from ._projections import L2Ball as L2Ball
from ._projections import NonNegative as NonNegative
from ._projections import Simplex as Simplex
from ._proximal import ElasticNet as ElasticNet
from ._proximal import GroupLasso as GroupLasso
from ._proximal import Huber as Huber
from ._proximal import L1Norm as L1Norm
from ._proximal import L2Norm as L2Norm
from ._proximal import Proximal as Proximal
from ._proximal_gradient import ProximalGradient as ProximalGradient
from ._result import Record as Record
from ._result import Result as Result
from ._rmsprop import RMSProp as RMSProp
from ._sag import SAG as SAG
from ._schedules import Constant as Constant
from ._schedules import Cosine as Cosine
from ._schedules import Exponential as Exponential
from ._schedules import InversePower as InversePower
from ._schedules import InverseTime as InverseTime
from ._schedules import StepDecay as StepDecay
from ._schedules import Warmup as Warmup
from ._sgd import SGD as SGD
from ._smooth_term import SmoothTerm as SmoothTerm
from ._solver import Solver as Solver
from ._spectral import StepBounds as StepBounds
from ._spectral_projected_gradient import SpectralProjectedGradient as SpectralProjectedGradient
from ._state import State as State
from ._stochastic import StochasticSolver as StochasticSolver
from ._svrg import SVRG as SVRG
from ._truncated_newton import TruncatedNewton as TruncatedNewton
