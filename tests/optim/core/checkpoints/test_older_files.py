"""Files that earlier versions wrote, whose classes have moved since: runs go on from them.

The files of ``kept/`` name each class by its module at the time ("optim.core.state:State"), and
were broken off in the middle of a run. They are never written again.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import optim
from optim.core.arrays import Array
from optim.core.checkpoints.keeper import read
from tests.optim.core.checkpoints.test_every_solver import same_results
from tests.optim.registry import START, Case, cases, ill_conditioned

KEPT = Path(__file__).with_name("kept")
# Of solvers that were there at the time; of two cases of one name the last one.
KNOWN = {str(case): case for case in cases() if (KEPT / f"{case}.npz").exists()}


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(module.name)


def test_each_file_is_of_a_case() -> None:
    assert sorted(KNOWN) == sorted(path.stem for path in KEPT.iterdir())


@pytest.mark.parametrize("case", KNOWN.values(), ids=str)
def test_a_run_goes_on_from_it(case: Case, tmp_path: Path) -> None:
    file = shutil.copy(KEPT / f"{case}.npz", tmp_path / "ckpt-00012.npz")
    kept, document = read(file)
    seen: list[int] = []
    resumed = case.make().minimize(
        ill_conditioned,
        START,
        checkpoint=tmp_path,
        resume=True,
        callback=lambda state: seen.append(state.iteration),
    )
    at = document["last"]["fields"]["iteration"]
    assert seen and seen[0] == at + 1 > 1
    whole = case.make().minimize(ill_conditioned, START)
    case.make(max_iterations=at).minimize(ill_conditioned, START, checkpoint=tmp_path / "again")
    again = read(max((tmp_path / "again").glob("ckpt-*")))
    if bits(*again) == bits(kept, document):
        same_results(resumed, whole)
    else:  # the file's processor has another BLAS, which adds in another order
        assert resumed.outcome is whole.outcome
        np.testing.assert_allclose(resumed.x, whole.x, rtol=1e-4, atol=1e-6)


def bits(arrays: Mapping[str, Array], document: Mapping[str, Any]) -> list[Any]:
    """The numbers of the last state in a file, without its times."""
    vectors = [arrays[name].tobytes() for name in sorted(arrays) if name.startswith("last.")]
    return [*vectors, *numbers(document["last"]["fields"])]


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for key in sorted(value.keys() - {"seconds"}):
            yield from numbers(value[key])
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float):
        yield value


def test_files_name_classes_by_their_public_name(tmp_path: Path) -> None:
    case = KNOWN["LBFGS"]
    case.make(max_iterations=3).minimize(ill_conditioned, START, checkpoint=tmp_path)
    _, document = read(sorted(tmp_path.glob("ckpt-*"))[-1])
    assert document["last"]["object"] == "optim.State"
    assert document["last"]["fields"]["memory"]["object"] == "optim.CurvatureMemory"


def test_a_name_belongs_to_one_class() -> None:
    """Else a file could not tell which of two it means."""
    names = [
        cls.__qualname__
        for module in modules_of(optim)
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__
    ]
    assert sorted(names) == sorted(set(names))
