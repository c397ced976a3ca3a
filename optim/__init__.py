"""Optimizers written once, against the Python array API standard.

They run unchanged on NumPy arrays, on other array API arrays and on lazy distributed vectors.

    from optim import LBFGS, OWLQN, SGD, minimize

    result = LBFGS(history=10).minimize(fun, x0)    # fun(x) -> (value, gradient)
    for state in OWLQN(l1=1e-4).iterations(fun, x0): ...

An objective must not modify the vector it is given, nor later the gradient it returned.
"""

from ._driver import Record as Record
from ._lbfgs import LBFGS as LBFGS
from ._line_search import Backtracking as Backtracking
from ._line_search import StrongWolfe as StrongWolfe
from ._minimize import minimize as minimize
from ._outcome import Outcome as Outcome
from ._owlqn import OWLQN as OWLQN
from ._problem import Problem as Problem
from ._schedules import Constant as Constant
from ._schedules import Exponential as Exponential
from ._schedules import InversePower as InversePower
from ._schedules import InverseTime as InverseTime
from ._schedules import StepDecay as StepDecay
from ._schedules import Warmup as Warmup
from ._sgd import SGD as SGD
from ._solver import Solver as Solver
from ._state import State as State
