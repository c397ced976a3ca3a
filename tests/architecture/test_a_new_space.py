"""Someone adds a kind of space: the class below in ``KINDS``, and nothing else."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from distvec.array.array import DistArray
from ps_backend.client import Change, Client, SharedArray, Total, Winner
from ps_backend.errors import InvalidProgram
from ps_backend.program import spaces
from ps_backend.program.spaces import DenseSpace, Space
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ArrayType, ValueType, array_type
from tests.architecture.apart import TOKEN, servers, used
from tests.ps_backend.helpers import AXPY, DOT, put


@dataclass(frozen=True, slots=True)
class Buckets(Space):
    """So many buckets of equal size, the first of which are held by the last server."""

    buckets: int = 8

    kind: ClassVar[str] = "buckets"

    @property
    def block_size(self) -> int:
        return max(1, -(-self.length // self.buckets))

    def range_of(self, server: int, servers: int) -> tuple[int, int]:
        place = servers - 1 - server
        cuts = (place * self.buckets // servers, (place + 1) * self.buckets // servers)
        low, high = (min(cut * self.block_size, self.length) for cut in cuts)
        return low, high

    @property
    def details(self) -> bytes:
        return bytes((self.buckets,))

    @classmethod
    def decode(cls, length: int, id: int, details: bytes) -> Buckets:
        return cls(length, id, *details)


def register() -> None:
    """In every process that has such spaces."""
    spaces.KINDS[Buckets.kind] = Buckets


LENGTH = 10_001
TYPE = array_type(Buckets(LENGTH, 1), float)
X, Y = np.random.default_rng(0).standard_normal((2, LENGTH))
F8, I8 = ValueType("float64"), ValueType("int64")
PLACES = np.array([9_999, 3, 3, 5_000, 0])


def use(ps) -> None:
    """In a process of its own: arrays over the space, on servers that are others'."""
    client, space = ps.client, TYPE.space
    x, y, z = put(client, space, X), put(client, space, Y), client.new_id()
    assert space.holders(2) == [1, 0]
    assert client.read(x, TYPE).tobytes() == X.tobytes()

    index = Sweep((), (), (Step("iota", (), I8),), (0,), (Reduction("argmax", (0,)),))
    calls = (SweepCall(AXPY, space, (x, y), (0.5,), (z,)), SweepCall(DOT, space, (x, y), (), ()))
    calls += (SweepCall(index, space, (), (), (w := client.new_id(),)),)
    _, (products,), (_, where) = client.run(Program(calls))
    assert client.read(z, TYPE).tobytes() == (0.5 * X + Y).tobytes()
    assert products.shape == (8,)
    expected = [float(X[b : b + 1251] @ Y[b : b + 1251]) for b in range(0, LENGTH, 1251)]
    np.testing.assert_allclose(products, expected)  # in the order of the slots
    assert where.tolist() == [min(b + 1250, LENGTH - 1) for b in range(0, LENGTH, 1251)]
    np.testing.assert_array_equal(client.read(w, TYPE.of(np.dtype(np.int64))), np.arange(LENGTH))

    for places in (PLACES, np.sort(PLACES)):
        assert client.gather(x, TYPE, places).tobytes() == X[places].tobytes()
        client.scatter_add(x, t := client.new_id(), TYPE, places, Y[:5], donate=False)
        np.add.at(added := X.copy(), places, Y[:5])
        np.testing.assert_array_equal(client.read(t, TYPE), added)
    client.stage("r", 0, 0, space, places, Y[:5])
    client.commit_totals("r", [Total(r := client.new_id(), TYPE, [Winner(0, 0)], source=x)])
    np.testing.assert_allclose(client.read(r, TYPE), client.read(t, TYPE))

    _rows_in_a_loop(client)
    _expressions(ps)
    for one in (Buckets(LENGTH, 2), Buckets(LENGTH, 1, 9), DenseSpace(LENGTH)):
        _is_not_aligned(client, x, one)


def _rows_in_a_loop(client: Client) -> None:
    table, loop = np.column_stack((X, Y, X)), client.loop("l")
    target = SharedArray(client.new_id(), array_type(TYPE.space, float, (3,)))
    client.share([put(client, TYPE.space, table)], [target])
    loop.open(1, 0)
    loop.join(0, 1)
    loop.tick(0, 1, 0, {target: Change(np.arange(5), table[:5])})
    table[:5] *= 2
    for places in (None, PLACES):
        found = loop.try_pull(0, 1, 1, target, places).values
        assert found.tobytes() == table[slice(None) if places is None else places].tobytes()


def _expressions(ps) -> None:
    """What users write, through the planner."""

    def array(space: Space, values: np.ndarray) -> DistArray:
        buffer = ps.new_buffer(array_type(space, values.dtype))
        ps.client.write(buffer.id, space, values)
        return DistArray(ps, ps.graph.leaf(buffer))

    x, y = array(TYPE.space, X), array(Buckets(LENGTH, 1), Y)
    z = 2 * x + y
    assert float(z @ x) == pytest.approx(float((2 * X + Y) @ X))
    assert z.numpy().tobytes() == (2 * X + Y).tobytes()
    apart = r"partitioned differently \(float64 .* id 1, float64 .* id 2\)"
    with pytest.raises(ValueError, match=apart):
        x + array(Buckets(LENGTH, 2), Y)


def _is_not_aligned(client: Client, x: int, other: Space) -> None:
    """What names an array of ``TYPE`` by a space of the same size is refused."""
    y, z = put(client, other, Y), client.new_id()
    for space in (TYPE.space, other):
        with pytest.raises(InvalidProgram, match=r"buffer \d+ is float64 over a .*, not float64 o"):
            client.run(Program((SweepCall(AXPY, space, (x, y), (1.0,), (z,)),)))
    with pytest.raises(InvalidProgram) as refused:
        client.read(x, array_type(other, float))
    assert str(TYPE.space) in str(refused.value) and str(other) in str(refused.value)


def test_arrays_of_a_new_space_live_on_servers():
    used("test_a_new_space")


def test_servers_that_do_not_know_it_say_so():
    with (
        servers("test_a_new_command") as addresses,
        Client.connect(addresses, token=TOKEN) as client,
        pytest.raises(InvalidProgram, match="no space of kind 'buckets' is known here"),
    ):
        put(client, TYPE.space, X)


def test_a_type_is_equal_in_another_process():
    """Whose hashes are others."""
    text = (
        "import pickle, sys; from ps_backend.program.spaces import DenseSpace;"
        "from ps_backend.program.types import array_type;"
        "here = array_type(DenseSpace(5, 7), 'float32', (3,));"
        "sys.exit({here: 0}.get(pickle.loads(sys.stdin.buffer.read()), 1))"
    )
    given = pickle.dumps(type := array_type(DenseSpace(5, 7), np.float32, (3,)))
    assert pickle.loads(given) is type is ArrayType.from_plain(json.loads(json.dumps(type.plain)))
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", text], input=given, env={"PYTHONHASHSEED": seed}, check=False
        )
        assert done.returncode == 0
