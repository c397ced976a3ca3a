"""Run tests of other projects with the imports of our classes changed, and print the counts.

python -m tests.mllib                      # pyspark's own tests, as its package has them
python -m tests.mllib --sources spark      # those of a checkout of apache/spark
python -m tests.mllib --rapids folder      # also those of a checkout of spark-rapids-ml
python -m tests.mllib doctests test_ovr    # some parts
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tests.mllib.sources import INSTALLED, TESTS, write_pyspark_tests, write_rapids_tests
from tests.quick_start import QUICK_START
from tests.suites.runner import ROOT, Part, Suite, run_all

_EXPECTED = Path(__file__).with_name("expected_failures.txt")
_CONFIGURATION = {
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "tests.spark.warm_daemon",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    QUICK_START[0]: QUICK_START[1],
}


def _parts() -> tuple[Part, ...]:
    files = "algorithms als base classification clustering feature ovr param persistence pipeline"
    parts = [Part("doctests", ("test_doctests.py",)), Part("scripts", ("test_scripts.py",))]
    for name in [*files.split(), "regression", "training_summary", "tuning"]:
        parts.append(Part(f"test_{name}", (f"{TESTS}/test_{name}.py",)))
    parts.append(Part("tuning", (f"{TESTS}/tuning",)))
    for name in "als classification clustering feature ovr pipeline regression tuning".split():
        parts.append(Part(f"connect_{name}", (f"{TESTS}/connect/test_parity_{name}.py",)))
    return tuple(parts)


_RAPIDS = Part(
    "rapids",
    tuple(
        f"rapids_tests/test_{name}.py"
        for name in ("kmeans", "linear_model", "logistic_regression", "pipeline")
    ),
)


def write(folder: Path, sources: Path | None, rapids: Path | None) -> None:
    """Write all tests to ``folder``, which is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "conf").mkdir(parents=True)
    lines = (f"{name} {value}\n" for name, value in _CONFIGURATION.items())
    (folder / "conf/spark-defaults.conf").write_text("".join(lines))
    (folder / "data").symlink_to(INSTALLED / "data" if sources is None else sources / "data")
    for name in ("doctests", "scripts"):
        (folder / f"test_{name}.py").write_text(f"from tests.mllib.{name} import *\n")
    write_pyspark_tests(sources, folder)
    if rapids is not None:
        write_rapids_tests(rapids, folder)


def main() -> int:
    """Print one line for each part; the exit code tells whether all tests did as expected."""
    parser = argparse.ArgumentParser(description="Run pyspark's tests with our classes.")
    parser.add_argument("parts", nargs="*", help="names of parts; all by default")
    parser.add_argument("--sources", type=Path, help="a checkout of apache/spark")
    parser.add_argument("--rapids", type=Path, help="a checkout of NVIDIA/spark-rapids-ml")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/mllib")
    given = parser.parse_args()
    folder = given.folder.resolve()
    sources = given.sources and given.sources.resolve()
    write(folder, sources, given.rapids)
    known = [*_parts(), *([_RAPIDS] if given.rapids else [])]
    environment = {
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_TESTING": "1",  # Spark Connect listens on a free port
        **({} if sources is None else {"PYSPARK_SOURCES": str(sources)}),
    }
    suite = Suite(TESTS, folder, _EXPECTED, environment=environment)
    return run_all(known, given.parts, suite, folder)


if __name__ == "__main__":
    sys.exit(main())
