"""Covariance and correlation of vectors, and of the rows or columns of tables.

The deviations from the means are multiplied and added up by the servers, as ``T.T @ U`` is. Two
messages: the means, then the products, each of one sweep that reads what it is given once.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from distvec.array import reductions
from distvec.array.checks import refuse_if
from distvec.array.creation import reshape, squeeze
from distvec.array.functions import apply
from distvec.array.statistics import as_array
from distvec.array.transposed import Transposed, transpose
from distvec.graph import build
from distvec.graph.build import check_dtype
from ps_backend.program.types import client_type

_FLOAT = np.dtype(np.float64)


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    """The covariances of variables, which are vectors, the rows of tables, or with
    ``rowvar=False`` their columns; those of ``m`` come before those of ``y``. Lazy.

    Of k columns ``(k, k)`` numbers, which the client keeps. Of n rows a table ``(n, n)``, for which
    all of ``m`` goes through the client. Weights are looked at: implicit evaluations.
    Source: ``numpy.cov``; accumulated in float64.
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    kind = _FLOAT if dtype is None else check_dtype(dtype)
    if rowvar and np.ndim(m) == 2 and not len(m):
        kind = _FLOAT  # of no variables, as NumPy, whatever dtype= says
    if kind.kind != "f":
        raise TypeError(
            f"cov: deviations are floats, which are not cast to {kind} by the rule 'same_kind'; "
            f"leave dtype= out, and write .astype({kind.name!r})"
        )
    given = [_variables(one, rowvar) for one in (m, y) if one is not None]
    taken = 1 - bool(bias) if ddof is None else int(ddof)
    if fweights is not None or aweights is not None:
        if len(given) > 1:
            raise NotImplementedError(
                "cov: weights of two arrays; put their columns together first, as in "
                "numpy.cov(numpy.column_stack([x, y]), rowvar=False, aweights=w)"
            )
        return _weighted(given[0], fweights, aweights, taken).astype(kind)
    if given[0].shape[-1] != given[-1].shape[-1]:
        raise ValueError(
            f"cov: {given[0].shape[-1]} observations of the one array and {given[-1].shape[-1]} of "
            f"the other; give as many of both"
        )
    away = [_deviations(one) for one in given]
    freedom = _freedom(given[0], taken)
    if len(away) == 1:
        products = away[0] @ transpose(away[0])
        return squeeze(products / freedom).astype(kind)
    return (_blocks(away) / freedom).astype(kind)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The correlations of variables: their covariances, as of ``cov``, over their deviations."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c  # NaN of what does not vary
    deviations = apply("sqrt", _diagonal(c))
    ratio = c / reshape(deviations, (-1, 1)) / deviations
    return apply("minimum", apply("maximum", ratio, -1.0), 1.0)


def _diagonal(c: Any) -> Any:
    is_diagonal = np.eye(len(c), dtype=np.bool_)
    with c.session.holders.lock:
        chosen = c.like(c.session.graph.client_value(is_diagonal, is_diagonal.dtype))
    return reductions.sum(apply("where", chosen, c, 0.0), 1)


def _variables(x: Any, rowvar: bool) -> Any:
    """``x`` in float64 with observations along its last axis."""
    if not isinstance(x, Transposed) and as_array("cov", x).ndim < 2:
        return reshape(x.astype(_FLOAT), (1,)) if x.ndim == 0 else x.astype(_FLOAT)
    return x.astype(_FLOAT) if rowvar else transpose(x.astype(_FLOAT))


def _deviations(x: Any) -> Any:
    """``x`` less its mean over the observations."""
    if isinstance(x, Transposed):
        return transpose(x.table - reductions.sum(x.table, 0) / len(x.table))
    if x.ndim == 1:
        return x - reductions.sum(x) / reductions.count_of(x)
    return x - reductions.sum(x, 1, keepdims=True) / x.shape[1]


def _weighted(x: Any, fweights: Any, aweights: Any, ddof: int) -> Any:
    """The covariances of observations that count so often, or weigh so much."""
    like = x.table if isinstance(x, Transposed) else x
    count = x.shape[-1]
    often = _weights(like, fweights, "fweights", count)
    heavy = _weights(like, aweights, "aweights", count)
    if often is not None:
        refuse_if(often != apply("round", often), TypeError, "fweights must be integer")
    weights = often if heavy is None else heavy if often is None else often * heavy
    total = reductions.sum(weights)
    left = total - ddof
    if heavy is not None and ddof:
        left = total - ddof * reductions.sum(weights * heavy) / total
    mean = np.average(x, axis=x.ndim - 1, weights=weights)
    away = x - (reshape(mean, (-1, 1)) if x.ndim == 2 else mean)
    return squeeze((away * weights) @ transpose(away) / apply("maximum", left, 0.0))


def _weights(like: Any, given: Any, name: str, count: int) -> Any:
    """Weights of ``count`` observations in a vector on the servers; errors as NumPy's."""
    if given is None:
        return None
    weights = given if hasattr(given, "node") else like.session.array(np.asarray(given))
    if weights.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if weights.shape != (count,):
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    refuse_if(weights < 0, ValueError, f"{name} cannot be negative")
    return weights.astype(_FLOAT)


def _freedom(x: Any, ddof: int) -> Any:
    count = reductions.count_of(x) if x.ndim == 1 else x.shape[1]
    if isinstance(count, int) and count <= ddof:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=3)
    left = count - ddof
    return max(left, 0) if isinstance(count, int) else apply("maximum", left, 0)


def _blocks(away: list[Any]) -> Any:
    """The products of the variables of two arrays with each other, as the client keeps them."""
    if any(x.ndim == 2 and not isinstance(x, Transposed) for x in away):
        raise NotImplementedError(
            "cov: of two arrays the variables must be vectors or columns; "
            "put the observations into the rows of the tables and say rowvar=False"
        )
    first, second = away
    across = first @ transpose(second)
    parts = (first @ transpose(first), across, transpose(across), second @ transpose(second))
    sizes = [len(x) if x.ndim == 2 else 1 for x in away]
    extents = [(row, column) for row in sizes for column in sizes]
    session = across.session
    with session.holders.lock:
        graph, type = session.graph, client_type(_FLOAT, (sum(sizes), sum(sizes)))
        blocks = [
            build.reshape(graph, part.node, extent)
            for part, extent in zip(parts, extents, strict=True)
        ]
        return across.like(build.on_client(graph, "client.block", blocks, type))
