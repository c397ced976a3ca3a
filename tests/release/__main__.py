"""Test the wheel, from an environment without the repository.

``python -m tests.release dist`` installs the wheel of the folder ``dist`` into an empty environment
with the versions of ``constraints.txt``, and runs tests of the sdist. With ``--oldest`` packages
that distvec needs have the oldest versions that ``pyproject.toml`` allows.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("distvec", "optim", "ps_backend")
TESTS = ("tests/distvec/array", "tests/optim", "tests/ps_backend/program", "tests/release")

NUMPY_DIFFERS = (
    "collectives/test_counting.py::test_bincount_of_the_widest_integers",
    "collectives/test_quantile.py::test_errors_as_numpy",
    "collectives/test_quantile.py::test_tables",
    "collectives/test_quantile.py::test_vectors",
    "collectives/test_quantile.py::test_weights_into_out",
    "dispatch/test_array_api.py::test_scipy_takes_our_arrays_for_an_array_api",
    "dispatch/test_numpy_edges.py::test_same_as_numpy[largest norm of nothing]",
    "dispatch/test_numpy_edges.py::test_tables_and_numbers_as_numpys[percentile over a list",
    "dispatch/test_small_functions.py::test_each_of_a_table[of few]",
    "dispatch/test_small_functions.py::test_each_of_a_table[size of both]",
    "dispatch/test_small_functions.py::test_each_of_a_vector[size of both]",
    "dispatch/test_small_functions.py::test_of_either",
    "dispatch/test_small_functions.py::test_of_tables",
)
"""Beginnings of the names of tests of arrays that compare with NumPy, whose oldest version raises
other errors or knows fewer dtypes, or with SciPy, which takes fewer arrays there."""


def main() -> None:
    """Install, and run the tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("dist", type=Path, help="the folder of the wheel and the sdist")
    parser.add_argument("--oldest", action="store_true")
    parser.add_argument("tests", nargs="*", default=TESTS)
    options = parser.parse_args()
    (wheel,), (sdist,) = (sorted(options.dist.glob(f"*.{end}")) for end in ("whl", "tar.gz"))
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (tree,) = Path(folder).iterdir()
        for package in PACKAGES:  # or these would be tested
            shutil.rmtree(tree / package)
        python = make_environment(Path(folder, "venv"), wheel, tree, oldest=options.oldest)
        where = run(python, "-c", "import distvec; print(distvec.__file__)", cwd=folder)
        assert where.startswith(str(python.parents[1])), where
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not spark and not long"]
        if options.oldest:
            command += [f"--deselect=tests/distvec/array/{one}" for one in NUMPY_DIFFERS]
        run(python, *command, *options.tests, cwd=tree, shows=True)


def make_environment(folder: Path, wheel: Path, tree: Path, *, oldest: bool) -> Path:
    """An environment with the wheel and the packages of its tests; the path of its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    limits = ["--constraint", str(tree / "constraints.txt")]
    if oldest:
        project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
        limits = oldest_versions(project)
    run(python, "-m", "pip", "install", "--quiet", f"{wheel.resolve()}[plot,test]", *limits)
    return python


def oldest_versions(project: dict[str, Any]) -> list[str]:
    """The oldest version of each package that distvec needs, as pip takes it."""
    found = (re.match(r"([\w-]+)\s*>=\s*([\w.]+)", one) for one in project["dependencies"])
    return [f"{one[1]}=={one[2]}" for one in found if one]


def run(python: Path, *arguments: str, cwd: Any = None, shows: bool = False) -> str:
    """Run it, and return its output unless that is shown."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, *arguments],
        cwd=cwd,
        env=environment,
        stdout=None if shows else subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:4])} ended with {done.returncode}")
    return done.stdout or ""


if __name__ == "__main__":
    main()
