"""The code of a page of ``docs/``, run from top to bottom, with the output that the page shows.

A block of ``python`` that is followed by one of ``text`` prints that text; ``...`` stands for
anything, and spaces do not count, as in doctests. A comment ``<!-- not run: reason -->`` above a
block of ``python`` leaves that block out.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+-->\n+)?^```python\n(?P<code>.*?)^```\n"
    r"(?:\n*```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
PAGES = sorted(
    str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if BLOCK.search(path.read_text())
)
NEEDS_SPARK = [page for page in PAGES if "pyspark" in (DOCS / page).read_text()]


def run(page: str) -> None:
    """Run the code of a page; an ``AssertionError`` shows output that is not that of the page."""
    text = (DOCS / page).read_text()
    # A module of its own, as Hypothesis and pickles look a function's module up.
    name = "page_" + re.sub(r"\W", "_", page)
    module = sys.modules[name] = ModuleType(name)
    if page in NEEDS_SPARK:
        # So functions travel to Spark's tasks by value, as the functions of a script do.
        module.__name__ = "__main__"
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    try:
        for block in BLOCK.finditer(text):
            if block["skip"]:
                continue
            lines = text[: block.start("code")].count("\n")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * lines + block["code"], str(DOCS / page), "exec"), vars(module))
            if block["output"] is not None:
                example = doctest.Example(block["code"], block["output"], lineno=lines)
                same = checker.check_output(example.want, printed.getvalue(), flags)
                assert same, checker.output_difference(example, printed.getvalue(), flags)
    finally:
        del sys.modules[name]
