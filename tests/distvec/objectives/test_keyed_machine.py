"""Machines over keys beside the same steps on dense NumPy arrays; their cost, memory and files."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.losses import FactorizationMachine, KeyedMachine, Logistic, Rows, Squared
from distvec.losses.field_aware import FieldAwareMachine
from distvec.losses.row_losses import RowLoss
from distvec.objectives.keyed_machine import INTERCEPT
from ps_backend.errors import OutOfBudget, ServerLost
from ps_backend.program.initializers import Normal, evaluate
from ps_backend.program.keys import hash_texts
from tests.distvec.keyed.conftest import messages

OPTIONS = {
    "step_size": 0.5, "beta": 1.0, "l1": 0.3, "l2": 0.1, "factor_step_size": 0.3,
    "factor_l2": 0.01, "admit": 2, "spread": 0.3, "seed": 5,
}  # fmt: skip


class Dense:
    """The formulas, of one row after the other, and DiFacto's rule, with a dict for each array."""

    def __init__(self, factors: int, fields: int, loss: RowLoss) -> None:
        self.factors, self.fields, self.loss = factors, fields, loss
        self.w, self.z, self.n, self.seen, self.V, self.s = ({} for _ in range(6))

    def vector(self, key, field):
        """Of a key, for partners of a field; zeros without factors."""
        width = self.factors * max(self.fields, 1)
        row = self.V.get(key, np.zeros(width)).astype(float)
        start = self.factors * field if self.fields else 0
        return row[start : start + self.factors], slice(start, start + self.factors)

    def margin(self, row):
        """Of the pairs (key, number) of a row, the intercept last."""
        total = sum(self.w.get(key, 0.0) * x for key, x in row)
        for i in range(len(row) - 1):
            for j in range(i):
                one, _ = self.vector(row[i][0], j)
                other, _ = self.vector(row[j][0], i)
                total += row[i][1] * row[j][1] * (one @ other)
        return total

    def learn(self, rows, signs, weights):
        margins = np.array([self.margin(row) for row in rows])
        _, slopes = self.loss.row(margins, signs)
        slopes = slopes * weights
        g, G, count = {}, {}, {}
        for row, slope in zip(rows, slopes, strict=True):
            for i, (key, x) in enumerate(row):
                g[key] = g.get(key, 0.0) + slope * x
                count[key] = count.get(key, 0) + 1
                G.setdefault(key, np.zeros(self.factors * max(self.fields, 1)))
                if i == len(row) - 1:
                    continue
                for j, (other, y) in enumerate(row[:-1]):
                    if i != j:
                        _, place = self.vector(key, j)
                        G[key][place] += slope * x * y * self.vector(other, i)[0]
        for key in g:
            self.step(key, g[key], G[key], count[key])

    def step(self, key, g, G, count):
        o = OPTIONS
        w, z, n = (one.get(key, 0.0) for one in (self.w, self.z, self.n))
        root, new = np.sqrt(n), np.sqrt(n + g * g)
        z = z + g - (new - root) / o["step_size"] * w
        shrunk = np.sign(z) * max(abs(z) - o["l1"], 0.0)
        w = -shrunk / ((o["beta"] + new) / o["step_size"] + o["l2"])
        self.w[key], self.z[key], self.n[key] = w, z, n + g * g
        self.seen[key] = self.seen.get(key, 0) + count
        if key in self.V:
            slope = G + o["factor_l2"] * self.V[key]
            self.s[key] = self.s[key] + slope * slope
            self.V[key] = self.V[key] - o["factor_step_size"] / np.sqrt(self.s[key]) * slope
        elif self.seen[key] > o["admit"] and w != 0.0 and key != INTERCEPT:
            rule = Normal(0.0, o["spread"], o["seed"])
            row = evaluate(rule, np.array([key]), (len(G),), np.float32)[0]
            self.V[key], self.s[key] = row.astype(float), np.ones(len(G))


@pytest.mark.parametrize("fields", [0, 3])
@pytest.mark.parametrize("loss", [Logistic(), Squared()])
def test_steps_are_those_of_the_formulas(sessions, fields, loss):
    rng, dense = np.random.default_rng(0), Dense(2, fields, loss)
    machines = [
        KeyedMachine(ps, factors=2, fields=fields, loss=loss, **OPTIONS) for ps in sessions.values()
    ]
    names = np.arange(12).reshape(3, 4) * 7 - 30
    for _ in range(12):
        chosen = rng.integers(0, 4, (9, 3))
        keys = names[np.arange(3), chosen]
        numbers = np.where(rng.random((9, 3)) < 0.5, 1.0, rng.normal(size=(9, 3)))
        labels = (chosen[:, 0] % 2 == chosen[:, 1] % 2).astype(float)
        weights = rng.random(9)
        rows = [dict(zip(*one, strict=True)) for one in zip(keys.tolist(), numbers, strict=True)]
        given = [[*row.items(), (INTERCEPT, 1.0)] for row in rows]
        signs = 2 * labels - 1 if isinstance(loss, Logistic) else labels
        dense.learn(given, signs, weights)
        found = [machine.partial_fit(rows, labels, weights) for machine in machines]
        assert len(set(found)) == 1
        margins = [machine.margins(rows) for machine in machines]
        assert len({one.tobytes() for one in margins}) == 1  # whatever the number of servers
        np.testing.assert_allclose(margins[0], [*map(dense.margin, given)], rtol=1e-4, atol=1e-5)
    every = [*dense.w]
    assert 0 < len(dense.V) < len(every) and 0.0 in dense.w.values()
    for machine in machines:
        np.testing.assert_allclose(
            machine.weights.pull(every), [*dense.w.values()], rtol=1e-5, atol=1e-6
        )
        assert machine.seen.pull(every).tolist() == [*dense.seen.values()]
        assert set(machine.factors.space.keys().tolist()) == set(dense.V)
        expected = np.array([*dense.V.values()])
        np.testing.assert_allclose(machine.factors.pull([*dense.V]), expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(0, 1))
def test_gradients_are_derivatives(seed, fields, leading):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(leading, fields + leading + 1, 5)
    columns = rng.integers(0, 6, lengths.sum())
    ends = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sp.csr_array((rng.normal(size=columns.size), columns, ends), shape=(5, 6))
    rows = Rows(matrix, rng.choice([-1.0, 1.0], 5), rng.random(5))
    loss = FieldAwareMachine(2, fields=fields, leading=leading)
    at = rng.normal(size=6), rng.normal(size=(6, 2 * fields))
    sums = loss.sums(rows, at, intercept=False)
    for k, gradient in enumerate(sums.gradients):
        way = rng.normal(size=at[k].shape)
        ends = []
        for h in (1e-5, -1e-5):
            moved = [one + (h * way if k == place else 0.0) for place, one in enumerate(at)]
            ends.append(loss.sums(rows, tuple(moved), intercept=False).value)
        slope = (ends[0] - ends[1]) / 2e-5
        assert np.vdot(gradient, way) == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_a_machine_of_equal_fields_is_a_plain_one():
    """Where a key has the same vector for all fields."""
    rng = np.random.default_rng(1)
    columns = np.array([rng.permutation(7)[:3] for _ in range(6)])
    matrix = sp.csr_array((rng.normal(size=18), columns.ravel(), np.arange(7) * 3), shape=(6, 7))
    rows = Rows(matrix, rng.choice([-1.0, 1.0], 6))
    w, V = rng.normal(size=7), rng.normal(size=(7, 2))
    plain = FactorizationMachine(2).sums(rows, (w, V), intercept=False)
    fields = FieldAwareMachine(2, fields=3).sums(rows, (w, np.tile(V, 3)), intercept=False)
    assert fields.value == pytest.approx(plain.value)
    np.testing.assert_allclose(fields.gradients[0], plain.gradients[0])
    summed = fields.gradients[1].reshape(7, 3, 2).sum(axis=1)
    np.testing.assert_allclose(summed, plain.gradients[1])


def test_a_minibatch_costs_two_requests_and_the_bytes_of_its_keys(ps):
    u, k = 3000, 8
    machine = KeyedMachine(ps, factors=k, admit=0, intercept=False)
    rows = np.arange(u).reshape(-1, 10) * 2**40
    labels = np.arange(len(rows)) % 2
    for _ in range(2):  # the second time the servers know the programs
        with messages(ps, 2):
            sent, received = ps.counters.bytes_sent, ps.counters.bytes_received
            machine.partial_fit(rows.tolist(), labels)
    assert len(machine.factors) == u
    received, sent = ps.counters.bytes_received - received, ps.counters.bytes_sent - sent
    assert u * (8 + 4 * k) <= received < 1.02 * u * (8 + 4 * k) + 2000
    keys = 2 * 7.1 * u  # that travel twice, as gaps
    assert sent < keys + u * (12 + 4 * k) + 4000


def test_memory_stays_within_a_limit(ps):
    machine = KeyedMachine(ps, factors=4, admit=1, most_bytes=1 << 20)
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(20):
        rare = 10_000 * number + rng.integers(100, 10_100, 500)
        rows = np.column_stack([rng.integers(0, 50, 500), rare]).tolist()
        labels = [key % 2 for key, _ in rows]
        try:
            machine.partial_fit(rows, labels)
        except OutOfBudget:
            refused += 1
            assert machine.evict(200) > 0
            machine.partial_fit(rows, labels)
        assert machine.nbytes <= 1 << 20
    assert refused > 0
    assert machine.weights.space.contains(np.arange(50)).all() and machine.intercept != 0.0
    left = machine.factors.space.keys()
    assert machine.weights.space.contains(left).all()
    assert machine.probabilities([[0], [1]])[:, 1].round().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("fields", [0, 2])
def test_a_saved_machine_continues_on_other_servers(ps, tmp_path, fields):
    rows = [["a", "x"], ["b", "x"], ["a", "y"], ["b", "z"]]
    options = {**OPTIONS, "factors": 2, "fields": fields, "admit": 1}
    machine = KeyedMachine(ps, **options)
    for _ in range(3):
        machine.partial_fit(rows, [1, 0, 1, 0])
    machine.save(tmp_path)
    with dv.local(servers=3, in_process=True) as other:
        loaded = KeyedMachine.load(other, tmp_path, **options)
        np.testing.assert_array_equal(loaded.margins(rows), machine.margins(rows))
        for one in (loaded, machine):
            one.partial_fit(rows, [1, 0, 1, 0])
        np.testing.assert_array_equal(loaded.margins(rows), machine.margins(rows))
        assert len(loaded.factors) == len(machine.factors) > 0


def test_rows_that_are_refused_and_rows_that_are_few(ps):
    machine = KeyedMachine(ps, factors=2, fields=2, admit=0)
    assert np.isnan(machine.partial_fit([], [])) and len(machine.weights) == 0
    assert machine.margins([]).shape == (0,)
    for rows, labels, weights, told in [
        ([["a", "b"]], [np.nan], None, "finite"),
        ([["a", "b"]], [2], None, r"the label is 2"),
        ([["a", "b"]], [1], [-1.0], "weights must be finite and 0 or more"),
        ([["a", "b"]], [1, 0], None, "1 rows, and 2 labels"),
        ([{"a": np.nan}], [1], None, "the numbers of keys must be finite"),
        ([["a", "b", "c"]], [1], None, "a row has 3 features that are not zero, for 2 fields"),
    ]:
        with pytest.raises(ValueError, match=told):
            machine.partial_fit(rows, labels, weights)
    with pytest.raises(TypeError, match="keys"):
        machine.partial_fit([[0.5, np.nan]], [1])
    assert len(machine.weights) == 0
    assert machine.partial_fit([["a", "b"]], [1]) == pytest.approx(np.log(2))
    assert machine.margins([["new", "b"], ["a"], []]).shape == (3,)
    assert len(machine.weights) == 3  # with the intercept
    with pytest.raises(ValueError, match="fields=1; must be 2 or more"):
        KeyedMachine(ps, fields=1)
    with pytest.raises(ValueError, match="must be 0 or more"):
        KeyedMachine(ps, admit=-1)


def test_a_killed_server_brings_both_spaces_back(tmp_path):
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, 40, (64, 2)).tolist(), rng.integers(0, 2, 64)) for _ in range(4)]
    with dv.local(2, checkpoint=tmp_path) as ps:
        machine, twin = (KeyedMachine(ps, factors=2, **OPTIONS) for _ in range(2))
        for one in (machine, twin):
            for batch in batches[:2]:
                one.partial_fit(*batch)
        ps.checkpoint()
        machine.partial_fit(*batches[3])  # is lost
        os.kill(ps._owner.pids[1], signal.SIGKILL)
        with pytest.raises(ServerLost) as lost:
            machine.partial_fit(*batches[2])
        ps.restore(lost.value.resume_from)
        for one in (machine, twin):
            one.partial_fit(*batches[2])
        assert len(machine.factors) == len(twin.factors) > 0
        keys = [[key] for key in range(40)] + batches[3][0]
        assert machine.margins(keys).tobytes() == twin.margins(keys).tobytes()


def test_the_key_of_the_intercept_is_of_a_text():
    assert hash_texts(["distvec: intercept"]).tolist() == [INTERCEPT]
