"""Which cases of a sweep `make test` runs; `make long` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(first: Iterable[Any], second: Iterable[Any], every: int) -> list[Any]:
    """All pairs for ``parametrize``; those off each ``every``-th diagonal are long.

    Ordinary runs take each value of one side at least once, if the other has ``every`` values.
    """
    seconds = list(second)
    return [
        pytest.param(one, other, marks=() if (i + j) % every == 0 else pytest.mark.long)
        for i, one in enumerate(first)
        for j, other in enumerate(seconds)
    ]


def marked(cases: Iterable[Any], long: Iterable[Any]) -> list[Any]:
    """The cases for ``parametrize``, with those in ``long`` marked so."""
    rest = list(long)
    return [
        pytest.param(
            *(case if type(case) is tuple else (case,)),
            marks=pytest.mark.long if case in rest else (),
        )
        for case in cases
    ]
