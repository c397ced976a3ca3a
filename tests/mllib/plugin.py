"""For pytest: leaves out tests without our classes, and reads the list of expected failures."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.mllib.sources import TESTS

LIST = Path(__file__).with_name("expected_failures.txt")
RESULT = "DISTVEC_MLLIB_RESULT"
"""The environment variable with the file that the counts are written to."""

_counts: Counter[str] = Counter()


def expected_failures() -> dict[str, str]:
    """The reasons by test: comments of the list hold for the tests below them."""
    found, reason, is_new = {}, "", True
    for line in LIST.read_text().splitlines():
        if line.startswith("#"):
            text = line.removeprefix("#").strip()
            reason, is_new = text if is_new else f"{reason} {text}", False
        elif line:
            found[line], is_new = reason, True
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)


def is_of_pyspark(item: Any) -> bool:
    """Whether a test is one of pyspark's, many of which need none of our classes."""
    return bool(item.module.__name__.partition(".")[0] == TESTS)


def _module(value: Any) -> str:
    return getattr(value, "__module__", None) or ""


def _has_code(value: Any) -> bool:
    return hasattr(value, "__code__")


def has_our_classes(item: Any) -> bool:
    """Whether a test uses our classes, also through methods of its class and functions."""
    left, seen = [item.function], set()
    while left:
        function = left.pop()
        if function in seen:
            continue
        seen.add(function)
        for name in _names(function.__code__):
            value = function.__globals__.get(name)
            if _module(value).startswith("distvec."):
                return True
            others = (value, getattr(item.cls, name, None))
            left += [one for one in others if _module(one).startswith(TESTS) and _has_code(one)]
    return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Choose tests, and mark those that are expected to fail."""
    reasons = expected_failures()
    _counts["all"] = len(items)
    chosen = [one for one in items if not is_of_pyspark(one) or has_our_classes(one)]
    config.hook.pytest_deselected(items=[one for one in items if one not in chosen])
    items[:] = chosen
    _counts["chosen"] = len(items)
    for one in items:
        if one.nodeid in reasons:
            one.add_marker(pytest.mark.xfail(reason=reasons[one.nodeid], strict=True))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count outcomes."""
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        kind = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        _counts[kind] += 1


def pytest_sessionfinish() -> None:
    """Write the counts."""
    if RESULT in os.environ:
        Path(os.environ[RESULT]).write_text(json.dumps(_counts))
