"""Run tests of other projects with our classes in the place of theirs, and print the counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.suites.plugin import LIST, PACKAGE, RESULT

ROOT = Path(__file__).parents[2]
_SECONDS = 3600
_KNOWN_CODES = (0, 1, 5)
"""Of pytest: all passed, some failed, no test was chosen."""


class Part(NamedTuple):
    """Tests that run in one process."""

    name: str
    paths: tuple[str, ...]


class Suite(NamedTuple):
    """The tests of a project: their package, where they are, and the list of expected failures."""

    package: str
    root: Path
    expected: Path
    plugins: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


def run(part: Part, suite: Suite, folder: Path) -> dict[str, int]:
    """The counts of one part; pytest's output goes to ``folder``."""
    result = folder / f"{part.name}.json"
    result.unlink(missing_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        RESULT: str(result),
        LIST: str(suite.expected),
        PACKAGE: suite.package,
        **suite.environment,
    }
    plugins = [word for one in (*suite.plugins, "tests.suites.plugin") for word in ("-p", one)]
    options = f"-p no:cacheprovider -c {folder}/pytest.ini --rootdir {suite.root} -ra -q"
    command = [sys.executable, "-m", "pytest", *plugins, *options.split(), "--disable-warnings"]
    with (folder / f"{part.name}.log").open("w") as log:
        done = subprocess.run(
            [*command, *(str(suite.root / one) for one in part.paths)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            timeout=_SECONDS,
        )
    counts: dict[str, int] = json.loads(result.read_text()) if result.exists() else {}
    return counts if done.returncode in _KNOWN_CODES else {**counts, "error": 1}


def run_all(known: Iterable[Part], names: Sequence[str], suite: Suite, folder: Path) -> int:
    """Print a row for each part, all by default; 1 if a test did not do as expected."""
    print("| part | tests | with our classes | passed | expected failures | skipped | failed |")
    print("|---|---|---|---|---|---|---|")
    failed = 0
    for part in [one for one in known if not names or one.name in names]:
        counts = run(part, suite, folder)
        kinds = ("all", "chosen", "passed", "xfailed", "skipped")
        wrong = counts.get("failed", 0) + counts.get("error", 0)
        failed += wrong
        numbers = " | ".join(str(counts.get(kind, 0)) for kind in kinds)
        print(f"| {part.name} | {numbers} | {wrong} |", flush=True)
    if failed:
        print(f"the output of pytest is in {folder}/*.log", file=sys.stderr)
    return int(failed > 0)
