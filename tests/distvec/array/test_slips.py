"""Slips of somebody who knows NumPy: each is refused by an error that says what to type."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv

# What is typed, the error, and words of its message.
SLIPS: list[tuple[str, type[Exception], str]] = [
    ("dv.array([1.0])", AttributeError, "ps = distvec.local(), then ps.array(...)"),
    ("dv.zeros(3)", AttributeError, "then ps.zeros(...)"),
    ("dv.random.normal(3)", AttributeError, "then ps.random.normal(n)"),
    ("dv.linalg.norm(x)", AttributeError, "write distvec.norm(x)"),
    ("dv.session()", AttributeError, "distvec.local() or distvec.connect('host:port')"),
    ("dv.float64", AttributeError, "use the dtype of NumPy: numpy.float64"),
    ("dv.pi", AttributeError, "write numpy.pi"),
    ("dv.median(x)", AttributeError, "write numpy.median(x)"),
    ("dv.kernel", AttributeError, "load it: distvec.rows.api('package.module.function')"),
    ("dv.no_such_thing", AttributeError, "module 'distvec' has no attribute 'no_such_thing'"),
    ("ps.dot(x, x)", AttributeError, "write distvec.dot(...)"),
    ("ps.share(x)", AttributeError, "PSContext.get_or_create(spark)"),
    ("ps.sort(x)", AttributeError, "write numpy.sort(x)"),
    ("x[1:3].sort()", ValueError, "assignment destination is read-only"),
    ("x[1:3].partition(1)", ValueError, "assignment destination is read-only"),
    ("np.put_along_axis(x[1:3], np.array([0]), 1.0, 0)", ValueError, "is read-only"),
    ("np.subtract.accumulate(x)", TypeError, "accumulate of add"),
    ("x[..., np.array(True)]", NotImplementedError, "a mask as long as x"),
    ("x[..., x[0] > 0]", NotImplementedError, "a mask as long as x"),
    ("x.cumulative()", AttributeError, "has no attribute"),
    ("x.collect()", AttributeError, "x.numpy()"),
    ("dv.Session('localhost:7070')", TypeError, "distvec.connect('host:port')"),
    # sizes
    ("ps.zeros(1e6)", TypeError, "shape must be an integer, got 1000000.0; write int(1000000.0)"),
    ("ps.zeros((3.0,))", TypeError, "write int(3.0)"),
    ("ps.zeros(2.5)", TypeError, "shape must be an integer, got 2.5"),
    ("ps.zeros('3')", TypeError, "shape must be an integer, got '3'"),
    ("ps.zeros(None)", TypeError, "shape must be an integer, got None"),
    ("ps.zeros(-1)", ValueError, "negative dimensions are not allowed, got -1"),
    ("ps.zeros(float('nan'))", TypeError, "shape must be an integer, got nan"),
    ("ps.zeros(2**63)", ValueError, "exceeds the largest length"),
    (
        "ps.arange(float('nan'))",
        ValueError,
        "start, stop and step must be finite, got 0, nan and 1",
    ),
    ("ps.arange(float('inf'))", ValueError, "must be finite"),
    ("ps.linspace(0, 1, 5.0)", TypeError, "num must be an integer, got 5.0; write int(5.0)"),
    ("ps.random.normal(1e6)", TypeError, "write int(1000000.0)"),
    ("ps.random.poisson(5, 100)", AttributeError, "numpy.random.default_rng(seed).poisson(...)"),
    # arrays of the client changed in place
    (
        "np.add(z := np.zeros(5), x, out=z)",
        TypeError,
        "z += x.numpy(), or put z on the servers: z = ps.array(z)",
    ),
    ("operator.isub(np.zeros(5), 2 * x)", TypeError, "z -= x.numpy(), or put z on the servers"),
    ("operator.imul(np.zeros((5, 2)), x[:, None])", TypeError, "z = ps.array(z)"),
    ("np.exp(x, out=np.zeros(5))", TypeError, "out is a ndarray on the client; write out[...] ="),
    # values
    ("ps.array([2**40], 'int32')", OverflowError, "out of bounds for int32"),
    ("ps.full(3, float('nan'), 'int64')", ValueError, "NaN"),
    ("ps.full(3, x)", TypeError, "fill_value must be a scalar, got shape (5,)"),
    ("other.array(x)", ValueError, "belong to two sessions"),
    ("dv.evaluate([x])", TypeError, "write evaluate(*arrays)"),
    ("dv.round(3.4)", TypeError, "use numpy.round"),
    ("np.insert([1, 2], 0, x)", TypeError, "or put them on the servers with session.array(...)"),
    ("np.delete([1, 2], x > 9)", TypeError, "or put them on the servers with session.array(...)"),
    ("np.piecewise([1], [x > 9], [0])", TypeError, "on the servers with session.array(...)"),
    ("dv.zeros_like(3)", TypeError, "use numpy.full_like"),
    # elements
    ("x.pull(3)", IndexError, "got 3; write [3]"),
    ("x.pull('a')", IndexError, "must be a vector of integers, got 'a'"),
    ("x.pull(slice(0, 3))", IndexError, "write range(start, stop)"),
    ("x.pull(np.array([True] * 5))", IndexError, "numpy.flatnonzero"),
    ("x.pull([[0]])", IndexError, "write indices.ravel()"),
    ("x.push(3, 1.0)", IndexError, "got 3; write [3]"),
    ("x.push([1.0], [2.0])", IndexError, "write indices.astype('int64')"),
    ("x.push([0], ['a'])", TypeError, "cannot add <U1 values to a float64 array"),
    ("ps.arange(5).push([0], [1.5])", TypeError, "x.astype('float64')"),
    ("x.sum().pull([0])", TypeError, "x.item()"),
    # servers
    ("dv.local(servers='2')", TypeError, "servers must be an integer, got '2'; write servers=2"),
    ("dv.local(servers=2.0)", TypeError, "write servers=2"),
    ("dv.local('localhost:7070')", TypeError, "distvec.connect('host:port')"),
    ("dv.local(0)", ValueError, "servers must be 1 or more"),
    ("dv.local(10**6)", ValueError, "at most on this machine, got 1000000"),
    ("dv.local(memory=-1)", ValueError, "a size must be positive, got -1"),
    ("dv.local(memory=0)", ValueError, "like '512m' or '2g'"),
    ("dv.local(memory=float('nan'))", TypeError, "nan is not a size"),
    ("dv.local(memory=1.5)", TypeError, "1.5 is not a size"),
    ("dv.local(memory='2x')", ValueError, "'2x' is not a size; write it like 512m or 2g"),
    ("dv.local(memory='0g')", ValueError, "must be positive, got '0g'"),
    ("dv.connect(7070)", TypeError, "addresses must be 'host:port,host:port'"),
    ("dv.connect(('localhost', 7070))", TypeError, "a list of 'host:port'"),
    ("dv.connect('localhost')", ValueError, "must be 'host:port', got 'localhost'"),
    ("dv.connect('http://localhost:7070/')", ValueError, "write 'localhost:7070'"),
    ("dv.connect('localhost:99999')", ValueError, "a port must be between 1 and 65535"),
    ("dv.connect('localhost:7070', token=b'x')", TypeError, "token.decode()"),
    ("dv.connect('localhost:7070', token=7)", TypeError, "open(file).read().strip()"),
    ("dv.connect('localhost:7070', timeout='5')", TypeError, "a number of seconds, got '5'"),
    ("dv.connect('localhost:7070', timeout=-1)", ValueError, "0 or more seconds"),
]


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    with dv.local(2, in_process=True) as ps, dv.local(1, in_process=True) as other:
        names = {"dv": dv, "np": np, "operator": operator, "ps": ps, "other": other}
        yield names | {"x": ps.ones(5).persist()}


@pytest.mark.parametrize(("typed", "error", "words"), SLIPS, ids=[slip[0] for slip in SLIPS])
def test_a_slip_says_what_to_type(
    names: dict[str, Any], typed: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        eval(typed, names)


def test_what_is_not_there_is_not_found(names: dict[str, Any]) -> None:
    assert not hasattr(dv, "array") and not hasattr(names["ps"], "dot")
    assert not hasattr(names["x"], "__array_interface__")
    from distvec.array.array import DistArray  # the modules of these names stay importable
    from distvec.array.random import Random

    assert isinstance(names["x"], DistArray) and isinstance(names["ps"].random, Random)


def test_strange_sizes_that_are_right() -> None:
    with dv.local(np.int64(1), in_process=True, memory=np.int64(1 << 20)) as ps:
        assert ps.zeros(np.int32(3)).shape == ps.zeros([3]).shape == ps.zeros((3,)).shape == (3,)
        assert ps.random.uniform((3,)).shape == (3,)
