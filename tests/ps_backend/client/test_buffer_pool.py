"""Memory of results is used again once nobody holds them, and not before."""

from __future__ import annotations

import gc

import numpy as np

from ps_backend.client.keyed import pooled
from ps_backend.kernels.numpy_loops import address_of

SHAPE = (30_000, 4)


def test_memory_comes_back_with_the_last_view() -> None:
    first = pooled(SHAPE, np.float32)
    first[:] = 1
    assert first.shape == SHAPE and first.dtype == np.float32 and first.flags.writeable
    place, part = address_of(first), first[5:7, 1:]
    del first
    gc.collect()
    second = pooled(SHAPE, np.float32)
    second[:] = 2
    assert np.all(part == 1)
    del part
    gc.collect()
    third = pooled((60_000, 1), np.float64)
    assert address_of(third) == place
    assert np.all(second == 2)


def test_what_does_not_fit_is_fresh() -> None:
    held = pooled(SHAPE, np.float64)
    del held
    for shape in ((100_000, 4), (3, 4), (0, 4), (40_000,)):
        found = pooled(shape, np.float64)
        found[...] = 3
        assert found.shape == shape and np.all(found == 3)
