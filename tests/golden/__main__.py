"""Rewrite the files of this folder: ``python -m tests.golden``."""

from __future__ import annotations

from tests.golden.plans import SOLVERS, path_of, plans_of_an_iteration


def main() -> None:
    for name, make in SOLVERS.items():
        path_of(name).write_text(plans_of_an_iteration(make()))


if __name__ == "__main__":
    main()
