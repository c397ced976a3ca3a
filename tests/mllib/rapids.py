"""Stands in for the conftest of spark-rapids-ml's tests, and for packages that need a GPU.

The tests run MLlib's classes, which are ours here, beside those of spark-rapids-ml. Its own
classes are placeholders, and the tests with them are left out.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import tempfile
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

__all__ = (
    "_default_conf",
    "_spark",
    "get_spark_i_know_what_i_am_doing",
    "gpu_number",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "tmp_path",
)

_PACKAGES = ("cudf", "cuml", "cupy", "cupyx", "gen_data_distributed", "spark_rapids_ml")

_default_conf: dict[str, str] = {}
"""The tests set these in each session."""


class _Placeholder(ModuleType):
    """A module that has a class of each name."""

    __version__ = "99"
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__module__": self.__name__})
        found = _FUNCTIONS.get(name, made)
        setattr(self, name, found)
        return found


def _set_columns(stage: Any, features: str, label: str) -> None:
    set_features = getattr(stage, "setFeaturesCol", None) or stage.setInputCol
    set_features(features)
    if stage.hasParam("labelCol"):
        stage.setLabelCol(label)


_FUNCTIONS: dict[str, Any] = {
    "dtype_to_pyspark_type": lambda dtype: {"float32": "float", "float64": "double"}[str(dtype)],
    "getInputOrFeaturesCols": lambda stage: stage.getOrDefault(
        "featuresCol" if stage.hasParam("featuresCol") else "inputCol"
    ),
    "setInputOrFeaturesCol": _set_columns,
}
"""Of ``spark_rapids_ml``, those that tests of MLlib's classes call, too."""


class _Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """A placeholder of the packages that need a GPU."""
        if name.partition(".")[0] in _PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The placeholder."""
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It is complete."""


sys.meta_path.append(_Placeholders())
_spark = SparkSession.builder.master("local[2]").getOrCreate()


def get_spark_i_know_what_i_am_doing() -> SparkSession:
    """The session of all tests."""
    return _spark


@pytest.fixture
def gpu_number() -> int:
    """As many as the session has slots."""
    return 2


@pytest.fixture
def tmp_path() -> Iterator[str]:
    """A folder as text."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def pytest_configure(config: pytest.Config) -> None:
    """The marks of the tests."""
    for name in ("compat", "slow"):
        config.addinivalue_line("markers", name)


def _is_of_mllib(item: Any) -> bool:
    """Whether a test has classes of ours, in the place of MLlib's, and none that need a GPU."""
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    flat = [one for value in given for one in (value if isinstance(value, tuple) else (value,))]
    classes = [one for one in flat if isinstance(one, type)]
    packages = {one.__module__.partition(".")[0] for one in classes}
    return "distvec" in packages and not packages & set(_PACKAGES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Choose the tests of MLlib's classes that are marked ``compat`` or named so."""
    kept = [
        one
        for one in items
        if _is_of_mllib(one) and (one.get_closest_marker("compat") or "compat" in one.name)
    ]
    config.hook.pytest_deselected(items=[one for one in items if one not in kept])
    items[:] = kept
