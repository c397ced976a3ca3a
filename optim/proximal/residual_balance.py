"""The weight rho of ADMM: balance of the residuals, and what gets it out of cycles.

Sections are those of Boyd et al. (2011), as in `_admm`.
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.plateau import Plateau

# Residual balancing (section 3.4.1): rho changes by a factor where the residuals, each relative to
# its bound, differ by another. In the first iterations only: with a rho that varies for ever the
# method may not converge.
_UNBALANCED = 3.0
_RHO_FACTOR = 2.0
_BALANCED_ITERATIONS = 100
# Where fun is not convex, iterates cycle once rho is below its curvature: after so many iterations
# without progress rho rises by a factor and may not fall below that, until there is progress again.
# Not where the residuals say that it is too large already: there it would only grow without end.
_STALLED_ITERATIONS = 10
_RESCUE = 10.0
_RESCUED_ITERATIONS = 200


@dataclass(frozen=True)
class Residuals:
    """2-norms of the primal and dual residual, each with the bound that stops (section 3.3.1).

    inexactness     the gradient that `inner` left over: it belongs to the dual residual too
    """

    primal: float
    dual: float
    primal_bound: float
    dual_bound: float
    inexactness: float = 0.0

    @property
    def small(self) -> bool:
        """Whether both are within their bounds."""
        dual = self.dual + self.inexactness
        return self.primal <= self.primal_bound and dual <= self.dual_bound


def adapted(
    iteration: int, least_rho: float, plateau: Plateau, residuals: Residuals, rho: float
) -> tuple[float, float]:
    """The factor for rho, and the least that it may be from now on."""
    stalled = plateau.length > 0 and plateau.length % _STALLED_ITERATIONS == 0
    wanted = _rho_factor(residuals)
    if stalled and iteration < _RESCUED_ITERATIONS and wanted >= 1.0:
        return _RESCUE, _RESCUE * rho
    least = least_rho if plateau.length else least_rho / _RHO_FACTOR
    factor = wanted if iteration < _BALANCED_ITERATIONS else 1.0
    return (1.0 if factor < 1.0 and rho * factor < least else factor), least


def _rho_factor(residuals: Residuals) -> float:
    primal = residuals.primal * residuals.dual_bound
    dual = residuals.dual * residuals.primal_bound
    if primal > _UNBALANCED * dual:
        return _RHO_FACTOR
    return 1.0 / _RHO_FACTOR if dual > _UNBALANCED * primal else 1.0
