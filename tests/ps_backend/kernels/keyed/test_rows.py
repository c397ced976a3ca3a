"""Rows in blocks that grow: they stay, new ones are zeros, and short ones lie in one line."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.kernels.keyed.index import KeyIndex
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.program.initializers import Constant

LINE = 64


@given(st.lists(st.integers(0, 3000), max_size=6), st.sampled_from([5, 8, 16, 24]))
@settings(max_examples=25)
def test_rows_stay_where_blocks_grow_and_shrink(counts: list[int], width: int) -> None:
    """Blocks are moved by what allocates them, to any address."""
    index, store = KeyIndex(), RowStore("float32", (width,), Constant(0))
    expected: dict[int, float] = {}
    rng = np.random.default_rng(len(counts))
    for turn, count in enumerate(counts):
        before = store.counts
        fresh = np.unique(rng.integers(-(2**62), 2**62, count))
        most = store.nbytes + store.bytes_for(index.missing(fresh))
        found, _ = index.insert(fresh)
        store.grow(index, before)
        assert store.nbytes <= most
        rows = np.full((len(fresh), width), -1.0, np.float32)
        store.gather(found, fresh, rows)
        assert not rows.any()
        store.scatter(found, np.full_like(rows, turn + 1), "add")
        expected |= dict.fromkeys(fresh.tolist(), turn + 1.0)
        if turn == 3:
            keys = index.keys_in_order()
            mask = keys % 3 > 0
            store.keep(mask, index.counts.copy())
            index.keep(mask)
            expected = {key: value for key, value in expected.items() if key % 3 > 0}
        keys = index.keys_in_order()
        rows = np.empty((len(keys), width), np.float32)
        store.gather(index.find(keys), keys, rows)
        assert dict(zip(keys.tolist(), rows[:, -1].tolist(), strict=True)) == expected
        assert np.all(rows == rows[:, :1])


def test_rows_of_a_line_lie_in_one() -> None:
    """Wherever blocks were moved to."""
    index, store = KeyIndex(), RowStore("float32", (LINE // 4,), Constant(0))
    for keys in np.arange(40_000).reshape(4, -1):
        before = store.counts
        index.insert(keys)
        store.grow(index, before)
        starts = store._addresses[store.counts > 0]
        assert not np.any(starts % LINE)
