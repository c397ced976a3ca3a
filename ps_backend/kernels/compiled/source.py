"""Source text of a kernel, in the subset of Python that numba compiles.

A block is walked in chunks that fit the innermost cache; or the part of it from ``skip`` to
``until``, which goes on from the partial results of the part before. Within a chunk, elementwise
loops take turns with calls that fill an array: a linear combination, an exponential (see
``lowering``). All that is kept of a value goes to a scratch array of one chunk: reductions read it
there, and only at the end of the chunk are outputs stored, so an output may take over the memory of
an input.

Reductions have accumulators of a block, folded from one chunk of operands at a time. The operands
come in arrays of one chunk, and loops of their own accumulate them: so the order of accumulation is
fixed by the block alone, whatever the compiler makes of the rest. Reductions that round are joined
in the binary tree over the chunks (``program.order``). Of that, ``tree`` keeps one node a level,
those that the binary digits of the number of chunks so far say; it has a column for each such
reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from ps_backend.kernels.lowering import Split
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.summation_order import CHUNK
from ps_backend.program.sweep import COMBINE, Reduction, Sweep, partial_dtypes
from ps_backend.program.types import FLOATS, ValueType

_FLOAT = ValueType("float64")
_BYTES = frozenset({"bool", "int8", "uint8"})
"""The dtypes of one byte."""


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


def reduction_operands(sweep: Sweep, at_hand: Set[int]) -> list[Operand]:
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


def ordered_reductions(sweep: Sweep) -> list[tuple[int, Reduction]]:
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


def reduction_start(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
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


def reduction_fold(
    k: int, reduction: Reduction, value: ValueType, operand: Operand
) -> Iterator[str]:
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


def tree_climb(reductions: Sequence[tuple[int, Reduction]]) -> Iterator[str]:
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


def tree_descend(reductions: Sequence[tuple[int, Reduction]]) -> Iterator[str]:
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


def reduction_end(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
    """Store the partial result of a block."""
    reducer = REDUCERS[reduction.op]
    # Of zeros of both signs, who is picked depends on the order.
    is_float = reducer.picks and reducer.accumulators(value.dtype)[0].kind == "f"
    yield f"red{k}[b] = a{k} + 0.0" if is_float else f"red{k}[b] = a{k}"
    if reducer.locates:
        yield f"where{k}[b] = w{k}"


_HEADER = """\
import math
import numpy as np
from numba import (
    boolean, float32, float64, int8, int16, int32, int64, njit, uint8, uint16, uint32, uint64,
)
from distvec_scalar_math import (
    _apply1, _apply2, _argmax, _argmin, _count, _dot, _floor_divide, _fmax, _fmin, _greatest_number,
    _int_pow, _int_prod, _int_sum, _isinf, _largest, _least_number, _log, _max, _maximum, _min,
    _minimum, _normal, _permuted, _prod, _put, _remainder, _rint, _settle, _sign, _smallest, _sum,
    _to_uint64, _uniform,
)
"""
_LINEAR = "from distvec_linear import combine, multi_dot, multi_dot_end\n"
_PRODUCTS_END = (
    f"multi_dot_end(nodes, (hi - b * size + {CHUNK - 1}) // {CHUNK}, totals)",
    "products[:, b] = totals",
)


def source_of(parts: Split) -> str:
    """The text of the kernel of a sweep: of its rest, around calls of what is compiled already."""
    writer = _Writer(parts)
    names, types = zip(*writer.parameters(), strict=True)
    numbered = [(k, r, parts.rest.types[r.args[0]]) for k, r in enumerate(parts.rest.reductions)]
    lines = [
        f"@njit('void({', '.join(types)})', nogil=True, error_model='numpy', cache=True)",
        f"def kernel({', '.join(names)}):",
        *(f"    {line}" for line in writer.scratch()),
        "    for b in range(b0, b1):",
        "        lo = b * size + skip",
        "        hi = min(b * size + until, n)",
        *(f"        {line}" for k, r, t in numbered for line in reduction_start(k, r, t)),
        f"        for c0 in range(lo, hi, {CHUNK}):",
        f"            c1 = min(c0 + {CHUNK}, hi)",
        *(f"            {line}" for line in writer.chunk()),
        *(f"        {line}" for line in tree_descend(writer.ordered)),
        *(f"        {line}" for k, r, t in numbered for line in reduction_end(k, r, t)),
        *(f"        {line}" for line in (_PRODUCTS_END if parts.dots else ())),
        *(["    _settle()"] if parts.rest.outputs else []),
    ]
    header = _HEADER + (_LINEAR if parts.dots or parts.combinations else "")
    return "\n".join([header, "", *lines, ""])


class _Writer:
    """Writes the parts of one kernel.

    Of value ``k``, ``vk`` is an element, ``ink`` the whole input, ``xk`` one chunk: of the input,
    or of what was computed and is kept; ``yk`` are the bytes of a chunk of booleans.
    """

    def __init__(self, parts: Split) -> None:
        self._parts = parts
        self._sweep = sweep = parts.rest
        self._own = len(sweep.inputs) - len(parts.calls)
        self._called = range(self._own, len(sweep.inputs))
        self._scalars = range(len(sweep.inputs), len(sweep.inputs) + len(sweep.scalars))
        self._stages = parts.stages
        at_hand = {*range(len(sweep.inputs)), *sweep.outputs}
        self._operands = reduction_operands(sweep, at_hand)
        self.ordered = ordered_reductions(sweep)
        # What a call goes on from lies where its result will be, unless it is of another dtype.
        self._in_place = {
            value: call.args[0]
            for value, call in zip(self._called, parts.calls, strict=True)
            if len(call.args) == 1
            and (call.op == COMBINE or call.args[0] >= self._own)
            and sweep.types[call.args[0]] == sweep.types[value]
        }
        kept = {*self._called, *self._stages.carried, *sweep.outputs}
        kept.update(v for operand in self._operands for v in operand.values)
        for value, call in zip(self._called, parts.calls, strict=True):
            kept.update(() if value in self._in_place else call.args)
        self._kept = sorted(kept - set(range(self._own)))
        self._masks = [k for k in range(self._own) if sweep.inputs[k].dtype == "bool"]

    def parameters(self) -> Iterator[tuple[str, str]]:
        """Name and type of each parameter."""
        sweep = self._sweep
        yield from (
            (name, "int64") for name in ("b0", "b1", "size", "skip", "until", "offset", "n")
        )
        if self._parts.dots:
            yield "nodes", "float64[:, ::1]"
        if self.ordered:
            yield "tree", "float64[:, ::1]"
        yield "stream", "boolean"
        if self._parts.dots:
            yield from ((name, "int64[::1]") for name in ("firsts", "counts", "seconds"))
            yield "products", "float64[:, ::1]"
        for value, call in zip(self._called, self._parts.calls, strict=True):
            yield f"loop{value}", "int64[::1]"
            if call.op == COMBINE:
                yield f"vectors{value}", "int64[::1]"
                yield f"coefficients{value}", _array(sweep.inputs[value].dtype)
        for value in range(self._own):
            yield f"in{value}", _array(sweep.inputs[value].dtype)
        for value, scalar in enumerate(sweep.scalars, len(sweep.inputs)):
            yield f"v{value}", _numba(scalar.dtype)
        for k, value in enumerate(sweep.outputs):
            yield f"out{k}", _array(sweep.types[value].dtype)
        for k, reduction in enumerate(sweep.reductions):
            dtypes = partial_dtypes(reduction, sweep.types[reduction.args[0]])
            for name, dtype in zip(partial_names(k, reduction), dtypes, strict=True):
                yield name, _array(dtype.name)

    def scratch(self) -> Iterator[str]:
        """Arrays of one chunk each."""
        for value in self._kept:
            dtype = self._sweep.types[value].dtype
            yield f"t{value} = np.empty({CHUNK}, np.{'bool_' if dtype == 'bool' else dtype})"
            if value in self._scalars:
                yield f"t{value}[:] = v{value}"
        for _, (name, dtype, _) in self._conversions():
            yield f"{name} = np.empty({CHUNK}, np.{dtype})"
        if self._parts.dots:
            yield "totals = np.empty(len(seconds))"

    def _conversions(self) -> list[tuple[tuple[int, ...], Converted]]:
        """What reductions take in another form than it has: the values, and what they become."""
        wanted = zip(self._sweep.reductions, self._operands, strict=True)
        return list(dict.fromkeys((r.args, o.converted) for r, o in wanted if o.converted))

    def chunk(self) -> Iterator[str]:
        """What is done to one chunk."""
        # Indices count from the start of the chunk: then the compiler sees that none is negative,
        # which in Python would mean another element.
        yield from (f"x{value} = in{value}[c0:c1]" for value in range(self._own))
        # Of bytes the compiler makes vector code, but not of what is known to be 0 or 1.
        yield from (f"y{value} = x{value}.view(np.uint8)" for value in self._masks)
        yield from (f"x{value} = t{value}[:c1 - c0]" for value in self._kept)
        for stage in range(self._stages.last + 1):
            yield from self._calls(stage)
            yield from self._loop(stage)
        for k, (r, operand) in enumerate(zip(self._sweep.reductions, self._operands, strict=True)):
            yield from reduction_fold(k, r, self._sweep.types[r.args[0]], operand)
        yield from tree_climb(self.ordered)
        if self._parts.dots:
            number = f"(c0 - b * size) // {CHUNK}"
            vectors = f"{self._parts.dot_dtype}, firsts, counts, seconds"
            yield f"multi_dot({vectors}, nodes, {number}, c0, c1 - c0)"
        for k, value in enumerate(self._sweep.outputs):
            # A chunk of bytes is so short that it takes twice as long past the caches.
            stream = "False" if self._sweep.types[value].dtype in _BYTES else "stream"
            yield f"_put(out{k}[c0:c1], x{value}, {stream})"

    def _calls(self, stage: int) -> Iterator[str]:
        for value, call in zip(self._called, self._parts.calls, strict=True):
            if self._stages.of[value] != stage:
                continue
            if call.op == COMBINE:
                yield f"combine(loop{value}, vectors{value}, coefficients{value}, c0, x{value})"
            else:
                args = [value] if value in self._in_place else call.args
                names = [f"x{arg}" for arg in args]
                if len(args) > 1:
                    constant = self._sweep.constants
                    names = [f"x{arg}, {int(arg not in constant)}" for arg in args]
                yield f"_apply{len(args)}(loop{value}, {', '.join(names)}, x{value})"

    def _loop(self, stage: int) -> Iterator[str]:
        """The loop over elements of one stage: loads, steps, stores."""
        sweep, stages = self._sweep, self._stages
        first = len(sweep.inputs) + len(sweep.scalars)
        steps = [v for v in range(first, len(sweep.types)) if stages.of[v] == stage]
        stores: list[tuple[str, tuple[int, ...]]] = [
            (f"x{v}[i] = v{v}", (v,)) for v in steps if v in self._kept
        ]
        for value, start in self._in_place.items():
            if stages.of[value] == stage + 1:
                stores.append((f"x{value}[i] = v{start}", (start,)))
        if stage == stages.last:
            stores += [(f"{name}[i] = {text}", v) for v, (name, _, text) in self._conversions()]
        if not stores:
            return
        needed = {value for _, values in stores for value in values}
        for value in reversed(steps):
            if value in needed:
                needed.update(sweep.steps[value - first].args)
        yield "for i in range(c1 - c0):"
        yield "    _index = offset + c0 + i"
        for v in sorted(needed - {*steps, *self._scalars}):
            yield f"    v{v} = y{v}[i] != 0" if v in self._masks else f"    v{v} = x{v}[i]"
        yield from (f"    v{v} = {self._expression(v)}" for v in steps if v in needed)
        yield from (f"    {store}" for store, _ in stores)

    def _expression(self, value: int) -> str:
        """The text of one step."""
        sweep = self._sweep
        step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
        result = step.type.dtype
        text = ops.TABLE[step.op].numba.format(*(f"v{arg}" for arg in step.args))
        if step.op == "cast":
            if result == "bool":
                text = f"{text} != 0"
            elif sweep.types[step.args[0]].dtype in FLOATS and result in _BY_WAY_OF:
                text = _BY_WAY_OF[result].format(text)
        return f"{_numba(result)}({text})"


_BY_WAY_OF = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32({})"),
    "uint32": "int64({})",
    "uint64": "_to_uint64({})",
}
"""What floats become before they become these integers, as in NumPy: so -1.0 wraps around."""


def _array(dtype: str) -> str:
    return f"{_numba(dtype)}[::1]"


def _numba(dtype: str) -> str:
    """What numba calls it."""
    return "boolean" if dtype == "bool" else dtype
