"""Draw the pictures of the site: ``python -m docs.make_pictures``, from measured JSON beside them.

``--measure`` first measures how solvers converge and writes that JSON, too. The times beside
NumPy's come from ``python -m benchmarks.chains --json docs/pictures/chains.json``, and the AUC from
``python -m examples.click_pairs --json docs/pictures/pairs.json``. ``friends.json`` has the edges
of a well-known graph.

The pictures are transparent, with colours that both a light and a dark page can show.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import distvec as dv
from distvec.graphs import Graph
from optim import (
    LBFGS,
    Adam,
    ConjugateGradient,
    GradientDescent,
    Minibatches,
    Solver,
    TruncatedNewton,
)

FOLDER = Path(__file__).with_name("pictures")
GREY = "#808080"
COLOURS = ("#3b82f6", "#e8710a", "#10a37f", "#a855f7", "#d6456b")
ROWS, FEATURES, BATCH = 4000, 200, 100
PASSES = 100


def main(arguments: Sequence[str]) -> None:
    """Write the pictures."""
    if "--measure" in arguments:
        _write_json("convergence.json", measure_convergence())
    _write("processes.svg", processes())
    _write("plan.svg", plan(plan_text()))
    draw("convergence.svg", convergence, _read_json("convergence.json"))
    draw("speed.svg", speed, _read_json("chains.json"))
    draw("pairs.svg", pairs, _read_json("pairs.json"))
    draw("friends.svg", friends, _read_json("friends.json"))


# Convergence


def measure_convergence() -> dict[str, Any]:
    """For each solver the gap to the minimum after so many passes over the rows."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((ROWS, FEATURES)) * np.logspace(0, -1.5, FEATURES)
    signs = np.where(rows @ rng.standard_normal(FEATURES) > rng.standard_normal(ROWS), 1.0, -1.0)

    def loss(w: Any, x: Any = rows, y: Any = signs) -> tuple[float, Any]:
        margins = y * (x @ w)
        value = float(np.mean(np.logaddexp(0.0, -margins))) + 0.5e-4 * float(w @ w)
        return value, x.T @ (-y / (1.0 + np.exp(margins))) / len(y) + 1e-4 * w

    start = np.zeros(FEATURES)
    least = LBFGS(gradient_tolerance=1e-12, max_iterations=5000).minimize(loss, start).fun
    solvers = GradientDescent, ConjugateGradient, LBFGS, TruncatedNewton
    full: dict[str, Solver] = {
        kind.__name__: kind(max_evaluations=PASSES, max_iterations=PASSES) for kind in solvers
    }
    curves = {}
    for name, solver in full.items():
        values: list[float] = []

        def counted(w: Any, values: list[float] = values) -> tuple[float, Any]:
            value, gradient = loss(w)
            values.append(value)
            return value, gradient

        solver.minimize(counted, start)
        gaps = np.minimum.accumulate(values[:PASSES]) - least
        curves[name] = [[k + 1.0, gap] for k, gap in enumerate(gaps.tolist())]
    batches = Minibatches.of(lambda w, x, y: loss(w, x, y), rows, signs, batch_size=BATCH, seed=0)
    per_pass = batches.batches_per_epoch
    curves["Adam, minibatches"] = []
    for k, state in enumerate(
        Adam(step_size=0.03, max_iterations=PASSES * per_pass).iterations(batches, start)
    ):
        if k % (per_pass // 4) == 0:
            curves["Adam, minibatches"].append([k / per_pass, loss(state.x)[0] - least])
        if k >= PASSES * per_pass:
            break
    return {
        "problem": f"logistic regression, {ROWS:,} rows, {FEATURES} features, Adam by {BATCH} rows",
        "columns": ["passes over the rows", "objective minus its minimum"],
        "curves": {
            name: [[x, float(f"{max(gap, 0.0):.3g}")] for x, gap in points]
            for name, points in curves.items()
        },
    }


def convergence(axes: Axes, measured: dict[str, Any]) -> None:
    """The gap to the minimum by passes over the rows."""
    for colour, (name, points) in zip(COLOURS, measured["curves"].items(), strict=False):
        x, gap = np.array(points).T
        axes.plot(x, np.maximum(gap, 1e-16), color=colour, label=name)
    axes.set(xlabel=measured["columns"][0], ylabel=measured["columns"][1], yscale="log")
    axes.set(title=measured["problem"], xlim=(0, PASSES), ylim=(1e-12, 1))
    axes.legend()


# Factorization machines


def pairs(axes: Axes, measured: dict[str, Any]) -> None:
    """The AUC of each hour of a stream, before it is learned from."""
    for colour, (name, curve) in zip((GREY, *COLOURS), measured["auc"].items(), strict=False):
        axes.plot(curve, color=colour, label=name, marker=".")
    axes.set(xlabel=f"hour, {measured['rows']:,} rows each", ylabel="AUC before learning")
    axes.set(title="Clicks that depend on pairs of keys")
    axes.legend()


# Graphs


def friends(axes: Axes, graph: dict[str, Any]) -> None:
    """A graph: large vertices have a large PageRank, colours are core numbers."""
    ends = np.array(graph["edges"])
    both = Graph(*np.vstack([ends, ends[:, ::-1]]).T)
    ids, shares = both.pagerank()
    cores = both.k_core().values
    source, target = np.searchsorted(ids, ends.T)
    x, y = _layout(source, target, len(ids)).T
    axes.plot([x[source], x[target]], [y[source], y[target]], color=GREY, linewidth=0.5, zorder=1)
    for colour, core in zip(COLOURS, sorted(set(cores.tolist())), strict=False):
        chosen = cores == core
        sizes = 6000.0 * shares[chosen]
        axes.scatter(x[chosen], y[chosen], sizes, colour, label=f"core {core}", zorder=2)
    for each in zip(x, y, ids.tolist(), strict=True):
        axes.text(*each, ha="center", va="center", fontsize=7, color="white")
    axes.set(title=graph["name"], xticks=[], yticks=[])
    axes.legend(markerscale=0.5)


def _layout(source: Any, target: Any, count: int) -> Any:
    """Places of vertices: edges pull, all pairs push (Fruchterman, Reingold, 1991)."""
    places = np.random.default_rng(1).uniform(-1.0, 1.0, (count, 2))
    reach = 1.0 / np.sqrt(count)
    for heat in np.linspace(0.2, 0.0, 500):
        apart = places[:, None] - places
        lengths = np.linalg.norm(apart, axis=2) + np.eye(count)
        moves = (apart * (reach / lengths)[:, :, None] ** 2).sum(axis=1)
        pulls = (places[source] - places[target]) * lengths[source, target, None] / reach
        np.add.at(moves, source, -pulls)
        np.add.at(moves, target, pulls)
        sizes = np.linalg.norm(moves, axis=1, keepdims=True) + 1e-12
        places += moves / sizes * np.minimum(sizes, heat)
    return places


# Speed beside NumPy


def speed(axes: Axes, measured: dict[str, Any]) -> None:
    """NumPy's time over distvec's by the length of the vectors."""
    tables = {table["name"]: table for table in measured["tables"]}
    ours, theirs = tables["ms, distvec"], tables["ms, NumPy"]
    lengths = [float(name.partition("=")[2]) for name in ours["rows"]]
    for colour, (k, name) in zip(COLOURS, enumerate(ours["columns"]), strict=False):
        ratios = [
            numpy[k] / mine[k]
            for mine, numpy in zip(ours["rows"].values(), theirs["rows"].values(), strict=True)
        ]
        count = name.removesuffix(" op.")
        label = "1 operation" if count == "1" else f"{count} operations"
        axes.plot(lengths, ratios, color=colour, marker="o", markersize=4, label=label)
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="elements of a vector (float64)")
    axes.set(ylabel="time of NumPy / time of distvec")
    axes.set(title="A chain of operations on two local servers; above 1 distvec is faster")
    axes.legend()


# Diagrams


_CLIENT = "your script, notebook|or Spark driver||lazy graph, planner,|scalars, small arrays"
_SERVERS = "processes 1 to n||each holds a part|of every array|and runs kernels on it"
_EXECUTORS = "optional||rows of a DataFrame;|tasks use only the|coordinates they need"


def processes() -> str:
    """The three kinds of processes and their messages."""
    boxes = (
        (10, "Client", _CLIENT),
        (360, "Parameter servers", _SERVERS),
        (710, "Spark executors", _EXECUTORS),
    )
    parts = [_box(*box, colour) for colour, box in zip(COLOURS, boxes, strict=False)]
    parts += [
        _arrow(230, 120, 360, 120, "requests"),
        _arrow(360, 175, 230, 175, "replies"),
        _arrow(580, 120, 710, 120, "pull"),
        _arrow(710, 175, 580, 175, "push"),
        f'<path d="M430 230 v34 h80 v-30" fill="none" stroke="{GREY}" marker-end="url(#head)"/>',
        _text(470, 284, "data exchange between servers"),
        f'<path d="M120 60 v-34 h700 v30" fill="none" stroke="{GREY}" marker-end="url(#head)"/>',
        _text(470, 20, "Spark starts jobs; tasks report results"),
    ]
    return _svg(940, 296, parts, "Client, parameter servers and Spark executors")


def plan_text() -> str:
    """The plan of two results of one expression, as ``explain`` tells it."""
    with dv.local(2, in_process=True) as ps:
        x, y = ps.array(np.zeros(1_000_000)), ps.array(np.zeros(1_000_000))
        z = 2 * x + np.exp(-y)
        return str((z @ x).explain(format="dot"))


def plan(dot: str) -> str:
    """The drawing of a plan whose graph ``explain(format="dot")`` gives."""
    labels = dict(re.findall(r'(p0\w+) \[label="([^"]+)"', dot))
    edges = [(a, b) for a, b in re.findall(r"(p0\w+) -> (p0\w+);", dot) if {a, b} <= set(labels)]
    depth = dict.fromkeys(labels, 0)
    for _ in labels:  # the longest way from a source
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    # Arrows run along the lane of their source, so each source has a lane of its own.
    lanes: dict[str, int] = {}
    taken = set()
    for name in sorted(labels, key=lambda name: depth[name]):
        before = [lanes[a] for a, b in edges if b == name and depth[a] == depth[name] - 1]
        lane = before[0] if before else 0
        if depth[name] == max(depth.values()):
            lane = 0
        while (lane, depth[name]) in taken:
            lane += 1
        taken.add((lane, depth[name]))
        lanes[name] = lane
    width, height = 150, 62
    places = {
        name: (20 + depth[name] * (width + 56), 60 + lanes[name] * (height + 26)) for name in labels
    }
    total = max(x for x, _ in places.values()) + width + 20
    tall = max(y for _, y in places.values()) + height + 40
    dashed = f'fill="none" stroke="{GREY}" stroke-dasharray="5 4"'
    parts = [
        f'<rect x="4" y="30" width="{total - 8}" height="{tall - 46}" rx="8" {dashed}/>',
        _text(total / 2, 22, "one request to each server: one pass over memory"),
    ]
    for a, b in edges:
        (x0, y0), (x1, y1) = places[a], places[b]
        start, end = (x0 + width, y0 + height / 2), (x1, y1 + height / 2)
        parts.append(
            f'<path d="M{start[0]:g} {start[1]:g} H {end[0] - 50:g} C {end[0] - 24:g} {start[1]:g} '
            f'{end[0] - 34:g} {end[1]:g} {end[0] - 3:g} {end[1]:g}" fill="none" '
            f'stroke="{GREY}" marker-end="url(#head)"/>'
        )
    for name, (x, y) in places.items():
        label = labels[name]
        kind = 0 if label.startswith(("load", "scalar")) else 1 if name[4] in "or" else 2
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" '
            f'fill="{COLOURS[kind]}" fill-opacity="0.15" stroke="{COLOURS[kind]}"/>'
        )
        words = label.replace("store: ", "store:\n").replace("[", "\n[").split("\n")
        for k, line in enumerate(words):
            parts.append(
                _text(x + width / 2, y + height / 2 + 5 + 18 * (k - (len(words) - 1) / 2), line)
            )
    return _svg(total, tall, parts, "The execution plan of an expression")


def _box(x: int, title: str, text: str, colour: str) -> str:
    frame = f'fill="{colour}" fill-opacity="0.12" stroke="{colour}" stroke-width="1.5"'
    parts = [
        f'<rect x="{x}" y="60" width="220" height="170" rx="8" {frame}/>',
        f'<text x="{x + 110}" y="88" class="title" style="fill: {colour}">{title}</text>',
    ]
    parts += [_text(x + 110, 118 + 22 * k, line) for k, line in enumerate(text.split("|"))]
    return "\n".join(parts)


def _arrow(x0: int, y0: int, x1: int, y1: int, label: str) -> str:
    inner = 6 if x1 > x0 else -6
    return (
        f'<path d="M{x0 + inner} {y0} H{x1 - 2 * inner}" fill="none" stroke="{GREY}" '
        f'stroke-width="1.5" marker-end="url(#head)"/>\n{_text((x0 + x1) / 2, y0 - 8, label)}'
    )


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _svg(width: float, height: float, parts: Iterable[str], title: str) -> str:
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">
<title>{title}</title>
<style>
text {{ font: 15px system-ui, sans-serif; text-anchor: middle; fill: {GREY}; }}
text.title {{ font-weight: 600; font-size: 17px; }}
</style>
<marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">
<path d="M0 0 L7 3 L0 6 z" fill="{GREY}"/></marker>
{chr(10).join(parts)}
</svg>
"""


# Files


def draw(name: str, figure_of: Any, measured: dict[str, Any]) -> None:
    """Write a diagram of Matplotlib's whose text stays text."""
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "distvec",
        "font.family": "sans-serif",
        "font.size": 11,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    grey = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    with mpl.rc_context({**style, **dict.fromkeys(grey, GREY)}):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        axes = figure.add_subplot()
        figure_of(axes, measured)
        axes.grid(alpha=0.25)
        figure.savefig(FOLDER / name, transparent=True, metadata={"Date": None})


def _write(name: str, text: str) -> None:
    (FOLDER / name).write_text(text)


def _read_json(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return found


def _write_json(name: str, content: dict[str, Any]) -> None:
    _write(
        name,
        re.sub(r"\[\s+([\d.e+-]+),\s+([\d.e+-]+)\s+\]", r"[\1, \2]", json.dumps(content, indent=1))
        + "\n",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
