"""Fits do not depend on servers, and on partitions only by rounding."""

from __future__ import annotations

import numpy as np
import pytest

from distvec.spark import PSContext
from tests.spark.ml.same_fits import DEPENDENT, ESTIMATORS, LOOSE, fit, rows

SOME = ("machine", "keys")


def fits(spark, names, partitions, servers):
    """Parameters by name, partitions and servers."""
    made = {}
    frames = {count: rows(spark, count) for count in partitions}
    for number in servers:
        if PSContext._active is not None:
            PSContext._active.stop()
        PSContext.get_or_create(spark, servers=number)
        for count, frame in frames.items():
            for name in names:
                made[name, count, number] = fit(frame, name)
    PSContext._active.stop()
    return made


def check(found, names, partitions, servers):
    """The same bits on all servers; of other partitions roundings differ."""
    for name in names:
        one = found[name, partitions[0], servers[0]]
        assert one.any() and np.isfinite(one).all(), name
        for count in partitions:
            first = found[name, count, servers[0]]
            for number in servers[1:]:
                assert found[name, count, number].tobytes() == first.tobytes(), name
            if name not in DEPENDENT:
                assert np.allclose(first, one, rtol=0.0, atol=LOOSE.get(name, 1e-6)), name


def test_some_fits_are_the_same_on_any_servers(spark):
    check(fits(spark, SOME, (3,), (1, 3)), SOME, (3,), (1, 3))


@pytest.mark.long
@pytest.mark.parametrize("name", ESTIMATORS)
def test_fits_are_the_same_on_any_servers_and_partitions(spark, name):
    partitions, servers = (1, 3, 7), (1, 2, 3)
    check(fits(spark, [name], partitions, servers), [name], partitions, servers)
