"""Tests of other projects, written to a folder with the imports of our classes changed."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pyspark

MODULES = ("classification", "clustering", "feature", "recommendation", "regression", "tuning")
"""Of ``pyspark.ml``, those that ``distvec.spark.ml`` has as well."""

INSTALLED = Path(pyspark.__file__).parent
TESTS = "pyspark_ml_tests"
"""The package that takes the place of ``pyspark.ml.tests``."""


def ours(module: str, name: str) -> bool:
    """Whether our module has a class of that name."""
    found = getattr(import_module(f"distvec.spark.ml.{module}"), name, None)
    return getattr(found, "__module__", "").startswith("distvec.")


def change_imports(code: str) -> str:
    """``code`` that imports our classes where there are any, and is the same otherwise."""
    lines = code.split("\n")
    found = [one for one in ast.walk(ast.parse(code)) if isinstance(one, ast.ImportFrom)]
    for node in sorted(found, key=lambda one: -one.lineno):
        module = (node.module or "").removeprefix("pyspark.ml.")
        if node.level or module not in MODULES or node.module == module:
            continue
        changed = [one for one in node.names if ours(module, one.name)]
        if not changed:
            continue
        left = [one for one in node.names if one not in changed]
        both = [(node.module, left), (f"distvec.spark.ml.{module}", changed)]
        statements = [ast.unparse(ast.ImportFrom(*one, 0)) for one in both if one[1]]
        # On one line, as an example in a docstring is one statement, or several on its line.
        indent = lines[node.lineno - 1][: node.col_offset]
        lines[node.lineno - 1 : node.end_lineno] = [indent + "; ".join(statements)]
    return "\n".join(lines)


def write_pyspark_tests(sources: Path | None, folder: Path) -> None:
    """Write pyspark's tests of ``pyspark.ml``, of a checkout or of the installed package."""
    for name, code in _pyspark_tests(sources):
        path = folder / TESTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change_imports(code.replace("pyspark.ml.tests", TESTS)))


def _pyspark_tests(sources: Path | None) -> Iterator[tuple[str, str]]:
    if sources is not None:
        root = sources / "python/pyspark/ml/tests"
        for path in root.rglob("*.py"):
            yield str(path.relative_to(root)), path.read_text()
        return
    prefix = "pyspark/ml/tests/"
    with zipfile.ZipFile(INSTALLED / "python/lib/pyspark.zip") as archive:
        for name in archive.namelist():
            if name.startswith(prefix) and name.endswith(".py"):
                yield name.removeprefix(prefix), archive.read(name).decode()


def write_rapids_tests(sources: Path, folder: Path) -> None:
    """Write the tests of spark-rapids-ml; they need ``tests.mllib.rapids``."""
    package = folder / "rapids_tests"
    package.mkdir(parents=True, exist_ok=True)
    for path in (sources / "python/tests").glob("*.py"):
        if path.name != "conftest.py":
            (package / path.name).write_text(change_imports(path.read_text()))
    (package / "conftest.py").write_text("from tests.mllib.rapids import *\n")
