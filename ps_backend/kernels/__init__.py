"""Kernels: a sweep's structure compiled to one pass over memory.

Four engines stand behind one interface, ``Kernel``:

=======  =====================================================================================
numpy    needs no compiler: NumPy's functions, chunk by chunk, in few temporary arrays that are used
         again; for short arrays, for what is new; and, chunk by chunk of whole rows, for sweeps
         that are not flat, as those with rows of several shapes or reductions along axis 0, and
         for float16
numexpr  the same, with chains of steps as expressions of numexpr; for arrays that are not short,
         where numba is not installed, or where ``engine="numexpr"`` asks for it
mixed    NumPy's inner loops on tiles that stay in the cache, which are reduced there, by one
         compiled interpreter, beside compiled loops for linear combinations and inner products;
         all sweeps share them. For arrays of middle length, and for very long sweeps
numba    one loop compiled for the structure, at the speed of memory; for long arrays
=======  =====================================================================================

Compilation is *tiered* (``tiering``): a sweep that has the same bits on every engine
(``reproducible``) starts with the first one that needs no compiler here. mixed follows as soon as
its loops are loaded, and numba once the sweep is hot, or at once if its machine code is on disk.
All other sweeps run on one engine, which their length and structure choose.

The way of a sweep: ``slices`` cuts what assigns to slices into parts without conditions, and
``table_vectors`` separates steps on tables from steps on vectors that these make.
``engine_for`` chooses by length and structure. ``lowering`` spells out the
steps that the engine has no loop for. numpy lists instructions
(``numpy_instructions``) and runs them (``numpy_engine``). mixed
(``compiled.mixed_engine``) makes programs of NumPy's loops (``compiled.tile_program``), which
``compiled.tile_interpreter`` runs, in turns with the other steps. For numba, ``lowering.split``
takes out the calls of loops that are compiled already, and orders them and the loops between them;
``compiled.source`` writes the text, ``compiled.machine_code`` compiles it or finds it on disk, and
``compiled.numba_engine`` runs it. The shared loops are ``compiled.linear``, driven by
``compiled.linear_tables``; the innermost ones are in ``compiled.llvm_loops``.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from math import prod

from ps_backend.kernels.background import compiled_at_once as compiled_at_once
from ps_backend.kernels.background import is_in_background
from ps_backend.kernels.kernel import Flattened, has_compiler
from ps_backend.kernels.kernel import Kernel as Kernel
from ps_backend.kernels.lowering import for_numba, split
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.kernels.reproducible import has_same_bits
from ps_backend.kernels.slices import SlicedKernel, SlicedSweep, sliced
from ps_backend.kernels.table_vectors import (
    LEAST_ELEMENTS,
    TableVectorKernel,
    TableVectors,
    through_vectors,
)
from ps_backend.kernels.tiering import (
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
from ps_backend.program.sweep import Combination, Sweep

NUMEXPR_FROM_LENGTH = 1 << 15
"""Global length from which numexpr runs chains: what is shorter takes less time than its calls."""
NUMBA_FROM_LENGTH = 1 << 22
"""Global length from which a kernel is compiled. Compiling takes half a second and more: below this
length that is a hundred passes of the other engine."""
LINEAR_FROM_LENGTH = 1 << 18
"""Global length from which the compiled loops of inner products and linear combinations are used,
of any number of vectors: they are shared by all sweeps, so that little is ever compiled."""
TIERED_FROM_LENGTH = 1 << 15
"""Shorter arrays take less time to compute on than messages take: nothing is compiled for them."""
TIERED_TO_LENGTH = 1 << 28
"""Of longer arrays a block, which interpreters compute in one go, does not fit the cache."""
_NEVER_COMPILED = frozenset({"float16"})
"""Dtypes that numba has no arithmetic of; NumPy has."""
NUMBA_MOST_STEPS = 96
"""Longer sweeps would take seconds to compile; what ``split`` takes out of them does not count."""
LEAST_STEPS_OF_CALL = 4
"""Compiled steps for each call of a loop of NumPy's: with fewer the tiles are faster, by a fifth
for float64 and by half for float32 (docs/how-to/make_it_fast.md). Only where all engines have the
same bits."""
_DRAWS = frozenset({"uniform", "normal"})
"""Ops that the shared loops compute in vector registers, which neither NumPy nor numba does."""
_WORK_OF_DRAWS = 8
"""An element of a sweep that has some is worth so many others."""


def _draws(sweep: Sweep) -> bool:
    return any(step.op in _DRAWS for step in sweep.steps)


def engine_for(sweep: Sweep, length: int, choice: str = "auto") -> str:
    """One of the four by name, from the program and the *global* length alone.

    ``"rows"`` is numpy where no other can be.

    Neither timing nor the number of servers has a say, so a run can be repeated bit for bit.
    ``choice``: one of ``arguments.ENGINES``.
    """
    if not sweep.is_flat or any(value.dtype in _NEVER_COMPILED for value in sweep.types):
        return "rows"
    if choice == "numexpr" or not has_compiler():
        return "numexpr" if length >= NUMEXPR_FROM_LENGTH else "numpy"
    draws = _draws(sweep)
    if length * (_WORK_OF_DRAWS if draws else 1) < min(LINEAR_FROM_LENGTH, NUMBA_FROM_LENGTH):
        return "numpy"
    if draws:
        return "mixed"
    is_short = length < NUMBA_FROM_LENGTH
    if is_short and not all(isinstance(step, Combination) for step in sweep.steps):
        return "mixed"  # as below: a plain step is a step of the parts
    parts = split(for_numba(sweep))
    if is_short and (parts.steps or not (sweep.steps or parts.dots)):
        return "mixed"
    calls = len(parts.calls) - len(parts.combinations)
    if len(parts.rest.steps) < LEAST_STEPS_OF_CALL * calls and has_same_bits(sweep):
        return "mixed"
    has_text = all(ops.TABLE[step.op].numba for step in parts.rest.steps)
    return "numba" if has_text and parts.steps <= NUMBA_MOST_STEPS else "mixed"


def strategy_for(sweep: Sweep, length: int, choice: str = "auto") -> str:
    """How a server runs it: ``engine_for``; or by several engines, one after the other.

    ``"tiered late"`` when it has proved hot, ``"tiered"`` to shared loops at once, and
    ``"tiered far"`` to machine code past these, for what takes long enough to be compiled first.
    """
    engine = engine_for(sweep, length, choice)
    work = length * (_WORK_OF_DRAWS if _draws(sweep) else 1)
    is_tiered = work >= TIERED_FROM_LENGTH and length <= TIERED_TO_LENGTH and is_in_background()
    if engine == "rows" or not is_tiered:
        return engine
    if choice != "auto" or not has_compiler() or not has_same_bits(sweep):
        return engine
    if engine == "numba":
        return "tiered far"
    return "tiered late" if engine == "numpy" else "tiered"


def explained(sweep: Sweep, length: int, choice: str = "auto") -> str:
    """What runs it, and why, as ``explain()`` prints it."""
    if parts := _parts_of(sweep):
        some = next((part for part in parts.leaves.values() if part is not None), None)
        how = explained(some, length, choice) if some else "copies"
        return f"parts between the ends of its slices; {how}"
    if through := _vectors_of(sweep, length):
        return f"vectors of the tables, part by part; {explained(through.vectors, length, choice)}"
    strategy = strategy_for(sweep, length * prod(sweep.row), choice)
    if strategy == "rows":
        return "NumPy on whole rows: the rows have several shapes, or reductions, or float16"
    if strategy == "numexpr":
        why = "as the servers were told" if choice == strategy else "as numba is not installed"
        return f"numexpr, and NumPy for what has other bits there, {why}"
    if strategy == "tiered late":
        return "an interpreter; other engines have the same bits, and one takes over if it gets hot"
    if strategy in ("tiered", "tiered far"):
        return (
            "an interpreter, until machine code is there, which another process compiles once the "
            "sweep is hot: all engines have the same bits"
        )
    if length < TIERED_FROM_LENGTH:
        return "an interpreter: the arrays are short"
    if length > TIERED_TO_LENGTH:
        return "machine code where there can be any: the arrays are very long"
    engines = {"numpy": "an interpreter", "mixed": "shared loops", "numba": "machine code"}
    return (
        f"{engines[strategy]}, by its length and structure alone: functions or reductions of it "
        "differ in the last digit between engines"
    )


def compile_sweep(sweep: Sweep, length: int, choice: str = "auto") -> Kernel:
    """The kernel of ``sweep``, which is verified, for arrays of global ``length``; made once."""
    parts = _parts_of(sweep)
    if parts is None:
        return _compile_whole(sweep, length, choice)
    whole = _compile_whole(sweep, length, choice)
    return SlicedKernel(parts, whole, lambda part: _compile_whole(part, length, choice))


def _parts_of(sweep: Sweep) -> SlicedSweep | None:
    """The parts of a sweep that assigns to slices, if these have the same bits as the whole."""
    parts = sliced(sweep)
    if parts is None or (sweep.is_flat and not has_same_bits(sweep)):
        return None
    some = [part for part in parts.leaves.values() if part is not None]
    is_same = all(has_same_bits(part) if part.is_flat else not sweep.is_flat for part in some)
    return parts if is_same else None


def _vectors_of(sweep: Sweep, length: int) -> TableVectors | None:
    """The parts of a sweep that reads tables through vectors, if these are worth it."""
    width = sum(prod(value.row) for value in sweep.inputs if value.row)
    return through_vectors(sweep) if length * width >= LEAST_ELEMENTS else None


def _compile_whole(sweep: Sweep, length: int, choice: str) -> Kernel:
    if parts := _vectors_of(sweep, length):
        return TableVectorKernel(parts, _compile_whole(parts.vectors, length, choice))
    width = prod(sweep.row)
    engine = strategy_for(sweep, length * width, choice)
    remembered = next((cached for most, cached in _REMEMBERED if sweep.size <= most), _compile)
    if engine == "rows" or not sweep.row:
        return remembered(sweep, engine)
    return Flattened(remembered(sweep.flat, engine), width)


def _compile(sweep: Sweep, engine: str) -> Kernel:
    if engine.startswith("tiered"):
        return _tiered_kernel(sweep, engine)
    if engine in ("numpy", "rows"):
        return NumpyKernel(sweep)
    with suppress(ImportError):  # of a numba that is installed, and refuses this NumPy
        if engine == "numba":
            from ps_backend.kernels.compiled.numba_engine import NumbaKernel

            return NumbaKernel(sweep)
        if engine == "mixed":
            from ps_backend.kernels.compiled.mixed_engine import MixedKernel

            return MixedKernel(sweep)
    from ps_backend.kernels.numexpr_engine import NumexprKernel

    return NumexprKernel(sweep)


def _tiered_kernel(sweep: Sweep, strategy: str) -> Kernel:
    """Of the machine code where this process has it; else the tiers up to that."""
    at_once = strategy != "tiered late"
    if at_once and (kernel := loaded(sweep)):
        return kernel
    has_loops = shared_loops().is_set()

    def plan() -> TierPlan:  # takes as long as some passes: a first run does not wait for it
        tiers = [] if has_loops or strategy == "tiered far" else [shared_loops_tier(sweep, at_once)]
        if engine_for(sweep, NUMBA_FROM_LENGTH) != "numba":
            return TierPlan(tiers)
        source = source_for(sweep)
        return TierPlan([*tiers, compiled_tier(sweep, source)], hot_counter_of(source))

    return TieredKernel(_compile(sweep, "mixed" if has_loops else "numpy"), plan, at_once)


_REMEMBERED = (
    (128, lru_cache(maxsize=1024)(_compile)),
    (2048, lru_cache(maxsize=64)(_compile)),
    (1 << 19, lru_cache(maxsize=2)(_compile)),
)
"""By size of the sweep, of which each value takes some KiB: all sessions share these kernels."""
