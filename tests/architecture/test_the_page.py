"""docs/project/architecture.md names places that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "project" / "architecture.md").read_text()
PATHS = sorted(
    set(re.findall(r"`((?:distvec|docs|examples|optim|ps_backend|tests)/[\w./]*)`", PAGE))
)
METHODS = sorted(set(re.findall(r"`([A-Z]\w+\.\w+)`", PAGE)))


def methods_in(folder: str) -> set[str]:
    """``Class.method`` of all classes below ``folder``."""
    return {
        f"{node.name}.{member.name}"
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, ast.FunctionDef)
    }


@pytest.mark.parametrize("path", PATHS)
def test_the_path_exists(path: str) -> None:
    place = ROOT / path
    assert place.is_dir() if path.endswith("/") else place.is_file()


def test_the_methods_exist() -> None:
    assert set(METHODS) <= methods_in("distvec") | methods_in("ps_backend")


def test_it_names_every_room() -> None:
    rooms = {
        f"{package}/{folder.name}/"
        for package in ("distvec", "ps_backend")
        for folder in (ROOT / package).iterdir()
        if (folder / "__init__.py").exists()
    }
    assert rooms - {"distvec/testing/", "distvec/spark/"} <= {
        f"{'/'.join(p.split('/')[:2])}/" for p in PATHS
    }
