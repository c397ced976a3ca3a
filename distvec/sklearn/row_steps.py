"""Compiled steps of stochastic gradient descent, one row after the other.

The coefficients are ``scale`` times a vector, so that the decay of the l2 penalty changes one
number instead of all coefficients. Their average is ``(averages + a vector) / b``: a step changes
both vectors only in the columns of its row.

L. Bottou, Stochastic gradient descent tricks, 2012: both representations. Y. Tsuruoka, J. Tsujii,
S. Ananiadou, Stochastic gradient descent training for l1-regularized log-linear models with
cumulative penalty, ACL 2009: the l1 penalty. K. Crammer et al., Online passive-aggressive
algorithms, JMLR 2006: the rules PA1 and PA2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from distvec.losses.compiled import njit

HINGE, SQUARED_HINGE, LOGISTIC, MODIFIED_HUBER = range(4)
SQUARED, HUBER, EPSILON_INSENSITIVE, SQUARED_EPSILON_INSENSITIVE = range(4, 8)
"""The losses, of labels -1 and 1 or of numbers."""

CONSTANT, OPTIMAL, INVSCALING, ADAPTIVE, PA1, PA2 = range(1, 7)
"""The rules of the step size."""

(
    STEPS,  # one more than were taken
    STEP_SIZE,
    INTERCEPT,
    AVERAGE_INTERCEPT,
    SCALE,
    A,
    B,
    SQUARES,  # an estimate of the squared norm of the coefficients, as in scikit-learn
    ABSOLUTE,  # that of the l1 norm
    L1_DUE,  # the l1 penalty that each coefficient should have had
    OBJECTIVE,  # the sum over the rows of this epoch
    VECTOR_BY_VECTOR,  # folds since the last 1, 1, 0: by how much the vector was multiplied,
    AVERAGES_BY_AVERAGES,  # and the averages by themselves,
    AVERAGES_BY_VECTOR,  # and by the vector
) = range(14)
"""Places in the state."""

_STEEPEST = 1e12
_LEAST_SCALE = {8: 1e-9, 4: 1e-6}
"""By the size of a number: with a smaller scale the vector is multiplied by it."""


class Rule(NamedTuple):
    """The loss, the penalty and the step size."""

    loss: int
    threshold: float
    """Of hinges the margin from which the loss is 0, of other losses ``epsilon``."""
    alpha: float
    """The weight of the penalty; 0 if there is none."""
    l1_ratio: float
    step_rule: int
    step_size: float
    power: float
    delay: float
    """Of OPTIMAL: the step size is ``1 / (step_alpha (delay + steps - 1))``."""
    step_alpha: float
    positive: float
    """The weight of the rows with labels above 0."""
    negative: float
    intercept_factor: float
    """0 without an intercept; smaller than 1 for sparse rows, whose columns change less often."""
    average_from: int
    """The step from which coefficients are averaged; 0: they are not."""
    least_scale: float


def least_scale(dtype: np.dtype[Any]) -> float:
    """The least scale for coefficients of a dtype."""
    return _LEAST_SCALE[dtype.itemsize]


@njit(cache=True, nogil=True)
def shuffle(order: Any, seed: int) -> None:
    """Fisher's and Yates' shuffle by the xorshift generator of G. Marsaglia, of 32 bits."""
    mask, state = np.uint64(0xFFFFFFFF), np.uint64(seed if seed else 1)
    count = len(order)
    for i in range(count - 1):
        state ^= (state << np.uint64(13)) & mask
        state ^= state >> np.uint64(17)
        state ^= (state << np.uint64(5)) & mask
        j = i + np.int64((state & np.uint64(0x7FFFFFFF)) % np.uint64(count - i))
        order[i], order[j] = order[j], order[i]


@njit(cache=True, nogil=True)
def value(loss: int, threshold: float, label: float, margin: float) -> float:
    """The loss of a row."""
    if loss <= MODIFIED_HUBER:
        sure = label * margin
        if loss == LOGISTIC:
            return max(-sure, 0.0) + math.log1p(math.exp(-abs(sure)))
        if loss == MODIFIED_HUBER and sure < -1.0:
            return -4.0 * sure
        short = max((1.0 if loss == MODIFIED_HUBER else threshold) - sure, 0.0)
        return short if loss == HINGE else short * short
    far = abs(label - margin)
    if loss == SQUARED or (loss == HUBER and far <= threshold):
        return 0.5 * far * far
    if loss == HUBER:
        return threshold * (far - 0.5 * threshold)
    beyond = max(far - threshold, 0.0)
    return beyond if loss == EPSILON_INSENSITIVE else beyond * beyond


@njit(cache=True, nogil=True)
def slope(loss: int, threshold: float, label: float, margin: float) -> float:
    """The derivative of the loss of a row by its margin; at a kink the steepest."""
    if loss <= MODIFIED_HUBER:
        sure = label * margin
        if loss == LOGISTIC:
            less = math.exp(-abs(sure))
            return -label * (less if sure > 0.0 else 1.0) / (1.0 + less)
        if loss == HINGE:
            return -label if sure <= threshold else 0.0
        if loss == MODIFIED_HUBER and sure < -1.0:
            return -4.0 * label
        short = (1.0 if loss == MODIFIED_HUBER else threshold) - sure
        return -2.0 * label * short if short > 0.0 else 0.0
    far = margin - label
    if loss == SQUARED or (loss == HUBER and abs(far) <= threshold):
        return far
    sign = 1.0 if far > 0.0 else -1.0
    if loss == HUBER:
        return sign * threshold
    if abs(far) <= threshold:
        return 0.0
    return sign if loss == EPSILON_INSENSITIVE else 2.0 * (far - sign * threshold)


@njit(cache=True, nogil=True)
def fold(vector: Any, averages: Any, state: Any) -> None:
    """Make the vector the coefficients, and the averages their average."""
    scale, a, b = state[SCALE], state[A], state[B]
    for j in range(len(averages)):
        averages[j] = (averages[j] + a * vector[j]) / b
    for j in range(len(vector)):
        vector[j] *= scale
    state[AVERAGES_BY_VECTOR] = (state[AVERAGES_BY_VECTOR] + a * state[VECTOR_BY_VECTOR]) / b
    state[AVERAGES_BY_AVERAGES] /= b
    state[VECTOR_BY_VECTOR] *= scale
    state[SCALE], state[A], state[B] = 1.0, 0.0, 1.0


@njit(cache=True, nogil=True)
def take_steps(
    rule: Rule,
    order: Any,
    data: Any,
    indices: Any,
    ends: Any,
    labels: Any,
    weights: Any,
    vector: Any,
    averages: Any,
    spent: Any,
    state: Any,
) -> None:
    """A step for each row in ``order``.

    Of sparse rows ``indices`` and ``ends`` are CSR's; of dense ones they are None. ``averages`` and
    ``spent``, the l1 penalty that coefficients had, are empty if the rule needs none.
    """
    width = len(vector)
    is_shrunk = rule.alpha > 0.0 and rule.l1_ratio < 1.0
    is_truncated = rule.alpha > 0.0 and rule.l1_ratio > 0.0
    # Local variables stay in registers.
    steps, step_size, intercept = state[STEPS], state[STEP_SIZE], state[INTERCEPT]
    average_intercept, scale, a, b = state[AVERAGE_INTERCEPT], state[SCALE], state[A], state[B]
    squares, absolute, due = state[SQUARES], state[ABSOLUTE], state[L1_DUE]
    objective = state[OBJECTIVE]
    for row in order:
        # Unsigned places spare the test for negative ones.
        begin = np.uint64(row * width if ends is None else ends[row])
        end = np.uint64(row * width + width if ends is None else ends[row + 1])
        margin = 0.0
        for k in range(begin, end):
            margin += data[k] * vector[np.uint64(k - begin if indices is None else indices[k])]
        margin = margin * scale + intercept
        label = float(labels[row])
        loss = value(rule.loss, rule.threshold, label, margin)
        objective += loss
        if rule.step_rule >= PA1:
            norm = 0.0
            for k in range(begin, end):
                norm += data[k] * data[k]
            if rule.step_rule == PA1 and norm == 0.0:
                continue
            if rule.step_rule == PA1:
                update = min(rule.step_size, loss / norm)
            else:
                update = loss / (norm + 0.5 / rule.step_size)
            if (rule.loss == HINGE and label < 0.0) or (rule.loss != HINGE and label < margin):
                update = -update
        else:
            penalty = (1.0 - rule.l1_ratio) * 0.5 * squares + rule.l1_ratio * absolute
            objective += rule.alpha * penalty
            if rule.step_rule == OPTIMAL:
                step_size = 1.0 / (rule.step_alpha * (rule.delay + steps - 1.0))
            elif rule.step_rule == INVSCALING:
                step_size = rule.step_size / steps**rule.power
            steep = slope(rule.loss, rule.threshold, label, margin)
            update = -step_size * min(max(steep, -_STEEPEST), _STEEPEST)
        update *= (rule.positive if label > 0.0 else rule.negative) * weights[row]

        if is_shrunk:
            # The order of the products is scikit-learn's: large first steps enlarge rounding.
            factor = max(0.0, 1.0 - (1.0 - rule.l1_ratio) * step_size * rule.alpha)
            scale *= factor
            squares *= factor * factor
            absolute *= factor
            if scale < rule.least_scale:
                state[SCALE], state[A], state[B] = scale, a, b
                fold(vector, averages, state)
                scale, a, b = 1.0, 0.0, 1.0
        if update != 0.0:
            size = update / scale
            squares = absolute = 0.0
            for k in range(begin, end):
                j = np.uint64(k - begin if indices is None else indices[k])
                new = vector[j] + data[k] * size
                vector[j] = new
                squares += new * new
                if is_truncated:
                    absolute += abs(new)
            squares, absolute = squares * (scale * scale), absolute * scale
            intercept += update * rule.intercept_factor

        if 0 < rule.average_from <= steps:
            count = steps - rule.average_from + 1.0
            back = -update / scale
            for k in range(begin, end):
                j = np.uint64(k - begin if indices is None else indices[k])
                averages[j] += a * data[k] * back
            if count > 1.0:
                b /= 1.0 - 1.0 / count
            a += 1.0 / count * b * scale
            average_intercept += (intercept - average_intercept) / count

        if is_truncated:
            due += rule.l1_ratio * step_size * rule.alpha
            for k in range(begin, end):
                j = np.uint64(k - begin if indices is None else indices[k])
                before = vector[j]
                if before > 0.0:
                    vector[j] = max(0.0, before - (due + spent[j]) / scale)
                elif before < 0.0:
                    vector[j] = min(0.0, before + (due - spent[j]) / scale)
                spent[j] += scale * (vector[j] - before)
        steps += 1.0
    state[STEPS], state[STEP_SIZE], state[INTERCEPT] = steps, step_size, intercept
    state[AVERAGE_INTERCEPT], state[SCALE], state[A], state[B] = average_intercept, scale, a, b
    state[SQUARES], state[ABSOLUTE], state[L1_DUE] = squares, absolute, due
    state[OBJECTIVE] = objective
