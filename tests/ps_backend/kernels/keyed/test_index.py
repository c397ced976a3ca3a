"""The index of keyed spaces beside a dict, and its rows beside arrays of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.kernels.keyed import table_format as layout
from ps_backend.kernels.keyed.index import KeyIndex
from ps_backend.kernels.keyed.rows import RowStore, initial_rows
from ps_backend.program.initializers import Constant, Normal, Uniform
from ps_backend.program.keys import BUCKETS, MULTIPLIERS, SHIFT, bucket_of

FEW = st.sampled_from([0, -1, -(1 << 63), (1 << 63) - 1, 1, 2, 3, 1024, 4096])
BATCHES = st.one_of(
    st.lists(FEW | st.integers(-(1 << 63), (1 << 63) - 1), max_size=12, unique=True),
    st.tuples(st.integers(0, 400), st.sampled_from([1, 1024, 1 << 40])).map(
        lambda n: [k * n[1] for k in range(n[0])]
    ),
)
LINE = 64
"""Bytes with which each block is aligned."""
ROWS = [
    ("float32", (16,), Uniform(-0.05, 0.05, 7)),
    ("float64", (), Normal(0.0, 1.0, 3)),
    ("int64", (), Constant((1 << 60) + 1)),
    ("uint16", (3,), Constant(9)),
    ("float16", (2, 2), Constant(1)),
    ("bool", (), Constant(0)),
]


class Plain:
    """The oracle: for each bucket a list of its keys, and a dict of rows."""

    def __init__(self):
        self.buckets = [[] for _ in range(BUCKETS)]
        self.rows = [{} for _ in ROWS]

    @property
    def keys(self):
        return [key for bucket in self.buckets for key in bucket]

    def location(self, key):
        bucket = bucket_of_one(key)
        keys = self.buckets[bucket]
        return bucket << 32 | keys.index(key) if key in keys else -1

    def row(self, array, key):
        dtype, row, fill = ROWS[array]
        initial = initial_rows(fill, np.array([key], np.int64), row, dtype)[0]
        return self.rows[array].get(key, initial)


def bucket_of_one(key):
    return int(bucket_of(np.array([key], np.int64))[0])


def unmixed(bits):
    """The key with these mixed bits."""
    for multiplier in reversed(MULTIPLIERS):
        bits ^= bits >> SHIFT
        bits = bits * pow(multiplier, -1, 1 << 64) % (1 << 64)
    bits ^= bits >> SHIFT
    return bits - (bits >> 63 << 64)


def agree(index, stores, plain):
    keys = plain.keys
    assert index.keys_in_order().tolist() == keys
    third = len(keys) // 3
    for low, high in [(0, third), (third, third + 1), (third, len(keys)), (third, third)]:
        assert index.keys_between(low, high).tolist() == keys[low:high]
    assert len(index) == len(keys)
    assert index.counts.tolist() == [len(bucket) for bucket in plain.buckets]
    for array, (store, (dtype, row, _)) in enumerate(zip(stores, ROWS, strict=True)):
        out = np.empty((len(keys), *row), dtype)
        store.copy_to(out)
        expected = [plain.row(array, key) for key in keys]
        assert out.tobytes() == np.array(expected, dtype).tobytes()
    fresh = KeyIndex()
    fresh.insert(np.array(keys, np.int64))
    assert index.nbytes <= fresh.nbytes
    for store in stores:
        room = store.nbytes - np.count_nonzero(store.counts) * LINE
        assert room <= 1.3 * len(keys) * np.dtype((store.dtype, store.row)).itemsize


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_beside_a_dict(data):
    index, plain = KeyIndex(), Plain()
    stores = [RowStore(*row) for row in ROWS]
    for _ in range(data.draw(st.integers(1, 5))):
        batch = data.draw(BATCHES)
        keys = np.array(batch, np.int64)
        locations = index.find(keys)
        assert locations.tolist() == [plain.location(key) for key in batch]
        wanted = read(stores, locations, keys)
        for array, rows in enumerate(wanted):
            assert rows.tobytes() == b"".join(plain.row(array, key).tobytes() for key in batch)
        if data.draw(st.booleans()):
            write(data, index, stores, plain, keys, locations, wanted)
        elif plain.keys:
            every = data.draw(st.integers(1, 4))
            mask = np.arange(len(index)) % every == 0
            counts = index.counts.copy()
            kept = set(np.array(plain.keys)[mask].tolist())
            if data.draw(st.booleans()):
                remove(index, np.array(plain.keys, np.int64), mask)
            index.keep(mask)
            for store in stores:
                store.keep(mask, counts)
            plain.buckets = [[key for key in bucket if key in kept] for bucket in plain.buckets]
            plain.rows = [{k: v for k, v in rows.items() if k in kept} for rows in plain.rows]
        agree(index, stores, plain)


def remove(index, keys, mask):
    before = index.find(keys)
    assert index.remove(keys[~mask]) == np.count_nonzero(~mask)
    assert index.remove(keys[~mask]) == 0
    assert index.find(keys).tolist() == np.where(mask, before, -1).tolist()
    assert len(index) == np.count_nonzero(mask)
    assert index.slots_in_use().tolist() == mask.tolist()


def read(stores, locations, keys):
    rows = [np.empty((len(keys), *store.row), store.dtype) for store in stores]
    for store, out in zip(stores, rows, strict=True):
        store.gather(locations, keys, out)
    return rows


def write(data, index, stores, plain, keys, locations, before):
    missing = index.missing(keys)
    assert missing.sum() == (locations < 0).sum()
    assert missing.tolist() == index.missing(keys, locations).tolist()
    objects = [index, *stores]
    most = [one.nbytes + one.bytes_for(missing) for one in objects]
    old_counts = index.counts.copy()
    given = locations if data.draw(st.booleans()) else None
    found, fresh = index.insert(keys, given)
    assert fresh.tolist() == (locations < 0).tolist()
    for key in keys[fresh].tolist():
        plain.buckets[bucket_of_one(key)].append(key)
    assert found.tolist() == [plain.location(key) for key in keys.tolist()]
    for store in stores:
        store.grow(index, old_counts)
    assert all(one.nbytes <= bound for one, bound in zip(objects, most, strict=True))
    assert [rows.tobytes() for rows in before] == [
        rows.tobytes() for rows in read(stores, found, keys)
    ]
    op = data.draw(st.sampled_from(["replace", "add", "min", "max"]))
    ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum}.get(op)
    rng = np.random.default_rng(len(keys))
    for array, store in enumerate(stores):
        values = (rng.standard_normal((len(keys), *store.row)) * 100).astype(store.dtype)
        skipped = found.copy()
        skipped[::3] = -1
        store.scatter(skipped, values, op)
        for k, key in enumerate(keys.tolist()):
            if k % 3:
                old = plain.row(array, key)
                plain.rows[array][key] = ufunc(old, values[k]) if ufunc else values[k]


def test_the_same_key_twice_in_a_batch_has_one_slot():
    index = KeyIndex()
    locations, fresh = index.insert(np.array([5, 7, 5], np.int64))
    assert locations[0] == locations[2] and fresh.tolist() == [True, True, False]
    assert len(index) == 2


def test_growth_and_back():
    rng = np.random.default_rng(1)
    index, store = KeyIndex(), RowStore("int64", (), Constant(0))
    keys = rng.integers(-(1 << 63), (1 << 63) - 1, 200_000)
    for batch in np.array_split(keys, 7):
        counts = index.counts.copy()
        locations, fresh = index.insert(batch)
        store.grow(index, counts)
        store.scatter(locations, batch, "replace")
        assert fresh.all()
    out = np.empty(len(keys), np.int64)
    store.copy_to(out)
    in_order = index.keys_in_order()
    assert np.array_equal(out, in_order)
    by_bucket = np.argsort(bucket_of(keys), kind="stable")
    assert np.array_equal(in_order, keys[by_bucket])
    assert index.nbytes < 18 * len(keys) and store.nbytes < 9.1 * len(keys)
    store.copy_from(-in_order)
    store.gather(index.find(keys), keys, out)
    assert np.array_equal(out, -keys)
    assert (index.find(np.arange(1000)) == -1).all()

    counts, mask = index.counts.copy(), in_order % 50 == 0
    index.keep(mask)
    store.keep(mask, counts)
    assert np.array_equal(index.keys_in_order(), in_order[mask])
    assert (index.find(in_order[~mask]) == -1).all()
    assert index.nbytes < 40 * len(index) and store.nbytes < 9.1 * len(index)


def test_what_a_new_array_has_at_keys_that_are_there():
    index, rule = KeyIndex(), Uniform(0.0, 1.0, 5)
    for low in (0, 500):
        index.insert(np.arange(low, low + 500))
    store = RowStore("float32", (3,), rule)
    store.grow(index, np.zeros(BUCKETS, np.int64))
    out = np.empty((1000, 3), np.float32)
    store.copy_to(out)
    assert np.array_equal(out, initial_rows(rule, index.keys_in_order(), (3,), "float32"))
    with pytest.raises(ValueError, match="other slots"):
        store.grow(index, np.zeros(BUCKETS, np.int64))


def test_keys_that_were_chosen_to_collide_are_refused_and_change_nothing():
    index = KeyIndex()
    index.insert(np.arange(3000))
    before = index.keys_in_order()
    with pytest.raises(ValueError, match="begin alike"):
        index.insert(np.array([unmixed((5 << layout.REST) + k) for k in range(200)]))
    assert np.array_equal(index.keys_in_order(), before)
    assert index.insert(np.arange(4000))[1].sum() == 1000


def test_a_mask_of_another_length_is_refused():
    index, store = KeyIndex(), RowStore("int8", (), Constant(0))
    with pytest.raises(ValueError, match="mask of 2 for 0 keys"):
        index.keep(np.ones(2, bool))
    with pytest.raises(ValueError, match="mask of 2 for 0 rows"):
        store.keep(np.ones(2, bool), index.counts)
    with pytest.raises(ValueError, match="no scatter 'mul'"):
        store.scatter(np.empty(0, np.int64), np.empty(0), "mul")
