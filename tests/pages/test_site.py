"""The pages of the reference name everything that users import."""

from __future__ import annotations

import inspect
import re

from docs import make_cli
from docs.public import MODULES, exported
from ps_backend import errors
from tests.pages.pages import DOCS

BLOCK = re.compile(r"currentmodule:: (\S+)\n\n.. autosummary::\n   :toctree: .*\n\n((?:   \w+\n)+)")


def test_each_exported_name_is_on_one_page() -> None:
    pages = [path.read_text() for path in (DOCS / "reference").rglob("*.md")]
    named = [
        f"{module}.{name}"
        for text in pages
        for module, names in BLOCK.findall(text)
        for name in names.split()
    ]
    public = {name: thing for module in MODULES for name, thing in exported(module)}
    known = {id(thing) for thing in public.values()}
    rare = {
        f"ps_backend.errors.{name}"
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and id(thing) not in known
    }
    assert sorted(named) == sorted({*public, *rare, "distvec.rows"})


def test_the_page_on_errors_explains_each_exception() -> None:
    text = (DOCS / "reference" / "errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)`", text, re.MULTILINE)
    classes = {name for name, thing in vars(errors).items() if inspect.isclass(thing)}
    assert sorted(rows) == sorted(classes - {"PSError"})


def test_the_page_on_the_command_line_is_up_to_date() -> None:
    assert make_cli.PAGE.read_text() == make_cli.page(), "run make pages"
