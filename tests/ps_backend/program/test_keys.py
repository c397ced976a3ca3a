"""Keys of keyed spaces: their buckets and servers, which integers they are, hashes of texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.program.keys import (
    BUCKETS,
    are_different,
    bucket_of,
    check_keys,
    hash_texts,
    hash_tuples,
    mixed,
    server_of,
)

INT64 = np.iinfo(np.int64)
KEYS = st.integers(int(INT64.min), int(INT64.max))


GOLDEN = [
    -611104468033866559,
    -2876651879951701389,
    -1205034819632174695,
    4110354093175193389,
    -8827430924072549365,
    1396603225709203849,
]


def finaliser(key):
    """MurmurHash3's, in plain integers."""
    key %= 1 << 64
    key = (key ^ (key >> 33)) * 0xFF51AFD7ED558CCD % (1 << 64)
    key = (key ^ (key >> 33)) * 0xC4CEB9FE1A85EC53 % (1 << 64)
    return key ^ (key >> 33)


@settings(max_examples=30)
@given(st.lists(KEYS), st.integers(1, 9))
def test_buckets_and_servers(keys, servers):
    given = np.array(keys, np.int64)
    assert mixed(given).tolist() == [finaliser(key) for key in keys]
    buckets = [finaliser(key) >> 54 for key in keys]
    assert bucket_of(given).tolist() == buckets
    assert server_of(given, servers).tolist() == [b * servers // BUCKETS for b in buckets]


def test_more_keys_than_are_mixed_at_a_time():
    keys = np.arange(40_000) * 4096
    assert mixed(keys)[[16_384, 39_999]].tolist() == [
        finaliser(4096 * 16_384),
        finaliser(4096 * 39_999),
    ]
    counts = np.bincount(bucket_of(keys), minlength=BUCKETS)
    assert counts.min() > 10 and counts.max() < 80


def test_what_keys_are():
    for keys in ([], [0, -1], np.array([3], np.uint64), np.arange(6, dtype=np.int8)[::2]):
        checked = check_keys(keys)
        assert checked.dtype == np.int64 and checked.flags.c_contiguous
        assert checked.tolist() == list(keys)
    assert check_keys(np.ones((2, 3), np.int64)).shape == (2, 3)
    whole = np.arange(3)
    assert check_keys(whole) is whole


@pytest.mark.parametrize(
    ("keys", "error", "text"),
    [
        ([0.5], TypeError, "not float64"),
        ([True], TypeError, "not bool"),
        (["a"], TypeError, "hash_texts"),
        ([("a", 1)], TypeError, "hash_texts"),
        (np.array([1 << 63], np.uint64), ValueError, "view"),
        ([1, 1 << 70], ValueError, "outside"),
        ([None], TypeError, "integers"),
    ],
)
def test_what_no_keys_are(keys, error, text):
    with pytest.raises(error, match=text):
        check_keys(keys)


def test_hashes_of_texts_never_change():
    known = {
        "": 0xEF46DB3751D8E999,
        "a": 0xD24EC4F1A98C6E5B,
        "abc": 0x44BC2CF5AD770999,
        "Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
    }
    assert hash_texts(known).view(np.uint64).tolist() == list(known.values())
    assert hash_texts([]).tolist() == []
    texts = ["ä", "x" * 31, "x" * 32, "日本" * 20, "\ud800", ""]
    assert hash_texts(texts).tolist() == [int(hash_texts([text])[0]) for text in texts]
    with pytest.raises(TypeError, match="item 1 is 3"):
        hash_texts(["a", 3])


def test_hashes_of_tuples_never_change():
    nested = [("user", 7), ("user", (7,)), (), (-1, "ä", "user"), (7,), ("7",)]
    hashed = hash_tuples(nested)
    assert len(set(hashed.tolist())) == len(nested)
    assert hashed.tolist() == [int(hash_tuples([one])[0]) for one in nested]
    assert hashed.tolist() == GOLDEN
    for wrong, error in ((["a"], TypeError), ([(0.5,)], TypeError), ([(True,)], TypeError)):
        with pytest.raises(error, match="tuple"):
            hash_tuples(wrong)
    with pytest.raises(ValueError, match="outside"):
        hash_tuples([(1 << 63,)])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([0, -1, 5, int(INT64.min), int(INT64.max)]), max_size=5))
def test_whether_a_key_comes_twice(keys):
    assert are_different(np.array(keys, np.int64)) == (len(set(keys)) == len(keys))
