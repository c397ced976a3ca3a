"""Which solver minimises an objective, by what its penalty and its bounds ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from distvec.losses.loss import Parameter, as_given
from distvec.objectives.penalties import Term
from optim import LBFGS, LBFGSB, OWLQN, Box, ProximalGradient, Solver
from optim.core.arrays import Array
from optim.core.solver import ToleranceSolver
from optim.scipy_interface import own_options, solver_class


@dataclass(frozen=True)
class Task:
    """What a solver has to know beside the objective: of each parameter the penalty's term, the
    start, and the box if there are bounds; products with the Hessian if the objective has any."""

    parameters: Sequence[Parameter]
    terms: Sequence[Term]
    start: Sequence[Array]
    boxes: Sequence[Box] | None = None
    hessp: Any = None

    @property
    def is_smooth(self) -> bool:
        """Whether the penalty leaves nothing to the solver."""
        return all(term.is_smooth for term in self.terms)

    @property
    def has_others(self) -> bool:
        """Whether a penalty is neither smooth nor an l1 norm."""
        return any(term.other is not None for term in self.terms)

    def solver(self, method: str | None, options: Mapping[str, Any]) -> Solver:
        """The solver of that name, or one that fits.

        ValueError for one that does not fit, or options that it does not have; NotImplementedError
        where none fits.
        """
        if self.boxes is not None and self.has_others:
            raise NotImplementedError(
                "bounds with a penalty other than an l1 norm have no proximal operator; leave the "
                "bounds out, or use optim.ADMM(penalty=..., terms=(optim.Box(...),))"
            )
        kind = self._fitting() if method is None else solver_class(method)
        known = [field.name for field in fields(kind)]
        wanted = own_options(options, known)
        if unknown := sorted(set(wanted) - set(known)):
            raise ValueError(
                f"unknown option {unknown[0]!r} for {kind.__name__}; allowed are {', '.join(known)}"
            )
        return kind(**{**self._parameters_of(kind, known), **wanted})

    def _fitting(self) -> type[Solver]:
        if self.has_others or (self.boxes is not None and not self.is_smooth):
            return ProximalGradient
        if self.boxes is not None:
            return LBFGSB
        return LBFGS if self.is_smooth else OWLQN

    def _parameters_of(self, kind: type[Solver], known: Sequence[str]) -> dict[str, Any]:
        """What the solver is given of all this."""
        boxes = self.boxes if self.boxes is not None else [None] * len(self.terms)
        if "penalty" in known:
            each = zip(self.terms, self.start, boxes, strict=True)
            return {"penalty": self._given([term.kinked(x, box) for term, x, box in each])}
        # The l1 of stochastic solvers, as of FTRL, weighs otherwise.
        takes_l1 = "l1" in known and issubclass(kind, ToleranceSolver)
        if self.has_others or not (self.is_smooth or takes_l1):
            raise ValueError(
                f"{kind.__name__} takes no penalty with kinks; leave method out, or give "
                f"method='proximal-gradient'{'' if self.has_others else ' or OWL-QN'}"
            )
        told: dict[str, Any] = {}
        if takes_l1:
            told["l1"] = self._given([term.l1_weights() for term in self.terms])
        if self.boxes is not None:
            told[self._bounds_of(kind, known)] = self._given(boxes)
        if self.hessp is not None and "hessp" in known:
            told["hessp"] = self.hessp
        return told

    def _bounds_of(self, kind: type[Solver], known: Sequence[str]) -> str:
        """The field for a box."""
        for name in ("bounds", "projection"):
            if name in known:
                return name
        fits = "L-BFGS-B" if self.is_smooth else "proximal-gradient"
        raise ValueError(
            f"{kind.__name__} takes no bounds; leave method out, or give method={fits!r}"
        )

    def _given(self, by_parameter: Sequence[Any]) -> Any:
        return as_given(by_parameter, self.parameters)
