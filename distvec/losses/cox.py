"""Proportional hazards: which row's event comes next, of all that are still waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.loss import Arrays, Parameter, PhasedLoss, Sums
from distvec.losses.row_blocks import weighted
from distvec.losses.rows import Floats, Rows
from distvec.losses.scaled_sums import ZERO, Scaled, running, total

_NOTHING = np.concatenate(ZERO)


@dataclass(frozen=True)
class Cox(PhasedLoss):
    """``sum over events i of c_i (ln S_i - m_i)``, ``S_i = sum over t_j >= t_i of c_j exp(m_j)``.

    The negative logarithm of Cox's partial likelihood, with Breslow's rule for equal times. Labels
    are the times ``t``, ``rows.events`` says at which of them the event was seen (else the row was
    lost sight of then: censored); weights ``c`` and offsets count in each set ``S`` that a row is
    in. Convex and smooth. The objective is the mean over all rows, as in glmnet, not over events.

    There is no intercept, which would cancel out: the parameter does not take one. There are no
    products with the Hessian.

    Rows lie by time, ascending, in partitions too, and equal times in one partition. What a
    partition has to know of the others is ``S`` of all later rows, and then ``sum c_i / S_i`` over
    all earlier events; both as a number and the exponent of another, so no margin is too large.
    """

    labels: ClassVar[str] = "real"
    order: ClassVar[str] = "time"
    phases: ClassVar[int] = 2

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """One vector, without an intercept."""
        return (Parameter(takes_intercept=False),)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        """Over rows that are all there are: two passes over the matrix."""
        return self.sums_told(rows, arrays, (_NOTHING, _NOTHING), intercept=intercept)

    def summary(
        self, phase: int, rows: Rows, arrays: Arrays, told: Sequence[Floats], *, intercept: bool
    ) -> Floats:
        """The sum of ``c exp(m)`` over these rows, then of ``c_i / S_i`` over their events."""
        with np.errstate(all="ignore"):
            risks = _risks(rows, rows.margins(arrays[0], intercept=False))
            if phase == 0:
                return np.concatenate(total(risks))
            sets = _sets(risks, _heard(told[0]), _ties(rows.labels))
            return np.concatenate(total(_hazards(rows, sets, _seen(rows))))

    def merge(self, phase: int, summaries: Sequence[Floats]) -> list[Floats]:
        """For each partition the sum over all later ones; in the second phase over all earlier."""
        each = Scaled(*np.array(summaries).T)
        with np.errstate(all="ignore"):
            if phase == 0:
                return [*np.transpose(running(each.at(slice(1, None)), backwards=True)), _NOTHING]
            return [_NOTHING, *np.transpose(running(each.at(slice(-1))))]

    def sums_told(
        self, rows: Rows, arrays: Arrays, told: Sequence[Floats], *, intercept: bool
    ) -> Sums:
        """The slope of a row is ``c exp(m)`` times ``sum c_i / S_i`` over the events until then,
        and, where its event was seen, minus ``c``."""
        later, earlier = map(_heard, told)
        with np.errstate(all="ignore"):
            margins = rows.margins(arrays[0], intercept=False)
            ties, seen = _ties(rows.labels), _seen(rows)
            sets = _sets(_risks(rows, margins), later, ties)
            values = np.log(sets.values) + (sets.heights - margins)
            value = float(weighted(np.where(seen, values, 0.0), rows.weights).sum())
            hazards = running(_hazards(rows, sets, seen), earlier)
            if ties is not None:
                hazards = hazards.at(ties.last)
            slopes = np.exp(margins + hazards.heights)
            slopes *= hazards.values
            slopes -= seen
            gradient = rows.gradient(weighted(slopes, rows.weights), intercept=False)
        return Sums(value, rows.weight_sum, (gradient,))

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """The logarithm of the relative hazard, ``(rows,)``."""
        return rows.margins(arrays[0], intercept=False)


class _Ties(NamedTuple):
    """For each row, the first and the last of the same time."""

    first: npt.NDArray[np.intp]
    last: npt.NDArray[np.intp]


def _ties(times: Floats) -> _Ties | None:
    """None if all times differ. ValueError unless they ascend."""
    if not (times[1:] >= times[:-1]).all():
        raise ValueError("rows of Cox must lie by time, ascending: sort them by the label")
    new = times[1:] != times[:-1]
    if new.all():
        return None
    starts = np.concatenate(([0], np.flatnonzero(new) + 1, [times.size]))
    counts = np.diff(starts)
    return _Ties(np.repeat(starts[:-1], counts), np.repeat(starts[1:] - 1, counts))


def _heard(told: Floats) -> Scaled:
    return Scaled(told[:1], told[1:])


def _seen(rows: Rows) -> npt.NDArray[np.bool_]:
    """Where the event was seen, of rows that have a say."""
    seen = np.ones(len(rows), bool) if rows.events is None else rows.events != 0.0
    return seen if rows.weights is None else seen & (rows.weights > 0.0)


def _risks(rows: Rows, margins: Floats) -> Scaled:
    """``c exp(m)``; a row of weight 0 is in no set, whatever its margin."""
    return Scaled(np.ones(len(rows)) if rows.weights is None else rows.weights, margins)


def _sets(risks: Scaled, later: Scaled, ties: _Ties | None) -> Scaled:
    """``S`` of each row: of all whose time is not before its own."""
    sums = running(risks, later, backwards=True)
    return sums if ties is None else sums.at(ties.first)


def _hazards(rows: Rows, sets: Scaled, seen: npt.NDArray[np.bool_]) -> Scaled:
    """``c / S`` of each event."""
    values = 1.0 / sets.values if rows.weights is None else rows.weights / sets.values
    return Scaled(np.where(seen, values, 0.0), -sets.heights)
