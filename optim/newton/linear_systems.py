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
    """Why the iteration ended, as a sentence."""

    CONVERGED = "Converged: the residual is within its tolerance."
    BOUNDARY = "Stopped at max_norm: the solution lies beyond, or along negative curvature."
    BREAKDOWN = "Stopped: a product is not finite, or the matrix or preconditioner is singular."
    LIMIT_ITERATIONS = "Stopped: the limit of iterations (max_iterations) is reached."


@dataclass(frozen=True)
class LinearResult:
    """The solution with its residual b - A x.

    residual_norm        2-norm of the residual
    iterations           products with the matrix after the start
    negative_curvature   whether p.A p < 0 was met: A is not positive definite, and a solution is a
                         stationary point of x.A x / 2 - b.x but no minimum
    """

    x: Array
    residual: Array
    residual_norm: float
    iterations: int
    outcome: LinearOutcome
    negative_curvature: bool

    @property
    def success(self) -> bool:
        """Whether the residual is within its tolerance."""
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
    """Solve A x = b for a symmetric matrix given by its products `matvec(v) = A v`.

    x0              start, at most max_norm long; None: 0
    rtol, atol      converged if the residual's 2-norm is at most max(rtol * |b|, atol)
    max_norm        bound of the 2-norm of x: the iteration ends where it would leave the ball, and
                    where the curvature is negative it follows that direction up to the boundary;
                    without a bound it goes on there, to a stationary point
    max_iterations  None: ten for each element of b
    preconditioner  r -> an estimate of A^-1 r, symmetric and positive definite

    b may be arrays in a dict, tuple or list: `matvec` and `preconditioner` get, and x is, the same.
    No vector is written to. Memory: x, residual, direction and its product. An iteration costs one
    message on lazy arrays, the start one more.
    """
    if not max_norm > 0.0:
        raise ValueError(f"conjugate_gradient(max_norm={max_norm}): give a positive length, or inf")
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
                f"{self.max_norm}; start inside, for instance at None"
            )
        return _Iterate(x, residual, z, math.sqrt(rr), rz, xx), math.sqrt(bb)

    def step(self, it: _Iterate) -> _Iterate:
        """One iteration; step and new residual are lazy until all numbers are read at once."""
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
        # The form without cancellation.
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
