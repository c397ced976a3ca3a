"""The pages of the reference name everything that users import."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from docs import make_cli, make_configuration, make_inventories, make_pictures
from docs.public import MODULES, exported
from ps_backend import errors
from tests.pages.pages import DOCS

ROOT = DOCS.parent

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


def test_the_page_on_configuration_is_up_to_date() -> None:
    assert make_configuration.PAGE.read_text() == make_configuration.page(), "run make pages"


def test_the_page_on_configuration_has_each_environment_variable() -> None:
    reads = r"(?:environ\.get\(|environ\[|getenv\()\"(\w+)\"|\"(\w+)\" (?:not )?in os.environ"
    read = {"".join(match) for file, _ in _modules() for match in re.findall(reads, file)}
    assert read == set(make_configuration.ENVIRONMENT)


def test_the_page_on_configuration_has_each_timeout_of_a_second_or_more() -> None:
    # The others say how often something is looked at.
    looks = re.compile(r"_(LOOK|CHECK|WATCH|SHORTEST)_|^SHORTEST_")
    known = {key for rows in make_configuration.TIMEOUTS.values() for key in rows}
    found = {
        f"{module}:{name}"
        for text, module in _modules()
        for name in _constants(text)
        if name.endswith("SECONDS") and not looks.search(name)
    }
    assert {one for one in found if make_configuration.value(one) >= 1.0} == known


def test_the_page_on_configuration_has_each_limit() -> None:
    known = {key for rows in make_configuration.LIMITS.values() for key in rows}
    found = {
        f"{module}:{name}"
        for text, module in _modules()
        for name in _constants(text)
        if name.startswith("MOST_")
    }
    assert found == known


def test_the_inventories_have_each_name_that_docstrings_cite() -> None:
    kept = "".join(map(make_inventories.read, make_inventories.ADDRESSES))
    names = {line.partition(" ")[0] for line in kept.splitlines()}
    assert make_inventories.cited() <= names, "run make pages"


def test_the_picture_of_a_plan_is_that_of_the_plan() -> None:
    drawn = make_pictures.plan(make_pictures.plan_text())
    assert (make_pictures.FOLDER / "plan.svg").read_text() == drawn, "run make pictures"


def _modules() -> Iterator[tuple[str, str]]:
    """The text and the name of each module of the packages."""
    for package in ("distvec", "optim", "ps_backend"):
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
            yield path.read_text(), name.removesuffix(".__init__")


def _constants(text: str) -> Iterator[str]:
    """The names that a module assigns at its top level."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name):
                        yield one.id
