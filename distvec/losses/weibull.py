"""Survival times whose logarithm is a margin plus noise: the accelerated failure time model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from distvec.losses.loss import Arrays, Loss, Parameter, Sums, multiply_weights, weights_of
from distvec.losses.row_losses import sum_once_rounded
from distvec.losses.rows import Floats, Rows, blocks


class _Terms(NamedTuple):
    """Of some rows."""

    z: Floats
    """The standardized residuals ``(ln t - m) / s``."""
    risks: Floats
    """``exp(z)``, the cumulative hazards."""
    events: Floats | float


@dataclass(frozen=True)
class Weibull(Loss):
    """Weibull loss of survival times: an accelerated failure time model.

    The time ``t`` of a row has the Weibull distribution with the scale ``exp(m)`` and the shape
    ``1 / s``. The loss is the negative log-likelihood ``d (ln s - z) + exp(z)`` with
    ``z = (ln t - m) / s``, without the term ``d ln t``. ``rows.events`` is ``d``: 1 if the event
    was observed, 0 if the row was censored. The parameters are a dict: ``"w"``,
    ``(features [+ 1],)``, and ``"log_scale"``, ``(1,)``, which is ``ln s`` for all rows.

    Notes
    -----
    Labels are times above 0. The prediction is ``exp(m)``, the quantile at ``1 - 1/e``. The
    quantile at ``p`` is ``exp(m) (-ln(1 - p))^s``. ``log_scale`` is not penalised.

    If a model fits all observed times exactly, and no censored time lies above, the values fall
    without end as ``log_scale`` falls.

    References
    ----------
    J. D. Kalbfleisch and R. L. Prentice, "The Statistical Analysis of Failure Time Data", 2002.

    Examples
    --------
    >>> from distvec.losses import Objective, Rows, Weibull
    >>> rows = Rows(np.array([[0.0], [2.0], [1.0]]), [5.0, 1.0, 3.0], events=[0, 1, 1])
    >>> found = Objective(rows, loss=Weibull(), intercept=True).minimize()
    >>> {name: value.shape for name, value in found.x.items()}
    {'w': (2,), 'log_scale': (1,)}
    """

    formula: ClassVar[str] = "d (ln s - z) + exp(z), z = (ln t - m) / s, events d (`log_scale`)"
    labels: ClassVar[str] = "positive"
    takes_events: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("w"), Parameter("log_scale", rows=1)

    @property
    def has_products(self) -> bool:
        return True

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        log_scale = float(arrays[1][0])
        with np.errstate(all="ignore"):
            scale = np.exp(log_scale)
            margins = rows.margins(arrays[0], intercept=intercept)
            values, by_log_scale, slopes = [], [], np.empty(len(rows))
            for part in blocks(len(rows)):
                (z, risks, events), weights = (
                    _terms(rows, margins, scale, part),
                    weights_of(rows, part),
                )
                value = events * (log_scale - z) + risks
                excess = events - risks
                values.append(float(multiply_weights(value, weights).sum()))
                slopes[part] = multiply_weights(excess / scale, weights)
                by_log_scale.append(float(multiply_weights(events + excess * z, weights).sum()))
            gradient = rows.gradient(slopes, intercept=intercept)
        shared = np.array([sum_once_rounded(by_log_scale)])
        return Sums(sum_once_rounded(values), rows.weight_sum, (gradient, shared))

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        way = float(directions[1][0])
        with np.errstate(all="ignore"):
            scale = np.exp(float(arrays[1][0]))
            margins = rows.margins(arrays[0], intercept=intercept)
            changes = replace(rows, offsets=None).margins(directions[0], intercept=intercept)
            by_log_scale = []
            for part in blocks(len(rows)):
                (z, risks, events), weights = (
                    _terms(rows, margins, scale, part),
                    weights_of(rows, part),
                )
                mixed = (risks * (1.0 + z) - events) / scale
                along = mixed * changes[part] + way * (z * (risks * (1.0 + z) - events))
                by_log_scale.append(float(multiply_weights(along, weights).sum()))
                bent = risks / (scale * scale) * changes[part] + way * mixed
                changes[part] = multiply_weights(bent, weights)
            product = rows.gradient(changes, intercept=intercept)
        return product, np.array([sum_once_rounded(by_log_scale)])

    def predictions(self, scores: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(scores)


def _terms(rows: Rows, margins: Floats, scale: float, part: slice) -> _Terms:
    z = (np.log(rows.labels[part]) - margins[part]) / scale
    return _Terms(z, np.exp(z), 1.0 if rows.events is None else rows.events[part])
