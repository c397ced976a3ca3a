"""FTRL-Proximal, and solvers that step by whole rows of a table: embeddings, groups.

H. B. McMahan et al., Ad click prediction, KDD 2013, algorithm 1. A row of a table of shape (n, k)
does not depend on the others, so it may take a step of its own whenever it has a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from optim.core.arrays import Array, Weights, namespace, smallest_normal, zeros_like
from optim.core.checks import check_positive
from optim.core.trees import as_tree
from optim.proximal.operators import L1Norm, L21Norm, row_norms
from optim.stochastic.base import StochasticSolver, Vectors
from optim.stochastic.sgd import AdaGrad


@dataclass(frozen=True, kw_only=True)
class FTRL(StochasticSolver):
    """Follow the proximally regularised leader, per coordinate: sparse, exactly 0 below `l1`.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    step_size : float, default 0.1
        Alpha of the paper, a number: the step sizes are
        ``alpha / (beta + sqrt(sum of gradient^2))``.
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
    beta : float, default 1.0
        Makes the first steps shorter.
    l1 : float, Array or structure, default 0.0
        Weight lambda_1: a number, or an array like x, against the sum of all gradients so far.
    l2 : float, Array or structure, default 0.0
        Weight lambda_2, given like `l1`.

    See Also
    --------
    StochasticSolver : Costs, and which point is returned.
    AdaGrad : Penalties on the scale of the objective.

    Notes
    -----
    The next iterate is the argmin over x of ``(sum of gradients) @ x + sum(l1 * |x|) +
    sum(l2 * x^2) / 2 + proximal terms``. So after k steps the penalties weigh 1/k of the same
    numbers in `AdaGrad` or `OWLQN`, and values and gradients are of ``fun`` alone. Without
    penalties the path is the path of ``AdaGrad(step_size=alpha, epsilon=beta)``. Vectors kept:
    two.

    References
    ----------
    .. [1] H. B. McMahan et al., Ad click prediction: a view from the trenches, KDD 2013,
       algorithm 1.

    Examples
    --------
    >>> fun = lambda x: (0.5 * float((x - 3) @ (x - 3)), x - 3)
    >>> solver = optim.FTRL(step_size=1.0, l1=np.array([0.0, 1e6]), max_iterations=300)
    >>> np.round(solver.minimize(fun, np.zeros(2)).x, 3)
    array([3., 0.])
    """

    step_size: float = 0.1
    beta: float = 1.0
    l1: Weights = 0.0
    l2: Weights = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if callable(self.step_size):
            raise TypeError(
                "FTRL(step_size=...) must be a number, got a schedule: the gradients shorten the "
                "steps already; give for instance step_size=0.1"
            )
        check_positive(self, "step_size")
        check_positive(self, "beta")

    @property
    def slots(self) -> tuple[str, ...]:
        """The vectors z and n of the paper."""
        return ("leader", "squares")

    def init_memory(self, x: Array) -> Vectors:
        """Return the z for which `x` is the minimum before any gradient, and n = 0."""
        sign = namespace(x).sign(x)
        z = -(x * (self.beta / self.step_size + self._l2) + self._threshold.weight * sign)
        return z, zeros_like(x)

    def update(self, memory: Vectors, x: Array, gradient: Array, k: int) -> tuple[Array, Vectors]:
        """Take one step; the memory is z and n."""
        z, n = memory
        root, n = n**0.5, n + gradient * gradient
        new_root = n**0.5
        sigma = (new_root - root) / self.step_size
        z = z + gradient - sigma * x
        x = -self.thresholded(z) / ((self.beta + new_root) / self.step_size + self._l2)
        return x, (z, n)

    def thresholded(self, z: Array) -> Array:
        """Return `z` after the thresholds of the penalties that are not smooth.

        Parameters
        ----------
        z : Array
            The vector z of the paper.

        Returns
        -------
        Array
            0 for each coordinate that the penalties hold at 0.
        """
        return self._threshold.prox(z, 1.0)

    def started(self, memory: Vectors, x: Array) -> Vectors:
        """Return z as it is at a start, for elements that saw no gradient yet."""
        z, n = memory
        start, _ = self.init_memory(x)
        return namespace(x).where(n == 0.0, start, z), n

    @cached_property
    def _l2(self) -> Any:
        return as_tree(self.l2)

    @cached_property
    def _threshold(self) -> L1Norm:
        return L1Norm(self.l1)


@dataclass(frozen=True, kw_only=True)
class RowwiseAdaGrad(AdaGrad):
    """AdaGrad with one step size for each row, by the mean of its squared gradients.

    ``s = s + mean of gradient^2`` along the row, otherwise as `AdaGrad`. It keeps a k-th of the
    memory: one vector of shape (n, 1).

    M. Naumov et al., Deep Learning Recommendation Model, arXiv 1906.00091 (2019); D. Khudia et al.,
    FBGEMM, arXiv 2101.05615 (2021); TorchRec calls it EXACT_ROWWISE_ADAGRAD.
    """

    of_rows: ClassVar[frozenset[str]] = frozenset(("squares",))
    needs_table: ClassVar[bool] = True

    def init_memory(self, x: Array) -> Vectors:
        """Return the accumulator's start, one number for each row."""
        return (0.0 * x[:, :1] + self.accumulator,)

    def squared(self, gradient: Array) -> Array:
        """Return the means of squares along the rows."""
        xp = namespace(gradient)
        return xp.sum(gradient * gradient, axis=-1, keepdims=True) / float(gradient.shape[-1])


@dataclass(frozen=True, kw_only=True)
class GroupFTRL(FTRL):
    """FTRL with sparse group lasso: whole rows are exactly 0 until there is reason for them.

    ``l21`` is the weight of sqrt(k) * |row|, on the scale of l1: against the *sum* of gradients.

    Let s be z after soft thresholding by l1. A row of s no longer than l21 * sqrt(k) gives a row
    of zeros. Any other row is shortened by it:
    x = -s * max(0, 1 - l21 * sqrt(k) / |s|) / (the divisor of `FTRL`).
    Y. Yue et al., Adaptive Optimizers with Sparse Group Lasso for Neural Networks in CTR
    Prediction, ECML PKDD 2021 (arXiv 2107.14432), Group AdaGrad. In the authors' code (TFPlus,
    SparseGroupFtrl) beta is 0, and l2 is half of the l2 here.

    A row is 0 exactly if it is 0 at the minimum of the sum of gradients, proximal terms and
    penalties. The other rows are that minimum if the divisors of a row's columns are equal. If
    they differ, the columns keep the proportions that they have without l21.

    Vectors kept: two.
    """

    l21: float = 0.0

    needs_table: ClassVar[bool] = True

    def init_memory(self, x: Array) -> Vectors:
        """Return the z for which `x` is the minimum before any gradient, and n = 0."""
        z, n = super().init_memory(x)
        norms = namespace(x).maximum(row_norms(x), smallest_normal(x))
        return z - self._lasso(x).weight * (x / norms), n

    def thresholded(self, z: Array) -> Array:
        """Return `z` after the thresholds of l1, and of l21 for whole rows."""
        return self._lasso(z).prox(super().thresholded(z), 1.0)

    def _lasso(self, x: Array) -> L21Norm:
        return L21Norm(self.l21 * float(x.shape[-1]) ** 0.5)
