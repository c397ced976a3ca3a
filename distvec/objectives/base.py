"""What objectives share, wherever their rows and parameters are: penalties, standardization, and
the choice of a solver.
"""

from __future__ import annotations

import functools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from distvec.losses.loss import Loss, NotFinite, Parameter, as_arrays, as_given
from distvec.objectives.model import Model, Weights
from distvec.objectives.penalties import Penalty, Term, by_parameter, in_dtype_of, term_of
from distvec.objectives.solver_choice import Task
from distvec.objectives.standardization import (
    Center,
    Scales,
    Standardized,
    box_of,
    by_name,
    scaled_boxes,
)
from optim import Box, Outcome, Result, Solver, State
from optim.core.arrays import Array, Scalar, namespace
from optim.core.checkpoints.policy import Place
from optim.core.solver import ToleranceSolver
from optim.core.trees import as_start, as_user_structure
from optim.quasi_newton.lbfgsb import Bounds

Arrays = tuple[Array, ...]


class ObjectiveBase(ABC):
    """Base class of objectives: the weighted mean of a loss over rows, and a penalty.

    ``objective(x)`` returns value and gradient, with the smooth part of the penalty. The rest of
    the penalty is for the solver, which ``minimize`` chooses. Intercepts are never penalised. With
    ``standardization`` the penalty applies to the coefficients times the standard deviations of
    their features, as in MLlib. Features that are constant are left out then. Data is never
    rewritten.

    Subclasses implement the mean. They set ``loss`` and ``intercept``, and then call
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
        """A mask like the parameter, False in the intercept's row and in rows of no feature; None:
        all of it is penalised."""

    @abstractmethod
    def _deviations(self, parameter: Parameter) -> Array:
        """The standard deviations of the features, and 1 for the intercept; ``(rows,)``, for a
        table ``(rows, 1)``."""

    @abstractmethod
    def _means(self) -> Array:
        """The means of the features, ``(features,)``."""

    def _center(self, parameter: Parameter) -> Center | None:
        mask = self._is_penalised(parameter)
        if mask is None or not parameter.is_of_features:
            return None
        xp = namespace(mask)
        means = self._means()
        means = xp.concat([means, xp.zeros_like(means[:1])])
        return Center(means[:, None] if parameter.row else means, xp.where(mask, 0.0, 1.0))

    def _start(self, parameter: Parameter) -> Array:
        """Where ``minimize`` starts."""
        return self._zeros(parameter)

    def _set_penalty(self, penalty: Penalty | None, *, standardization: bool = False) -> None:
        """TypeError or ValueError for what is no penalty of these parameters."""
        self.penalty = penalty
        self._terms = self._terms_of(penalty)
        self._scales = self._scales_of_features if standardization else None

    @functools.cached_property
    def _scales_of_features(self) -> Scales:
        return Scales.of(
            [self._deviations(one) for one in self._parameters],
            [self._center(one) for one in self._parameters],
        )

    @property
    def standardization(self) -> bool:
        """Whether the penalty applies to the coefficients of standardized features."""
        return self._scales is not None

    def with_penalty(self, penalty: Penalty | None, *, standardization: bool | None = None) -> Self:
        """Return an objective over the same rows with another penalty.

        Parameters
        ----------
        penalty : Proximal, list or dict, optional
            The penalty, such as ``optim.SquaredL2Norm(0.1)``. By default there is no penalty.
        standardization : bool, optional
            Whether the penalty applies to the coefficients of standardized features. By default
            as in this objective.

        Returns
        -------
        Objective
            It shares the rows with this objective: closing one closes both.
        """
        if standardization is None:
            standardization = self.standardization
        scales = self._scales_of_features if standardization else None
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.penalty, other._terms, other._scales = penalty, other._terms_of(penalty), scales
        return other

    def start(self, model: Model | Weights | None = None) -> Any:
        """Return a start for ``minimize``: zeros, or random values if zeros are a saddle point.

        Parameters
        ----------
        model : Model, array or dict of arrays, optional
            A model, or its parameters, fitted to the first of these features. The start has its
            values for the features that it knows, and for the intercept, which is the last row.
            Parameters cover all features. They are NumPy arrays or live on the servers.

        Returns
        -------
        array or dict of arrays
            The parameters, in the form that the loss needs.

        Raises
        ------
        ValueError
            If ``model`` has more features than these rows, or tables with other columns.
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
        has_intercept = parameter.has_intercept(self.intercept)
        known = known_features(parameter, given.shape, start.shape, intercept=has_intercept)
        found = start.astype(np.result_type(given.dtype, np.float32)).copy()
        found[:known] = given[:known]
        if has_intercept:
            found[-1] = given[-1]
        return found

    def __call__(self, x: Weights) -> tuple[Scalar, Any]:
        """The mean loss and the smooth part of the penalty, and their gradient, in the form of
        ``x``. The penalty adds operators, and no message."""
        arrays = self._arrays(x)
        self._remember(x)
        # Held while the mean is evaluated: what computes lazy ``x`` then computes this along.
        smooth = self._quadratic_value(arrays)
        value, gradients = self._mean(self._used(arrays))
        return value + smooth, self._given(self._with_slopes(arrays, self._used(gradients)))

    def hessp(self, x: Weights, v: Weights) -> Any:
        """Return the product of the Hessian at ``x`` with a vector.

        Parameters
        ----------
        x : array or dict of arrays
            The point.
        v : array or dict of arrays
            The vector, like ``x``.

        Returns
        -------
        array or dict of arrays
            The product, like ``x``.

        Raises
        ------
        NotImplementedError
            If the loss has no products with its Hessian.
        """
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

    def penalty_value(self, x: Weights) -> Scalar:
        """Return the value of the whole penalty.

        Parameters
        ----------
        x : array or dict of arrays
            The point.

        Returns
        -------
        scalar
            The smooth part and the rest.
        """
        arrays = self._arrays(x)
        pairs = zip(self._terms, self._scaled(arrays), strict=True)
        return self._quadratic_value(arrays) + sum(term.kinked_value(y) for term, y in pairs)

    def total(self, x: Weights) -> Scalar:
        """Return the minimised value: the mean loss plus the whole penalty.

        Parameters
        ----------
        x : array or dict of arrays
            The point.

        Returns
        -------
        scalar
            The value.
        """
        return self._mean(self._used(self._arrays(x)))[0] + self.penalty_value(x)

    def minimize(
        self,
        x0: Weights | None = None,
        method: str | None = None,
        *,
        bounds: Bounds | None = None,
        callback: Callable[[State], Any] | None = None,
        progress: bool | Callable[[State], Any] = False,
        checkpoint: Place = None,
        every: int = 20,
        resume: bool = False,
        **options: Any,
    ) -> Result:
        """Minimise the mean loss plus the penalty.

        Parameters
        ----------
        x0 : array or dict of arrays, optional
            The start. By default ``start()``.
        method : str, optional
            The name of a solver, as in ``optim.minimize``. The default is ``"L-BFGS"``; with an l1
            norm ``"OWL-QN"``; with bounds ``"L-BFGS-B"``; with both, or any other penalty,
            ``"proximal-gradient"``.
        bounds : Box or pairs, optional
            Bounds as for ``"L-BFGS-B"``, in a dict if the parameters are a dict. Numbers, as in
            ``Box(0.0, inf)``, bound the features and leave the intercept free.
        callback : callable, optional
            Called as ``callback(state)`` after each iteration. If it returns True, the run ends.
        progress : bool or callable, default False
            True shows a progress bar. A function is called with the state.
        checkpoint : path, optional
            A directory for checkpoints, as in ``Solver.minimize``.
        every : int, default 20
            Iterations between checkpoints.
        resume : bool, default False
            Whether to continue from the newest checkpoint. The result is bitwise identical to the
            result of an uninterrupted run.
        **options
            Options of the solver, such as ``max_iterations=100`` or ``gradient_tolerance=1e-6``.

        Returns
        -------
        Result
            The result of the solver, as ``optim`` defines it. ``result.x`` has the form of ``x0``.

        Raises
        ------
        NotFinite
            If value or gradient is not finite at the start. Later, the solver shortens its step.

        Warns
        -----
        RuntimeWarning
            If the loss has kinks and the solver is for smooth functions: it stops near a minimum
            only. Use a loss with ``smoothing``.

        Notes
        -----
        With standardization the solver works on the coefficients times the standard deviations, as
        MLlib does, and its tolerances apply to gradients by them. Without bounds it also works on
        the intercept of centered features, so large means cost no iterations. The result contains
        the coefficients and the intercept.
        """
        x0 = self.start() if x0 is None else as_user_structure(as_start(x0))
        start = self._arrays(x0)
        boxes = None if bounds is None else self._boxes(bounds, start)
        scales = self._scales
        if scales is not None and boxes is not None:
            scales = scales.without_centers()  # which leave a box a box
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

    def fit(self, x0: Weights | None = None, method: str | None = None, **options: Any) -> Model:
        """Minimise, and return the model of the parameters found.

        Parameters
        ----------
        x0 : array or dict of arrays, optional
            The start. By default ``start()``.
        method : str, optional
            The name of a solver. By default one that suits loss and penalty.
        **options
            The other arguments of ``minimize``.

        Returns
        -------
        Model
            The model. ``model.result`` is the result of the solver.

        Warns
        -----
        RuntimeWarning
            If the solver did not converge, with the reason.
        """
        found = self.minimize(x0, method, **options)
        if not found.success:
            warnings.warn(f"fit: {found.message}", RuntimeWarning, stacklevel=2)
        model = self.model(found.x)
        model.result = found
        return model

    @abstractmethod
    def model(self, x: Weights) -> Model:
        """Return parameters as a model with the loss, intercept and features of this objective.

        Parameters
        ----------
        x : array or dict of arrays
            The parameters, such as ``result.x``.

        Returns
        -------
        Model
            It predicts, and can be saved.
        """

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
    problem = "the gradient is not finite" if math.isfinite(value) else f"the value is {value}"
    return (
        f"{problem} at the start; give another x0, scale features or labels, or write the loss so "
        "that no step overflows, such as np.logaddexp(0, m) for np.log1p(np.exp(m))"
    )


def known_features(
    parameter: Parameter, given: tuple[int, ...], whole: tuple[int, ...], *, intercept: bool
) -> int:
    """How many features an array of shape ``given`` is over; ``whole`` is that of all."""
    name = parameter.name or "the model"
    if len(given) != len(whole) or given[1:] != whole[1:] or not intercept <= given[0] <= whole[0]:
        last = ", the last being the intercept" if intercept else ""
        raise ValueError(
            f"{name} has the shape {given}; to continue it to {whole}, it must have at most as "
            f"many rows{last}"
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
        f"{loss} has kinks, so a solver for smooth functions cannot verify that it is at a "
        "minimum; the result is the best point seen. Use a smooth loss, for instance "
        f"{type(kinked).__name__}(smoothing=1e-3)"
    )
