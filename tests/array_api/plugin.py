"""A pytest plugin: the array API's conformance suite, kept to arrays of rank 2 at most.

``make array-api`` loads it. What the suite draws has rank 2 at most and, of rank 2, a column at
least; an example that asks for more all the same is rejected, as by ``hypothesis.assume``.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, currently_in_test_context, reject, settings
from hypothesis.extra import array_api

import distvec as dv

MOST_RANK = 2
LIMITS = re.compile(
    r"at most 2 axes|axes, at most 2|at most 2 are supported|more than 2 axes|column at least|"
    r"one column"
)
"""What the errors say that refuse an array of rank 3, or a table without columns."""

SERVERS = 3


@functools.cache
def session() -> dv.Session:
    """On three servers of this process."""
    return dv.local(SERVERS, in_process=True)


@functools.cache
def namespace() -> Any:
    """What is tested; in it, too, the strategies reject what they draw beyond our limits."""
    found = session().namespace
    for part in (found, found.linalg):
        for name, one in vars(part).items():
            if callable(one) and not name.startswith("_"):
                setattr(part, name, _rejecting(one))
    return found


def _fits(shape: tuple[int, ...]) -> bool:
    return len(shape) <= MOST_RANK and shape[1:] != (0,)


def _limited(strategies: Any) -> Any:
    """The strategies of ``hypothesis.extra.array_api``, of shapes that our arrays can have."""
    one, mutual = strategies.array_shapes, strategies.mutually_broadcastable_shapes
    stretched = strategies.broadcastable_shapes

    def rank(min_dims: int, max_dims: int | None) -> int:
        wanted = min_dims + 2 if max_dims is None else max_dims
        return max(min_dims, min(wanted, MOST_RANK))

    def array_shapes(*, min_dims: int = 1, max_dims: int | None = None, **sides: Any) -> Any:
        shapes = one(min_dims=min_dims, max_dims=rank(min_dims, max_dims), **sides)
        return shapes.filter(_fits)

    def broadcastable_shapes(
        shape: Any, *, min_dims: int = 0, max_dims: int | None = None, **sides: Any
    ) -> Any:
        shapes = stretched(shape, min_dims=min_dims, max_dims=rank(min_dims, max_dims), **sides)
        return shapes.filter(_fits)

    def mutually_broadcastable_shapes(
        num_shapes: Any, *, min_dims: int = 0, max_dims: int | None = None, **others: Any
    ) -> Any:
        shapes = mutual(num_shapes, min_dims=min_dims, max_dims=rank(min_dims, max_dims), **others)
        return shapes.filter(
            lambda found: all(map(_fits, (*found.input_shapes, found.result_shape)))
        )

    strategies.array_shapes = array_shapes
    strategies.broadcastable_shapes = broadcastable_shapes
    strategies.mutually_broadcastable_shapes = mutually_broadcastable_shapes
    return strategies


def _rejecting(test: Callable[..., Any]) -> Callable[..., Any]:
    """``test``, or what it calls: an example beyond our limits says nothing of it."""

    @functools.wraps(test)
    def tried(*args: Any, **kwargs: Any) -> Any:
        try:
            return test(*args, **kwargs)
        except NotImplementedError as error:
            if currently_in_test_context() and LIMITS.search(str(error)):
                reject()
            raise

    return tried


def _import_without_complex_numbers(name: str) -> None:
    """Import the module of the suite that takes the widest dtype of each kind: of none is one."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.max = functools.partial(max, default=(None, 0))  # type: ignore[attr-defined]
    sys.modules[name] = module
    spec.loader.exec_module(module)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before the suite is imported, and makes its strategies."""
    make = array_api.make_strategies_namespace
    array_api.make_strategies_namespace = lambda *args, **kwargs: _limited(make(*args, **kwargs))
    os.environ["ARRAY_API_TESTS_SKIP_DTYPES"] = "complex64,complex128"
    _import_without_complex_numbers("array_api_tests.dtype_helpers")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """The suite's settings, but many examples may be rejected, and each may take its time."""
    unhealthy = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large]
    settings.register_profile(
        "distvec", settings.default, deadline=None, suppress_health_check=unhealthy
    )
    settings.load_profile("distvec")


def pytest_collection_modifyitems(items: Iterable[Any]) -> None:
    """Skip complex numbers, and have Hypothesis reject examples that are beyond our limits."""
    seen: set[int] = set()
    for item in items:
        case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
        if getattr(case, "is_complex", False):
            item.add_marker(pytest.mark.skip(reason="complex numbers"))
        handle = getattr(getattr(item, "obj", None), "hypothesis", None)
        if handle is not None and id(handle) not in seen:
            seen.add(id(handle))
            handle.inner_test = _rejecting(handle.inner_test)


def pytest_unconfigure() -> None:
    """Stop the servers."""
    if session.cache_info().currsize:
        session().close()
