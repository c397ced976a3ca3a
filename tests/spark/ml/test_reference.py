"""The data sets of shared/data: beside MLlib's fits, and beside the known optima."""

from __future__ import annotations

import logging

import pytest

from tests.optim.reference_data import DATA, read_json
from tests.spark.ml import reference_fits
from tests.spark.ml.reference_fits import KINDS, TASKS, compare, gap, known, labels_of

LOG = logging.getLogger(__name__)

CHEAP = {
    ("heart_scale", "net"),
    ("heart_scale", ("logistic_l2", 0.01)),
    ("heart_scale", ("logistic_l1", 0.001)),
    ("spark_linreg", "rows net"),
    ("spark_linreg", ("lasso", 0.01)),
}
"""Those that ordinary runs take; ``make long`` takes all."""

COEFFICIENTS = 1e-4
"""The largest difference that is allowed, and of values of the objective the next one."""
VALUES = 1e-8
ABOVE = 1e-10
"""So much above our value MLlib's fit is not the minimum: its solver stopped early."""


def task_of(name):
    """Of a set: binary, multiclass or regression."""
    return read_json("datasets.json")[name]["task"]


def sets():
    """The names of the sets, the smallest first."""
    about = read_json("datasets.json") if DATA.exists() else {}
    return sorted(
        (name for name, one in about.items() if one["task"] in TASKS),
        key=lambda name: about[name]["parts"]["train"]["nnz"],
    )


def cases(entries_of):
    """Pairs of a set and an entry of it."""
    return [
        pytest.param(name, entry, marks=() if (name, entry) in CHEAP else pytest.mark.long)
        for name in sets()
        for entry in entries_of(name)
    ]


@pytest.fixture(scope="module")
def read(spark):
    """``read(name, labels)``, which keeps the last set."""
    kept = {}

    def of(name, labels):
        if (name, labels) not in kept:
            for one in kept.values():
                one.frame.unpersist()
            kept.clear()
            kept[name, labels] = reference_fits.read(spark, name, labels)
        return kept[name, labels]

    return of


@pytest.mark.parametrize(("name", "fit"), cases(lambda name: TASKS[task_of(name)]))
def test_fits_are_those_of_mllib(ps, read, name, fit):
    kind, params = TASKS[task_of(name)][fit]
    found = compare(read(name, labels_of(task_of(name), fit)), kind, params)
    LOG.info("%s, %s: %s, excess %.1e", name, fit, found, found.excess)
    assert found.excess <= VALUES
    if found.excess > -ABOVE:
        assert found.most <= COEFFICIENTS


@pytest.mark.parametrize(("name", "problem"), cases(lambda name: known(name)))
def test_known_optima_are_found(ps, read, name, problem):
    labels, allowed = KINDS[problem[0]]
    found = gap(read(name, labels), name, *problem)
    LOG.info("%s, %s: gap %.1e", name, problem, found)
    assert abs(found) <= allowed
