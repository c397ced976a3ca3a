"""Modules import downwards: none reaches itself, not even for types or inside a function."""

from __future__ import annotations

import ast

from tests.architecture.imports import circles, import_graph, imported, modules

SPARED = (
    "cryptography",
    "distvec.rows.optimizers",  # optim, and so scipy.optimize
    "fsspec",
    "graphviz",
    "distvec.losses.tree_loops",  # numba
    "hypothesis",
    "matplotlib",
    "optim",  # scipy.optimize
    "pandas",
    "ps_backend.in_process",  # all that servers consist of
    "ps_backend.kernels.compiled",  # numba
    "ps_backend.kernels.keyed.compiled_",  # numba
    "ps_backend.kernels.keyed.row_tiles",  # numba
    "ps_backend.kernels.collectives.compiled",  # numba
    "ps_backend.kernels.numexpr_engine",  # numexpr
    "ps_backend.processes.certificates",  # cryptography
    "ps_backend.processes.message_server",  # all that servers consist of
    "ps_backend.program.compiled_",  # numba
    "pyarrow",
    "pyspark",
    "scipy.special",
    "torch",
    "tqdm",
)
"""Heavy or optional: whoever does without them need not wait for them, or have them."""


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set()}
    assert circles(graph) == [["a", "b", "c"]]


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(import_graph()) == []


def test_imports_inside_functions_spare_a_heavy_library() -> None:
    nested = {
        f"{module}: {name}"
        for module, path in modules().items()
        for name, inside in imported(ast.parse(path.read_text()))
        if inside and not name.startswith(SPARED)
    }
    assert nested == set()
