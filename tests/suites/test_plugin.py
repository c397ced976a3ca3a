"""The choice of other projects' tests, and the lists of expected failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distvec import sklearn
from distvec.sklearn import Lasso
from tests.suites.plugin import expected_failures, has_our_classes

LISTS = [
    Path(__file__).parents[1] / one / "expected_failures.txt" for one in ("mllib", "sklearn_suite")
]


def test_each_expected_failure_has_a_reason(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("# A title.\n\n# A reason,\n# long.\na::b\nc::d\n\n# Another.\ne::f\n")
    assert expected_failures(known) == {
        "a::b": "A reason, long.",
        "c::d": "A reason, long.",
        "e::f": "Another.",
    }
    assert all(all(expected_failures(one).values()) for one in LISTS)


class _Derived(Lasso):
    pass


def _by_name() -> object:
    return Lasso()


def _by_module() -> object:
    return sklearn.Ridge()


def _by_class() -> object:
    return _Derived()


def _by_function() -> object:
    return [_by_module() for _ in range(2)]


def _by_parameter(value: Any) -> object:
    return value


def _by_none() -> object:
    return Path()


@pytest.mark.parametrize(
    ("function", "parameters", "is_chosen"),
    [
        (_by_name, {}, True),
        (_by_module, {}, True),
        (_by_class, {}, True),
        (_by_function, {}, True),
        (_by_parameter, {"value": (1, Lasso())}, True),
        (_by_parameter, {"value": _by_name}, True),
        (_by_parameter, {"value": Path}, False),
        (_by_none, {}, False),
    ],
)
def test_tests_with_our_classes_are_chosen(
    function: Callable[..., object], parameters: dict[str, Any], is_chosen: bool
) -> None:
    item = SimpleNamespace(function=function, cls=None, callspec=SimpleNamespace(params=parameters))
    assert has_our_classes(item) is is_chosen
