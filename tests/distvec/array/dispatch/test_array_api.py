"""The array API standard on vectors: signatures, dtypes, devices, and what builds on them."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import array_api_compat
import numpy as np
import pytest

import distvec as dv
from ps_backend.program import ops
from tests.waiting import PATIENCE

FLOATS = np.array([1.5, -2.5, 3.25, -0.0])
INTS = np.array([3, -1, 7, 0])
BOOLS = np.array([True, False, True, True])
REDUCTIONS = [
    "sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "count_nonzero",
]  # fmt: skip


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
def test_no_dtype_is_float64(ps: dv.Session, name: str) -> None:
    for creation in (getattr(ps, name), getattr(ps.namespace, name)):
        assert creation(3).dtype == creation(3, dtype=None).dtype == np.float64
    assert ps.full(3, 7, dtype=None).dtype == np.int64


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("host", [FLOATS, INTS, BOOLS, np.array(2.5)], ids=["f", "i", "b", "rank0"])
def test_keepdims_as_numpy(ps: dv.Session, name: str, host: np.ndarray) -> None:
    expected = np.asarray(getattr(np, name)(host, keepdims=True))
    got = getattr(ps.namespace, name)(ps.array(host), keepdims=True)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(got.numpy(), expected)
    dispatched = getattr(np, name)(ps.array(host), keepdims=True)
    assert dispatched.shape == expected.shape


def test_a_kept_axis_broadcasts_in_the_same_program(ps: dv.Session) -> None:
    x = ps.array(np.linspace(0.0, 1.0, 5000)).persist()
    shifted = x - x.mean(axis=0, keepdims=True)
    shifted.persist()
    np.testing.assert_allclose(shifted.numpy(), np.linspace(-0.5, 0.5, 5000), atol=1e-15)
    assert np.linalg.norm(x, keepdims=True).shape == (1,)
    assert ps.namespace.linalg.vector_norm(x, keepdims=True).shape == (1,)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean", "any", "all"])
@pytest.mark.parametrize("host", [FLOATS, INTS, BOOLS], ids=["f", "i", "b"])
def test_over_no_axes_nothing_is_reduced(ps: dv.Session, name: str, host: np.ndarray) -> None:
    expected = getattr(np, name)(host, axis=())
    got = getattr(ps.array(host), name)(axis=())
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.numpy(), expected)


def test_an_axis_that_is_not_there_is_named(ps: dv.Session) -> None:
    for axis in (1, (0, 1), -2):
        with pytest.raises(np.exceptions.AxisError, match=r"^sum: axis (1|-2) is out of bounds"):
            ps.ones(3).sum(axis=axis)


def test_functions_have_the_parameters_of_the_standard(ps: dv.Session) -> None:
    xp = ps.namespace
    for name, op in ops.PUBLIC.items():
        if name == "round":
            continue
        parameters = inspect.signature(getattr(xp, name)).parameters
        assert list(parameters) == {1: ["x"], 2: ["x1", "x2"]}[op.arity]
    with pytest.raises(TypeError, match=r"add\(\) missing 1 required positional argument: 'x2'"):
        xp.add(ps.ones(2))
    for name in ("zeros", "arange", "zeros_like", "astype"):
        assert "device" in inspect.signature(getattr(xp, name)).parameters


def test_dtypes_are_understood_in_every_form(ps: dv.Session) -> None:
    xp, x = ps.namespace, ps.ones(3, np.float32)
    for kind in (np.float32, "float32", xp.float32, x, x.numpy()):
        assert xp.finfo(kind).dtype == np.float32
    for kind in (np.int32, "int32", xp.int32, ps.ones(3, np.int32)):
        assert xp.iinfo(kind).max == 2**31 - 1
    assert xp.result_type(np.float32, np.int64) == np.float64
    assert xp.result_type(x, 1.0) == np.float32
    assert xp.result_type(x, np.float64(1.0), ps.ones(2, np.int64)) == np.float64
    assert xp.can_cast(x, np.float64) and not xp.can_cast(np.float64, xp.float32)
    info = xp.__array_namespace_info__()
    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (64, 32, 16, 8)]
    assert info.dtypes(kind="integral") == {name: getattr(xp, name) for name in integers}
    assert info.dtypes(kind="real floating") == {"float64": xp.float64, "float32": xp.float32}
    assert "float16" not in info.dtypes(), "the standard does not have it"
    assert xp.float16 == np.float16 and info.dtypes(kind=()) == {}
    assert info.dtypes(kind="complex floating") == {}
    assert xp.isdtype(xp.uint8, "unsigned integer") and xp.iinfo(xp.int8).max == 127
    assert info.default_dtypes()["real floating"] == xp.zeros(1).dtype
    assert info.devices() == [info.default_device()] == [x.device]


def test_asarray_copies_where_it_says_so(ps: dv.Session) -> None:
    xp, x = ps.namespace, ps.ones(3)
    assert xp.asarray(x) is xp.asarray(x, copy=False) is x
    copied = xp.asarray(x, copy=True)
    copied += 1
    assert float(x.sum()) == 3.0
    for source, dtype in (([1.0], None), (np.ones(2), None), (1.0, None), (x, np.float32)):
        with pytest.raises(ValueError, match="needs a copy; leave out copy=False"):
            xp.asarray(source, dtype=dtype, copy=False)


def test_versions_and_devices_that_there_are(ps: dv.Session) -> None:
    x = ps.ones(2)
    assert x.__array_namespace__(api_version="2023.12") == ps.namespace
    with pytest.raises(ValueError, match=r"api_version must be one of .*2024\.12, got '1999\.01'"):
        x.__array_namespace__(api_version="1999.01")
    assert x.to_device(x.device) is x
    assert ps.namespace.zeros(2, device=x.device).device == x.device
    with pytest.raises(ValueError, match=r"to the client with x\.numpy\(\)"):
        x.to_device("cpu")
    with pytest.raises(ValueError, match="device must be 'servers', the only one; got 'gpu'"):
        ps.namespace.zeros(2, device="gpu")


def test_broadcast_arrays(ps: dv.Session) -> None:
    arrays = ps.ones(3), ps.full((), 2), ps.array([5.0])
    got = ps.namespace.broadcast_arrays(*arrays)
    expected = np.broadcast_arrays(*(array.numpy() for array in arrays))
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours.numpy(), theirs)
    assert type(got) is list and ps.namespace.broadcast_arrays() == []
    both = ps.namespace.broadcast_arrays(ps.full((), 2), ps.array([5.0]))
    assert [array.shape for array in both] == [(1,), (1,)]
    with pytest.raises(ValueError, match=r"cannot broadcast an array of shape \(3,\) to shape"):
        ps.namespace.broadcast_to(ps.ones(3), 4)


@pytest.mark.parametrize("shape", [(), (1,), 1, (-1,), [1]])
@pytest.mark.parametrize("host", [np.array(2.5), np.array([2.5])], ids=["scalar", "one"])
def test_one_element_takes_both_its_shapes(ps: dv.Session, host: np.ndarray, shape: Any) -> None:
    xp, expected = ps.namespace, host.reshape(shape)
    np.testing.assert_array_equal(xp.reshape(ps.array(host), shape).numpy(), expected, strict=True)
    assert xp.squeeze(ps.array(host)).shape == ()


def test_other_shapes_are_refused(ps: dv.Session) -> None:
    xp, x = ps.namespace, ps.ones(6)
    assert xp.reshape(x, -1).shape == xp.reshape(x, (6,)).shape == (6,)
    with pytest.raises(NotImplementedError, match="at most 2 axes"):
        xp.reshape(x, (1, 2, 3))
    with pytest.raises(ValueError, match=r"cannot reshape array of size 6 into shape \(5,\)"):
        xp.reshape(x, 5)
    with pytest.raises(ValueError, match="does not have length 1"):
        xp.squeeze(x, 0)


def test_a_bare_ufunc_reduction_drops_no_keyword(ps: dv.Session) -> None:
    x = ps.array(FLOATS)
    assert np.add.reduce(x, keepdims=True).shape == (1,)
    out = ps.zeros(())
    assert np.add.reduce(x, out=out) is out
    assert float(out) == FLOATS.sum()
    assert float(np.add.reduce(x, initial=5.0)) == FLOATS.sum() + 5.0
    assert float(np.add.reduce(x, where=x > 1)) == FLOATS[FLOATS > 1].sum()
    assert float(np.add.reduce(x, where=BOOLS)) == np.add.reduce(FLOATS, where=BOOLS)


def test_float32_sums_accumulate_in_float64(ps: dv.Session) -> None:
    host = np.full(3000, 0.1, np.float32)
    total = ps.array(host).sum()
    assert total.dtype == np.float32
    assert np.float32(total.numpy()) == np.float32(host.sum(dtype=np.float64))


def test_array_api_compat_knows_the_namespace(ps: dv.Session) -> None:
    x = ps.ones(3)
    xp = array_api_compat.array_namespace(x, x.sum())
    assert xp == ps.namespace and xp.__name__ == "distvec"
    assert array_api_compat.is_array_api_obj(x)
    assert array_api_compat.size(x) == 3
    assert array_api_compat.device(x) == "servers"
    assert array_api_compat.to_device(x, "servers") is x


def test_dlpack_exports_copies_that_are_counted(ps: dv.Session) -> None:
    x = ps.array(FLOATS)
    before = ps.implicit_transfers
    np.testing.assert_array_equal(np.from_dlpack(x), FLOATS)
    assert ps.implicit_transfers == before + 1
    assert x.__dlpack_device__() == (1, 0)
    for refused in ({"copy": False}, {"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError):
            x.__dlpack__(**refused)
    xp = ps.namespace
    np.testing.assert_array_equal(xp.from_dlpack(INTS).numpy(), INTS)
    assert xp.from_dlpack(x) is xp.from_dlpack(x, copy=False) is x
    with pytest.raises(BufferError, match="leave out copy=False"):
        xp.from_dlpack(INTS, copy=False)


SPECIAL = """
import numpy as np, scipy.special as special, scipy.stats as stats
import distvec as dv

host = np.linspace(0.1, 0.9, 7)
with dv.local(2, in_process=True) as ps:
    for name in "entr erf exp1 expit gammaln i0 log_ndtr logit logsumexp psi sinc softmax".split():
        got, expected = getattr(special, name)(ps.array(host)), getattr(special, name)(host)
        assert isinstance(got, dv.DistArray), name
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-13, err_msg=name)
    for name in "betaln chdtr gammainc kl_div rel_entr xlog1py xlogy".split():
        x, function = ps.array(host), getattr(special, name)
        np.testing.assert_allclose(function(x, x + 1).numpy(), function(host, host + 1), rtol=1e-13)
    before = ps.implicit_transfers
    special.gammaln(ps.array(host))
    assert ps.implicit_transfers == before + 1, "SciPy computes it on the client"
    before = ps.implicit_transfers
    table = np.random.default_rng(0).standard_normal((40, 3)) ** 2
    for name in "gmean skew kurtosis sem tmean variation zscore iqr rankdata".split():
        function, axis = getattr(stats, name), {} if name == "tmean" else {"axis": 0}
        found = function(ps.array(table), **axis).numpy()
        np.testing.assert_allclose(found, function(table, **axis), rtol=1e-12, err_msg=name)
    found, expected = (stats.ttest_ind(x[:, 0], x[:, 1]) for x in (ps.array(table), table))
    np.testing.assert_allclose(float(found.pvalue), expected.pvalue, rtol=1e-12)
    assert ps.implicit_transfers == before, "computed on the servers"
print("as NumPy")
"""


def test_scipy_takes_our_arrays_for_an_array_api() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPECIAL],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},  # SciPy reads it once, when it is imported
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "as NumPy\n", done.stderr


@pytest.mark.parametrize(
    "call",
    [
        lambda: dv.sum([1.0, 2.0]),  # type: ignore[arg-type]
        lambda: dv.norm(np.ones(3)),  # type: ignore[arg-type]
        lambda: dv.dot(np.ones(3), np.ones(3)),  # type: ignore[arg-type]
        lambda: dv.argmin([3, 1]),  # type: ignore[arg-type]
    ],
)
def test_a_reduction_of_what_is_no_array_says_where_to_put_it(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"needs an array on the servers, got .*session\.array"):
        call()
