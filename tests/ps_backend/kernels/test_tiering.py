"""Kernels that start without a compiler: what they rise to, when, and that no bit changes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ps_backend import kernels
from ps_backend.kernels import background, tiering
from ps_backend.kernels.collectives import partition
from ps_backend.kernels.compiled import compile_worker, machine_code
from ps_backend.kernels.compiled.compile_worker import compile_in_subprocess
from ps_backend.kernels.compiled.machine_code import cache_folder, marker_of
from ps_backend.kernels.compiled.mixed_engine import MixedKernel
from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.kernels.reproducible import has_same_bits
from ps_backend.kernels.tiering import (
    Tier,
    TieredKernel,
    TierPlan,
    compiled_tier,
    hot_counter_of,
    loaded,
    shared_loops,
    shared_loops_tier,
    source_for,
)
from ps_backend.program import ops
from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import ValueType
from tests.ps_backend.sweeps import BLOCK, BOOL, FLOAT, Builder, gram, vectors
from tests.waiting import FOR_EVER, PATIENCE

LENGTH = 5000


def many() -> Sweep:
    """Operators, a comparison, a choice, a function of NumPy's, a conversion; reductions of all."""
    build = Builder(3, 1)
    value = build.step("add", build.step("multiply", 0, 1), 3)
    mask = build.step("less", value, 2, type=BOOL)
    chosen = build.step("where", mask, build.step("exp", build.step("negative", value)), 2)
    root = build.step("sqrt", build.step("abs", build.step("divide", chosen, 1)))
    single = build.step("cast", root, type=ValueType("float32"))
    totals = [(op, root) for op in ("sum", "prod", "max", "argmin")]
    return build.sweep(
        [root, single, mask], [*totals, ("any", mask), ("dot", root, 0), ("sum", single)]
    )


def run(kernel: Any, sweep: Sweep) -> list[bytes]:
    outputs = [np.empty(LENGTH, sweep.types[value].dtype) for value in sweep.outputs]
    with np.errstate(all="ignore"):
        partials = kernel(vectors(3, LENGTH), [0.25], outputs, 0, LENGTH, BLOCK)
    return [one.tobytes() for one in (*outputs, *partials)]


def tiered(*tiers: Tier) -> TieredKernel:
    return TieredKernel(NumpyKernel(many()), lambda: TierPlan([*tiers]), True)


def wait_for_thread() -> None:
    """Until it has done what was asked of it so far."""
    done = threading.Event()
    background._queue().put(done.set)
    assert done.wait(300)


def test_each_rung_has_the_bits_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = many()
    assert has_same_bits(sweep)
    assert kernels.strategy_for(sweep, kernels.LINEAR_FROM_LENGTH) == "tiered"
    kernel = tiered(shared_loops_tier(sweep, True), compiled_tier(sweep, source_for(sweep)))
    seen, found = [], []
    for _ in range(2):
        seen.append(type(kernel.kernel))
        found.append(run(kernel, sweep))
        wait_for_thread()
    monkeypatch.setattr(tiering, "HOT_SECONDS", 0.0)
    for _ in range(2):
        seen.append(type(kernel.kernel))
        found.append(run(kernel, sweep))
        wait_for_thread()
    assert (
        seen[0] is NumpyKernel
        and seen[-1] is NumbaKernel
        and {*seen[1:-1]}
        <= {
            MixedKernel,
            NumbaKernel,  # where it was on disk
        }
    )
    assert all(one == found[0] for one in found)
    assert shared_loops().is_set(), "so the next sweep begins with them"
    other = kernels._compile(sweep, "tiered")
    assert isinstance(other, NumbaKernel) and run(other, sweep) == found[0]
    monkeypatch.setattr(machine_code, "_loaded", {})
    other = kernels._compile(sweep, "tiered")
    assert isinstance(other, TieredKernel) and isinstance(other.kernel, MixedKernel)
    assert run(other, sweep) == found[0]
    assert kernel.working_bytes(LENGTH, BLOCK) == NumbaKernel(sweep).working_bytes(LENGTH, BLOCK)


def test_what_is_not_hot_is_not_compiled(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def tier(is_hot: bool) -> None:
        asked.append(is_hot)

    monkeypatch.setattr(tiering, "HOT_SECONDS", FOR_EVER)  # a busy machine takes long for few runs
    sweep = many()
    kernel = tiered(tier)
    for _ in range(tiering.HOT_RUNS + 2):
        run(kernel, sweep)
        wait_for_thread()
    assert asked == [False], "only whether it costs nothing"
    monkeypatch.setattr(tiering, "HOT_SECONDS", 0.0)
    for _ in range(3):
        run(kernel, sweep)
        wait_for_thread()
    assert asked == [False, True], "once"


def test_where_compiling_fails_the_slower_kernel_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def tier(is_hot: bool) -> None:
        raise OSError("no room for machine code")

    sweep = many()
    kernel = tiered(tier)
    before = run(kernel, sweep)
    wait_for_thread()
    assert run(kernel, sweep) == before and "the slower one stays" in caplog.text


def test_another_process_compiles(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTVEC_CACHE", str(tmp_path))
    cache_folder.cache_clear()
    source = (
        "from numba import njit\n@njit('void(float64[::1])', cache=True)\n"
        "def kernel(x):\n    x += 2.0\n"
    )
    try:
        compile_in_subprocess(source)
        marker = marker_of(source)
        assert marker is not None and marker.exists() and list(tmp_path.rglob("*.nbi"))
        with pytest.raises(RuntimeError, match=r"(?s)the compiler ended with 1.*not a kernel"):
            compile_in_subprocess("raise ValueError('not a kernel')")
    finally:
        cache_folder.cache_clear()


def test_of_several_servers_one_has_it_compiled(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, compiled = tmp_path / "kernel.compiled", []

    def compile_slowly(source: str) -> None:
        compiled.append(source)
        assert not marker.exists()
        both_asked.wait(PATIENCE)
        marker.touch()

    both_asked = threading.Event()
    monkeypatch.setattr(compile_worker, "marker_of", lambda source: marker)
    monkeypatch.setattr(compile_worker, "_compile", compile_slowly)
    servers = [threading.Thread(target=compile_in_subprocess, args=("text",)) for _ in range(2)]
    for server in servers:
        server.start()
    both_asked.set()
    for server in servers:
        server.join()
    assert compiled == ["text"]


def test_long_arrays_wait_for_no_shared_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiering, "HOT_SECONDS", 0.0)
    monkeypatch.setattr(machine_code, "_loaded", {})  # as in a server that has just begun
    shared_loops().clear()
    sweep = many()
    assert kernels.strategy_for(sweep, kernels.NUMBA_FROM_LENGTH) == "tiered far"
    kernel = kernels._compile(sweep, "tiered far")
    assert isinstance(kernel, TieredKernel) and isinstance(kernel.kernel, NumpyKernel)
    for _ in range(tiering.HOT_RUNS):
        run(kernel, sweep)
        wait_for_thread()
    assert isinstance(kernel.kernel, NumbaKernel) and not shared_loops().is_set()


def test_a_new_sweep_does_not_wait_while_numba_is_being_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first programs of a server came while its thread did so, and took 0.2 to 0.6 s."""
    sweep = many()
    kernel = NumbaKernel(sweep)
    assert kernel.source == source_for(sweep) and isinstance(loaded(sweep), NumbaKernel)
    half = ModuleType(NumbaKernel.__module__)  # as it is in sys.modules until its end is reached
    monkeypatch.setitem(sys.modules, NumbaKernel.__module__, half)
    assert loaded(sweep) is None


@pytest.mark.parametrize("strategy", ["tiered late", "tiered", "tiered far"])
def test_a_first_run_finds_no_text_to_compile(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find it takes longer than many a first run; a thread does so afterwards."""
    threads = []

    def source_of(sweep: Sweep) -> str:
        threads.append(threading.current_thread())
        return source_for(sweep)

    monkeypatch.setattr(kernels, "source_for", source_of)
    monkeypatch.setattr(machine_code, "_loaded", {})
    sweep = many()
    kernel = kernels._compile(sweep, strategy)
    run(kernel, sweep)
    assert threading.current_thread() not in threads
    wait_for_thread()
    run(kernel, sweep)
    wait_for_thread()
    assert len(threads) == 1 and threading.current_thread() not in threads


def test_what_one_compilation_serves_gets_hot_together_and_is_had_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a history grows: each number of vectors is another sweep, and none runs often."""
    monkeypatch.setattr(tiering, "HOT_SECONDS", 0.0)
    monkeypatch.setattr(machine_code, "_loaded", {})
    hot_counter_of.cache_clear()
    sweeps = [gram(count, [(0, k) for k in range(count)]) for count in range(5, 9)]
    assert len({source_for(sweep) for sweep in sweeps}) == 1
    first, second, *others = (kernels._compile(sweep, "tiered far") for sweep in sweeps)
    asked: list[bool] = []

    def only_asked(plan: Callable[[], TierPlan]) -> Callable[[], TierPlan]:
        return lambda: TierPlan([asked.append], plan().counter)

    for sweep, kernel in zip(sweeps, (first, second), strict=False):
        assert isinstance(kernel, TieredKernel)
        kernel._plan = only_asked(kernel._plan)
        kernel([*vectors(len(sweep.inputs), LENGTH)], [], [], 0, LENGTH, BLOCK)
        wait_for_thread()
    assert asked == [False, True] and tiering.HOT_RUNS == 2
    NumbaKernel(sweeps[0])
    assert all(isinstance(kernel, TieredKernel) for kernel in others), "made before"
    assert isinstance(kernels._compile(sweeps[-1], "tiered far"), NumbaKernel)


@pytest.mark.parametrize(
    "op", ["sigmoid", "floor_divide", "remainder", "sign", "maximum", "floor", "round", "pow"]
)
def test_functions_with_one_implementation_are_tiered(op: str) -> None:
    args = (0, 1)[: ops.TABLE[op].arity]
    assert has_same_bits(Sweep((FLOAT, FLOAT), (), (Step(op, args, FLOAT),), (2,), ()))


@pytest.mark.parametrize("op", ["uniform", "normal"])
def test_random_numbers_have_the_same_bits_in_all_engines(op: str) -> None:
    whole, keys = ValueType("int64"), [12345, 1 << 62][: ops.TABLE[op].arity - 1]
    steps = (Step("iota", (), whole), Step(op, (*range(len(keys) + 1),), FLOAT))
    draw = Sweep((), (whole,) * len(keys), steps, (len(keys) + 1,), ())
    assert has_same_bits(draw)
    length, found = LENGTH + 5, []  # more than whole vectors of registers
    for engine in (NumpyKernel, MixedKernel, NumbaKernel):
        out = np.empty(length)
        engine(draw)([], keys, [out], 0, length, BLOCK)
        found.append(out.tobytes())
    assert found[0] == found[1] == found[2]
    drawn_from = kernels.LINEAR_FROM_LENGTH // 8
    assert kernels.strategy_for(draw, drawn_from) == "tiered"
    assert kernels.engine_for(draw, drawn_from - 1) == "numpy"
    assert kernels.engine_for(draw, kernels.NUMBA_FROM_LENGTH) == "mixed"
    as_integers = (*steps, Step("cast", (len(keys) + 1,), whole))
    drawn = Sweep((), (whole,) * len(keys), as_integers, (len(keys) + 2,), ())
    assert kernels.engine_for(drawn, kernels.NUMBA_FROM_LENGTH) == "mixed"


def test_functions_that_engines_round_differently_stay_with_one() -> None:
    steps = (Step("exp", (1,), FLOAT), Step("multiply", (0, 2), FLOAT))  # of a number: by libm
    scaled = Sweep((FLOAT,), (FLOAT,), steps, (3,), ())
    assert not has_same_bits(scaled)
    for length in (1, kernels.LINEAR_FROM_LENGTH, kernels.NUMBA_FROM_LENGTH):
        assert kernels.strategy_for(scaled, length) == kernels.engine_for(scaled, length)
    short = kernels.TIERED_FROM_LENGTH
    assert kernels.strategy_for(many(), short - 1) == "numpy"
    assert kernels.strategy_for(many(), kernels.TIERED_TO_LENGTH + 1) == "numba"
    assert "short" in kernels.explained(many(), short - 1)
    assert "same bits" in kernels.explained(many(), kernels.NUMBA_FROM_LENGTH)
    assert "machine code, by its length" in kernels.explained(scaled, kernels.NUMBA_FROM_LENGTH)
    assert kernels.strategy_for(many(), short) == "tiered late"
    with kernels.compiled_at_once():
        assert kernels.strategy_for(many(), kernels.NUMBA_FROM_LENGTH) == "numba"


def test_who_makes_kernels_gives_way_to_those_that_run() -> None:
    throttle, events = background.CompileThrottle(patience=300.0), []

    def make() -> None:
        throttle.give()
        events.append("gave way")

    with throttle.taken():
        thread = threading.Thread(target=make)
        thread.start()
        thread.join(0.01)
        events.append("ran")
    thread.join()
    assert events == ["ran", "gave way"]


def test_it_does_not_give_strategy_for_ever() -> None:
    throttle = background.CompileThrottle(patience=0.01)
    with throttle.taken():
        throttle.give()


def test_it_gives_way_between_kernels_that_follow_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    throttle = background.CompileThrottle(patience=0.01)
    monkeypatch.setattr(background, "QUIET_SECONDS", 0.0)
    with throttle.taken():
        pass
    throttle.give()
    assert throttle._patience == 0.01, "long enough ago"
    monkeypatch.setattr(background, "QUIET_SECONDS", 300.0)
    throttle.give()
    assert throttle._patience <= 0


def test_kernels_wait_for_faster_ones_once_patience_has_ended() -> None:
    throttle, events = background.CompileThrottle(patience=0.0), []
    begun, goes_on, began_again = (threading.Event() for _ in range(3))

    def make() -> None:
        with throttle.making():
            with throttle.elsewhere():
                begun.set()
                goes_on.wait()
            began_again.set()
            events.append("made")

    thread = threading.Thread(target=make)
    thread.start()
    begun.wait()
    with throttle.taken():
        events.append("ran while another process compiles")
    goes_on.set()
    began_again.wait()
    with throttle.taken():
        events.append("ran")
    thread.join()
    assert events == ["ran while another process compiles", "made", "ran"]


def test_kernels_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_TURN_SECONDS", 0.001)
    throttle = background.CompileThrottle(patience=0.0)
    with throttle.making():
        while throttle._left > 0:
            with throttle.taken():
                pass
        monkeypatch.setattr(background, "_TURN_SECONDS", 300.0)
        with throttle.taken():
            pass


def test_kernels_do_not_wait_before_patience_has_ended() -> None:
    throttle = background.CompileThrottle(patience=300.0)
    with throttle.making(), throttle.taken():
        pass  # of one thread: it would wait for itself


def test_who_has_no_patience_left_is_not_called_again() -> None:
    throttle, hooks = background.CompileThrottle(patience=0.0), []

    def make() -> None:
        sys.setprofile(throttle.give)
        throttle.give()
        hooks.append(sys.getprofile())

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert hooks == [None]


def test_kernels_that_run_take_the_throttle() -> None:
    taken = []

    def kernel(*_: object) -> list[Any]:
        taken.append(len(background.compile_throttle()._runs))
        return []

    assert TieredKernel(kernel, TierPlan, False)([], [], [], 0, 1, 1) == []  # type: ignore[arg-type]
    assert taken == [1]
    assert not background.compile_throttle()._runs


def test_sorts_are_left_to_numpy_until_compiled_loops_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work: list[Callable[[], None]] = []
    monkeypatch.setattr(partition, "in_background", work.append)

    def forget() -> None:
        events = threading.Event(), threading.Event()
        monkeypatch.setattr(partition, "_loops_of_collectives", lambda: events)

    forget()
    assert not any(partition.uses_compiled_loops(count, 100) for count in (99, 100, 101))
    (load,) = work
    load()
    assert partition.uses_compiled_loops(100, 160)
    assert partition.uses_compiled_loops(10, 160)
    assert not partition.uses_compiled_loops(9, 160)
    forget()
    assert partition.uses_compiled_loops(10_000, 100)
    forget()
    with kernels.compiled_at_once():
        assert partition.uses_compiled_loops(100, 100)
    assert len(work) == 1
