"""Are the blocks of a data set where tasks can run?

Spark prefers the executor that has a partition cached and waits (``spark.locality.wait``, 3 s) for
a slot there. If servers hold all of its slots meanwhile, every evaluation waits so long.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

from pyspark import RDD, SparkContext

from distvec.spark.jobs.application import free_slots_by_executor

_LOPSIDED = 2.0
"""So many times the turns that evenly spread blocks would need are too many."""

_CACHED_ON = re.compile(r"executor_[^,|()]*_([^_,|()]+)")


def is_lopsided(context: SparkContext, rdd: RDD[Any]) -> bool:
    """Would tasks over the cached partitions of ``rdd`` run much faster elsewhere?

    A few calls of the JVM.
    """
    places = context._jsc.sc().dagScheduler().getCacheLocs(rdd._jrdd.rdd()).mkString("|")
    found = [match[1] for each in places.split("|") if (match := _CACHED_ON.search(each))]
    return needs_moving(Counter(found), free_slots_by_executor(context))


def needs_moving(blocks: Counter[str], free: dict[str, int]) -> bool:
    """``blocks`` and ``free`` slots by executor: do the tasks take too many turns?"""
    total, slots = blocks.total(), sum(max(0, number) for number in free.values())
    if not total or not slots:
        return False
    if any(free.get(executor, 0) <= 0 for executor in blocks):
        return True
    turns = max(math.ceil(count / free[executor]) for executor, count in blocks.items())
    return turns > _LOPSIDED * math.ceil(total / slots)
