"""When values are computed, and that the number of servers never changes one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import distvec as dv
from tests.distvec.conftest import SERVER_COUNTS


def test_strict_names_the_line(ps: dv.Session) -> None:
    x = ps.array([1.0, 2.0])
    s = x.sum()
    with ps.strict():
        with pytest.raises(RuntimeError, match=r"float\(\) at .*test_evaluator.py:\d+"):
            float(s)
        with pytest.raises(RuntimeError, match=r"bool\(\)"):
            bool(s > 0)
        dv.evaluate(s)
        assert float(s) == 3.0
    assert float((x * 2).sum()) == 6.0


def test_implicit_evaluations_are_counted(ps: dv.Session) -> None:
    x = ps.array([1.0, 2.0])
    s, t = x.sum(), (x * 3).max()
    float(s), float(s), bool(t > 1)
    assert ps.implicit_evaluations == 1, "t came along with s, and its comparison needs no server"
    x.mean().item()
    assert ps.implicit_evaluations == 1, "item() is explicit"


def test_explain_before_and_after(ps: dv.Session) -> None:
    x = ps.array(np.arange(10.0))
    z = np.exp(x) / np.linalg.norm(x)
    before = z.explain()
    assert before.startswith("2 programs (messages per server), 2 sweeps")
    assert "exp(" in before and "is stored: asked for" in before
    z.persist()
    assert "computed by 2 programs" in z.explain()
    assert "put here" in x.explain()


def test_a_value_lets_go_of_what_it_was_computed_from(ps: dv.Session) -> None:
    x = ps.array(np.ones(2000))
    for _ in range(10):
        x = (x * 1.5).persist()
    ps.array([0.0])
    assert max(status.buffers for status in ps.client.status()) <= 2


def test_a_failed_program_changes_nothing() -> None:
    with dv.local(servers=2, in_process=True, memory=100_000) as ps:
        x = ps.array(np.ones(5000))
        big = [x * float(k) for k in range(2, 12)]
        with pytest.raises(dv.OutOfBudget, match=r"needs.*bytes.*(allow|budget|may)"):
            dv.evaluate(*big)
        np.testing.assert_array_equal(x.numpy(), np.ones(5000))
        del big
        np.testing.assert_array_equal((x * 2).numpy(), np.full(5000, 2.0))


def _everything(ps: dv.Session, length: int) -> list[bytes]:
    """Bits of a bit of everything: elementwise, reductions, random, dependent scalars."""
    x = ps.array(np.sin(np.arange(length) * 0.3))
    noise = ps.random.normal(length, seed=5)
    z = np.exp(x) * noise + ps.linspace(0, 1, length)
    unit = z / np.linalg.norm(z)
    narrow = z.astype(np.float32)
    results = [
        z, unit, narrow, z @ x, unit.sum(), narrow.sum(), np.linalg.norm(narrow), z.max(),
        z.argmin(), np.tanh(z).mean(), (z > 0).sum(), (z * 1000).astype(np.int64).sum(),
        np.linalg.norm(z, 1),
    ]  # fmt: skip
    return [np.asarray(result.numpy()).tobytes() for result in results]


@pytest.mark.parametrize("length", [1, 1500, 10_000, 150_000])
def test_same_bits_on_any_number_of_servers(
    sessions: dict[int, dv.Session], length: int, small_arrays_are_compiled: None
) -> None:
    """The last length is run by compiled kernels."""
    bits = [_everything(sessions[count], length) for count in SERVER_COUNTS]
    assert all(one == bits[0] for one in bits)


def test_real_servers_give_the_bits_of_in_process_ones() -> None:
    def compiled(ps: dv.Session) -> list[bytes]:
        x = ps.linspace(0, 1, 1 << 22)
        z = x * x - 0.1 / (x + 1)
        return [np.asarray(one.numpy()).tobytes() for one in (z @ x, z.sum(), z.max())]

    with dv.local(servers=2) as ps, dv.local(servers=1, in_process=True) as here:
        assert _everything(ps, 150_000) == _everything(here, 150_000)
        assert _everything(ps, 1500) == _everything(here, 1500)
        assert compiled(ps) == compiled(here)


def test_closing_twice_and_using_after(ps: dv.Session) -> None:
    x = ps.array([1.0])
    ps.close()
    ps.close()
    with pytest.raises((dv.PSError, RuntimeError, ValueError)):
        x.numpy()


def test_threads_share_a_session(ps: dv.Session) -> None:
    x = ps.array(np.arange(3000.0))

    def work(seed: int) -> float:
        y, total = x * float(seed), 0.0
        for step in range(40):
            y = y + x / (1.0 + step)
            total += float(y @ x)
        return total

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(work, range(8)))
    assert together == [work(seed) for seed in range(8)]
