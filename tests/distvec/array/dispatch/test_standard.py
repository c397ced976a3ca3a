"""The array API standard beside array_api_strict: names, parameters, and what calls give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

import distvec as dv

LATER = {"isin", "broadcast_shapes"}
"""Functions of versions of the standard after 2024.12."""

X = np.array([3.0, -1.5, 0.0, np.inf, 3.0, np.nan, 2.5])
N = np.array([3, -1, 7, 0, 3, 3, 2], np.int32)
B = np.array([True, False, True, True, False, False, True])
T = np.arange(12.0).reshape(4, 3)[:, ::-1] ** 2 - 20.0
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 5.0]])


def functions(namespace: Any) -> dict[str, Callable[..., Any]]:
    found = {name: getattr(namespace, name) for name in namespace.__all__}
    return {
        name: one
        for name, one in found.items()
        if inspect.isfunction(one) and "strict" not in name and name not in LATER
    }


@pytest.mark.parametrize("part", ["", "linalg"])
def test_every_function_has_the_parameters_of_the_standard(ps: dv.Session, part: str) -> None:
    theirs = getattr(array_api_strict, part) if part else array_api_strict
    ours = getattr(ps.namespace, part) if part else ps.namespace
    wanted = functions(theirs)
    assert len(wanted) > (130 if not part else 20)
    for name, function in wanted.items():
        ours_and_theirs = [
            [(one.name, one.kind) for one in inspect.signature(each).parameters.values()]
            for each in (getattr(ours, name), function)
        ]
        assert ours_and_theirs[0] == ours_and_theirs[1], name


def strictly(values: Any) -> Any:
    return array_api_strict.asarray(values, copy=True)


def changed(x: Any, key: Any, value: Any = 7.0) -> Any:
    x[key] = value
    return x


def added(x: Any, other: Any) -> Any:
    x += other
    return x


def small_mask(xp: Any, put: Callable[[Any], Any]) -> Any:
    """A mask of three truth values, which a session's client keeps."""
    return xp.sum(put(T), axis=0) > -60.0


CALLS: dict[str, Callable[..., Any]] = {
    "arange": lambda xp, put: xp.arange(3, 10, 2, dtype=xp.int16),
    "arange of floats": lambda xp, put: xp.arange(2.5),
    "asarray": lambda xp, put: xp.asarray([[1, 2], [3, 4]], dtype=xp.float32),
    "astype": lambda xp, put: xp.astype(put(N), xp.float32, copy=False),
    "broadcast_arrays": lambda xp, put: xp.broadcast_arrays(put(T), put(T[0])),
    "can_cast": lambda xp, put: xp.can_cast(put(N), xp.int64),
    "clip": lambda xp, put: xp.clip(put(X), min=-1.0),
    "concat": lambda xp, put: xp.concat([put(X), put(X[:2])]),
    "concat of tables": lambda xp, put: xp.concat((put(T), put(T[:1])), axis=0),
    "concat flat": lambda xp, put: xp.concat((put(T), put(X)), axis=None),
    "count_nonzero": lambda xp, put: xp.count_nonzero(put(T), axis=1, keepdims=True),
    "diff": lambda xp, put: xp.diff(put(T), axis=0, n=2),
    "diff with ends": lambda xp, put: xp.diff(put(N), prepend=put(N[:1]), append=put(N[:2])),
    "expand_dims": lambda xp, put: xp.expand_dims(put(X), axis=-1),
    "eye": lambda xp, put: xp.eye(3, 4, k=1, dtype=xp.int8),
    "flip": lambda xp, put: xp.flip(put(T)),
    "flip of rows": lambda xp, put: xp.flip(put(T), axis=0),
    "full_like": lambda xp, put: xp.full_like(put(T), 3, dtype=xp.int32),
    "imag": lambda xp, put: xp.isdtype(xp.result_type(put(X), xp.float32), "real floating"),
    "linspace": lambda xp, put: xp.linspace(0.0, 1.0, 5, endpoint=False),
    "max": lambda xp, put: xp.max(put(T), axis=-1),
    "moveaxis": lambda xp, put: xp.moveaxis(put(T), 0, -1),
    "nonzero": lambda xp, put: xp.nonzero(put(N)),
    "permute_dims": lambda xp, put: xp.permute_dims(put(T), (1, 0)),
    "prod": lambda xp, put: xp.prod(put(N), dtype=xp.float64),
    "reshape": lambda xp, put: xp.reshape(put(T), (2, -1)),
    "roll": lambda xp, put: xp.roll(put(X), 2),
    "roll of columns": lambda xp, put: xp.roll(put(T), (1, -1), axis=(0, 1)),
    "round": lambda xp, put: xp.round(put(X)),
    "squeeze": lambda xp, put: xp.squeeze(put(T[:1]), 0),
    "stack": lambda xp, put: xp.stack([put(X), put(X)], axis=1),
    "std": lambda xp, put: xp.std(put(T), axis=0, correction=1),
    "sum": lambda xp, put: xp.sum(put(N)),
    "take": lambda xp, put: xp.take(put(T), put(np.array([2, 0])), axis=1),
    "take of a vector": lambda xp, put: xp.take(put(X), put(np.array([6, 0, 0]))),
    "unstack": lambda xp, put: xp.unstack(put(T), axis=1),
    "var": lambda xp, put: xp.var(put(T)),
    "where": lambda xp, put: xp.where(put(B), put(X), put(X[::-1])),
    "zeros": lambda xp, put: xp.zeros((2, 3), dtype=xp.uint8),
    "matmul": lambda xp, put: xp.matmul(put(T), put(S)),
    "tensordot": lambda xp, put: xp.tensordot(put(T), put(S), axes=1),
    "vecdot": lambda xp, put: xp.vecdot(put(T), put(T)),
    "vector_norm": lambda xp, put: xp.linalg.vector_norm(put(T), ord=1),
    "vector_norm of nothing": lambda xp, put: xp.linalg.vector_norm(put(T), ord=3, axis=()),
    "outer": lambda xp, put: xp.linalg.outer(put(N), put(N)),
    "cholesky": lambda xp, put: xp.linalg.cholesky(put(S), upper=True),
    "cross": lambda xp, put: xp.linalg.cross(put(S), put(S[::-1])),
    "det": lambda xp, put: xp.linalg.det(put(S)),
    "diagonal": lambda xp, put: xp.linalg.diagonal(put(T), offset=-1),
    "eigh": lambda xp, put: xp.linalg.eigh(put(S))[0],
    "inv": lambda xp, put: xp.linalg.inv(put(S)),
    "matrix_norm": lambda xp, put: xp.linalg.matrix_norm(put(T), keepdims=True),
    "matrix_rank": lambda xp, put: xp.linalg.matrix_rank(put(T)),
    "pinv": lambda xp, put: xp.linalg.pinv(put(T), rtol=1e-10),
    "qr, complete": lambda xp, put: xp.linalg.qr(put(T), mode="complete"),
    "slogdet": lambda xp, put: xp.linalg.slogdet(put(S)),
    "solve": lambda xp, put: xp.linalg.solve(put(S), put(S[0])),
    "svd, full": lambda xp, put: xp.linalg.svd(put(T)),
    "svdvals": lambda xp, put: xp.linalg.svdvals(put(T)),
    "trace": lambda xp, put: xp.linalg.trace(put(T), offset=1),
    "argsort": lambda xp, put: xp.argsort(put(N), descending=True),
    "sort": lambda xp, put: xp.sort(put(T), axis=0),
    "cumulative_sum": lambda xp, put: xp.cumulative_sum(put(N), include_initial=True),
    "cumulative_prod": lambda xp, put: xp.cumulative_prod(put(T), axis=0, dtype=xp.float64),
    "meshgrid": lambda xp, put: xp.meshgrid(put(N), put(N[:3]), indexing="ij"),
    "repeat": lambda xp, put: xp.repeat(put(T), 2, axis=0),
    "repeat by one": lambda xp, put: xp.repeat(put(T), put(np.array([3])), axis=1),
    "repeat of columns": lambda xp, put: xp.repeat(put(T), put(np.array([3, 0, 1])), axis=1),
    "take_along_axis": lambda xp, put: xp.take_along_axis(put(T), xp.argsort(put(T), axis=1)),
    "tile": lambda xp, put: xp.tile(put(N), (3,)),
    "tril": lambda xp, put: xp.tril(put(T), k=-1),
    "triu": lambda xp, put: xp.triu(put(S)),
    "a diagonal that is far away": lambda xp, put: xp.eye(3, k=2**63 + 1),
    "a mask": lambda xp, put: put(X)[put(B)],
    "a mask of no axis": lambda xp, put: put(X)[put(np.array(True))],
    "indices": lambda xp, put: put(T)[put(np.array([3, 0])), put(np.array([1, -1]))],
    "a slice by a lazy number": lambda xp, put: put(X)[: xp.sum(put(N)) - 14],
    "an array turned round, changed": lambda xp, put: changed(xp.flip(put(X)), put(B)),
    "a mask of the client": lambda xp, put: changed(xp.zeros((3, 2)), small_mask(xp, put)),
    "elements by a mask of the client": lambda xp, put: put(T[:3])[small_mask(xp, put)],
    "a transpose added in place": lambda xp, put: added(put(S), xp.matrix_transpose(put(T[:3]))),
    "a transpose, assigned by a mask": lambda xp, put: changed(put(S).T, put(S).T > 1),
    "all of it, or none": lambda xp, put: changed(xp.zeros(()), put(np.array(True)), put(X[:1])),
    "columns": lambda xp, put: put(T)[1, put(np.array([1, -1]))],
    "indices in a table": lambda xp, put: put(X)[put(np.array([[0, 1], [-1, 2]]))],
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_give_what_array_api_strict_gives(sessions: dict[int, dv.Session], name: str) -> None:
    call = CALLS[name]
    expected = as_tuple(call(array_api_strict, strictly))
    for session in (sessions[2], sessions[3]):
        got = as_tuple(call(session.namespace, session.array))
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            if isinstance(theirs, bool):
                assert ours is theirs
                continue
            assert ours.dtype.name == str(theirs.dtype).rpartition(".")[2]
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours.numpy(), np.asarray(theirs), rtol=1e-13)


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)
