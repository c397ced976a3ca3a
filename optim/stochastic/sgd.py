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
from typing import Any

from optim.core.arrays import Array, namespace, zeros_like
from optim.core.checks import check_fraction, check_positive
from optim.proximal.operators import ElasticNet
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class SGD(StochasticSolver):
    """Gradient descent for objectives that may be noisy.

    step_size   a number or a schedule k -> step size, k = 0, 1, ...
    momentum    v = momentum * v + gradient; x = x - step_size * v
    nesterov    step along gradient + momentum * v instead

    Vectors kept: one with momentum, else none. `StochasticSolver` tells of all other parameters,
    and which point is returned.
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True needs momentum, for instance SGD(momentum=0.9)")

    @property
    def slots(self) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("velocity",) if self.momentum else ()

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and velocity."""
        step_size = self.step_size_at(k)
        if not self.momentum:
            return x - step_size * gradient, memory
        (velocity,) = memory
        velocity = self.momentum * velocity + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return x - step_size * direction, (velocity,)


@dataclass(frozen=True, kw_only=True)
class AdaGrad(StochasticSolver):
    """A step size per coordinate, by the gradients it has seen: minimises fun plus penalty.

    l1            weight of sum(|x|): a number, or an array like x of weights >= 0
    l2            weight of x @ x / 2. Of parameters in several arrays each may have its weights:
                  {"w": 0.1, "V": 0.0}
    epsilon       added to the root of the sum of squares
    accumulator   the sum of squares before the first step

    s = s + gradient^2; h = (sqrt(s) + epsilon) / step_size; then the composite mirror descent
    update (figure 1 and section 5.1): x = argmin over y of
    gradient @ y + penalty(y) + sum(h * (y - x)^2) / 2, which sets coordinates exactly to 0.

    Vectors kept: one. An array for l1 costs one message more, at the start.
    """

    l1: Any = 0.0
    l2: Any = 0.0
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
        """l1 and l2."""
        has_l1 = not isinstance(self.l1, (int, float)) or self.l1 > 0.0
        return ElasticNet(self.l1, self.l2) if has_l1 or self.l2 else None

    def init_memory(self, x: Array) -> Vectors:
        """The accumulator's start."""
        return (zeros_like(x) + self.accumulator,)

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and sum of squares."""
        (squares,) = memory
        squares = squares + self.squared(gradient)
        step = self.step_size_at(k) / (squares**0.5 + self.epsilon)
        x = x - step * gradient
        return (x if self.penalty is None else self.penalty.prox(x, step)), (squares,)

    def squared(self, gradient: Array) -> Array:
        """What is added to the sum of squares."""
        return gradient * gradient


@dataclass(frozen=True, kw_only=True)
class AdaDelta(StochasticSolver):
    """Steps in the units of x, from running means of squared gradients and squared steps.

    step_size   a factor on the steps, 1 in the paper; or a schedule
    decay       of both running means: rho
    epsilon     added to both under the root; the first step is sqrt(epsilon / (1 - decay)) long

    Vectors kept: two.
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
        """The next x and running means."""
        squares, steps = memory
        squares = self.decay * squares + (1.0 - self.decay) * gradient * gradient
        step = ((steps + self.epsilon) / (squares + self.epsilon)) ** 0.5 * gradient
        steps = self.decay * steps + (1.0 - self.decay) * step * step
        return x - self.step_size_at(k) * step, (squares, steps)


@dataclass(frozen=True, kw_only=True)
class RMSProp(StochasticSolver):
    """The gradient divided by the root of the running mean of its square.

    step_size   a number or a schedule
    decay       of the running means
    momentum    v = momentum * v + scaled gradient; x = x - step_size * v
    centered    divide by the running standard deviation instead
    epsilon     added to the root

    Vectors kept: one, one more with momentum, one more if centered.
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
        """The running means, and the velocity if there is momentum."""
        mean = ("mean",) if self.centered else ()
        return ("squares", *mean, *(("velocity",) if self.momentum else ()))

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x, running means and velocity."""
        old = dict(zip(self.slots, memory, strict=True))
        new = {"squares": self.decay * old["squares"] + (1.0 - self.decay) * gradient * gradient}
        variance = new["squares"]
        if self.centered:
            new["mean"] = self.decay * old["mean"] + (1.0 - self.decay) * gradient
            # Rounding may leave less than nothing where the gradient hardly changes.
            variance = namespace(x).maximum(variance - new["mean"] * new["mean"], 0.0)
        direction = gradient / (variance**0.5 + self.epsilon)
        if self.momentum:
            direction = new["velocity"] = self.momentum * old["velocity"] + direction
        return x - self.step_size_at(k) * direction, tuple(new.values())


@dataclass(frozen=True, kw_only=True)
class Adam(StochasticSolver):
    """Steps by the running mean of the gradient over the root of that of its square.

    step_size   a number or a schedule: alpha
    beta1       decay of the mean of the gradient
    beta2       decay of the mean of its square
    epsilon     added to the root

    Vectors kept: two.
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
        """The next x and moments."""
        m, v = memory
        m = self.beta1 * m + (1.0 - self.beta1) * gradient
        v = self.beta2 * v + (1.0 - self.beta2) * gradient * gradient
        # The moments start at 0; these factors undo that bias.
        m_scale, v_scale = 1.0 / (1.0 - self.beta1 ** (k + 1)), 1.0 / (1.0 - self.beta2 ** (k + 1))
        direction = m_scale * m / ((v_scale * v) ** 0.5 + self.epsilon)
        return x - self.step_size_at(k) * direction, (m, v)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam whose weights decay by themselves: x = (1 - step_size * weight_decay) * x - Adam's step.

    The decay is not the gradient of a penalty, so values and gradients are those of fun alone.
    """

    weight_decay: float = 1e-2

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """The next x and moments."""
        x = decay(x, self.step_size_at(k), self.weight_decay)
        return super().update(memory, x, gradient, k)


def decay(x: Array, step_size: float, weight_decay: float) -> Array:
    """Decoupled weight decay (algorithm 2, line 12): what it leaves of x, before a step."""
    return (1.0 - step_size * weight_decay) * x
