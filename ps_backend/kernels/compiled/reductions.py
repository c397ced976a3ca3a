"""Source text of reductions: accumulators of a block, folded from one chunk of operands at a time.

The operands come in arrays of one chunk, and loops of their own accumulate them: so the order of
accumulation is fixed by the block alone, whatever the compiler makes of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import Reduction, Sweep
from ps_backend.program.types import ValueType

_FLOAT = ValueType("float64")


Converted = tuple[str, str, str]
"""A scratch array for values in another dtype: its name, the dtype, the text of an element."""


@dataclass(frozen=True, slots=True)
class Operand:
    """What a reduction reads: the arrays of ``values`` (of both factors), or converted ones."""

    values: tuple[int, ...] = ()
    converted: Converted | None = None
    mask: int | None = None
    """A mask whose true elements are counted, byte by byte."""

    @property
    def arrays(self) -> list[str]:
        """The text of each array, cut to the length of the chunk."""
        if self.mask is not None:
            return [f"x{self.mask}.view(np.uint8)"]
        if self.converted is not None:
            return [f"{self.converted[0]}[:c1 - c0]"]
        return [f"x{value}" for value in self.values]


def operands(sweep: Sweep, at_hand: Set[int]) -> list[Operand]:
    """What each reduction of ``sweep`` reads; values ``at_hand`` are in arrays anyway."""
    return [
        _factors(sweep, r.args, at_hand) if r.op == "dot" else _operand(sweep, r, at_hand)
        for r in sweep.reductions
    ]


def _factors(sweep: Sweep, factors: tuple[int, ...], at_hand: Set[int]) -> Operand:
    """The factors of a product, if keeping them costs no more than keeping the product."""
    scalars = range(len(sweep.inputs), len(sweep.inputs) + len(sweep.scalars))
    are_wide = all(sweep.types[value] == _FLOAT and value not in scalars for value in factors)
    if are_wide and len(set(factors) - at_hand) <= 1:
        return Operand(factors)
    a, b = factors
    return Operand(converted=(f"s{a}by{b}", "float64", f"float64(v{a}) * float64(v{b})"))


def _operand(sweep: Sweep, reduction: Reduction, at_hand: Set[int]) -> Operand:
    (value,), reducer = reduction.args, REDUCERS[reduction.op]
    dtype = sweep.types[value].dtype
    if reduction.op == "sum" and dtype == "bool" and value in at_hand:
        return Operand(mask=value)
    wide = reducer.accumulators(dtype)[0].name
    if reducer.truth:
        return Operand(converted=(f"s{value}t", wide, f"{wide}(v{value} != 0)"))
    if dtype != wide:
        return Operand(converted=(f"s{value}", wide, f"{wide}(v{value})"))
    return Operand((value,))


def partial_names(k: int, reduction: Reduction) -> Iterator[str]:
    """Parameters that take the partial results of reduction ``k``."""
    yield f"red{k}"
    if REDUCERS[reduction.op].locates:
        yield f"where{k}"


def start(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
    """Accumulators at the start of a block, or of a further part. Blocks are never empty."""
    reducer = REDUCERS[reduction.op]
    kind = reducer.accumulators(value.dtype)[0].name
    yield f"a{k} = red{k}[b] if skip else {kind}({reducer.identity or 0})"
    if reducer.identity is None:
        yield f"first{k} = skip == 0"
    if reducer.locates:
        yield f"w{k} = where{k}[b] if skip else int64(0)"


def fold(k: int, reduction: Reduction, value: ValueType, operand: Operand) -> Iterator[str]:
    """Take one chunk of operands into the accumulator of the block."""
    chunk, *other = operand.arrays
    if other:
        yield f"a{k} += _dot({chunk}, {other[0]})"
        return
    reducer = REDUCERS[reduction.op]
    floats = reducer.accumulators(value.dtype)[0].kind == "f"
    folded = (reducer.fold if floats else reducer.fold_ints).format(chunk)
    if operand.mask is not None:
        folded = f"_count({chunk})"
    if reducer.locates:
        yield f"j{k} = {folded}"
        yield f"e{k} = {chunk}[j{k}]"
        # The first NaN, once found, stays.
        yield f"if first{k} or e{k} {reducer.better} a{k} or (e{k} != e{k} and a{k} == a{k}):"
        yield f"    a{k} = e{k}"
        yield f"    w{k} = offset + c0 + j{k}"
    else:
        text = reducer.join if floats else reducer.join_ints or reducer.join
        yield f"e{k} = {folded}"
        joined = text.format(a=f"a{k}", b=f"e{k}")
        is_first = f"e{k} if first{k} else " if reducer.identity is None else ""
        yield f"a{k} = {is_first}{joined}"
    if reducer.identity is None:
        yield f"first{k} = False"


def end(k: int, reduction: Reduction) -> Iterator[str]:
    """Store the partial result of a block."""
    yield f"red{k}[b] = a{k}"
    if REDUCERS[reduction.op].locates:
        yield f"where{k}[b] = w{k}"
