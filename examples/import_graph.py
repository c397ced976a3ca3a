"""Find the modules that a package depends on most: PageRank and cores of its imports.

    python -m examples.import_graph --package scipy

A module that imports another one has an edge to it. PageRank is high for modules that important
modules import. Cores are groups of modules that depend on many of each other. Edges in DataFrames
would come from files or tables; here Spark parses the sources of an installed package.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from distvec.spark import PSContext
from distvec.spark.graphs import Graph


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the modules with the largest PageRank, and what holds the package together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", default="scipy", help="an installed package")
    parser.add_argument("--count", type=int, default=8, help="number of modules to print")
    options = parser.parse_args(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with (
            PSContext.get_or_create(spark, servers=2),
            Graph(read_imports(spark, options.package)) as graph,
        ):
            found = graph.pagerank().join(graph.k_core(), "id").cache()
            components = graph.connected_components().groupBy("component").count()
            largest = components.orderBy("count", ascending=False).first()
            print(f"{largest['count']} of {found.count()} modules are connected")
            for row in found.orderBy("pagerank", ascending=False).take(options.count):
                print(f"{row.pagerank:.4f}  core {row.core:2}  {row.id}")
    finally:
        spark.stop()


def read_imports(spark: SparkSession, package: str) -> DataFrame:
    """Return the imports within a package: modules ``src`` and the modules ``dst`` they import."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not an installed package")
    root = Path(spec.submodule_search_locations[0]).parent
    names = {_module_of(path, root): str(path) for path in (root / package).rglob("*.py")}
    known = frozenset(names)
    files = spark.sparkContext.parallelize(list(names.items()), 4)
    edges = files.flatMap(lambda one: [(one[0], other) for other in _imports(*one, known)])
    return spark.createDataFrame(edges, "src string, dst string")


def _module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, path: str, known: frozenset[str]) -> Iterator[str]:
    """The modules among ``known`` that a file imports, or the names of which it imports."""
    try:
        tree = ast.parse(Path(path).read_text())
    except (SyntaxError, UnicodeDecodeError):  # of files that test such errors
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent = _parent(name, path, node.level) if node.level else ""
            base = ".".join(filter(None, (parent, node.module)))
            modules = [f"{base}.{one.name}" for one in node.names]
            wanted = [one if one in known else base for one in modules]
        else:
            continue
        yield from (one for one in wanted if one in known and one != name)


def _parent(name: str, path: str, level: int) -> str:
    """The package that ``level`` dots stand for."""
    steps = level - path.endswith("__init__.py")
    return ".".join(name.split(".")[: len(name.split(".")) - steps])


if __name__ == "__main__":
    main()
