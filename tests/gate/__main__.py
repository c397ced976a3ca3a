"""``python -m tests.gate``: print what differs from the kept files; 1 if behaviour does."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import tests.gate
from tests.gate import behaviour, size

FOLDER = Path(__file__).parent
SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "behaviour": behaviour.lines,
    "size": size.lines,
}


def main() -> int:
    """Print each section's summary and its differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=tests.gate.__doc__)
    parser.add_argument("--renew", action="store_true", help="write the kept files")
    parser.add_argument("--files", action="store_true", help="print lines of code of each file")
    options = parser.parse_args()
    if options.files:
        print(*size.files(), sep="\n")
        return 0
    changes = {
        name: compare(name, list(lines()), options.renew) for name, lines in SECTIONS.items()
    }
    return int(changes["behaviour"] > 0 and not options.renew)


def compare(name: str, now: list[str], renew: bool) -> int:
    """Print how many lines of a section differ from its file, and which; return the number."""
    path = FOLDER / f"{name}.txt"
    kept = path.read_text().splitlines() if path.exists() else []
    changes = [
        line
        for line in difflib.unified_diff(kept, now, path.name, "now", n=0, lineterm="")
        if not line.startswith("@@")
    ]
    print(f"{name}: {len(now)} lines, {max(len(changes) - 2, 0)} changes", *changes, sep="\n")
    if renew:
        path.write_text("\n".join(now) + "\n")
    return len(changes)


if __name__ == "__main__":
    sys.exit(main())
