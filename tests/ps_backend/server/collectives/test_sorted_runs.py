"""Where sorted runs are cut, so that so many keys come before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.server.collectives import sorting as runs

PARTS = st.lists(
    st.lists(st.integers(0, 6), max_size=200).map(sorted), min_size=1, max_size=5
).filter(any)


def expected(parts, rank):
    server = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    first = np.argsort(np.concatenate(parts), kind="stable")[:rank]
    return np.bincount(server[first], minlength=len(parts)).tolist()


@given(PARTS, st.data())
def test_the_first_keys_of_all_parts_are_found_in_each(drawn, data):
    parts = [np.array(part, np.uint8) for part in drawn]
    rank = data.draw(st.integers(0, sum(map(len, parts))))
    assert runs.split_at_rank(parts, rank).tolist() == expected(parts, rank)


@given(PARTS, st.integers(0, 1), st.data())
def test_samples_say_in_which_window_of_each_run_a_rank_is(drawn, count, data):
    parts = [np.array(part, np.uint8) for part in drawn if part]
    first = data.draw(st.integers(0, sum(map(len, parts)) - count))
    lengths = [len(part) for part in parts]
    strides = [runs.stride(length) for length in lengths]
    samples = [part[::step] for part, step in zip(parts, strides, strict=True)]
    window = runs.Bounds(samples, lengths, strides).window(first, first + count, np.uint8)
    assert window.wanted == first - sum(window.starts)
    low, high = expected(parts, first), expected(parts, first + count)
    for start, room, lowest, past in zip(window.starts, window.parts, low, high, strict=True):
        assert 0 <= start <= lowest <= past <= start + len(room)
        assert len(room) <= (len(parts) + 3) * max(strides)
    for start, room, part in zip(window.starts, window.parts, parts, strict=True):
        assert start + len(room) <= len(part)
