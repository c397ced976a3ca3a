"""Tables, whose slots hold rows: what clients can do with vectors they can do with these."""

from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distvec.testing.strategies import vectors
from ps_backend import kernels
from ps_backend.client import Client, SharedArray, Total, Winner
from ps_backend.errors import InvalidProgram
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import DTYPES, ValueType, array_type, stored_type
from tests.ps_backend.helpers import TOKEN, put, served

K = 3
LENGTHS = st.sampled_from([0, 1, 2, 1023, 1025, 3000])
ROWS = ValueType("float64", (K,))
NUMBER = ValueType("float64")


@pytest.fixture(scope="module", params=["in process", "grpc"])
def clients(request) -> dict[int, Client]:
    """By the number of their servers."""
    with ExitStack() as stack:
        made = {}
        for servers in (1, 2, 3):
            if request.param == "in process":
                made[servers] = stack.enter_context(connect_in_process(servers, memory=1 << 30))
                continue
            running = stack.enter_context(served(servers))
            addresses = [server.address for server in running]
            made[servers] = stack.enter_context(Client.connect(addresses, token=TOKEN))
        yield made


def tables(length: int, dtype: str = "float64") -> st.SearchStrategy[np.ndarray]:
    return vectors(length * K, dtype).map(lambda flat: flat.reshape(length, K))


def run(client: Client, sweep: Sweep, space: DenseSpace, inputs, scalars=()) -> tuple:
    """The outputs of a sweep as arrays, and its partial results."""
    types = [array_type(space, value.dtype, value.row) for value in sweep.stored]
    made = [client.new_id() for _ in types]
    call = SweepCall(sweep, space, tuple(inputs), scalars, tuple(made))
    (partials,) = client.run(Program((call,)))
    return [client.read(*one) for one in zip(made, types, strict=True)], partials


quick = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
servers_of = st.sampled_from((1, 2, 3))


@quick
@given(data=st.data(), servers=servers_of, length=LENGTHS, dtype=st.sampled_from(DTYPES))
def test_what_is_written_is_read_and_gathered(clients, data, servers, length, dtype):
    client, space = clients[servers], DenseSpace(length)
    x, type = data.draw(tables(length, dtype)), array_type(space, dtype, (K,))
    number = put(client, space, x)
    assert client.read(number, type).tobytes() == x.tobytes()
    places = data.draw(st.lists(st.integers(0, length - 1), max_size=9)) if length else []
    found = client.gather(number, type, places)
    assert found.shape == (len(places), K)
    assert found.tobytes() == x[np.array(places, int)].tobytes()


@quick
@given(data=st.data(), servers=servers_of, length=LENGTHS.filter(bool), donate=st.booleans())
def test_rows_are_added_at_indices(clients, data, servers, length, donate):
    client, space = clients[servers], DenseSpace(length)
    x, type = data.draw(tables(length)), array_type(space, float, (K,))
    places = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=9))
    added = data.draw(tables(len(places)))
    with np.errstate(all="ignore"):
        np.add.at(expected := x.copy(), places, added)
        np.add.at(twice := expected.copy(), places, added)
    source, target = put(client, space, x), client.new_id()
    client.scatter_add(source, target, type, places, added, donate=donate)
    np.testing.assert_array_equal(client.read(target, type), expected)
    shared, last = SharedArray(client.new_id(), type), client.new_id()
    client.share([target], [shared])
    client.update(shared, places, added)
    np.testing.assert_array_equal(client.pull(shared), twice)
    np.testing.assert_array_equal(client.pull(shared, places), twice[places])
    client.snapshot([shared], [last], last=True)
    np.testing.assert_array_equal(client.read(last, type), twice)


@quick
@given(data=st.data(), servers=servers_of, length=LENGTHS.filter(bool))
def test_rounds_add_rows_of_winners(clients, data, servers, length):
    client, space = clients[servers], DenseSpace(length)
    type, name = array_type(space, float, (K,)), str(client.new_id())
    x, everywhere = data.draw(tables(length)), data.draw(tables(length))
    places = data.draw(st.lists(st.integers(0, length - 1), max_size=9))
    added = data.draw(tables(len(places)))
    client.stage(name, 0, 0, space, None, everywhere)
    client.stage(name, 1, 0, space, places, added)
    client.stage(name, 1, 1, space, places, -added)  # of an attempt that did not win
    source, target = put(client, space, x), client.new_id()
    winners = [Winner(0, 0), Winner(1, 0)]
    client.commit_totals(name, [Total(target, type, winners, source=source)])
    with np.errstate(all="ignore"):
        expected = x + everywhere
        np.add.at(expected, np.array(places, int), added)
    np.testing.assert_array_equal(client.read(target, type), expected)


def elementwise() -> Sweep:
    """Casts, a fill, the index of each element, and arithmetic with a scalar."""
    i8, f4 = ValueType("int64", (K,)), ValueType("float32", (K,))
    steps = (
        Step("multiply", (0, 2), ROWS),
        Step("add", (3, 1), ROWS),
        Step("cast", (4,), f4),
        Step("fill", (2,), ROWS),
        Step("iota", (), i8),
        Step("less", (0, 1), ValueType("bool", (K,))),
        Step("exp", (0,), ROWS),
        Step("where", (8, 9, 6), ROWS),
    )
    sums = (Reduction("sum", (7,)), Reduction("max", (4,)), Reduction("argmin", (1,)))
    return Sweep((ROWS, ROWS), (NUMBER,), steps, (4, 5, 6, 7, 10), sums)


@pytest.mark.parametrize("engine", ["numpy", "numexpr", "mixed", "numba"])
@pytest.mark.parametrize("servers", [1, 2, 3])
def test_programs_work_on_all_elements_of_all_rows(clients, monkeypatch, engine, servers):
    # kernels are remembered
    length = {"numpy": 40_001, "numexpr": 40_005, "mixed": 40_003, "numba": 40_007}[engine]
    monkeypatch.setattr(kernels, "engine_for", lambda *_: engine)
    client, space, rng = clients[servers], DenseSpace(length), np.random.default_rng(5)
    x, y = rng.standard_normal((2, length, K))
    y[2, 1] = -100.0
    inputs = (put(client, space, x), put(client, space, y))
    made, partials = run(client, elementwise(), space, inputs, (0.3,))
    fma = x * 0.3 + y
    index = np.arange(length * K).reshape(length, K)
    expected = (fma, fma.astype(np.float32), np.full_like(x, 0.3), index)
    for got, wanted in zip(made[:4], expected, strict=True):
        assert got.shape == (length, K) and got.tobytes() == wanted.tobytes()
    np.testing.assert_allclose(made[4], np.where(x < y, np.exp(x), 0.3), rtol=1e-14)
    sums, most, least, where = partials
    assert len(sums) == space.blocks
    assert sums.sum() == index.sum() and most.max() == fma.max()
    assert where[least.argmin()] == 2 * K + 1


@quick
@given(data=st.data(), servers=servers_of, length=LENGTHS)
def test_arithmetic_of_rows_has_numpys_bits(clients, data, servers, length):
    client, space = clients[servers], DenseSpace(length)
    x, y = data.draw(tables(length)), data.draw(tables(length))
    steps = (Step("multiply", (0, 1), ROWS), Step("subtract", (2, 0), ROWS))
    sweep = Sweep((ROWS, ROWS), (), steps, (3,), (Reduction("min", (2,)),))
    inputs = (put(client, space, x), put(client, space, y))
    (got,), (least,) = run(client, sweep, space, inputs)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, x * y - x)
        if length:
            np.testing.assert_array_equal(np.minimum.reduce(least), (x * y).min())


def test_the_number_of_servers_changes_no_bit(clients):
    space = DenseSpace(10_000)
    x = np.random.default_rng(1).standard_normal((space.length, K))
    sweep = Sweep((ROWS,), (), (Step("square", (0,), ROWS),), (), (Reduction("sum", (1,)),))
    results = [run(one, sweep, space, (put(one, space, x),))[1][0] for one in clients.values()]
    assert len({result.tobytes() for result in results}) == 1
    np.testing.assert_allclose(results[0].sum(), (x * x).sum())


# --- what is refused ------------------------------------------------------------------------------


def test_rows_of_another_shape_are_refused(clients):
    client, space = clients[2], DenseSpace(5000)
    type = array_type(space, float, (K,))
    x = put(client, space, np.zeros((5000, K)))
    with pytest.raises(ValueError, match=r"2 indices need as many rows of shape \(3,\), got .*2,"):
        client.scatter_add(x, client.new_id(), type, [0, 1], [1.0, 2.0], donate=False)
    with pytest.raises(InvalidProgram, match=r"is float64 rows of shape \(3,\) over .*, not float"):
        client.read(x, array_type(space, float))
    with pytest.raises(ValueError, match=r"rows have shape \(\) or \(k,\), got \(2, 3\)"):
        array_type(space, float, (2, 3))
    with pytest.raises(ValueError, match=r"k of 1 or more, got \(0,\)"):
        stored_type(space, float, (0,))
    client.stage("other rows", 0, 0, space, None, np.zeros(5000))
    with pytest.raises(ValueError, match=r"an update must be float64 rows .*, got float64 over"):
        client.commit("other rows", [(0, 0)], type, client.new_id())
    nothing = Sweep(
        (), (), (Step("iota", (), ValueType("int64", (0,))),), (), (Reduction("sum", (0,)),)
    )
    with pytest.raises(ValueError, match=r"k of 1 or more, got \(0,\)"):
        run(client, nothing, space, ())
    of_both = Step("add", (0, 1), ROWS)
    mixed = Sweep((ROWS, NUMBER), (), (of_both,), (), (Reduction("sum", (2,)),))
    with pytest.raises(InvalidProgram, match=r"rows are broadcast .* but vectors are not"):
        run(client, mixed, space, (x, x))
