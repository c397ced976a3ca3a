"""What objectives share, wherever their rows and parameters are: penalties, standardization, and
the choice of a solver.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from distvec.losses.loss import Loss, NotFinite, Parameter, as_arrays, as_given
from distvec.objectives.model import Model
from distvec.objectives.penalties import Penalty, Term, by_parameter, in_dtype_of, term_of
from distvec.objectives.solver_choice import Task
from distvec.objectives.standardization import Scales, Standardized, box_of, by_name, scaled_boxes
from optim import Box, Outcome, Result, Solver, State
from optim.core.arrays import Array, Scalar
from optim.core.checkpoints.policy import Place
from optim.core.solver import ToleranceSolver
from optim.core.trees import as_start, as_user_structure

Arrays = tuple[Array, ...]


class ObjectiveBase(ABC):
    """``objective(x) -> (value, gradient)``: the weighted mean of a loss over rows, and a penalty.

    Value and gradient hold the smooth part of the penalty; the rest is for the solver, which
    ``minimize`` chooses. Intercepts are never penalised. With ``standardization`` the penalty is of
    the coefficients times the standard deviations of their features, as in MLlib; features that are
    the same in all rows have no part then. Data is never rewritten.

    Subclasses say what the mean is. They set ``loss`` and ``intercept``, and then call
    ``_set_penalty``.
    """

    loss: Loss
    intercept: bool
    penalty: Penalty | None
    """As it was given."""
    _terms: tuple[Term, ...]
    _scales: Scales | None

    @abstractmethod
    def _mean(self, arrays: Arrays) -> tuple[Scalar, Arrays]:
        """The mean loss and its gradients at an array for each parameter, which it checks."""

    @abstractmethod
    def _mean_product(self, arrays: Arrays, directions: Arrays) -> Arrays:
        """The Hessian of the mean loss at ``arrays`` times ``directions``."""

    @abstractmethod
    def _zeros(self, parameter: Parameter) -> Array:
        """As many as the parameter has elements, in its shape."""

    @abstractmethod
    def _is_penalised(self, parameter: Parameter) -> Array | None:
        """A mask like the parameter, False in the intercept's row; None: it has no intercept."""

    @abstractmethod
    def _deviations(self, parameter: Parameter) -> Array:
        """The standard deviations of the features, and 1 for the intercept; ``(rows,)``, for a
        table ``(rows, 1)``."""

    def _start(self, parameter: Parameter) -> Array:
        """Where ``minimize`` starts."""
        return self._zeros(parameter)

    def _set_penalty(self, penalty: Penalty | None, *, standardization: bool = False) -> None:
        """TypeError or ValueError for what is no penalty of these parameters."""
        self.penalty = penalty
        self._terms = self._terms_of(penalty)
        self._scales = None
        if standardization:
            self._scales = Scales.of([self._deviations(one) for one in self._parameters])

    @property
    def standardization(self) -> bool:
        """Whether the penalty is of the coefficients of standardized features."""
        return self._scales is not None

    def with_penalty(self, penalty: Penalty | None) -> Self:
        """The same rows, and what is known of them, under another penalty."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.penalty, other._terms = penalty, self._terms_of(penalty)
        return other

    def start(self, model: Any = None) -> Any:
        """Where ``minimize`` starts: zeros, or small random values where zeros are a saddle.

        With a ``model``, or its parameters, fitted to as many features as these rows have or fewer:
        those, and the above for features that it does not know, which come after its own. An
        intercept is its last row, and stays the last. Parameters are over all features, NumPy's or
        on the servers. ValueError where it has more features, or other columns.
        """
        starts = [self._start(one) for one in self._parameters]
        if isinstance(model, Model):
            model = model.whole().x
        if model is not None:
            given = as_arrays(model, self._parameters)
            each = zip(self._parameters, given, starts, strict=True)
            starts = [self._continued(*one) for one in each]
        return self._given(starts)

    def _continued(self, parameter: Parameter, given: Any, start: Array) -> Array:
        """``start`` with the rows of ``given`` in the place of its first, and in the last one."""
        has_intercept = self.intercept and parameter.takes_intercept
        known = known_features(parameter, given.shape, start.shape, intercept=has_intercept)
        found = start.astype(np.result_type(given.dtype, np.float32)).copy()
        found[:known] = given[:known]
        if has_intercept:
            found[-1] = given[-1]
        return found

    def __call__(self, x: Any) -> tuple[Scalar, Any]:
        """The mean loss and the smooth part of the penalty, and their gradient, in the form of
        ``x``. The penalty adds operators, and no message."""
        arrays = self._arrays(x)
        self._remember(x)
        # Held while the mean is evaluated: what computes lazy ``x`` then computes this along.
        smooth = self._quadratic_value(arrays)
        value, gradients = self._mean(self._used(arrays))
        return value + smooth, self._given(self._with_slopes(arrays, self._used(gradients)))

    def hessp(self, x: Any, v: Any) -> Any:
        """The Hessian of what a call gives at ``x``, times ``v``; NotImplementedError for losses
        that have none."""
        if not self.loss.has_products:
            raise NotImplementedError(
                f"{type(self.loss).__name__} has no products with its Hessian; "
                "minimize(method='trust-ncg') takes differences of gradients instead"
            )
        directions = self._arrays(v)
        found = self._mean_product(self._used(self._arrays(x)), self._used(directions))
        bent = [
            term.quadratic_product(direction)
            for term, direction in zip(self._terms, self._scaled(directions), strict=True)
        ]
        return self._given(self._sums(self._used(found), bent))

    def penalty_value(self, x: Any) -> Scalar:
        """All of the penalty at ``x``."""
        arrays = self._arrays(x)
        pairs = zip(self._terms, self._scaled(arrays), strict=True)
        return self._quadratic_value(arrays) + sum(term.kinked_value(y) for term, y in pairs)

    def total(self, x: Any) -> Scalar:
        """What is minimised: the mean loss and all of the penalty, at ``x``."""
        return self._mean(self._used(self._arrays(x)))[0] + self.penalty_value(x)

    def minimize(
        self,
        x0: Any = None,
        method: str | None = None,
        *,
        bounds: Any = None,
        callback: Callable[[State], Any] | None = None,
        progress: bool | Callable[[State], Any] = False,
        checkpoint: Place = None,
        every: int = 20,
        resume: bool = False,
        **options: Any,
    ) -> Result:
        """The minimum of mean loss and penalty, from ``x0`` or ``start()``.

        method      a name as of ``optim.minimize``. None: "L-BFGS"; "OWL-QN" with an l1 norm;
                    "L-BFGS-B" with bounds; "proximal-gradient" with both or any other penalty
        bounds      as for "L-BFGS-B", in a dict where the parameters are one. Numbers, as in
                    ``Box(0.0, inf)``, bound the features and leave an intercept free
        callback    called as callback(state) after each iteration; True ends the run
        progress    True for a progress bar, or a callable(state)
        checkpoint, every, resume  as for ``Solver.minimize``: a directory from which a run that
                    broke off goes on with the same bits
        options     those of the solver: ``max_iterations=100``, ``gradient_tolerance=1e-6``

        Returns ``optim``'s result. With standardization the solver sees the coefficients times the
        deviations, as in MLlib, and its tolerances are of gradients by these; the result is in the
        coefficients themselves. A step to where value or gradient is not finite is shortened; at
        the start that is ``NotFinite``, a LossError. At the kinks of a loss solvers stop near a
        minimum only, which a RuntimeWarning says: smoothing helps.
        """
        x0 = self.start() if x0 is None else as_user_structure(as_start(x0))
        start = self._arrays(x0)
        boxes = None if bounds is None else self._boxes(bounds, start)
        scales = self._scales
        seen: Any = self if scales is None else Standardized.over(self, scales, self._parameters)
        hessp = seen.hessp if self.loss.has_products else None
        task = Task(self._parameters, self._terms, start, boxes, hessp)
        solver = task.solver(method, options)
        kept: Any = {"checkpoint": checkpoint, "every": every, "resume": resume}
        if scales is None:
            found = solver.minimize(self, x0, callback=callback, progress=progress, **kept)
        else:
            found = seen.minimized_by(solver, x0, callback, progress, **kept)
        if found.outcome is Outcome.NOT_FINITE_AT_START:
            raise NotFinite(str(self.loss), "x0", _not_finite(found.fun))
        self._remember(found.x)
        if self.loss.has_kinks and found.outcome in _stops_at_kinks(solver):
            warnings.warn(_kinks(self.loss), RuntimeWarning, stacklevel=2)
        return found

    def fit(self, x0: Any = None, method: str | None = None, **options: Any) -> Model:
        """``minimize``, and the model of the parameters that it finds.

        Parameters
        ----------
        x0 : array or dict of arrays, optional
            The start, by default ``start()``.
        method : str, optional
            The solver, by default one that suits loss and penalty.
        **options
            The other arguments of ``minimize``.

        Returns
        -------
        Model
            ``model.result`` has what the solver says.

        Warns
        -----
        RuntimeWarning
            If the solver found no minimum, with the reason.
        """
        found = self.minimize(x0, method, **options)
        if not found.success:
            warnings.warn(f"fit: {found.message}", RuntimeWarning, stacklevel=2)
        model = self.model(found.x)
        model.result = found
        return model

    @abstractmethod
    def model(self, x: Any) -> Model:
        """``x`` as a model, which knows its loss, intercept and features."""

    def _remember(self, x: Any) -> None:  # noqa: B027  # what is in memory need not
        """Know ``x`` as parameters of this objective."""

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        return self.loss.parameters

    def _arrays(self, given: Any) -> Arrays:
        return as_arrays(given, self._parameters)

    def _given(self, arrays: Sequence[Any]) -> Any:
        return as_given(arrays, self._parameters)

    def _used(self, arrays: Arrays) -> Arrays:
        """With 0 for features that have no part."""
        return arrays if self._scales is None else self._scales.used(arrays)

    def _scaled(self, arrays: Arrays) -> Arrays:
        """What is penalised."""
        return arrays if self._scales is None else self._scales.scaled(arrays)

    def _quadratic_value(self, arrays: Arrays) -> Scalar:
        """Of the smooth part of the penalty; 0 if it has none."""
        pairs = zip(self._terms, self._scaled(arrays), strict=True)
        return sum(found[0] for term, y in pairs if (found := term.quadratic(y)) is not None)

    def _with_slopes(self, arrays: Arrays, gradients: Arrays) -> list[Array]:
        """``gradients`` with those of the smooth part of the penalty at ``arrays``."""
        found = [
            term.quadratic(y) for term, y in zip(self._terms, self._scaled(arrays), strict=True)
        ]
        return self._sums(gradients, [None if one is None else one[1] for one in found])

    def _sums(self, arrays: Arrays, by_scaled: Sequence[Array | None]) -> list[Array]:
        """``arrays`` and gradients by what is penalised, of which some are 0."""
        factors = [1.0] * len(arrays) if self._scales is None else self._scales.factors
        return [
            array if more is None else array + in_dtype_of(more, factor) * more
            for array, factor, more in zip(arrays, factors, by_scaled, strict=True)
        ]

    def _terms_of(self, penalty: Penalty | None) -> tuple[Term, ...]:
        given = by_parameter(penalty, self._parameters)
        return tuple(
            term_of(one, self._zeros(parameter), self._is_penalised(parameter), parameter.name)
            for one, parameter in zip(given, self._parameters, strict=True)
        )

    def _boxes(self, bounds: Any, start: Arrays) -> list[Box]:
        """Of what the solver sees, for arrays like ``start``."""
        each = zip(by_name(bounds, self._parameters), start, self._parameters, strict=True)
        found = [box_of(one, array, self._is_penalised(of)) for one, array, of in each]
        return found if self._scales is None else scaled_boxes(found, start, self._scales)


def _not_finite(value: float) -> str:
    what = "the gradient is not finite" if math.isfinite(value) else f"the value is {value}"
    return (
        f"{what} where the solver starts; give another x0, scale features or labels, or write the "
        "loss so that nothing on the way overflows, as np.logaddexp(0, m) for np.log1p(np.exp(m))"
    )


def known_features(
    parameter: Parameter, given: tuple[int, ...], whole: tuple[int, ...], *, intercept: bool
) -> int:
    """How many features an array of shape ``given`` is over; ``whole`` is that of all."""
    name = parameter.name or "the model"
    if len(given) != len(whole) or given[1:] != whole[1:] or not intercept <= given[0] <= whole[0]:
        last = ", of which the last is the intercept" if intercept else ""
        raise ValueError(
            f"{name} has the shape {given}; it is continued to {whole}: as many rows or fewer{last}"
        )
    return given[0] - intercept


def _stops_at_kinks(solver: Solver) -> tuple[Outcome, ...]:
    """How a solver for smooth functions ends that went to and fro over a kink."""
    limits = (Outcome.LIMIT_ITERATIONS, Outcome.LIMIT_EVALUATIONS)
    return (Outcome.STALLED, *(limits if isinstance(solver, ToleranceSolver) else ()))


def _kinks(loss: Loss) -> str:
    of = getattr(loss, "row", None)  # the loss within a factorization machine, or of pairs
    kinked = of if isinstance(of, Loss) else loss
    return (
        f"{loss} has kinks, where a solver for smooth functions stops without knowing whether it "
        "is at a minimum; the result is the best point seen. It does know with a little smoothing, "
        f"as of {type(kinked).__name__}(smoothing=1e-3)"
    )
