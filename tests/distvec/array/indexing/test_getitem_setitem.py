"""``x[key]`` and ``x[key] = value`` beside NumPy's, for any key."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import distvec as dv
from distvec.testing import outcome
from tests.distvec.conftest import SERVER_COUNTS

SHAPES = ((0,), (1,), (5,), (1025,), (3000,), (1, 1), (5, 3), (1030, 3), (1030, 1))


@st.composite
def _bound(draw: st.DrawFn, length: int) -> int | None:
    near = [-length - 1, -length, -1, 0, 1, length // 2, length - 1, length, length + 1, 1024]
    return draw(st.none() | st.sampled_from(near))


@st.composite
def _index(draw: st.DrawFn, length: int, axis: int) -> Any:
    kind = draw(st.sampled_from(("slice", "slice", "int", "ints", "mask", "servers", "all")))
    if kind == "slice":
        step = draw(st.sampled_from((None, 1, 2, 3, -1, -2, 1000)))
        return slice(draw(_bound(length)), draw(_bound(length)), step)
    if kind == "int":
        return draw(st.integers(-length, max(0, length - 1)) | st.just(length))
    if kind == "ints":
        few = st.lists(st.integers(-length, length - 1), max_size=6) if length else st.just([])
        found = np.array(draw(few), np.int64)
        return found.tolist() if draw(st.booleans()) else found
    if kind in ("mask", "servers"):
        found = np.resize(np.array(draw(st.lists(st.booleans(), min_size=1, max_size=9))), length)
        if kind == "mask" or axis:
            return found
        return draw(st.sampled_from((found, np.flatnonzero(found)))).view(OnServers)
    return slice(None)


class OnServers(np.ndarray):
    """Marks what is to be put on the servers."""


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    given = [draw(_index(n, k)) for k, n in enumerate(shape[: draw(st.integers(1, len(shape)))])]
    if draw(st.integers(0, 5)) == 0:
        given.insert(draw(st.integers(0, len(given))), draw(st.sampled_from((None, Ellipsis))))
    return given[0] if len(given) == 1 else tuple(given)


def _on_servers(session: dv.Session, key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_on_servers(session, one) for one in key)
    return session.array(np.asarray(key)) if isinstance(key, OnServers) else key


def _plain(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_plain, key))
    return np.asarray(key) if isinstance(key, OnServers) else key


def _arange(shape: tuple[int, ...], dtype: str) -> Any:
    return (np.arange(int(np.prod(shape))) % 251).astype(dtype).reshape(shape) + 1


@settings(max_examples=60)
@given(data=st.data(), shape=st.sampled_from(SHAPES), count=st.sampled_from(SERVER_COUNTS))
def test_read(
    sessions: dict[int, dv.Session], data: st.DataObject, shape: tuple[int, ...], count: int
) -> None:
    session, host = sessions[count], _arange(shape, data.draw(st.sampled_from(("f8", "i4", "?"))))
    key = data.draw(keys(shape))
    theirs, their_error = outcome(lambda: host[_plain(key)])
    x = session.array(host)
    if data.draw(st.booleans()):
        x, theirs = x * 2, theirs * 2 if their_error is None else None
    ours, error = outcome(lambda: x[_on_servers(session, key)].numpy())
    _assert_same(ours, error, theirs, their_error)


def _assert_same(ours: Any, error: Any, theirs: Any, their_error: Any) -> None:
    if error is NotImplementedError:
        return
    assert error is their_error
    if their_error is None:
        assert (ours.dtype, ours.shape) == (np.asarray(theirs).dtype, np.asarray(theirs).shape)
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=60)
@given(data=st.data(), shape=st.sampled_from(SHAPES), count=st.sampled_from(SERVER_COUNTS))
def test_write(
    sessions: dict[int, dv.Session], data: st.DataObject, shape: tuple[int, ...], count: int
) -> None:
    session, host = sessions[count], _arange(shape, data.draw(st.sampled_from(("f8", "i4"))))
    key = data.draw(keys(shape))
    x, before = session.array(host), host.copy()
    old = x.copy()
    wanted, error = outcome(lambda: np.shape(host[_plain(key)]))
    extents = data.draw(
        st.sampled_from([(), (1,), *([wanted, wanted, wanted[1:]] if wanted else []), (2,)])
    )
    value = -_arange(extents, "f8")
    place = data.draw(st.sampled_from(("client", "servers", "expression", "number")))

    def put(target: Any, key: Any, ours: bool) -> Any:
        if place == "number" or not extents:
            target[key] = -7.5
        elif place == "client" or not ours:
            target[key] = value
        else:
            given = session.array(value)
            target[key] = given if place == "servers" else given + 1 - 1
        return target

    theirs, their_error = outcome(lambda: put(host, _plain(key), False))
    ours, error = outcome(lambda: put(x, _on_servers(session, key), True).numpy())
    _assert_same(ours, error, theirs, their_error)
    np.testing.assert_array_equal(old.numpy(), before)
