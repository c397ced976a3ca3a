"""For pytest: leaves out tests without our classes, and reads the list of expected failures."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

RESULT = "DISTVEC_SUITE_RESULT"
LIST = "DISTVEC_SUITE_LIST"
PACKAGE = "DISTVEC_SUITE_PACKAGE"
"""Environment variables: the file that the counts are written to, the list of expected failures,
and the package of tests that are left out if they have no class of ours."""

_counts: Counter[str] = Counter()
_reasons: dict[str, str] = {}


def expected_failures(path: Path) -> dict[str, str]:
    """The reasons by test: comments of the list hold for the tests below them.

    ``*`` in the name of a test stands for any text, and a name without brackets for all cases.
    """
    found, reason, is_new = {}, "", True
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            text = line.removeprefix("#").strip()
            reason, is_new = text if is_new else f"{reason} {text}", False
            continue
        is_new = True
        if line:
            found[line] = reason
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)


def _module(value: Any) -> str:
    return getattr(value, "__module__", None) or ""


def _is_ours(value: Any) -> bool:
    """Whether a value is a class of ours, of a base of ours, an object of it, or contains one."""
    if isinstance(value, (tuple, list)):
        return any(map(_is_ours, value))
    classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
    return any(_module(one).startswith("distvec.") for one in (value, *classes))


def _is_test_code(value: Any) -> bool:
    return hasattr(value, "__code__") and _module(value).rpartition(".")[2].startswith("test_")


def has_our_classes(item: Any) -> bool:
    """Whether a test uses our classes, also as parameters, or through methods and functions."""
    parameters = list(getattr(getattr(item, "callspec", None), "params", {}).values())
    if _is_ours(parameters):
        return True
    left, seen = [item.function, *filter(_is_test_code, parameters)], set()
    while left:
        function = left.pop()
        if function in seen:
            continue
        seen.add(function)
        names = list(_names(function.__code__))
        values = [function.__globals__.get(name) for name in names]
        modules = [one for one in values if isinstance(one, ModuleType)]
        values += [getattr(one, name, None) for one in modules for name in names]
        if any(map(_is_ours, values)):
            return True
        methods = [getattr(item.cls, name, None) for name in names]
        left += [one for one in values + methods if _is_test_code(one)]
    return False


def _chosen(items: Iterable[Any]) -> list[Any]:
    package = os.environ[PACKAGE]
    return [
        one
        for one in items
        if one.module.__name__.partition(".")[0] != package or has_our_classes(one)
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Choose tests, and mark those that are expected to fail."""
    _reasons.update(expected_failures(Path(os.environ[LIST])))
    _counts["all"] = len(items)
    chosen = _chosen(items)
    config.hook.pytest_deselected(items=[one for one in items if one not in chosen])
    items[:] = chosen
    _counts["chosen"] = len(items)
    for one in items:
        names = (one.nodeid, one.nodeid.partition("[")[0])
        for pattern, reason in _reasons.items():
            if any(fnmatchcase(name, pattern.replace("[", "[[]")) for name in names):
                one.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count outcomes; a failure that the other project expects of its class counts as skipped."""
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        is_listed = getattr(report, "wasxfail", None) in _reasons.values()
        _counts["xfailed" if is_listed else report.outcome] += 1


def pytest_sessionfinish() -> None:
    """Write the counts."""
    if RESULT in os.environ:
        Path(os.environ[RESULT]).write_text(json.dumps(_counts))
