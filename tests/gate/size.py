"""Files and lines of code: without docstrings, comments, blank lines and generated code."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture.imports import ROOT

PACKAGES = ("distvec", "ps_backend", "optim")
_GENERATED = "_pb2.py"


class Size(NamedTuple):
    """Of a file, or the sum of several."""

    files: int = 0
    code: int = 0
    imports: int = 0

    def plus(self, other: Size) -> Size:
        return Size(*(a + b for a, b in zip(self, other, strict=True)))


def lines() -> Iterator[str]:
    """A line each package and folder."""
    sizes: defaultdict[str, Size] = defaultdict(Size)
    for path in _paths():
        for folder in (path.parts[0], f"{path.parent}/", "all"):
            sizes[folder] = sizes[folder].plus(size_of(path))
    yield f"{'folder':<40} {'files':>6} {'code':>7} {'per file':>9} {'imports':>8}"
    for folder, (count, code, imports) in sorted(sizes.items()):
        share = f"{imports / max(code, 1):.1%}"
        yield f"{folder:<40} {count:>6} {code:>7} {code / count:>9.0f} {share:>8}"


def files() -> Iterator[str]:
    """A line each file, the longest first."""
    sizes = sorted(((size_of(path).code, str(path)) for path in _paths()), reverse=True)
    return (f"{code:>6} {path}" for code, path in sizes)


def size_of(path: Path) -> Size:
    """The lines of code of one file, and those of its imports."""
    text = (ROOT / path).read_text()
    tree = ast.parse(text)
    code = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    imports: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= _lines_of(node)
        elif isinstance(node, ast.Expr) and _is_text(node.value):  # a docstring
            code -= _lines_of(node)
    return Size(1, len(code), len(imports & code))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _paths() -> list[Path]:
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(p.relative_to(ROOT) for p in found if not p.name.endswith(_GENERATED))
