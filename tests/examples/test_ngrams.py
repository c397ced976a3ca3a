import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.ngrams import hashed_ngrams

WRAP = 1 << 64
line_lists = st.lists(st.binary(max_size=12), max_size=8)


def buffer(lines):
    offsets = np.cumsum([0, *map(len, lines)], dtype=np.int64)
    return np.frombuffer(b"".join(lines), dtype=np.uint8), offsets


def bucket(gram, bits):
    value = 0
    for byte in gram:
        value = (value * 0x100000001B3 + byte) % WRAP
    value = (value + len(gram)) % WRAP
    return ((value ^ value >> 31) * 0x9E3779B97F4A7C15 % WRAP) >> (64 - bits)


def row_by_row(line, lengths, bits):
    """The definition, one n-gram at a time."""
    grams = [line[i : i + n] for n in lengths for i in range(len(line) - n + 1)]
    counts = Counter(bucket(gram, bits) for gram in grams)
    norm = np.sqrt(sum(count * count for count in counts.values()))
    return {feature: count / norm for feature, count in counts.items()}


@pytest.mark.parametrize("bits", [4, 20])
@given(lines=line_lists)
def test_same_as_row_by_row(lines, bits):
    rows = hashed_ngrams(*buffer(lines), bits=bits)
    found = [
        dict(zip(rows.indices[a:b].tolist(), rows.values[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(rows.starts)
    ]
    expected = [row_by_row(line, (3, 4, 5), bits) for line in lines]
    assert found == [pytest.approx(row, rel=1e-15) for row in expected]


@given(lines=line_lists)
def test_indices_are_sorted_and_rows_have_length_one(lines):
    rows = hashed_ngrams(*buffer(lines))
    for line, a, b in zip(lines, rows.starts, rows.starts[1:], strict=False):
        assert (np.diff(rows.indices[a:b]) > 0).all()
        assert np.linalg.norm(rows.values[a:b]) == pytest.approx(1.0 if len(line) >= 3 else 0.0)


@given(lines=line_lists, cut=st.integers(0, 8))
def test_a_line_does_not_depend_on_its_neighbours(lines, cut):
    text, offsets = buffer(lines)
    cut = min(cut, len(lines))
    whole = hashed_ngrams(text, offsets)
    parts = hashed_ngrams(text, offsets[: cut + 1]), hashed_ngrams(text, offsets[cut:])
    assert np.array_equal(whole.indices, np.concatenate([part.indices for part in parts]))
    assert np.array_equal(whole.values, np.concatenate([part.values for part in parts]))


def test_other_lengths_of_ngrams():
    rows = hashed_ngrams(*buffer([b"abab"]), lengths=(2,))
    assert sorted(rows.values.tolist()) == pytest.approx([1 / np.sqrt(5), 2 / np.sqrt(5)])
