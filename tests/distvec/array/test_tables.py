"""Tables: NumPy is the oracle of values, dtypes, shapes and refusals, whatever the servers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

import distvec as dv
from distvec.testing import outcome, vectors
from distvec.testing.compare import assert_close
from tests.distvec.conftest import SERVER_COUNTS

ROWS = (0, 1, 2, 5, 1024, 1025, 2500)
COLUMNS = (1, 2, 3, 17)
DTYPES = ("float64", "float64", "float32", "int64", "int32", "bool")

EXACT: dict[str, Callable[..., Any]] = {
    "max 0": lambda t: np.max(t, axis=0),
    "max 1": lambda t: np.max(t, axis=1),
    "max all": lambda t: t.max(),
    "min -1 keepdims": lambda t: np.min(t, axis=-1, keepdims=True),
    "min 0 keepdims": lambda t: t.min(axis=0, keepdims=True),
    "max both": lambda t: np.max(t, axis=(0, 1)),
    "max all keepdims": lambda t: t.max(keepdims=True),
    "any 0": lambda t: np.any(t, axis=0),
    "all 1": lambda t: np.all(t, axis=1),
    "argmin 0": lambda t: np.argmin(t, axis=0),
    "argmax 1": lambda t: np.argmax(t, axis=1),
    "argmax all": lambda t: t.argmax(),
    "argmin keepdims": lambda t: np.argmin(t, axis=1, keepdims=True),
    "count_nonzero 0": lambda t: np.count_nonzero(t, axis=0),
    "count_nonzero 1": lambda t: np.count_nonzero(t, axis=1),
    "sum of nothing": lambda t: np.sum(np.abs(t), axis=()),
    "axis 2": lambda t: np.sum(t, axis=2),
    "axis twice": lambda t: np.sum(t, axis=(0, 0)),
    "sort 1": lambda t: np.sort(t, axis=1),
    "argsort 1": lambda t: np.argsort(t, axis=1, stable=True),
    "transpose": lambda t: np.abs(t).T,
    "row beside": lambda t: np.maximum(t, t.max(axis=0)),
    "column beside": lambda t: np.minimum(t, np.max(t, axis=1, keepdims=True)),
    "where a row": lambda t: np.where(t == t.max(axis=0), t, t.min(axis=0) + 0),
    "squeeze": lambda t: np.squeeze(np.max(t, axis=1, keepdims=True)),
    "expand a vector": lambda t: np.expand_dims(np.max(t, axis=1), 1),
    "reshape wrong": lambda t: np.reshape(t, (7, 11)),
    "columns beside": lambda t: np.concatenate([t, np.abs(t)], axis=1),
    "column stack": lambda t: np.column_stack([np.max(t, axis=1), t]),
    "broadcast": lambda t: np.broadcast_to(np.max(t, axis=1, keepdims=True), t.shape),
    "ptp 0": lambda t: np.ptp(t, axis=0),
    "nanmax 1": lambda t: np.nanmax(t, axis=1),
    "nanargmin 0": lambda t: np.nanargmin(t, axis=0),
    "array_equal": lambda t: np.array_equal(t, t, equal_nan=True),
}
"""What has NumPy's bits."""

SUMS: dict[str, Callable[..., Any]] = {
    "sum 0": lambda t: np.sum(t, axis=0),
    "sum 1": lambda t: np.sum(t, axis=1),
    "sum all": lambda t: t.sum(),
    "sum keepdims": lambda t: t.sum(axis=1, keepdims=True),
    "sum dtype": lambda t: np.sum(t, axis=0, dtype=np.float64),
    "prod 1": lambda t: np.prod(t.astype(np.float64) / 40, axis=1),
    "mean 0": lambda t: np.mean(t, axis=0),
    "mean 1": lambda t: t.mean(axis=1),
    "mean all": lambda t: np.mean(t),
    "var 0": lambda t: np.var(t.astype(np.float64), axis=0),
    "std 1": lambda t: np.std(t.astype(np.float64), axis=1, ddof=0),
    "standardise": lambda t: (t - t.mean(axis=0)) / (1 + np.std(t.astype(np.float64), axis=0)),
    "average": lambda t: np.average(t, axis=0),
    "norm all": lambda t: np.linalg.norm(t),
    "norm 0": lambda t: np.linalg.norm(t, axis=0),
    "norm 1": lambda t: np.linalg.norm(t, axis=1),
    "norm 1 of 1": lambda t: np.linalg.norm(t, ord=1, axis=1),
    "cumsum 0": lambda t: np.cumsum(t, axis=0),
    "cumsum 1": lambda t: np.cumsum(t, axis=1),
    "cumprod 1": lambda t: np.cumprod(t.astype(np.float64) / 40, axis=1),
    "vecdot": lambda t: np.linalg.vecdot(t, t),
    "nansum 0": lambda t: np.nansum(t, axis=0),
    "nanmean 1": lambda t: np.nanmean(t, axis=1),
    "outer": lambda t: np.outer(np.sum(t, axis=1), np.sum(t, axis=0)),
    "T @ v": lambda t: t @ np.sum(t, axis=0),
    "x @ T": lambda t: np.sum(t, axis=1) @ t,
    "T.T @ T": lambda t: t.T @ t,
    "T.T @ x": lambda t: t.T @ np.max(t, axis=1, initial=0),
    "T @ S": lambda t: t @ (t.T @ t),
    "v @ T.T": lambda t: np.sum(t, axis=0) @ t.T,
    "S @ T.T": lambda t: np.sum((t.T @ t) @ t.T, axis=1),
    "einsum rows": lambda t: np.einsum("ij,ij->i", t, t),
    "einsum gram": lambda t: np.einsum("ij,ik->jk", t, t),
    "einsum weighted": lambda t: np.einsum("i,ij,ik->jk", np.max(t, axis=1, initial=0), t, t),
    "einsum all": lambda t: np.einsum("ij,ij->", t, t),
    "einsum product": lambda t: np.einsum("ij,jk->ik", t, np.einsum("ij,ik->jk", t, t)),
    "tensordot": lambda t: np.tensordot(t, t),
    "vdot": lambda t: np.vdot(t, t),
}
"""What is rounded otherwise than by NumPy, which does not accumulate in float64."""


@st.composite
def tables(draw: st.DrawFn, dtype: str, *, special: bool) -> np.ndarray:
    """Tables of few drawn elements, around where splits change."""
    shape = draw(st.sampled_from(ROWS)), draw(st.sampled_from(COLUMNS))
    scale = 1e6 if special else 40.0
    values = draw(vectors(shape[0] * shape[1], dtype, special=special, scale=scale))
    return values.reshape(shape)


def value_of(result: Any) -> Any:
    return result.numpy() if hasattr(result, "numpy") else np.asarray(result)


@pytest.mark.parametrize("name", EXACT)
@given(data=st.data(), count=st.sampled_from(SERVER_COUNTS), dtype=st.sampled_from(DTYPES))
@settings(max_examples=12)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bits_are_numpys(
    sessions: dict[int, dv.Session], name: str, data: st.DataObject, count: int, dtype: str
) -> None:
    host = data.draw(tables(dtype, special=True))
    host += host.dtype.type(0)  # of two zeros of different signs NumPy's loops take either
    theirs, their_error = outcome(EXACT[name], host)
    ours, error = outcome(lambda t: value_of(EXACT[name](t)), sessions[count].array(host))
    if error is NotImplementedError and not host.size:
        return
    assert error is their_error or (error and their_error and issubclass(error, their_error))
    if error is None:
        assert_close(ours, np.asarray(theirs), 0, name)


@pytest.mark.parametrize("name", SUMS)
@given(data=st.data(), count=st.sampled_from(SERVER_COUNTS), dtype=st.sampled_from(DTYPES))
@settings(max_examples=8)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_sums_are_numpys_but_for_roundings(
    sessions: dict[int, dv.Session], name: str, data: st.DataObject, count: int, dtype: str
) -> None:
    host = data.draw(tables(dtype, special=False))
    theirs, their_error = outcome(SUMS[name], host)
    ours, error = outcome(lambda t: value_of(SUMS[name](t)), sessions[count].array(host))
    assert error is their_error
    if error is not None:
        return
    expected = np.asarray(theirs)
    assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
    wide = np.abs(np.asarray(SUMS[name](np.abs(host).astype(np.float64)), np.float64))
    epsilon = 1e-4 if expected.dtype == np.float32 else 1e-9
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(ours, expected)
    else:
        allowed = epsilon * (1e-3 + np.max(wide, initial=0.0))
        np.testing.assert_allclose(ours, expected, rtol=epsilon, atol=allowed)


OPERANDS = {
    "scalar": lambda n, k: (),
    "row": lambda n, k: (k,),
    "row of a table": lambda n, k: (1, k),
    "column": lambda n, k: (n, 1),
    "table": lambda n, k: (n, k),
    "one": lambda n, k: (1, 1),
    "wrong row": lambda n, k: (k + 1,),
    "wrong column": lambda n, k: (n + 1, 1),
}


@given(
    data=st.data(),
    count=st.sampled_from(SERVER_COUNTS),
    kinds=st.tuples(st.sampled_from(sorted(OPERANDS)), st.sampled_from(sorted(OPERANDS))),
    function=st.sampled_from((operator.add, operator.mul, np.maximum, operator.lt, np.where)),
    on_client=st.booleans(),
)
@settings(max_examples=60)
def test_broadcasting_is_numpys(
    sessions: dict[int, dv.Session],
    data: st.DataObject,
    count: int,
    kinds: tuple[str, str],
    function: Any,
    on_client: bool,
) -> None:
    """Of a table beside vectors, columns, rows, whether the servers have them or the client."""
    shape = data.draw(st.sampled_from(ROWS)), data.draw(st.sampled_from(COLUMNS))
    hosts = []
    for kind in ("table", *kinds)[: 3 if function is np.where else 2]:
        extents = OPERANDS[kind](*shape)
        size = int(np.prod(extents))
        hosts.append(data.draw(vectors(size, "float64", special=False)).reshape(extents))
    session = sessions[count]
    ours = [session.array(host) for host in hosts]
    if on_client and hosts[1].ndim and hosts[1].shape[0] in (1, shape[1]):
        ours[1] = hosts[1] if hosts[1].shape[-1] == shape[1] else ours[1]
    if function is np.where:
        hosts[0], ours[0] = hosts[0] > 0, ours[0] > 0
    theirs, their_error = outcome(function, *hosts)
    result, error = outcome(lambda *given: function(*given).numpy(), *ours)
    assert error is their_error or (error is NotImplementedError and their_error is ValueError)
    if error is None:
        assert_close(result, np.asarray(theirs), 0, function.__name__)


@pytest.mark.parametrize("width", [3, 5, 8, 16, 33])
def test_the_bits_of_a_row_do_not_depend_on_those_beside_it(
    sessions: dict[int, dv.Session], width: int
) -> None:
    """BLAS adds up a row that is alone, as the last one here on two servers, in another order."""
    host = np.random.default_rng(width).standard_normal((1025, width))
    for function in (lambda t: t @ host[0], lambda t: np.exp(t).sum(axis=1)):
        one, two = (function(sessions[count].array(host)).numpy() for count in (1, 2))
        assert one.tobytes() == two.tobytes()


@given(count=st.sampled_from(SERVER_COUNTS), rows=st.sampled_from(ROWS[1:]))
@settings(max_examples=10)
@example(count=7, rows=2500)
@example(count=2, rows=1025)  # one server has a single row, which BLAS treats as a vector
def test_the_number_of_servers_changes_no_bit(
    sessions: dict[int, dv.Session], count: int, rows: int
) -> None:
    host = np.random.default_rng(rows).standard_normal((rows, 5))

    def results(session: dv.Session) -> list[np.ndarray]:
        t = session.array(host)
        z = (t - t.mean(0)) / t.std(0)
        found = (z, t.T @ t, dv.softmax(t, axis=1), t.sum(0), t @ t.sum(0), t.prod(axis=0))
        dv.evaluate(*found)
        return [one.numpy() for one in found]

    for ours, alone in zip(results(sessions[count]), results(sessions[1]), strict=True):
        assert ours.tobytes() == alone.tobytes()


def test_made_in_a_session(ps: dv.Session) -> None:
    for ours, theirs in [
        (ps.zeros((3, 4)), np.zeros((3, 4))),
        (ps.ones((1030, 2), np.int32), np.ones((1030, 2), np.int32)),
        (ps.full((2, 3), 2.5), np.full((2, 3), 2.5)),
        (ps.eye(5), np.eye(5)),
        (ps.eye(1500, 4, k=1), np.eye(1500, 4, k=1)),
        (ps.eye(3, 5, k=-1, dtype=np.float32), np.eye(3, 5, k=-1, dtype=np.float32)),
        (np.zeros_like(ps.ones((4, 2))), np.zeros((4, 2))),
        (ps.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
    ]:
        np.testing.assert_array_equal(ours.numpy(), theirs, strict=True)
        assert (ours.shape, ours.ndim, ours.size, ours.nbytes, len(ours)) == (
            theirs.shape, 2, theirs.size, theirs.nbytes, len(theirs),
        )  # fmt: skip
    drawn = ps.random.uniform((1500, 3), seed=5)
    assert drawn.numpy().tobytes() == ps.random.uniform(4500, seed=5).numpy().tobytes()
    assert ps.random.normal((10, 2), seed=1).shape == (10, 2)


class TestCost:
    """Messages, sweeps, vectors: read off the plan and counted."""

    @pytest.fixture
    def t(self, ps: dv.Session) -> dv.DistArray:
        return ps.array(np.random.default_rng(0).standard_normal((5000, 4)))

    @pytest.mark.parametrize(
        ("expression", "messages", "read", "written"),
        [
            (lambda t: t @ np.ones(4), 1, 1, 1),
            (lambda t: t.T @ t, 1, 1, 0),
            (lambda t: dv.softmax(t, axis=1), 1, 1, 1),
            (lambda t: dv.logsumexp(t, axis=1), 1, 1, 1),
            (lambda t: t - t.mean(0), 2, 2, 1),
            (lambda t: (t - t.mean(0)) / t.std(0), 3, 3, 1),
            (lambda t: np.linalg.norm(t, axis=1), 1, 1, 1),
            (lambda t: t * t.max(axis=1, keepdims=True), 1, 1, 1),
            (lambda t: np.einsum("ij,ik->jk", t, t), 1, 1, 0),
            (lambda t: t.sum(0).sum() + t.sum(1).sum(), 1, 1, 0),
        ],
    )
    def test_of_an_expression(
        self, ps: dv.Session, t: dv.DistArray, expression: Any, messages: int, read: int,
        written: int,
    ) -> None:  # fmt: skip
        ps.counters.reset()
        result = expression(t)
        dv.evaluate(result)
        plan = result.node.origin
        assert ps.counters.messages == messages
        assert (plan.messages, plan.vectors_read, plan.vectors_written) == (messages, read, written)

    @pytest.mark.parametrize(
        "narrow", [lambda t: t @ np.ones(4), lambda t: t.sum(1), lambda t: t[:, 1]]
    )
    def test_what_is_narrower_than_the_table_is_stored_for_the_next_program(
        self, t: dv.DistArray, narrow: Any
    ) -> None:
        def centre(r: Any) -> Any:
            return r - r.mean()

        centred = centre(narrow(t)).persist()  # nobody holds what is narrow
        assert centred.node.origin.bytes_read == t.nbytes + centred.nbytes

    def test_results_that_need_the_same_share_a_sweep(
        self, ps: dv.Session, t: dv.DistArray
    ) -> None:
        ps.counters.reset()
        dv.evaluate(t.sum(0), t.max(axis=0), t.T @ t, t.sum(1), t.argmax(1), (t * 2).sum())
        assert (ps.counters.messages, ps.counters.sweeps) == (1, 1)

    def test_a_small_vector_beside_a_table_costs_no_message(
        self, ps: dv.Session, t: dv.DistArray
    ) -> None:
        v = ps.array(np.arange(4.0)).persist()
        ps.counters.reset()
        (t @ (v + 1)).persist()
        assert ps.counters.messages == 1  # the product: the client has a copy of v


def test_what_the_client_keeps_is_an_array_too(ps: dv.Session) -> None:
    host = np.random.default_rng(1).standard_normal((3000, 3))
    t = ps.array(host)
    gram, row = t.T @ t, t.sum(0)
    np.testing.assert_allclose(
        (gram @ row - row).numpy(), (host.T @ host) @ host.sum(0) - host.sum(0)
    )
    np.testing.assert_allclose(gram.T.sum(axis=0).numpy(), (host.T @ host).sum(1))
    np.testing.assert_allclose(np.sort(row).numpy(), np.sort(host.sum(0)))
    assert float(row.max()) == pytest.approx(host.sum(0).max())
    assert (gram.reshape(9).shape, gram.ravel().shape) == ((9,), (9,))
    values = row.numpy()
    values[0] = 0  # a copy
    assert row.numpy()[0] != 0


@pytest.mark.parametrize("shape", [(1,), (3,), (3, 1), (1, 3), (1, 1), (3, 3)])
def test_what_the_client_keeps_beside_what_servers_have(
    ps: dv.Session, shape: tuple[int, ...]
) -> None:
    """Where no array on the servers has all the rows of the result, the client computes it."""
    host, other = np.arange(12.0).reshape(4, 3), np.arange(1.0, 10.0)[: np.prod(shape)]
    t, other = ps.array(host), other.reshape(shape)
    beside = ps.array(other)
    for kept, same in ((t.sum(0), host.sum(0)), (t.T @ t, host.T @ host)):
        found = [kept - beside, beside * kept, np.where(kept > beside, kept, beside)]
        expected = [same - other, other * same, np.where(same > other, same, other)]
        before = ps.counters.messages
        dv.evaluate(*found)
        assert ps.counters.messages - before <= 2
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), two)


def test_assigned_in_place(ps: dv.Session) -> None:
    host = np.arange(3000.0).reshape(1000, 3)
    t, before = ps.array(host), host.copy()
    alias = t.copy()
    t += 1
    t *= t.max(axis=0)
    host += 1
    host *= host.max(axis=0)
    np.testing.assert_array_equal(t.numpy(), host)
    np.testing.assert_array_equal(alias.numpy(), before)
    np.add(t, 1, out=t)
    np.testing.assert_array_equal(t.numpy(), host + 1)
    with pytest.raises(ValueError, match="non-broadcastable output"):
        ps.ones((1000, 1)).assign(alias)


@pytest.mark.parametrize(
    ("expression", "error", "text"),
    [
        (lambda t: t + np.ones((4999, 3)), ValueError, "broadcast together"),
        (lambda t: t @ np.ones(4), ValueError, r"\(5000, 3\) and \(4,\) not aligned"),
        (lambda t: t.T @ np.ones(4), ValueError, "not aligned"),
        (lambda t: t + t[:, :2] if hasattr(t, "never") else t + t.T @ t, ValueError, "broadcast"),
        (lambda t: np.einsum("ii->", t), ValueError, "label 'i' has two lengths, 5000 and 3"),
        (lambda t: bool(t), ValueError, "ambiguous"),
        (lambda t: float(t), TypeError, "0-dimensional"),
    ],
)
def test_refused_with_what_to_type(ps: dv.Session, expression: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        expression(ps.ones((5000, 3)))


@pytest.mark.parametrize("stays", ["servers", "client"])
def test_sorted_downwards(ps: dv.Session, stays: str) -> None:
    host = np.array([[3.0, np.nan, 1.0, 3.0], [0.0, 2.0, 2.0, -1.0]])
    xp, t = ps.namespace, ps.array(host)
    if stays == "client":
        t, host = t.max(axis=0) * np.ones((2, 1)), np.tile(host.max(axis=0), (2, 1))
    assert t.node.on_client == (stays == "client")
    down = xp.sort(t, axis=1, descending=True).numpy()
    np.testing.assert_array_equal(down, np.sort(host, axis=1)[:, ::-1])
    order = xp.argsort(t, axis=1, descending=True).numpy()
    np.testing.assert_array_equal(np.take_along_axis(host, order, 1), down)
    finite = ~np.isnan(host).any(axis=1)  # in these, ties stay in order
    expected = np.argsort(-host, axis=1, stable=True)
    np.testing.assert_array_equal(order[finite], expected[finite])
