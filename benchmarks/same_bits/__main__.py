"""The command line: writes the programs, has both checkouts run them, compares."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import benchmarks.same_bits
from benchmarks.same_bits.sources import Program, programs

_HERE = Path(__file__).parents[2]
_RUN = Path(__file__).with_name("run.py")

Outcome = dict[str, str]


def main() -> int:
    """0 if all results are alike."""
    parser = argparse.ArgumentParser(
        description=(benchmarks.same_bits.__doc__ or "").split("\n")[0]
    )
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--programs", type=int, default=300, help="how many (300)")
    parser.add_argument("--seed", type=int, default=1, help="of the programs (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    options = parser.parse_args()
    cases = list(programs(options.seed, options.programs))
    ours = list(outcomes(_HERE, cases))
    theirs = list(outcomes(options.other.resolve(), cases))
    different = []
    for case, here, there in zip(cases, ours, theirs, strict=True):
        alike = here == there
        print(f"{case.seed:4} {case.servers} {case.length:7,} {short(here)}", "" if alike else "!")
        if not alike:
            different.append((case, here, there))
    refused = sum("error" in here for here in ours)
    print(f"{len(cases)} runs, {len(different)} of them different; {refused} ended with an error")
    if different:
        print(described(*different[0]))
    if options.json is not None:
        rows = [
            asdict(case) | {"here": here, "there": there}
            for case, here, there in zip(cases, ours, theirs, strict=True)
        ]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if different else 0


def outcomes(checkout: Path, cases: Sequence[Program]) -> Iterator[Outcome]:
    """What the code of ``checkout`` makes of each, by a process of its own."""
    sent = "".join(json.dumps(asdict(case)) + "\n" for case in cases)
    run = subprocess.run(
        [sys.executable, "-P", str(_RUN)],
        input=sent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
    )
    yield from map(json.loads, run.stdout.splitlines())


def short(outcome: Outcome) -> str:
    """A digest of all results, or the error."""
    if "error" in outcome:
        return outcome["error"].split("\n")[0][:80]
    text = json.dumps(outcome, sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]} of {len(outcome)} results"


def described(case: Program, here: Outcome, there: Outcome) -> str:
    """The first difference, to be looked into."""
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    lines = (
        f"\nprogram {case.seed} on {case.servers} servers, {case.length:,} elements:",
        f"inputs {case.inputs}, engine {case.engine or 'by length'}",
        case.source,
        *(f"{name}: {here.get(name)} here, {there.get(name)} there" for name in names),
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
