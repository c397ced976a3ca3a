"""Run tests of other projects with the imports of our classes changed, and print the counts.

python -m tests.mllib                      # pyspark's own tests, as its package has them
python -m tests.mllib --sources spark      # those of a checkout of apache/spark
python -m tests.mllib --rapids folder      # also those of a checkout of spark-rapids-ml
python -m tests.mllib doctests test_ovr    # some parts
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.mllib.plugin import RESULT
from tests.mllib.sources import INSTALLED, TESTS, write_pyspark_tests, write_rapids_tests
from tests.quick_start import QUICK_START

ROOT = Path(__file__).parents[2]
_SECONDS = 3600
_KNOWN_CODES = (0, 1, 5)
"""Of pytest: all passed, some failed, no test was chosen."""
_CONFIGURATION = {
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "tests.spark.warm_daemon",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    QUICK_START[0]: QUICK_START[1],
}


class Part(NamedTuple):
    """Tests that run in one process."""

    name: str
    paths: tuple[str, ...]


def _parts() -> tuple[Part, ...]:
    files = "algorithms base classification clustering ovr param persistence pipeline regression"
    parts = [Part("doctests", ("test_doctests.py",)), Part("scripts", ("test_scripts.py",))]
    for name in [*files.split(), "training_summary", "tuning"]:
        parts.append(Part(f"test_{name}", (f"{TESTS}/test_{name}.py",)))
    parts.append(Part("tuning", (f"{TESTS}/tuning",)))
    for name in "classification clustering ovr pipeline regression tuning".split():
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
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "data").symlink_to(INSTALLED / "data" if sources is None else sources / "data")
    for name in ("doctests", "scripts"):
        (folder / f"test_{name}.py").write_text(f"from tests.mllib.{name} import *\n")
    write_pyspark_tests(sources, folder)
    if rapids is not None:
        write_rapids_tests(rapids, folder)


def run(part: Part, folder: Path, sources: Path | None) -> dict[str, int]:
    """The counts of one part; pytest's output goes to ``folder``, beside the tests."""
    result = folder / f"{part.name}.json"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_TESTING": "1",  # Spark Connect listens on a free port
        RESULT: str(result),
        **({} if sources is None else {"PYSPARK_SOURCES": str(sources)}),
    }
    options = "-p tests.mllib.plugin -p no:cacheprovider -c pytest.ini --rootdir . -ra -q"
    command = [sys.executable, "-m", "pytest", *options.split(), "--disable-warnings", *part.paths]
    with (folder / f"{part.name}.log").open("w") as log:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=_SECONDS
        )
    counts: dict[str, int] = json.loads(result.read_text()) if result.exists() else {}
    return counts if done.returncode in _KNOWN_CODES else {**counts, "error": 1}


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
    chosen = [one for one in known if not given.parts or one.name in given.parts]
    print("| part | tests | with our classes | passed | expected failures | skipped | failed |")
    print("|---|---|---|---|---|---|---|")
    failed = 0
    for part in chosen:
        counts = run(part, folder, sources)
        names = ("all", "chosen", "passed", "xfailed", "skipped")
        wrong = counts.get("failed", 0) + counts.get("error", 0)
        failed += wrong
        numbers = " | ".join(str(counts.get(name, 0)) for name in names)
        print(f"| {part.name} | {numbers} | {wrong} |", flush=True)
    if failed:
        print(f"the output of pytest is in {folder}/*.log", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
