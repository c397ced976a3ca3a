"""The code of docs/how-to/test_your_algorithm.md runs, and its tests find their bug."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "test_your_algorithm.md"
PROTOTYPE, PROPERTY, REPAIRED, *REST = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)


def run(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, str(GUIDE), "exec"), names)


def test_the_property_finds_the_bug_and_its_repair() -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    run(PROTOTYPE, names)
    run(PROPERTY, names)
    quartic = names["PROBLEMS"][1]
    assert quartic.name == "quartic"
    best, value = names["descend"](quartic.fun, np.zeros(5), 1e-4)
    assert quartic.fun(best)[0] == value, "the example that does not find it"
    with pytest.raises(AssertionError):
        names["test_the_best_point_has_the_best_value"]()
    run(REPAIRED, names)
    names["test_the_best_point_has_the_best_value"]()


def test_the_rest_of_the_guide_passes() -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    for code in (PROTOTYPE, PROPERTY, REPAIRED, *REST):
        run(code, names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 5
    for test in tests:
        test()
