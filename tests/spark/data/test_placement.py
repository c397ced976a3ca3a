"""When are blocks better read again, where tasks can run?"""

from __future__ import annotations

from collections import Counter

import pytest

from distvec.spark.data.placement import needs_moving


@pytest.mark.parametrize(
    ("blocks", "free", "expected"),
    [
        ({}, {"0": 2}, False),
        ({"0": 2, "1": 2}, {"0": 2, "1": 2}, False),
        ({"0": 2, "1": 2}, {"0": 0, "1": 3}, True),  # servers hold all slots of "0"
        ({"0": 2}, {"1": 2}, True),  # Spark has not forgotten "0" yet
        ({"0": 2, "1": 2}, {"0": 0, "1": 0}, False),  # nowhere is better
        ({"0": 6}, {"0": 1, "1": 3}, True),  # six turns for two
        ({"0": 6}, {"0": 2, "1": 2}, False),  # three turns for two
        ({"0": 1}, {"0": 1, "1": 9}, False),
    ],
)
def test_blocks_move_where_it_is_worth_it(blocks, free, expected):
    assert needs_moving(Counter(blocks), free) is expected
