"""Steps along noisy gradients: SGD with momentum; AdaGrad, AdaDelta, RMSProp, Adam and AdamW.

SGD: H. Robbins, S. Monro, Ann. Math. Statist. 22 (1951); B. T. Polyak, USSR Comput. Math. Math.
Phys. 4 (1964), momentum; I. Sutskever et al., ICML 2013, equations 3 and 4, Nesterov's momentum;
B. T. Polyak, A. B. Juditsky, SIAM J. Control Optim. 30 (1992), averaging.
AdaGrad with composite penalties: J. Duchi, E. Hazan, Y. Singer, JMLR 12 (2011) 2121-2159.
AdaDelta: M. D. Zeiler, arXiv 1212.5701 (2012), algorithm 1.
RMSProp: T. Tieleman, G. Hinton, COURSERA: Neural networks for machine learning, lecture 6.5 (2012);
A. Graves, arXiv 1308.0850 (2013), equations 38 to 45, the centred form.
Adam: D. P. Kingma, J. Ba, ICLR 2015, algorithm 1. AdamW: I. Loshchilov, F. Hutter, Decoupled weight
decay regularization, ICLR 2019, algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from optim.core.arrays import Array, Weights, namespace, zeros_like
from optim.core.checks import check_fraction, check_positive
from optim.proximal.operators import ElasticNet
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class SGD(StochasticSolver):
    """Stochastic gradient descent, with momentum and Nesterov's momentum.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float or callable, default 0.1
        Step size, or a schedule: a function of the iteration k = 0, 1, ... See `Cosine`.
    average : bool, default False
        Return the mean of all iterates after the start (Polyak-Ruppert averaging).
    gradient_tolerance : float, default 0.0
        Absolute tolerance on the max norm of the gradient. 0: off, as batches require.
    value_tolerance : float, default 0.0
        With `window`: tolerance on the gain of the lowest value, relative to ``max(|lowest|, 1)``.
    window : int, default 0
        Stop if the lowest value gained less than the tolerance in so many iterations. 0: off.
    full_every : int, default 1
        For an objective with batches: epochs between evaluations of the whole objective. 0: never.
    momentum : float, default 0.0
        ``v = momentum * v + gradient; x = x - step_size * v``.
    nesterov : bool, default False
        Step along ``gradient + momentum * v`` instead. Needs `momentum`.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.
    Minibatches : An objective with batches of rows.

    Notes
    -----
    Vectors kept: one with momentum, otherwise 0.

    References
    ----------
    .. [1] H. Robbins, S. Monro, A stochastic approximation method, Ann. Math. Statist. 22 (1951)
       400-407.
    .. [2] B. T. Polyak, Some methods of speeding up the convergence of iteration methods, USSR
       Comput. Math. Math. Phys. 4 (1964) 1-17.
    .. [3] I. Sutskever, J. Martens, G. Dahl, G. Hinton, On the importance of initialization and
       momentum in deep learning, ICML 2013, equations 3 and 4.
    .. [4] B. T. Polyak, A. B. Juditsky, Acceleration of stochastic approximation by averaging,
       SIAM J. Control Optim. 30 (1992) 838-855.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((200, 3))
    >>> labels = rows @ np.array([1.0, 2.0, 3.0])
    >>> def loss(w, rows, labels):
    ...     residual = rows @ w - labels
    ...     return residual @ residual / len(labels), 2 * rows.T @ residual / len(labels)
    >>> batches = optim.Minibatches.of(loss, rows, labels, batch_size=20)
    >>> solver = optim.SGD(step_size=0.05, momentum=0.9, max_iterations=300)
    >>> np.round(solver.minimize(batches, np.zeros(3)).x, 3)
    array([1., 2., 3.])
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError(
                "SGD(nesterov=True, momentum=0.0): needs momentum, for instance momentum=0.9"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("velocity",) if self.momentum else ()

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Take one step; the memory is the velocity."""
        step_size = self.step_size_at(k)
        if not self.momentum:
            return x - step_size * gradient, memory
        (velocity,) = memory
        velocity = self.momentum * velocity + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return x - step_size * direction, (velocity,)


@dataclass(frozen=True, kw_only=True)
class AdaGrad(StochasticSolver):
    """A step size per coordinate, by the gradients it has seen; minimises fun plus penalties.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float or callable, default 0.1
        Step size, or a schedule: a function of the iteration k = 0, 1, ... See `Cosine`.
    average : bool, default False
        Return the mean of all iterates after the start (Polyak-Ruppert averaging).
    gradient_tolerance : float, default 0.0
        Absolute tolerance on the max norm of the gradient. 0: off, as batches require.
    value_tolerance : float, default 0.0
        With `window`: tolerance on the gain of the lowest value, relative to ``max(|lowest|, 1)``.
    window : int, default 0
        Stop if the lowest value gained less than the tolerance in so many iterations. 0: off.
    full_every : int, default 1
        For an objective with batches: epochs between evaluations of the whole objective. 0: never.
    l1 : float, Array or structure, default 0.0
        Weight of ``sum(|x|)``: a number, or an array like x of weights >= 0. If x is a structure of
        arrays, each may have its own weight: ``{"w": 0.1, "V": 0.0}``.
    l2 : float, Array or structure, default 0.0
        Weight of ``x @ x / 2``, given like `l1`.
    epsilon : float, default 1e-10
        Added to the root of the sum of squares.
    accumulator : float, default 0.0
        Sum of squares before the first step.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.
    FTRL : Penalties against the sum of all gradients.

    Notes
    -----
    With ``s = s + gradient^2`` and ``h = (sqrt(s) + epsilon) / step_size``, the next iterate is
    the argmin over y of ``gradient @ y + penalty(y) + sum(h * (y - x)^2) / 2``: the composite
    mirror descent update, which sets coordinates exactly to 0. Vectors kept: one. An array for
    `l1` costs one more request per server at the start.

    References
    ----------
    .. [1] J. Duchi, E. Hazan, Y. Singer, Adaptive subgradient methods for online learning and
       stochastic optimization, JMLR 12 (2011) 2121-2159, figure 1 and section 5.1.

    Examples
    --------
    >>> fun = lambda x: (0.5 * float((x - 3) @ (x - 3)), x - 3)
    >>> solver = optim.AdaGrad(step_size=1.0, l1=np.array([1.0, 5.0]), max_iterations=200)
    >>> np.round(solver.minimize(fun, np.zeros(2)).x, 3)
    array([2., 0.])
    """

    l1: Weights = 0.0
    l2: Weights = 0.0
    epsilon: float = 1e-10
    accumulator: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The sum of squared gradients."""
        return ("squares",)

    @cached_property
    def penalty(self) -> ElasticNet | None:
        """The penalties of weight l1 and l2."""
        has_l1 = not isinstance(self.l1, (int, float)) or self.l1 > 0.0
        return ElasticNet(self.l1, self.l2) if has_l1 or self.l2 else None

    def init_memory(self, x: Array) -> Vectors:
        """Return the accumulator's start."""
        return (zeros_like(x) + self.accumulator,)

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Take one step; the memory is the sum of squares."""
        (squares,) = memory
        squares = squares + self.squared(gradient)
        step = self.step_size_at(k) / (squares**0.5 + self.epsilon)
        x = x - step * gradient
        return (x if self.penalty is None else self.penalty.prox(x, step)), (squares,)

    def squared(self, gradient: Array) -> Array:
        """Return the term that a gradient adds to the sum of squares.

        Parameters
        ----------
        gradient : Array
            The gradient.

        Returns
        -------
        Array
            Its elementwise square.
        """
        return gradient * gradient


@dataclass(frozen=True, kw_only=True)
class AdaDelta(StochasticSolver):
    """Steps in the units of x, from running means of squared gradients and squared steps.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float or callable, default 1.0
        Step size, or a schedule: a function of the iteration k = 0, 1, ... See `Cosine`.
    average : bool, default False
        Return the mean of all iterates after the start (Polyak-Ruppert averaging).
    gradient_tolerance : float, default 0.0
        Absolute tolerance on the max norm of the gradient. 0: off, as batches require.
    value_tolerance : float, default 0.0
        With `window`: tolerance on the gain of the lowest value, relative to ``max(|lowest|, 1)``.
    window : int, default 0
        Stop if the lowest value gained less than the tolerance in so many iterations. 0: off.
    full_every : int, default 1
        For an objective with batches: epochs between evaluations of the whole objective. 0: never.
    decay : float, default 0.9
        Decay of both running means, in [0, 1); rho in the paper.
    epsilon : float, default 1e-6
        Added to both means under the root. The first step has the length
        ``sqrt(epsilon / (1 - decay))``.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.

    Notes
    -----
    `step_size` is a factor on the steps; it is 1 in the paper. Vectors kept: two.

    References
    ----------
    .. [1] M. D. Zeiler, ADADELTA: an adaptive learning rate method, arXiv:1212.5701 (2012),
       algorithm 1.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> result = optim.AdaDelta(max_iterations=2000).minimize(fun, [1.0, -1.0])
    >>> result.fun < 1e-3
    True
    """

    step_size: float | Schedule = 1.0
    decay: float = 0.9
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self, "decay")
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The running means."""
        return ("squared_gradients", "squared_steps")

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Take one step; the memory is both running means."""
        squares, steps = memory
        squares = self.decay * squares + (1.0 - self.decay) * gradient * gradient
        step = ((steps + self.epsilon) / (squares + self.epsilon)) ** 0.5 * gradient
        steps = self.decay * steps + (1.0 - self.decay) * step * step
        return x - self.step_size_at(k) * step, (squares, steps)


@dataclass(frozen=True, kw_only=True)
class RMSProp(StochasticSolver):
    """The gradient divided by the root of the running mean of its square.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float or callable, default 0.01
        Step size, or a schedule: a function of the iteration k = 0, 1, ... See `Cosine`.
    average : bool, default False
        Return the mean of all iterates after the start (Polyak-Ruppert averaging).
    gradient_tolerance : float, default 0.0
        Absolute tolerance on the max norm of the gradient. 0: off, as batches require.
    value_tolerance : float, default 0.0
        With `window`: tolerance on the gain of the lowest value, relative to ``max(|lowest|, 1)``.
    window : int, default 0
        Stop if the lowest value gained less than the tolerance in so many iterations. 0: off.
    full_every : int, default 1
        For an objective with batches: epochs between evaluations of the whole objective. 0: never.
    decay : float, default 0.99
        Decay of the running means, in [0, 1).
    momentum : float, default 0.0
        ``v = momentum * v + scaled gradient; x = x - step_size * v``.
    centered : bool, default False
        Divide by the running standard deviation instead.
    epsilon : float, default 1e-8
        Added to the root.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.

    Notes
    -----
    Vectors kept: one, one more with momentum, and one more if centered.

    References
    ----------
    .. [1] T. Tieleman, G. Hinton, COURSERA: Neural networks for machine learning, lecture 6.5
       (2012).
    .. [2] A. Graves, Generating sequences with recurrent neural networks, arXiv:1308.0850 (2013),
       equations 38 to 45: the centred form.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> solver = optim.RMSProp(step_size=optim.InverseTime(0.1, 0.1), max_iterations=500)
    >>> solver.minimize(fun, [1.0, -1.0]).fun < 1e-4
    True
    """

    step_size: float | Schedule = 0.01
    decay: float = 0.99
    momentum: float = 0.0
    centered: bool = False
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self, "decay")
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The running means and the velocity, if they are used."""
        mean = ("mean",) if self.centered else ()
        return ("squares", *mean, *(("velocity",) if self.momentum else ()))

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Take one step; the memory has the vectors of `slots`."""
        old = dict(zip(self.slots, memory, strict=True))
        new = {"squares": self.decay * old["squares"] + (1.0 - self.decay) * gradient * gradient}
        variance = new["squares"]
        if self.centered:
            new["mean"] = self.decay * old["mean"] + (1.0 - self.decay) * gradient
            # If the gradient hardly changes, rounding may leave a negative difference.
            variance = namespace(x).maximum(variance - new["mean"] * new["mean"], 0.0)
        direction = gradient / (variance**0.5 + self.epsilon)
        if self.momentum:
            direction = new["velocity"] = self.momentum * old["velocity"] + direction
        return x - self.step_size_at(k) * direction, tuple(new.values())


@dataclass(frozen=True, kw_only=True)
class Adam(StochasticSolver):
    """Steps by the running mean of the gradient over the root of the running mean of its square.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float or callable, default 0.001
        Step size, or a schedule: a function of the iteration k = 0, 1, ... See `Cosine`.
    average : bool, default False
        Return the mean of all iterates after the start (Polyak-Ruppert averaging).
    gradient_tolerance : float, default 0.0
        Absolute tolerance on the max norm of the gradient. 0: off, as batches require.
    value_tolerance : float, default 0.0
        With `window`: tolerance on the gain of the lowest value, relative to ``max(|lowest|, 1)``.
    window : int, default 0
        Stop if the lowest value gained less than the tolerance in so many iterations. 0: off.
    full_every : int, default 1
        For an objective with batches: epochs between evaluations of the whole objective. 0: never.
    beta1 : float, default 0.9
        Decay of the mean of the gradient, in [0, 1).
    beta2 : float, default 0.999
        Decay of the mean of its square, in [0, 1).
    epsilon : float, default 1e-8
        Added to the root.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.
    AdamW : With weight decay.

    Notes
    -----
    Vectors kept: two.

    References
    ----------
    .. [1] D. P. Kingma, J. Ba, Adam: a method for stochastic optimization, ICLR 2015, algorithm 1.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> solver = optim.Adam(step_size=optim.Cosine(0.1, 500), max_iterations=500)
    >>> solver.minimize(fun, [1.0, -1.0]).fun < 1e-6
    True
    """

    step_size: float | Schedule = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self, "beta1")
        check_fraction(self, "beta2")
        check_positive(self, "epsilon")

    @property
    def slots(self) -> tuple[str, ...]:
        """The first and the second moment of the gradient."""
        return ("first_moment", "second_moment")

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Take one step; the memory is both moments."""
        m, v = memory
        m = self.beta1 * m + (1.0 - self.beta1) * gradient
        v = self.beta2 * v + (1.0 - self.beta2) * gradient * gradient
        # The moments start at 0; these factors undo that bias.
        m_scale, v_scale = 1.0 / (1.0 - self.beta1 ** (k + 1)), 1.0 / (1.0 - self.beta2 ** (k + 1))
        direction = m_scale * m / ((v_scale * v) ** 0.5 + self.epsilon)
        return x - self.step_size_at(k) * direction, (m, v)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: ``x = (1 - step_size * weight_decay) * x - Adam's step``.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float or callable, default 0.001
        Step size, or a schedule: a function of the iteration k = 0, 1, ... See `Cosine`.
    average : bool, default False
        Return the mean of all iterates after the start (Polyak-Ruppert averaging).
    gradient_tolerance : float, default 0.0
        Absolute tolerance on the max norm of the gradient. 0: off, as batches require.
    value_tolerance : float, default 0.0
        With `window`: tolerance on the gain of the lowest value, relative to ``max(|lowest|, 1)``.
    window : int, default 0
        Stop if the lowest value gained less than the tolerance in so many iterations. 0: off.
    full_every : int, default 1
        For an objective with batches: epochs between evaluations of the whole objective. 0: never.
    beta1 : float, default 0.9
        Decay of the mean of the gradient, in [0, 1).
    beta2 : float, default 0.999
        Decay of the mean of its square, in [0, 1).
    epsilon : float, default 1e-8
        Added to the root.
    weight_decay : float, default 0.01
        Part of x that decays in a step of size 1.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.

    Notes
    -----
    The decay is not the gradient of a penalty, so values and gradients are of ``fun`` alone.
    Vectors kept: two.

    References
    ----------
    .. [1] I. Loshchilov, F. Hutter, Decoupled weight decay regularization, ICLR 2019, algorithm 2.

    Examples
    --------
    >>> fun = lambda x: (float(x @ x), 2 * x)
    >>> solver = optim.AdamW(step_size=optim.Cosine(0.1, 500), max_iterations=500)
    >>> solver.minimize(fun, [1.0, -1.0]).fun < 1e-6
    True
    """

    weight_decay: float = 1e-2

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Let x decay, then take one step; the memory is both moments."""
        x = decay(x, self.step_size_at(k), self.weight_decay)
        return super().update(memory, x, gradient, k)


def decay(x: Array, step_size: float, weight_decay: float) -> Array:
    """Decoupled weight decay (algorithm 2, line 12): the x that remains, before a step."""
    return (1.0 - step_size * weight_decay) * x
