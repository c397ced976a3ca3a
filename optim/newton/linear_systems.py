"""Conjugate gradients for linear systems, within a trust region if wanted.

M. R. Hestenes, E. Stiefel, J. Res. Nat. Bur. Standards 49 (1952) 409-436; the trust region as in
T. Steihaug, SIAM J. Numer. Anal. 20 (1983) 626-637, and Ph. L. Toint (1981): J. Nocedal, S. J.
Wright, Numerical Optimization, 2nd edition (2006), algorithms 5.3 and 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from optim.core.arrays import Array, fetch, quiet, size, vdot
from optim.core.trees import as_start, as_user_structure, is_structure, lift, like

Matvec = Callable[[Array], Array]


class LinearOutcome(Enum):
    """Why `conjugate_gradient` ended; the value is a sentence.

    Attributes
    ----------
    value : str
        The sentence.

    Examples
    --------
    >>> optim.LinearOutcome.CONVERGED.value
    'Converged: the residual is within its tolerance.'
    """

    CONVERGED = "Converged: the residual is within its tolerance."
    BOUNDARY = "Stopped at max_norm: the solution lies beyond, or along negative curvature."
    BREAKDOWN = "Stopped: a product is not finite, or the matrix or preconditioner is singular."
    LIMIT_ITERATIONS = "Stopped: the limit of iterations (max_iterations) is reached."


@dataclass(frozen=True)
class LinearResult:
    """The solution of a linear system, with its residual.

    Parameters
    ----------
    x : Array or structure of arrays
        The solution.
    residual : Array or structure of arrays
        ``b - A x``.
    residual_norm : float
        2-norm of the residual.
    iterations : int
        Number of products with the matrix after the start.
    outcome : LinearOutcome
        Why the iteration ended.
    negative_curvature : bool
        Whether a direction with ``p.A p < 0`` was met. Then A is not positive definite, and a
        solution is a stationary point of ``x.A x / 2 - b.x``, but not a minimum.

    Examples
    --------
    >>> solved = optim.conjugate_gradient(lambda v: 2 * v, np.array([2.0, 4.0]))
    >>> solved.x, solved.iterations, solved.success
    (array([1., 2.]), 1, True)
    """

    x: Array
    residual: Array
    residual_norm: float
    iterations: int
    outcome: LinearOutcome
    negative_curvature: bool

    @property
    def success(self) -> bool:
        """Whether the residual is within its tolerance.

        Returns
        -------
        bool
            True for the outcome ``CONVERGED``.
        """
        return self.outcome is LinearOutcome.CONVERGED


def conjugate_gradient(
    matvec: Matvec,
    b: Array,
    x0: Array | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    max_norm: float = math.inf,
    max_iterations: float | None = None,
    preconditioner: Matvec = lambda r: r,
) -> LinearResult:
    """Solve ``A x = b`` for a symmetric matrix that is given by its products.

    Parameters
    ----------
    matvec : callable
        ``matvec(v)`` returns ``A v``.
    b : Array or structure of arrays
        The right-hand side. If it is a dict, tuple or list of arrays, ``matvec`` and
        ``preconditioner`` get the same structure, and x has it.
    x0 : Array or structure of arrays, optional
        Start, of 2-norm `max_norm` at most. Default: 0.
    rtol : float, default 1e-5
        Converged if the 2-norm of the residual is at most ``max(rtol * |b|, atol)``.
    atol : float, default 0.0
        Absolute tolerance on the residual; see `rtol`.
    max_norm : float, default inf
        Bound on the 2-norm of x. The iteration ends at this boundary. If the curvature along a
        direction is negative, it follows the direction to the boundary. Without a bound it
        continues there, to a stationary point.
    max_iterations : float, optional
        Largest number of iterations. Default: ten for each element of `b`.
    preconditioner : callable, optional
        Maps a vector r to an estimate of ``A^-1 r``; symmetric and positive definite. Default:
        no preconditioner.

    Returns
    -------
    LinearResult
        The solution, its residual and the outcome.

    Raises
    ------
    ValueError
        If `max_norm` is not positive, or `x0` is longer than `max_norm`.

    See Also
    --------
    ConjugateGradient : Minimise a function that is not quadratic.

    Notes
    -----
    Memory: x, residual, direction and its product. Given arrays are not written to. On
    distributed vectors an iteration takes 2 requests per server, and the start one.

    References
    ----------
    .. [1] M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems,
       J. Res. Nat. Bur. Standards 49 (1952) 409-436.
    .. [2] T. Steihaug, The conjugate gradient method and trust regions in large scale
       optimization, SIAM J. Numer. Anal. 20 (1983) 626-637.
    .. [3] J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithms 5.3
       and 7.2.

    Examples
    --------
    >>> A, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    >>> solved = optim.conjugate_gradient(lambda v: A @ v, b, rtol=1e-10)
    >>> np.round(11 * solved.x, 6), solved.success
    (array([1., 7.]), True)
    """
    if not max_norm > 0.0:
        raise ValueError(
            f"conjugate_gradient(max_norm={max_norm}): must be positive, or inf for no bound"
        )
    if is_structure(b):
        whole = as_start(b, "b")
        solved = conjugate_gradient(
            lift(matvec, "matvec(v)"),
            whole,
            None if x0 is None else like(x0, whole, "x0"),
            rtol=rtol,
            atol=atol,
            max_norm=max_norm,
            max_iterations=max_iterations,
            preconditioner=lift(preconditioner, "preconditioner(r)"),
        )
        return replace(
            solved, x=as_user_structure(solved.x), residual=as_user_structure(solved.residual)
        )
    limit = 10 * size(b) if max_iterations is None else max_iterations
    with quiet():
        system = _System(matvec, preconditioner, max_norm)
        iterate, b_norm = system.start(b, x0)
        allowed = max(rtol * b_norm, atol)
        while iterate.outcome is None:
            if iterate.residual_norm <= allowed:
                return iterate.result(LinearOutcome.CONVERGED)
            if iterate.iterations >= limit:
                return iterate.result(LinearOutcome.LIMIT_ITERATIONS)
            iterate = system.step(iterate)
    return iterate.result(iterate.outcome)


@dataclass(frozen=True)
class _Iterate:
    """Solution x, residual r, direction p, and numbers: r.z for z = M^-1 r, and x.x."""

    x: Array
    residual: Array
    direction: Array
    residual_norm: float
    rz: float
    xx: float
    iterations: int = 0
    negative_curvature: bool = False
    outcome: LinearOutcome | None = None

    def result(self, outcome: LinearOutcome) -> LinearResult:
        return LinearResult(
            self.x,
            self.residual,
            self.residual_norm,
            self.iterations,
            outcome,
            self.negative_curvature,
        )


@dataclass(frozen=True)
class _System:
    matvec: Matvec
    preconditioner: Matvec
    max_norm: float

    def start(self, b: Array, x0: Array | None) -> tuple[_Iterate, float]:
        """The start, and the 2-norm of b."""
        x = 0.0 * b if x0 is None else x0
        residual = b if x0 is None else b - self.matvec(x0)
        z = self.preconditioner(residual)
        bb, rr, rz, xx = fetch(
            vdot(b, b), vdot(residual, residual), vdot(residual, z), vdot(x, x), also=(x, residual)
        )
        if math.sqrt(xx) > self.max_norm:
            raise ValueError(
                f"conjugate_gradient: x0 has norm {math.sqrt(xx)}, beyond max_norm="
                f"{self.max_norm}; give a shorter x0, or None to start at 0"
            )
        return _Iterate(x, residual, z, math.sqrt(rr), rz, xx), math.sqrt(bb)

    def step(self, it: _Iterate) -> _Iterate:
        """One iteration; step and residual stay lazy until one request reads all numbers."""
        if not it.rz > 0.0:
            return replace(it, outcome=LinearOutcome.BREAKDOWN)
        x, r, p = it.x, it.residual, it.direction
        product = self.matvec(p)
        curvature = vdot(p, product)
        alpha = it.rz / curvature
        new_x, new_r = x + alpha * p, r - alpha * product
        z = self.preconditioner(new_r)
        bend, pp, xp, xx, rr, rz = fetch(
            curvature,
            vdot(p, p),
            vdot(x, p),
            vdot(new_x, new_x),
            vdot(new_r, new_r),
            vdot(new_r, z),
            also=(p, product, new_x, new_r),
        )
        counted = replace(
            it,
            iterations=it.iterations + 1,
            negative_curvature=it.negative_curvature or bend < 0.0,
        )
        bounded = math.isfinite(self.max_norm)
        if bounded and (bend <= 0.0 or math.sqrt(xx) >= self.max_norm):
            return self._at_boundary(counted, product, pp, xp)
        if not math.isfinite(rr) or bend == 0.0:
            return replace(counted, outcome=LinearOutcome.BREAKDOWN)
        return replace(
            counted,
            x=new_x,
            residual=new_r,
            direction=z + (rz / it.rz) * p,
            residual_norm=math.sqrt(rr),
            rz=rz,
            xx=xx,
        )

    def _at_boundary(self, it: _Iterate, product: Array, pp: float, xp: float) -> _Iterate:
        """Along the direction to the length max_norm: the positive root of |x + t p| = max_norm."""
        missing = self.max_norm * self.max_norm - it.xx
        root = math.sqrt(xp * xp + pp * missing)
        # This form of the root avoids cancellation.
        t = missing / (xp + root) if xp > 0.0 else (root - xp) / pp
        x, residual = it.x + t * it.direction, it.residual - t * product
        (rr,) = fetch(vdot(residual, residual), also=(x, residual))
        return replace(
            it,
            x=x,
            residual=residual,
            residual_norm=math.sqrt(rr),
            outcome=LinearOutcome.BOUNDARY,
        )
