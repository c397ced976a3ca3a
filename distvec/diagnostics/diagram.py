"""A directed graph in groups as DOT or as SVG, laid out in layers without another program.

Layers and orders as in K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of
hierarchical system structures", 1981: each node below those that it follows from, long edges
through a place in each layer, and orders by barycentres.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

Shape = Literal["box", "filled", "ellipse", "hexagon", "invtriangle"]

_DOT = {
    "box": "",
    "filled": ", style=filled",
    "ellipse": ", shape=ellipse",
    "hexagon": ", shape=hexagon, style=filled",
    "invtriangle": ", shape=invtriangle",
}
_LETTER, _MARGIN, _HEIGHT = 6.2, 18.0, 24.0
_ACROSS, _DOWN, _BORDER = 16.0, 44.0, 14.0
_BEND = 12.0
"""Width of the place of a long edge in a layer."""
_SWEEPS = 8
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8z" fill="#808080"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A node, in the group of a number or in none."""

    name: str
    label: str
    shape: Shape = "box"
    group: int | None = None


@dataclass
class Diagram:
    """Nodes in the order in which they were added, edges by names, and titles of groups."""

    boxes: list[Box] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def dot(self) -> str:
        """In the language of Graphviz."""
        return "\n".join(self._dot_lines())

    def _dot_lines(self) -> Iterator[str]:
        yield "digraph plan {"
        yield '  node [fontname="Helvetica", fontsize=10, shape=box];'
        for number, title in enumerate(self.groups):
            yield f"  subgraph cluster_{number} {{"
            yield f'    label="{title}";'
            yield from (f"    {_dot(box)}" for box in self.boxes if box.group == number)
            yield "  }"
        yield from (f"  {_dot(box)}" for box in self.boxes if box.group is None)
        yield from (f"  {tail} -> {head};" for tail, head in self.edges)
        yield "}"

    def svg(self) -> str:
        """As a picture, readable on light and dark pages."""
        return _Layout(self).svg()


def _dot(box: Box) -> str:
    return f'{box.name} [label="{box.label}"{_DOT[box.shape]}];'


class _Layout:
    """Where everything is. Names of bends are numbers, and those of boxes their own."""

    def __init__(self, diagram: Diagram) -> None:
        self._diagram = diagram
        self._boxes = {box.name: box for box in diagram.boxes}
        known = [pair for pair in dict.fromkeys(diagram.edges) if set(pair) <= set(self._boxes)]
        layers = _layers(list(self._boxes), known)
        self._rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
        for name, layer in layers.items():
            self._rows[layer].append(name)
        self._paths = [self._path(tail, head, layers) for tail, head in known]
        self._order(known)
        self._x: dict[str, float] = {}
        self._place()

    def _path(self, tail: str, head: str, layers: dict[str, int]) -> list[str]:
        """The edge's ends, with a bend between them in each layer that it crosses."""
        bends = [f"{tail}>{head}>{layer}" for layer in range(layers[tail] + 1, layers[head])]
        for layer, bend in enumerate(bends, layers[tail] + 1):
            self._rows[layer].append(bend)
        return [tail, *bends, head]

    def _order(self, edges: Sequence[tuple[str, str]]) -> None:
        """Put neighbours one below the other, by the means of their places."""
        above: dict[str, list[str]] = {}
        below: dict[str, list[str]] = {}
        for path in self._paths:
            for tail, head in itertools.pairwise(path):
                above.setdefault(head, []).append(tail)
                below.setdefault(tail, []).append(head)
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            order = range(1, len(self._rows)) if down else range(len(self._rows) - 2, -1, -1)
            for layer in order:
                other = self._rows[layer + (-1 if down else 1)]
                places = {name: place for place, name in enumerate(other)}
                neighbours = above if down else below
                own = {name: place for place, name in enumerate(self._rows[layer])}
                self._rows[layer].sort(
                    key=lambda name, n=neighbours, p=places, o=own: _mean(  # type: ignore[misc]
                        [p[one] for one in n.get(name, ()) if one in p], o[name]
                    )
                )

    def _width(self, name: str) -> float:
        box = self._boxes.get(name)
        if box is None:
            return _BEND
        extra = 2 if box.shape in ("hexagon", "invtriangle", "ellipse") else 1
        return len(box.label) * _LETTER + extra * _MARGIN

    def _place(self) -> None:
        """The middles of all, each layer in the middle of the picture."""
        widths = [sum(map(self._width, row)) + _ACROSS * max(0, len(row) - 1) for row in self._rows]
        self._total = max(widths, default=0.0) + 2 * _BORDER
        for row, width in zip(self._rows, widths, strict=True):
            at = (self._total - width) / 2
            for name in row:
                self._x[name] = at + self._width(name) / 2
                at += self._width(name) + _ACROSS
        self._y = {
            name: _BORDER + 18 + layer * (_HEIGHT + _DOWN) + _HEIGHT / 2
            for layer, row in enumerate(self._rows)
            for name in row
        }

    def svg(self) -> str:
        """The picture."""
        height = len(self._rows) * (_HEIGHT + _DOWN) - _DOWN + 2 * _BORDER + 18
        size = f"{self._total:.0f} {max(height, 40):.0f}"
        title = escape("; ".join(self._diagram.groups))
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
            f'width="{self._total:.0f}" font-family="Helvetica, Arial, sans-serif" '
            f'font-size="11"><title>The plan: {title}</title>'
        )
        return "\n".join(
            [head, _TIP, *self._frames(), *map(self._edge, self._paths),
             *map(self._box, self._boxes.values()), "</svg>"]
        )  # fmt: skip

    def _frames(self) -> Iterator[str]:
        """A frame around each group; those of later groups are further below."""
        for number, title in enumerate(self._diagram.groups):
            names = [box.name for box in self._boxes.values() if box.group == number]
            if not names:
                continue
            left = min(self._x[name] - self._width(name) / 2 for name in names) - 8
            right = max(self._x[name] + self._width(name) / 2 for name in names) + 8
            top = min(self._y[name] for name in names) - _HEIGHT / 2 - 20
            bottom = max(self._y[name] for name in names) + _HEIGHT / 2 + 8
            yield (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                f'height="{bottom - top:.1f}" rx="6" fill="none" stroke="#808080" '
                'stroke-dasharray="4 3"/>'
            )
            yield (
                f'<text x="{left + 6:.1f}" y="{top + 13:.1f}" fill="#808080">{escape(title)}</text>'
            )

    def _edge(self, path: Sequence[str]) -> str:
        points = [(self._x[name], self._y[name]) for name in path]
        points[0] = points[0][0], points[0][1] + _HEIGHT / 2
        points[-1] = points[-1][0], points[-1][1] - _HEIGHT / 2
        line = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (x, y), (next_x, next_y) in itertools.pairwise(points):
            middle = (y + next_y) / 2
            line += f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}"
        return f'<path d="{line}" fill="none" stroke="#808080" marker-end="url(#tip)"/>'

    def _box(self, box: Box) -> str:
        x, y, width = self._x[box.name], self._y[box.name], self._width(box.name)
        left, right, top, bottom = x - width / 2, x + width / 2, y - _HEIGHT / 2, y + _HEIGHT / 2
        fill = "#80808033" if box.shape in ("filled", "hexagon") else "none"
        style = f'fill="{fill}" stroke="#3b82f6"'
        match box.shape:
            case "ellipse":
                form = f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{width / 2:.1f}" ry="12" {style}/>'
            case "hexagon":
                corners = [(left, y), (left + 10, top), (right - 10, top), (right, y)]
                form = _polygon([*corners, (right - 10, bottom), (left + 10, bottom)], style)
            case "invtriangle":
                corners = [(left, top), (right, top), (right - 14, bottom), (left + 14, bottom)]
                form = _polygon(corners, style)
            case _:
                form = (
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_HEIGHT:g}" '
                    f'rx="3" {style}/>'
                )
        return (
            f'<g id="{box.name}">{form}<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" '
            f'fill="currentColor">{escape(box.label)}</text></g>'
        )


def _polygon(corners: Sequence[tuple[float, float]], style: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" {style}/>'


def _layers(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The layer of each node: that after the last of those that it follows from.

    A source is right above the first that needs it. Names are in an order in which edges may go
    back, but not in circles.
    """
    heads: dict[str, list[str]] = {name: [] for name in names}
    missing = dict.fromkeys(names, 0)
    for tail, head in edges:
        heads[tail].append(head)
        missing[head] += 1
    ready = [name for name in names if not missing[name]]
    layers = dict.fromkeys(names, 0)
    done = []
    while ready:
        name = ready.pop()
        done.append(name)
        for head in heads[name]:
            layers[head] = max(layers[head], layers[name] + 1)
            missing[head] -= 1
            if not missing[head]:
                ready.append(head)
    tails = {head for _, head in edges}
    for name in done:
        if name not in tails and heads[name]:
            layers[name] = min(layers[head] for head in heads[name]) - 1
    return {name: layers[name] for name in names}


def _mean(places: Sequence[int], own: int) -> float:
    return sum(places) / len(places) if places else float(own)
