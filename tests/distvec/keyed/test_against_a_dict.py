"""A keyed space does what a dict of rows would do, whatever the number of servers."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

import distvec as dv
from ps_backend.program.initializers import Uniform, evaluate
from ps_backend.program.keys import bucket_of

SERVERS = (1, 2, 3, 7)
FAR = (0, -1, 2**63 - 1, -(2**63))
INIT = Uniform(-0.5, 0.5, 7)

some_keys = st.lists(st.one_of(st.sampled_from(FAR), st.integers(-9, 99)), max_size=12)
seeds = st.integers(0, 2**32 - 1)


def initial(key: int) -> np.ndarray:
    return evaluate(INIT, np.array([key]), (3,), np.float32)[0]


class AsADict(RuleBasedStateMachine):
    """``rows[key]``: a number of ``w`` and a row of ``t``, in the order of insertion."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, list] = {}
        self.removed = 0

    @initialize()
    def begin(self) -> None:
        self.sessions = [dv.local(count, in_process=True) for count in SERVERS]
        self.spaces = [ps.keys() for ps in self.sessions]
        self.arrays = [(s.zeros(), s.table(3, init=INIT)) for s in self.spaces]

    def teardown(self) -> None:
        for session in getattr(self, "sessions", ()):
            session.close()

    def insert(self, keys) -> None:
        for key in sorted(set(keys)):  # different ones, in ascending order, as they travel
            self.rows.setdefault(key, [0.0, initial(key)])

    def order(self) -> list[int]:
        buckets = dict(zip(self.rows, bucket_of(np.array([*self.rows], np.int64)), strict=True))
        return sorted(self.rows, key=buckets.__getitem__)

    @rule(keys=some_keys, seed=seeds)
    def push(self, keys, seed) -> None:
        numbers = np.random.default_rng(seed).integers(-9, 9, len(keys)).astype(float)
        for w, _ in self.arrays:
            w.push(keys, numbers)
        self.insert(keys)
        for key, number in zip(keys, numbers, strict=True):
            self.rows[key][0] += number

    @rule(keys=some_keys, seed=seeds)
    def push_rows(self, keys, seed) -> None:
        keys = [*dict.fromkeys(keys)]  # the sums of repeated ones are rounded: see below
        rows = np.random.default_rng(seed).random((len(keys), 3), np.float32)
        for _, t in self.arrays:
            t.push(keys, rows)
        self.insert(keys)
        for key, row in zip(keys, rows, strict=True):
            self.rows[key][1] = self.rows[key][1] + row

    @rule(keys=some_keys, seed=seeds)
    def assign(self, keys, seed) -> None:
        rows = np.random.default_rng(seed).random((len(keys), 3), np.float32)
        for _, t in self.arrays:
            t.assign(keys, rows)
        self.insert(keys)
        for key, row in zip(keys, rows, strict=True):
            self.rows[key][1] = row

    @rule(keys=some_keys, number=st.integers(-9, 9), largest=st.booleans())
    def extremes(self, keys, number, largest) -> None:
        for w, _ in self.arrays:
            (w.maximum if largest else w.minimum)(keys, number)
        self.insert(keys)
        for key in keys:
            self.rows[key][0] = (max if largest else min)(self.rows[key][0], number)

    @rule(keys=some_keys)
    def remove(self, keys) -> None:
        for space in self.spaces:
            space.remove(keys)
        for key in set(keys):
            self.removed += self.rows.pop(key, None) is not None

    @rule(least=st.integers(-9, 9))
    def evict(self, least) -> None:
        gone = [key for key, (number, _) in self.rows.items() if number < least]
        for space, (w, _) in zip(self.spaces, self.arrays, strict=True):
            assert space.evict(w < least) == len(gone)
        for key in gone:
            del self.rows[key]
        self.removed += len(gone)

    @rule(count=st.integers(0, 20))
    def keep(self, count) -> None:
        order = self.order()
        ranked = sorted(range(len(order)), key=lambda k: (-self.rows[order[k]][0], k))
        kept = {order[k] for k in ranked[:count]}
        for space, (w, _) in zip(self.spaces, self.arrays, strict=True):
            assert space.keep(count, by=w) == len(order) - len(kept)
        self.removed += len(order) - len(kept)
        self.rows = {key: row for key, row in self.rows.items() if key in kept}

    @rule(factor=st.integers(-2, 2))
    def compute(self, factor) -> None:
        for w, _ in self.arrays:
            w.assign(factor * w + 1)
        for row in self.rows.values():
            row[0] = factor * row[0] + 1

    @rule(keys=some_keys)
    def pull(self, keys) -> None:
        rows = [self.rows[key][1] if key in self.rows else initial(key) for key in keys]
        there = [key in self.rows for key in keys]
        for space, (_, t) in zip(self.spaces, self.arrays, strict=True):
            found, is_there = t.pull(keys, return_found=True)
            np.testing.assert_array_equal(found, np.array(rows, np.float32).reshape(-1, 3))
            np.testing.assert_array_equal(is_there, np.array(there, bool))
            np.testing.assert_array_equal(space.contains(keys), is_there)

    @invariant()
    def has_the_same_items(self) -> None:
        order = self.order()
        numbers = np.array([self.rows[key][0] for key in order])
        rows = np.array([self.rows[key][1] for key in order], np.float32).reshape(-1, 3)
        sums = set()
        for space, (w, t) in zip(
            getattr(self, "spaces", ()), getattr(self, "arrays", ()), strict=True
        ):
            assert space.keys().tolist() == order
            state = space.state()
            assert (state.keys, state.evicted) == (len(order), self.removed)
            first, second = space.frozen(w, t)
            np.testing.assert_array_equal(first.numpy(), numbers)
            np.testing.assert_array_equal(second.numpy(), rows)
            sums.add(float(np.sum(second)) if order else 0.0)
        assert len(sums) <= 1


TestAsADict = AsADict.TestCase
TestAsADict.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)
