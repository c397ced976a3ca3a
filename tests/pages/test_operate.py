"""The pages for operators name messages, exceptions and options that exist in the code."""

from __future__ import annotations

import ast
import builtins
import functools
import re
import shlex
from collections.abc import Iterator

import pytest

from distvec.command_line import command_parser
from tests.pages.pages import DOCS

MESSAGE_OF_OTHERS = ("No module named", "PYTHON_VERSION_MISMATCH", "Exception while sending")
"""Texts of Python and Spark, which no string of this project holds."""


def quoted() -> list[str]:
    """The code spans in the first column of the page's tables of messages."""
    page = (DOCS / "operate/troubleshooting.md").read_text()
    tables = page.partition("\n## ")[2]
    cells = re.findall(r"^\| (.+?) \|", tables, re.MULTILINE)
    return sorted({span for cell in cells for span in re.findall(r"`([^`]+)`", cell)})


def texts(tree: ast.AST) -> Iterator[str]:
    """The string constants below ``tree``; a value within an f-string becomes a NUL."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.ClassDef):
            yield f"class {node.name}"


@functools.cache
def everything() -> str:
    """All string constants and names of classes of the packages, a line each."""
    root = DOCS.parent
    files = [path for package in ("distvec", "optim", "ps_backend")
             for path in (root / package).rglob("*.py")]  # fmt: skip
    lines = (
        text.replace("\n", " ") for path in files for text in texts(ast.parse(path.read_text()))
    )
    return "\n".join(lines)


@pytest.mark.parametrize("span", quoted())
def test_the_message_exists(span: str) -> None:
    if span.startswith(MESSAGE_OF_OTHERS):
        return
    if re.fullmatch(r"[A-Z]\w+", span):
        assert hasattr(builtins, span) or re.search(rf"^class {span}$", everything(), re.MULTILINE)
    elif " " in span:
        pattern = ".*".join(re.escape(part.strip()) for part in span.split("...") if part.strip())
        assert re.search(pattern, everything()), f"no message holds {span!r}"


def commands() -> Iterator[str]:
    """Each ``distvec serve`` and ``distvec status`` in the code blocks of pages."""
    for page in sorted(DOCS.rglob("*.md")):
        for block in re.findall(
            r"^```(?!text|python)\w+\n(.*?)^```", page.read_text(), re.S | re.M
        ):
            # Lists of YAML and JSON are words, too; a line may go on in the next.
            words = re.sub(r"#.*", "", block).replace("\\\n", " ")
            words = re.sub(r"(?<=,)\n\s+", " ", words)
            words = re.sub(r'[\[\]"]|,(?=[ "])', " ", words)
            for command, options in re.findall(r"\b(serve|status) (.*)", words):
                if "--" in options:
                    yield f"{command} {options}"


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_the_command_is_understood(command: str) -> None:
    command_parser().parse_args(shlex.split(command))
