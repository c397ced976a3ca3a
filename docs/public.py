"""The names that users import, with the methods of their classes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

MODULES = (
    "distvec",
    "distvec.dashboard",
    "distvec.graphs",
    "distvec.spark",
    "distvec.spark.graphs",
    "distvec.spark.ml.classification",
    "distvec.spark.ml.clustering",
    "distvec.spark.ml.regression",
    "distvec.spark.ml.losses",
    "distvec.spark.ml.online",
    "distvec.spark.ml.online_factorization",
    "distvec.spark.ml.feature",
    "distvec.spark.ml.recommendation",
    "distvec.spark.ml.tuning",
    "distvec.spark.torch",
    "distvec.spark.walks",
    "distvec.losses",
    "distvec.sklearn",
    "distvec.testing",
    "distvec.torch",
    "optim",
)
PACKAGES = frozenset(module.partition(".")[0] for module in (*MODULES, "ps_backend"))


def is_ours(thing: object) -> bool:
    """Whether one of this project's packages defines it."""
    return (getattr(thing, "__module__", None) or "").partition(".")[0] in PACKAGES


def exported(module: str) -> Iterator[tuple[str, object]]:
    """Each documented name of ``module`` with its object, those of its submodules included."""
    package = importlib.import_module(module)
    public = getattr(package, "__all__", [n for n in vars(package) if not n.startswith("_")])
    for name in public:
        thing = getattr(package, name)
        if inspect.ismodule(thing):
            if thing.__name__ not in MODULES and hasattr(thing, "__all__"):
                for inner in thing.__all__:
                    yield f"{module}.{name}.{inner}", getattr(thing, inner)
        elif is_ours(thing) and (inspect.isclass(thing) or inspect.isroutine(thing)):
            yield f"{module}.{name}", thing


def members(name: str, owner: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class, inherited ones of ours included."""
    for attribute in dir(owner):
        if attribute.startswith("_"):
            continue
        thing = inspect.getattr_static(owner, attribute)
        function = getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
        if inspect.isfunction(function) and is_ours(function):
            yield f"{name}.{attribute}", function


def documented() -> dict[str, object]:
    """Each name once: an inherited method under the first class that has it."""
    found: dict[int, tuple[str, object]] = {}
    for module in MODULES:
        for name, thing in exported(module):
            found.setdefault(id(thing), (name, thing))
            if inspect.isclass(thing):
                for method, function in members(name, thing):
                    found.setdefault(id(function), (method, function))
    return dict(found.values())
