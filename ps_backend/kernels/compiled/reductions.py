"""Source text of reductions: accumulators of a block, folded from one chunk of operands at a time.

The operands come in arrays of one chunk, and loops of their own accumulate them: so the order of
accumulation is fixed by the block alone, whatever the compiler makes of the rest. What rounds is
joined in the binary tree over the chunks (``program.summation_order``). Of that, ``tree`` keeps one
node a level, those that the binary digits of the number of chunks so far say; it has a column for
each such reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from ps_backend.program.reducers import REDUCERS
from ps_backend.program.summation_order import CHUNK
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


def ordered(sweep: Sweep) -> list[tuple[int, Reduction]]:
    """The reductions that need the tree, with their numbers."""
    return [
        (k, reduction)
        for k, reduction in enumerate(sweep.reductions)
        if _in_order(reduction, sweep.types[reduction.args[0]])
    ]


def _in_order(reduction: Reduction, value: ValueType) -> bool:
    """Whether the order matters, and is that of ``program.summation_order``."""
    reducer = REDUCERS[reduction.op]
    return reducer.in_order is not None and reducer.accumulators(value.dtype)[0].kind == "f"


def start(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
    """Accumulators at the start of a block, or of a further part. Blocks are never empty."""
    reducer = REDUCERS[reduction.op]
    if _in_order(reduction, value):
        return
    kind = reducer.accumulators(value.dtype)[0].name
    yield f"a{k} = red{k}[b] if skip else {kind}({reducer.identity or 0})"
    if reducer.identity is None:
        yield f"first{k} = skip == 0"
    if reducer.locates:
        yield f"w{k} = where{k}[b] if skip else int64(0)"


def fold(k: int, reduction: Reduction, value: ValueType, operand: Operand) -> Iterator[str]:
    """Take one chunk of operands into the accumulator of the block, or make it one for the tree."""
    chunk, *other = operand.arrays
    if other:
        yield f"a{k} = _dot({chunk}, {other[0]})"
        return
    reducer = REDUCERS[reduction.op]
    floats = reducer.accumulators(value.dtype)[0].kind == "f"
    folded = (reducer.fold if floats else reducer.fold_ints).format(chunk)
    if _in_order(reduction, value):
        yield f"a{k} = {folded}"
        return
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


def climb(reductions: Sequence[tuple[int, Reduction]]) -> Iterator[str]:
    """Take the chunk into the tree: it joins the nodes that it completes."""
    if not reductions:
        return
    joins = list(_joins(reductions))
    yield "level = 0"
    yield f"number = (c0 - b * size) // {CHUNK}"
    yield "while number >> level & 1:"
    yield from (f"    {join}" for join in joins)
    yield "    level += 1"
    yield from (f"tree[level, {at}] = a{k}" for at, (k, _) in enumerate(reductions))


def descend(reductions: Sequence[tuple[int, Reduction]]) -> Iterator[str]:
    """Join the nodes of the chunks so far, from the last to the first."""
    if not reductions:
        return
    yield f"number = (hi - b * size + {CHUNK - 1}) // {CHUNK}"
    yield "level = 0"
    yield "while not number >> level & 1:"
    yield "    level += 1"
    yield from (f"a{k} = tree[level, {at}]" for at, (k, _) in enumerate(reductions))
    yield "level += 1"
    yield "while number >> level:"
    yield "    if number >> level & 1:"
    yield from (f"        {join}" for join in _joins(reductions))
    yield "    level += 1"


def _joins(reductions: Sequence[tuple[int, Reduction]]) -> Iterator[str]:
    for at, (k, reduction) in enumerate(reductions):
        text = REDUCERS[reduction.op].join
        yield f"a{k} = {text.format(a=f'tree[level, {at}]', b=f'a{k}')}"


def end(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
    """Store the partial result of a block."""
    reducer = REDUCERS[reduction.op]
    # Of zeros of both signs, who is picked depends on the order.
    is_float = reducer.picks and reducer.accumulators(value.dtype)[0].kind == "f"
    yield f"red{k}[b] = a{k} + 0.0" if is_float else f"red{k}[b] = a{k}"
    if reducer.locates:
        yield f"where{k}[b] = w{k}"
