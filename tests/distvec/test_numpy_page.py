"""docs/reference/numpy.md says what is so: its examples run here."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pytest

from docs import make_numpy
from docs.make_numpy import PARTLY, WORKS
from docs.numpy_examples.no_array import no_arrays
from docs.numpy_examples.trial import Trial, difference

Tried = dict[str, list[Trial]]

TELLS = re.compile(
    r"\b(copy|pass|write|pull|put|take|give|use|call|cast|convert|compare|say|leave|index|evaluate)\b",
    re.I,
)
ASKED_FOR = {"x.tolist()", "np.broadcast_to(x, (3, 2000))"}
"""What brings all elements to the client, and the page says so."""


@pytest.fixture(scope="module")
def tried() -> Tried:
    return make_numpy.trials()


@pytest.fixture(scope="module")
def refused() -> Tried:
    return make_numpy.refusals()


def test_the_page_is_up_to_date(tried: Tried, refused: Tried):
    written = make_numpy.PAGE.read_text() == make_numpy.page(tried, refused)
    assert written, "run python -m docs.make_numpy"


def test_each_public_name_of_numpy_is_there_once(tried: Tried):
    without = [name for names in no_arrays().values() for name in names]
    listed = sorted([*tried, *without])
    public = (f"{prefix}{name}" for _, prefix, names in make_numpy.tables() for name in names)
    assert listed == sorted(public)


def test_nothing_differs_from_numpy(tried: Tried):
    wrong = [(one.text, one.wrong) for trials in tried.values() for one in trials if one.wrong]
    assert not wrong


def test_nothing_brings_a_vector_here_silently(tried: Tried):
    silent = [
        one.text
        for trials in tried.values()
        for one in trials
        if one.pulls and not one.counted and one.text not in ASKED_FOR
    ]
    assert not silent


def test_each_refusal_says_what_to_type(tried: Tried):
    assert not unclear(one for trials in tried.values() for one in trials)


def test_what_is_refused_by_kind_is_refused_and_says_what_to_type(refused: Tried):
    shown = [one for trials in refused.values() for one in trials]
    assert not [one.text for one in shown if not one.refusal or one.by_numpy]
    assert not unclear(shown)


def unclear(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    """Refusals that do not say what to type, where NumPy has a result."""
    refused = [one for one in trials if one.refusal and not one.by_numpy]
    return [(one.text, one.refusal) for one in refused if not TELLS.search(one.refusal)]


def test_at_least_so_many_names_work(tried: Tried):
    working = [
        name for name, trials in tried.items() if make_numpy.status(trials) in (WORKS, PARTLY)
    ]
    assert len(working) >= 400


def test_a_result_that_differs_would_be_found(ps):
    assert difference(ps.array([1.0, 2.0]), np.array([1.0, 2.0])) == ""
    assert difference(ps.array([1.0, 2.0]), np.array([1.0, 3.0])) == "other values"
