"""Proportional hazards: which row's event comes next, of all that are still waited for. Its sums
are of numbers too large or too small for a float: each is ``values * exp(heights)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.loss import Arrays, Parameter, PhasedLoss, Sums, multiply_weights
from distvec.losses.rows import Floats, Rows

_SPAN = 200.0
"""So much higher than its sum's a term's height may be: exp(200) is 7e86."""


class Scaled(NamedTuple):
    """Numbers ``values[0] * exp(heights)``, none negative, and what goes along with them: rows
    ``values[1:]`` at the same heights. Where ``values[0]`` is 0 all is, whatever the height."""

    values: Floats
    """``(1 or more, n)``"""
    heights: Floats
    """``(n,)``"""

    def at(self, places: slice | np.ndarray) -> Scaled:
        """Some of them."""
        return Scaled(self.values[:, places], self.heights[places])

    def reversed(self) -> Scaled:
        """Last first."""
        return self.at(slice(None, None, -1))


ZERO = Scaled(np.zeros((1, 1)), np.full(1, -np.inf))


def total_scaled(terms: Scaled) -> Scaled:
    """Their sum, ``n = 1``."""
    heights = np.where(terms.values[0] == 0.0, -np.inf, terms.heights)
    height = heights.max(initial=-np.inf)
    if height == -np.inf:
        return Scaled(np.zeros((len(terms.values), 1)), ZERO.heights)
    return Scaled((terms.values @ np.exp(heights - height))[:, None], np.array([height]))


def running_totals(terms: Scaled, before: Scaled = ZERO, *, backwards: bool = False) -> Scaled:
    """The sums of ``before`` and the terms up to each; ``backwards`` of those from each on.

    Nothing overflows, whatever the range, and what underflows would not have been seen.
    """
    if not terms.heights.size:
        return terms
    low, high = terms.heights.min(), terms.heights.max()
    if before.values[0, 0] > 0.0:
        low, high = min(low, before.heights[0]), max(high, before.heights[0])
    if low >= high - _SPAN and high != -np.inf:
        return _running_at(high, terms, before, backwards=backwards)
    if backwards:
        return _running_from(terms.reversed(), before).reversed()
    return _running_from(terms, before)


def _running_at(height: float, terms: Scaled, before: Scaled, *, backwards: bool) -> Scaled:
    """All relative to one height. Two passes."""
    scales = terms.heights - height
    np.exp(scales, out=scales)
    sums = terms.values * scales
    line = sums[:, ::-1] if backwards else sums
    line[:, :1] += before.values * np.exp(before.heights - height)
    np.cumsum(line, axis=1, out=line)
    return Scaled(sums, np.full(scales.size, height))


def _running_from(terms: Scaled, before: Scaled) -> Scaled:
    """Relative to the highest so far, and anew where one is higher by 200: some 10 us for each new
    height."""
    masked = Scaled(terms.values, np.where(terms.values[0] == 0.0, -np.inf, terms.heights))
    tops = np.maximum(np.maximum.accumulate(masked.heights), before.heights)
    sums = Scaled(np.zeros(terms.values.shape), tops.copy())
    start = 0
    while start < tops.size:
        stop = int(np.searchsorted(tops, tops[start] + _SPAN, side="right"))
        part = slice(start, stop)
        if tops[start] != -np.inf:
            found = _running_at(tops[start], masked.at(part), before, backwards=False)
            sums.values[:, part], sums.heights[part] = found
        before, start = sums.at(slice(stop - 1, stop)), stop
    return sums


@dataclass(frozen=True)
class Cox(PhasedLoss):
    """Cox loss of survival times: ``sum over events i of c_i (ln S_i - m_i)``.

    It is the negative log partial likelihood, with Breslow's rule for equal times and the risk
    ``S_i = sum over t_j >= t_i of c_j exp(m_j)``. Labels are the times ``t``. ``rows.events`` is 1
    if the event was observed, and 0 if the row was censored. The loss is convex and smooth. The
    objective is the mean over all rows, as in glmnet, instead of the mean over events.

    Notes
    -----
    An intercept would cancel out, so the parameter has none. Weights ``c`` and offsets count in
    each ``S`` that a row is in.

    Rows are sorted by time, also across partitions, and equal times lie in one partition. A
    partition needs two sums from the others: ``S`` of all later rows, then ``sum c_i / S_i`` over
    all earlier events. Both are stored with an exponent of their own, so no margin overflows.

    Examples
    --------
    >>> from distvec.losses import Cox, Objective, Rows
    >>> rows = Rows(np.array([[0.0], [2.0], [1.0]]), [5.0, 1.0, 3.0], events=[0, 1, 1])
    >>> objective = Objective(rows, loss=Cox())
    >>> value, gradient = objective(np.zeros(1))
    >>> round(float(value), 3), gradient
    (0.597, array([-0.5]))
    """

    formula: ClassVar[str] = (
        "ln(sum over t_j >= t_i of c_j exp(m_j)) - m_i, for each event at time t_i"
    )
    labels: ClassVar[str] = "real"
    order: ClassVar[str] = "time"
    takes_events: ClassVar[bool] = True
    phases: ClassVar[int] = 2

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(takes_intercept=False),)

    @property
    def has_products(self) -> bool:
        return True

    def prepare(
        self, rows: Rows, arrays: Arrays, directions: Arrays = (), *, intercept: bool
    ) -> Floats:
        margins = [rows.margins(arrays[0], intercept=False)]
        plain = replace(rows, offsets=None)
        margins += [plain.margins(way, intercept=False) for way in directions]
        return np.stack(margins)

    def summary(self, phase: int, rows: Rows, prepared: Floats, told: Sequence[Floats]) -> Floats:
        with np.errstate(all="ignore"):
            if phase == 0:
                return _rows(total_scaled(_risks(rows, prepared)))[:, 0]
            sets = _sets(rows, prepared, told[0], _ties(rows.labels))
            return _rows(total_scaled(_hazards(rows, sets, _observed_events(rows))))[:, 0]

    def merge(self, phase: int, summaries: Sequence[Floats]) -> list[Floats]:
        each = _unpack_scaled(np.transpose(summaries))
        nothing = _empty_sums(len(each.values))
        with np.errstate(all="ignore"):
            if phase == 0:
                return [*_rows(running_totals(each.at(slice(1, None)), backwards=True)).T, nothing]
            return [nothing, *_rows(running_totals(each.at(slice(-1)))).T]

    def alone(self, rows: Rows, prepared: Floats) -> list[Floats]:
        return [_empty_sums(prepared.shape[0])] * 2

    def sums_told(
        self, rows: Rows, prepared: Floats, told: Sequence[Floats], *, intercept: bool
    ) -> Sums:
        with np.errstate(all="ignore"):
            margins, seen = prepared[0], _observed_events(rows)
            sets, hazards = _both(rows, prepared, told, seen)
            values = np.log(sets.values[0]) + (sets.heights - margins)
            value = float(multiply_weights(np.where(seen, values, 0.0), rows.weights).sum())
            slopes = np.exp(margins + hazards.heights)
            slopes *= hazards.values[0]
            slopes -= seen
            gradient = rows.gradient(multiply_weights(slopes, rows.weights), intercept=False)
        return Sums(value, rows.weight_sum, (gradient,))

    def products_told(
        self, rows: Rows, prepared: Floats, told: Sequence[Floats], *, intercept: bool
    ) -> Arrays:
        with np.errstate(all="ignore"):
            margins, moved = prepared
            _, hazards = _both(rows, prepared, told, _observed_events(rows))
            changes = hazards.values[0] * moved + hazards.values[1]
            changes *= np.exp(margins + hazards.heights)
            return (rows.gradient(multiply_weights(changes, rows.weights), intercept=False),)

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        return rows.margins(arrays[0], intercept=False)


class _Ties(NamedTuple):
    """For each row, the first and the last of the same time."""

    first: npt.NDArray[np.intp]
    last: npt.NDArray[np.intp]


def _ties(times: Floats) -> _Ties | None:
    """None if all times differ. ValueError unless they ascend."""
    if not (times[1:] >= times[:-1]).all():
        raise ValueError("Cox needs rows in ascending order of time; sort them by the label")
    new = times[1:] != times[:-1]
    if new.all():
        return None
    starts = np.concatenate(([0], np.flatnonzero(new) + 1, [times.size]))
    counts = np.diff(starts)
    return _Ties(np.repeat(starts[:-1], counts), np.repeat(starts[1:] - 1, counts))


def _unpack_scaled(rows: Floats) -> Scaled:
    """What ``_rows`` makes of it, as it was."""
    return Scaled(rows[:-1], rows[-1])


def _rows(scaled: Scaled) -> Floats:
    return np.vstack(scaled)


def _empty_sums(count: int) -> Floats:
    """The sum of no terms, as a partition is told."""
    return np.append(np.zeros(count), -np.inf)


def _observed_events(rows: Rows) -> npt.NDArray[np.bool_]:
    """Where the event was seen, of rows that have a say."""
    seen = np.ones(len(rows), bool) if rows.events is None else rows.events != 0.0
    return seen if rows.weights is None else seen & (rows.weights > 0.0)


def _risks(rows: Rows, prepared: Floats) -> Scaled:
    """``c exp(m)``, and its change; a row of weight 0 is in no set, whatever its margin."""
    values = np.ones_like(prepared)
    values[1:] = prepared[1:]
    return Scaled(multiply_weights(values, rows.weights), prepared[0])


def _sets(rows: Rows, prepared: Floats, later: Floats, ties: _Ties | None) -> Scaled:
    """``S`` of each row: of all whose time is not before its own; and its change."""
    sums = running_totals(_risks(rows, prepared), _unpack_scaled(later[:, None]), backwards=True)
    return sums if ties is None else sums.at(ties.first)


def _hazards(rows: Rows, sets: Scaled, seen: npt.NDArray[np.bool_]) -> Scaled:
    """``c / S`` of each event, and its change ``-c S' / S^2``."""
    values = 1.0 / sets.values[:1] if rows.weights is None else rows.weights / sets.values[:1]
    if len(sets.values) > 1:
        values = np.vstack([values, -values[0] * (sets.values[1] / sets.values[0])])
    return Scaled(np.where(seen, values, 0.0), -sets.heights)


def _both(
    rows: Rows, prepared: Floats, told: Sequence[Floats], seen: npt.NDArray[np.bool_]
) -> tuple[Scaled, Scaled]:
    """``S`` of each row, and the sum of ``c_i / S_i`` over the events until then."""
    later, earlier = told
    ties = _ties(rows.labels)
    sets = _sets(rows, prepared, later, ties)
    hazards = running_totals(_hazards(rows, sets, seen), _unpack_scaled(earlier[:, None]))
    return sets, hazards if ties is None else hazards.at(ties.last)
