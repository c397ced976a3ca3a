"""How far it is from ``float(z @ x)`` to its value: Python calls made, and files they are in."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import distvec as dv
from tests.architecture.imports import ROOT

_OURS = tuple(f"{ROOT / package}/" for package in ("distvec", "ps_backend"))
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>")
"""Calls no more from Python 3.12 on."""


def test_the_way_is_short() -> None:
    """Warm, client and server in this process, with an array that comes along."""
    with dv.local(servers=2, in_process=True) as ps:
        x, y = ps.array(np.arange(1000.0)), ps.array(np.ones(1000))

        def value() -> float:
            z = 2 * x + y
            return float(z @ x)

        check(value, most_calls=265, most_files=39)


def test_the_way_is_shorter_where_there_is_nothing_to_rewrite() -> None:
    """And where all that a server computes has been verified before."""
    with dv.local(servers=2, in_process=True) as ps:
        x, y = ps.array(np.arange(1000.0)), ps.array(np.ones(1000))

        def value() -> float:
            return float(abs(x - y).max())

        check(value, most_calls=175, most_files=38)


def test_the_way_of_what_is_written_is_short(tmp_path: Path) -> None:
    """A push, a step of the rows of some keys, and a save, which also evaluates ``2 * x``."""
    with dv.local(servers=2, in_process=True) as ps:
        x, table = ps.array(np.arange(1000.0)), ps.keys().table(4)
        table.optimizer(dv.rows.adagrad(0.1))
        keys, gradients = np.arange(10), np.ones((10, 4), np.float32)
        check(lambda: x.push([1, 5, 700], np.ones(3)), most_calls=177, most_files=32)
        check(lambda: table.step(keys, gradients), most_calls=465, most_files=45)
        check(lambda: dv.save(tmp_path / "w.npy", w=2 * x), most_calls=350, most_files=46)


def check(value: Callable[[], object], *, most_calls: int, most_files: int) -> None:
    """Fail if a call of ``value``, which is no longer new, goes a longer way."""
    gc.collect()  # what it finds is freed along with the next request
    for _ in range(10):
        value()
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_OURS):
            calls[code.co_filename[len(str(ROOT)) + 1 :]] += code.co_name not in _INLINE

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(count)
    try:
        value()
    finally:
        sys.setprofile(before)
        gc.enable()
    files = "\n".join(f"{number:4} {file}" for file, number in calls.most_common())
    assert calls.total() <= most_calls, f"{calls.total()} calls:\n{files}"
    assert len(calls) <= most_files, f"{len(calls)} files:\n{files}"
