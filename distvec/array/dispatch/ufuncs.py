"""``__array_ufunc__``: calls of NumPy's ufuncs on arrays of the servers, and their methods.

With ``ufunc.at`` repeated indices count each time, which ``x[indices] += values`` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array import products, reductions
from distvec.array.collectives import counting, scan
from distvec.array.collectives.core import scatter_now
from distvec.array.collectives.scan import accumulate, reduceat
from distvec.array.core import shapes
from distvec.array.core.handle import check_not_slice
from distvec.array.core.keywords import (
    NOT_GIVEN,
    check_bound,
    check_out,
    is_everywhere,
    store,
    where_mask,
)
from distvec.array.core.operators import Arithmetic, Deferred, as_array, elementwise
from distvec.array.elementwise import array_among
from distvec.array.indexing.getitem import get_item
from distvec.array.indexing.pull_push import as_indices, join_rows, pull, push
from distvec.array.indexing.setitem import set_item
from distvec.array.manipulation.grids import outer
from distvec.graph.build import check_dtype
from ps_backend.program import ops, reducers
from ps_backend.program.collectives import SCANS, WAYS
from ps_backend.program.row_ops import JOINS


def at(function: Any, x: Any, indices: Any, *values: Any) -> None:
    """Apply ``function.at(x, indices, values)``; each repeated integer counts, in order.

    Masks and slices name no element twice: they are lazy. So are indices on the servers, which send
    the values to their places in two requests. Integers on the client evaluate ``x`` if needed;
    ``numpy.add`` and ``numpy.subtract`` then take one request to each server that holds some of the
    elements, others two: the elements come to the client, and go back.
    """
    name = f"numpy.{function.__name__}.at"
    if not isinstance(x, Arithmetic):
        if function is np.add and _adds_few(x, indices, values):
            _add_few(x, indices, *values)
            return
        raise TypeError(
            f"{name}: the first argument is a {type(x).__name__} on the client; put it on the "
            "servers: z = ps.array(z), or pull the others: x.numpy()"
        )
    if x.is_split_by_columns:
        if function.__name__ not in JOINS:
            raise TypeError(
                f"{name} of a transposed table is not available on the servers; "
                f"call it on the table, x.T, or pull the values with x.numpy()"
            )
        join_rows(function.__name__, x, as_indices(indices, len(x)), *values)
        return
    if _names_once(indices):
        with x.write_lock:
            set_item(x, indices, function(get_item(x, indices), *values))
        return
    if isinstance(indices, Arithmetic) and not indices.node.on_client:
        _scatter(name, function, x, indices, values)
        return
    where = _integers(name, indices)
    spread = [_broadcast_values(x, where, one) for one in values]
    if function not in (np.add, np.subtract):
        _on_client(function, x, as_indices(where.ravel(), len(x)), spread)
        return
    if x.dtype == np.bool_ and function is np.subtract:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    (added,) = spread
    if added.dtype.kind in "iub" and x.dtype.kind in "iu":  # modulo their range, as in NumPy
        added = added.astype(x.dtype)
    push(x, where.ravel(), np.negative(added) if function is np.subtract else added)


def _adds_few(x: Any, indices: Any, values: tuple[Any, ...]) -> bool:
    """Whether elements on the servers are added to the few of an array of the client."""
    is_ours = isinstance(indices, Arithmetic) and indices.ndim == 1 and indices.dtype.kind in "iu"
    return is_ours and x.ndim == 1 and (x.dtype.kind == "f" or np.ndim(values[0]) == 0)


def _add_few(x: npt.NDArray[Any], indices: Arithmetic, values: Any) -> None:
    """The sums come here, which are as many as ``x`` is long: an implicit evaluation."""
    if np.ndim(values):
        found: Any = counting.bincount(indices, values, len(x))
    else:
        found = counting.bincount(indices, None, len(x)) * values
    if len(found) > len(x):
        raise IndexError(f"index {len(found) - 1} is out of bounds for axis 0 with size {len(x)}")
    np.add(x, np.asarray(found), out=x, casting="same_kind")


def _scatter(name: str, function: Any, x: Arithmetic, indices: Any, values: Any) -> None:
    if indices.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if function.nin != 2 or function.__name__ not in WAYS:
        raise TypeError(
            f"{name}: indices on the servers need a ufunc of two operands; pull the indices: "
            f"indices.numpy()"
        )
    if x.dtype == np.bool_ and function is np.subtract:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    check_not_slice(x)
    with x.write_lock:
        (given,) = values
        x.assign(scatter_now(x, function.__name__, indices, given))


def _broadcast_values(x: Arithmetic, where: npt.NDArray[Any], values: Any) -> npt.NDArray[Any]:
    """``values`` for each index: a number, or a row of a table."""
    row = x.shape[1:]
    return np.broadcast_to(np.asarray(values), (*where.shape, *row)).reshape(-1, *row)


def _on_client(
    function: Any, x: Arithmetic, where: npt.NDArray[np.int64], values: list[npt.NDArray[Any]]
) -> None:
    """``function.at`` of the elements that are named, which the client computes."""
    named, places = np.unique(where, return_inverse=True)
    with x.write_lock:
        elements = pull(x, named)
        function.at(elements, places, *values)
        set_item(x, named, elements)


def _integers(name: str, indices: Any) -> npt.NDArray[Any]:
    """``indices`` along the first axis."""
    if isinstance(indices, tuple) and len(indices) != 1:
        raise TypeError(f"{name}: indices must be along the first axis, got {len(indices)} of them")
    where = np.asarray(indices[0] if isinstance(indices, tuple) else indices)
    if where.size and where.dtype.kind not in "iu":
        raise TypeError(f"{name}: indices must be integers, got {where.dtype}")
    return where


def _names_once(indices: Any) -> bool:
    """Whether ``indices`` are a mask or a slice."""
    dtype = indices.dtype if hasattr(indices, "dtype") else None
    return isinstance(indices, slice) or indices is Ellipsis or dtype == np.bool_


_PRODUCTS: dict[Any, Callable[..., Any]] = {
    np.matmul: products.matmul,
    np.vecdot: products.vecdot,
    np.matvec: products.matmul,
    np.vecmat: products.matmul,
}
_FREE_KEYWORDS = {"casting": "same_kind", "order": "K", "subok": True}


def ufunc(function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``__array_ufunc__``; ``TypeError`` if no op is the ufunc."""
    if method == "__call__" and not kwargs and (name := _op_of(function)) is not None:
        try:
            return elementwise(array_among(name, inputs), name, *inputs)
        except Deferred:
            return NotImplemented
    if _changes_client_array(method, inputs, kwargs):
        return getattr(function, method)(
            *map(_value_of, inputs), **{key: _value_of(one) for key, one in kwargs.items()}
        )
    if method == "reduce" and function in reducers.NAMES:
        return _reduce(function, inputs, kwargs)
    if method == "reduce" and scan.is_associative(function):
        (out,) = kwargs.pop("out", (None,))
        return store(out, scan.reduce(function, *inputs, **kwargs), function.__name__)
    if method == "__call__" and function in ops.PARTS:
        return _parts(function, inputs, kwargs)
    if method == "at":
        return at(function, *inputs)
    if method in ("accumulate", "reduceat"):
        (out,) = kwargs.pop("out", (None,))
        ours: Any = accumulate if method == "accumulate" else reduceat
        return ours(function, *inputs, out=out, **kwargs)
    if method == "outer":
        return _outer(function, inputs, kwargs)
    (out,) = kwargs.pop("out", (None,))
    dtype, where = kwargs.pop("dtype", None), kwargs.pop("where", True)
    if isinstance(out, np.ndarray) and any(one is out for one in inputs) and _on_servers(inputs):
        raise _in_place_on_client(function)
    run = _runner(function, (*inputs, out)) if method == "__call__" else None
    if run is None:
        raise _unavailable(function, method)
    casting = kwargs.pop("casting", "same_kind")
    _check_free(function, kwargs)
    if casting != "same_kind":
        _check_casting(function, inputs, out, dtype, casting)
    try:
        result = run(*inputs) if dtype is None else _run_in(dtype, run, inputs, casting)
    except Deferred:
        return NotImplemented
    if casting == "unsafe" and out is not None:
        result = result.astype(out.dtype)
    if not is_everywhere(where):
        return _store_where(out, where, result, function.__name__)
    if function in _PRODUCTS and function is not np.vecdot:
        return store(out, result, function.__name__, "same_kind")
    return store(out, result, function.__name__)


@lru_cache(maxsize=512)
def _op_of(function: Any) -> str | None:
    """The op that a call of the ufunc is, if it is exactly one."""
    return None if function in _PRODUCTS or function in ops.PARTS else ops.name_of(function)


def _changes_client_array(method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether results go into an array of NumPy's, and no operand is on the servers."""
    out = inputs[:1] if method == "at" else kwargs.get("out", ())
    others = (*inputs, kwargs.get("where", True))
    return (
        bool(out)
        and all(isinstance(one, np.ndarray) for one in out)
        and all(one.node.on_client for one in others if isinstance(one, Arithmetic))
    )


def _value_of(operand: Any) -> Any:
    """The value of an array that the client keeps: an implicit evaluation if it is pending."""
    return np.asarray(operand) if isinstance(operand, Arithmetic) else operand


_SIGNS = {
    np.add: "+",
    np.subtract: "-",
    np.multiply: "*",
    np.true_divide: "/",
    np.floor_divide: "//",
    np.remainder: "%",
    np.power: "**",
}


def _on_servers(inputs: tuple[Any, ...]) -> bool:
    """Whether servers store one of the operands."""
    return any(isinstance(one, Arithmetic) and not one.node.on_client for one in inputs)


def _in_place_on_client(function: Any) -> TypeError:
    """Return the error text for ``z += x``, if ``z`` is an array on the client."""
    name = function.__name__
    sign = _SIGNS.get(function)
    changed = f"z {sign}= x" if sign else f"numpy.{name}(z, x, out=z)"
    pulled = changed.replace("x,", "x.numpy(),") if sign is None else f"{changed}.numpy()"
    return TypeError(
        f"{name}: {changed} changes an array of the client by one of the servers; pull that, "
        f"{pulled}, or put z on the servers: z = ps.array(z)"
    )


def _unavailable(function: Any, method: str) -> TypeError:
    """Return the error for a ufunc, or a method of one, that is not available on the servers."""
    name = function.__name__
    if set(function.types[0]) <= set("O->"):
        return TypeError(
            f"{name} is a Python function, which is called for each element on the client; "
            f"write it with NumPy functions, or pull the values: x.numpy()"
        )
    there = ""
    if method == "reduce":
        known = {one.__name__ for one in reducers.NAMES if isinstance(one, np.ufunc)} | set(SCANS)
        there = "; available are reduce of " + ", ".join(sorted(known))
    call = name if method == "__call__" else f"{name}.{method}"
    package = "numpy" if getattr(np, name, None) is function else "scipy.special"
    return TypeError(
        f"{package}.{call} is not available on the servers{there}; "
        f"pull the values with x.numpy() and call it on those"
    )


def _outer(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc.outer`` of vectors: a table, with a row for each element of the first one."""
    first, second = inputs
    ranks = [one.ndim if isinstance(one, Arithmetic) else np.ndim(one) for one in inputs]
    if sum(ranks) > shapes.MOST_RANK:
        raise NotImplementedError(
            f"numpy.{function.__name__}.outer of arrays of rank {ranks[0]} and {ranks[1]} would "
            f"have more than {shapes.MOST_RANK} axes; use vectors"
        )
    applied = partial(function, **kwargs)
    return applied(first, second) if 0 in ranks else outer(first, second, function=applied)


def _check_free(function: Any, kwargs: dict[str, Any]) -> None:
    """Raise ``TypeError`` for a keyword whose value differs from NumPy's default."""
    for key, value in kwargs.items():
        if not isinstance(value, bool | str) or value != _FREE_KEYWORDS.get(key):
            given = value if isinstance(value, bool | str) else f"<{type(value).__name__}>"
            raise TypeError(f"numpy.{function.__name__}: keyword {key}={given} is not supported")


def _parts(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The results of a ufunc that has several."""
    name, rows = function.__name__, ops.PARTS[function]
    outs = kwargs.pop("out", (None,) * len(rows))
    _check_free(function, kwargs)
    like = array_among(name, (*inputs, *outs))
    results = [elementwise(like, row, *inputs) for row in rows]
    return tuple(store(out, result, name) for out, result in zip(outs, results, strict=True))


def _store_where(out: Any, where: Any, result: Any, name: str) -> Any:
    """Store ``result`` in ``out`` for elements whose mask is true."""
    if out is None:
        raise TypeError(
            f"numpy.{name}: keyword where= leaves the other elements undefined; give out= as well, "
            f"or write distvec.where(mask, numpy.{name}(...), others)"
        )
    target = check_out(out, name)
    with target.write_lock:
        fits = np.can_cast(result.dtype, target.dtype, "same_kind")
        new = result.astype(target.dtype) if fits else result  # which assign then refuses
        mask = where_mask(target, where, f"numpy.{name}")
        return target.assign(elementwise(target, "where", mask, new, target), name)


def _runner(function: Any, operands: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return the function that computes a ufunc in the session of ``operands``, or None."""
    if function in _PRODUCTS:
        return _PRODUCTS[function]
    name = ops.name_of(function)
    if name is None:
        return None
    return partial(elementwise, array_among(name, operands), name)


def _check_casting(
    function: np.ufunc, inputs: tuple[Any, ...], out: Any, dtype: Any, casting: Any
) -> None:
    """Raise ``TypeError`` if the rule ``casting`` forbids a cast of an operand or of the result."""
    kinds = [type(one) if type(one) in (int, float) else np.result_type(one) for one in inputs]
    outs: Any = (None,) * function.nout if out is None else (np.result_type(out),)
    wanted = (None,) * function.nin + (dtype,) * function.nout
    fixed: Any = {} if dtype is None else {"signature": wanted}
    function.resolve_dtypes((*kinds, *outs), casting=casting, **fixed)


def _run_in(
    dtype: Any, run: Callable[..., Any], inputs: tuple[Any, ...], casting: Any = "same_kind"
) -> Any:
    """Compute the result in ``dtype``: as in NumPy the operands are cast to it."""
    wanted, natural = check_dtype(dtype), run(*inputs)
    if natural.dtype == wanted:
        return natural
    for operand in (*inputs, natural):
        if hasattr(operand, "dtype") and not np.can_cast(operand.dtype, wanted, casting):
            raise TypeError(
                f"dtype={wanted}: cannot cast from {operand.dtype} by the rule {casting!r}; "
                f"cast the operand or the result: .astype({wanted.name!r})"
            )
    return run(*(x.astype(wanted) if hasattr(x, "dtype") else x for x in inputs)).astype(wanted)


def _reduce(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute ``ufunc.reduce``, along the first axis by default."""
    ours = reductions.reduction_function(reducers.NAMES[function])
    (x,) = inputs
    as_array(f"{function.__name__}.reduce", x)
    (out,) = kwargs.pop("out", (None,))
    # NumPy passes its defaults on, which have no effect here.
    unsaid = {"dtype": None, "initial": NOT_GIVEN, "where": True}
    given = {key: value for key, value in kwargs.items() if value is not unsaid.get(key, False)}
    given.setdefault("axis", 0 if x.ndim else None)
    check_bound(f"{function.__name__}.reduce", ours, (x,), given)
    return ours(x, out=out, **given)
