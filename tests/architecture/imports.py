"""Which module imports which, read from the source: nested imports and those for types included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("distvec", "optim", "ps_backend")


def modules() -> dict[str, Path]:
    """All modules of ours, by name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """What is imported: each name in full, and whether that is done inside a function."""
    todo = [(tree, False)]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((f"{node.module}.{alias.name}", inside) for alias in node.names)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]


def import_graph() -> dict[str, set[str]]:
    """By module the modules of ours that it imports, or whose names it imports."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        names = [name for name, _ in imported(ast.parse(path.read_text()))]
        owners = {name if name in known else name.rpartition(".")[0] for name in names}
        graph[module] = {owner for owner in owners if owner in known} - {module}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of modules each of which reaches all others of its set, two modules or more.

    Source: Tarjan (1972), with a stack of iterators in the place of recursion.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_modules: list[str] = []
    found = []
    for start in graph:
        if start in index:
            continue
        path: list[tuple[str, Iterator[str]]] = []
        enter = start
        while enter or path:
            if enter:
                index[enter] = low[enter] = len(index)
                open_modules.append(enter)
                path.append((enter, iter(sorted(graph[enter]))))
                enter = ""
            module, following = path[-1]
            for other in following:
                if other not in index:
                    enter = other
                    break
                if other in open_modules:
                    low[module] = min(low[module], index[other])
            if enter:
                continue
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[module])
            if low[module] == index[module]:
                place = open_modules.index(module)
                circle, open_modules[place:] = open_modules[place:], []
                if len(circle) > 1:
                    found.append(sorted(circle))
    return found
