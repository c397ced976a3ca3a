"""Two checkouts in turns: how much faster or slower each benchmark became.

``python -m benchmarks.in_turns ../before fused chains -- --quick`` runs each benchmark in the other
checkout and in this one, ``--times`` times over, and compares the medians of what both time: their
timings, and the times that their tables hold. Noise hits both alike; what is far from 1 in one run
and not in the next was noise all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Seconds of each unit that a table's name may begin with, as in "ms, NumPy"."""

Seconds = dict[str, list[float]]
"""Of one operation, by what was timed: the median of each run."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("benchmarks", nargs="+", help="modules of this folder, such as `fused`")
    parser.add_argument("--times", type=int, default=3, help="runs of each in each checkout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    own, options = _split(sys.argv[1:])
    given = parser.parse_args(own)
    found = {}
    for name in given.benchmarks:
        before, after = in_turns(given.other.resolve(), name, options, given.times)
        found[name] = {case: after[case] / before[case] for case in before if case in after}
        print(f"\n{name}: time here / time there, medians of {given.times}")
        for case, ratio in found[name].items():
            print(f"  {case:44} {ratio:6.3f}   {after[case] * 1e6:12.1f} us", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


def in_turns(
    other: Path, name: str, options: Sequence[str], times: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of an operation by case: in the ``other`` checkout, and in this one."""
    seconds: dict[Path, Seconds] = {other: {}, HERE: {}}
    for _ in range(times):
        for checkout, of in seconds.items():
            for case, value in _run(checkout, name, options).items():
                of.setdefault(case, []).append(value)
    before, after = (
        {case: statistics.median(values) for case, values in of.items()} for of in seconds.values()
    )
    return before, after


def _run(checkout: Path, name: str, options: Sequence[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file), *options],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        report = json.loads(file.read_text())
    timings = {
        timing["name"]: statistics.median(timing["seconds"]) / timing["operations"]
        for timing in report["timings"]
    }
    return timings | dict(cell for table in report["tables"] for cell in _times(table))


def _times(table: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Seconds by cell of a table that tells times, in the unit that its name begins with."""
    unit, _, name = table["name"].partition(", ")
    if unit not in UNITS:
        return
    for row, numbers in table["rows"].items():
        for column, number in zip(table["columns"], numbers, strict=True):
            if number is not None:
                yield f"{name}, {row}, {column}", number * UNITS[unit]


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is ours, and what stands behind ``--`` for the benchmarks."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:cut], arguments[cut + 1 :]


if __name__ == "__main__":
    main()
