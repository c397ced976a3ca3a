"""Arrays in few words: their head as one line, and small tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from distvec.graph.node import Node

_DEPTH = 4
_MOST_NODES = 16
_LEFT_OUT = "..."


def head(node: Node) -> str:
    """``add(multiply(x0, 2.0), x1)``: arrays that are stored have a name each, numbers are shown.

    Below some depth, or beyond some operations, there are dots.
    """
    return _Writer().text(node, _DEPTH)


class _Writer:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._left = _MOST_NODES

    def text(self, node: Node, depth: int) -> str:
        """``node``, and so many operations below it."""
        if node.known:
            return str(node.value) if node.type.shape == () else self._name(node)
        if not node.args:
            return f"{node.op}()"
        self._left -= 1
        if not depth or self._left < 0:
            return _LEFT_OUT
        return f"{node.op}({', '.join(self.text(arg, depth - 1) for arg in node.args)})"

    def _name(self, node: Node) -> str:
        return self._names.setdefault(id(node), f"x{len(self._names)}")


_TABLE = "border-collapse:collapse;border:1px solid;text-align:left;color:inherit"
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"
_STRIP = "border-collapse:collapse;width:24em;height:1em;table-layout:fixed"
_PART = "border:1px solid;padding:0;background:rgba(70,130,180,{shade})"
_SHADES = (0.55, 0.3)

Row = tuple[str, str]
"""A name, and text or the ``Markup`` of ``strip``."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def table(title: str, rows: Iterable[Row]) -> str:
    """A table of names and what they are, under a title."""
    lines = [f"<tr>{_cell(name)}{_cell(text)}</tr>" for name, text in rows]
    head = f'<tr><th colspan="2" style="{_CELL}">{escape(title)}</th></tr>'
    return f'<table style="{_TABLE}"><tbody>{head}{"".join(lines)}</tbody></table>'


def strip(shares: Sequence[tuple[str, int]], below: str) -> Markup:
    """Parts as wide as their sizes, each with a text that shows under the mouse, and a line."""
    total = sum(size for _, size in shares)
    parts = [
        f'<td title="{escape(text)}" style="width:{100 * size / total:.4g}%;'
        f'{_PART.format(shade=_SHADES[place % 2])}"></td>'
        for place, (text, size) in enumerate(shares)
        if size
    ]
    line = f'<table style="{_STRIP}"><tbody><tr>{"".join(parts)}</tr></tbody></table>'
    return Markup(f"{line if parts else ''}{escape(below)}")


def _cell(text: str) -> str:
    inner = text if isinstance(text, Markup) else escape(text)
    return f'<td style="{_CELL}">{inner}</td>'
