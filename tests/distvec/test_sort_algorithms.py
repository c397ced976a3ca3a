"""Algorithms of sorts, as a user would type them: NumPy's results, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distvec as dv

N = 5000
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, N)
SCORES = np.round(LABELS + RNG.standard_normal(N), 1)  # with many ties
TABLE = RNG.standard_normal((N, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 1.0]
HEAVY = RNG.standard_t(2, N)


def area_under_curve(scores: Any, labels: Any) -> Any:
    """That a positive scores more than a negative, by their ranks: of equal scores the mean one.

    Source: J. A. Hanley and B. J. McNeil, Radiology 143 (1982).
    """
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    positives = np.sum(labels)
    negatives = len(labels) - positives
    surplus = np.sum(ranks[group] * labels) - positives * (positives + 1) / 2
    return surplus / (positives * negatives)


def quantile_normalised(table: Any) -> Any:
    """Columns with the same distribution: the mean of theirs.

    Source: B. M. Bolstad et al., Bioinformatics 19 (2003).
    """
    mean = np.mean(np.sort(table, axis=0), axis=1)
    ranks = np.argsort(np.argsort(table, axis=0), axis=0)
    return np.column_stack([mean[ranks[:, column]] for column in range(table.shape[1])])


def median_absolute_deviation(x: Any) -> Any:
    return np.median(abs(x - np.median(x)))


def trimmed_mean(x: Any, fraction: float) -> Any:
    cuts = np.quantile(x, [fraction, 1 - fraction])
    return x[(x >= cuts[0]) & (x <= cuts[1])].mean()


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_as_on_numpy(sessions: dict[int, dv.Session], servers: int) -> None:
    ps = sessions[servers]
    scores, labels, heavy = ps.array(SCORES), ps.array(LABELS), ps.array(HEAVY)
    assert float(area_under_curve(scores, labels)) == area_under_curve(SCORES, LABELS)
    pairs = SCORES[LABELS == 1][:, None] - SCORES[LABELS == 0]
    by_pairs = np.mean((pairs > 0) + 0.5 * (pairs == 0))
    assert float(area_under_curve(scores, labels)) == pytest.approx(by_pairs)
    found = quantile_normalised(ps.array(TABLE)).numpy()
    np.testing.assert_allclose(found, quantile_normalised(TABLE), rtol=1e-14)
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(found, axis=0)[:, :1] * np.ones(3))
    assert float(median_absolute_deviation(heavy)) == median_absolute_deviation(HEAVY)
    assert float(trimmed_mean(heavy, 0.1)) == pytest.approx(trimmed_mean(HEAVY, 0.1), rel=1e-13)


def test_what_they_cost(ps: dv.Session) -> None:
    heavy, table = ps.array(HEAVY), ps.array(TABLE)
    ps.counters.reset()
    float(median_absolute_deviation(heavy))
    assert ps.counters.messages_per_server == [4, 4]
    ps.counters.reset()
    float(trimmed_mean(heavy, 0.1))
    assert ps.counters.messages_per_server == [3, 3]
    ps.counters.reset()
    quantile_normalised(table).persist()
    assert ps.counters.messages_per_server[0] <= 6
