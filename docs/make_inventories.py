"""Write docs/inventories/*.inv: ``python -m docs.make_inventories``.

An inventory tells Sphinx the addresses of names of another project, so that docstrings link to
NumPy's, SciPy's and PySpark's pages. Those of the projects come from the network; these have
NumPy's functions, SciPy's special functions and all names that our docstrings cite. The addresses
follow from the names.
"""

from __future__ import annotations

import inspect
import re
import zlib
from pathlib import Path

import numpy as np
from scipy import special

from docs.public import documented

FOLDER = Path(__file__).with_name("inventories")
CITED = re.compile(r"\b((?:numpy|scipy|pyspark)(?:\.\w+)+)\b")
ADDRESSES = {
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "pyspark": "https://spark.apache.org/docs/latest/api/python/",
}
# Types that parameters have, cited by their short names.
TYPES = {
    "ndarray": "numpy.ndarray",
    "dtype": "numpy.dtype",
    "OptimizeResult": "scipy.optimize.OptimizeResult",
    "DataFrame": "pyspark.sql.DataFrame",
    "SparkSession": "pyspark.sql.SparkSession",
    "RDD": "pyspark.RDD",
}


def cited() -> set[str]:
    """The names that docstrings cite."""
    texts = [inspect.getdoc(thing) or "" for thing in documented().values()]
    return {name for text in texts for name in CITED.findall(text)}


def names() -> dict[str, list[str]]:
    """By project its names."""
    found = {*TYPES.values(), *cited()}
    for module in (np, np.linalg, special):
        found |= {
            f"{module.__name__}.{name}"
            for name in module.__all__
            if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
        }
    return {
        project: sorted(name for name in found if name.startswith(f"{project}."))
        for project in ADDRESSES
    }


def text(project: str, found: list[str]) -> str:
    """The entries of an inventory."""
    return "".join(f"{name} py:{_kind(name)} 1 {_page(project, name)}#$ -\n" for name in found)


def read(project: str) -> str:
    """The entries of the inventory that is kept."""
    *_, packed = (FOLDER / f"{project}.inv").read_bytes().split(b"\n", 4)
    return zlib.decompress(packed).decode()


def _kind(name: str) -> str:
    if name in TYPES.values() or name.rpartition(".")[2][0].isupper():
        return "class"
    return "method" if name.startswith("numpy.ndarray.") else "function"


def _page(project: str, name: str) -> str:
    if project != "pyspark":
        return f"reference/generated/{name}.html"
    folder = "pyspark.sql/api" if name.startswith("pyspark.sql.") else "api"
    return f"reference/{folder}/{name}.html"


def main() -> None:
    """Write the inventories, and beside each the address of its project."""
    FOLDER.mkdir(exist_ok=True)
    for project, found in names().items():
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        packed = zlib.compress(text(project, found).encode(), 9)
        (FOLDER / f"{project}.inv").write_bytes(head.encode() + packed)


if __name__ == "__main__":
    main()
