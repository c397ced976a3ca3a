"""Source text of reductions: accumulators of a block, folded from one chunk of operands at a time.

The operands come in arrays of one chunk, and loops of their own accumulate them: so the order of
accumulation is fixed by the block alone, whatever the compiler makes of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from ps_backend.program import Reduction, Sweep, ValueType

_FLOAT = ValueType("float64")


Converted = tuple[str, str, str]
"""A scratch array for values in another dtype: its name, the dtype, the text of an element."""


@dataclass(frozen=True, slots=True)
class Operand:
    """What a reduction reads: the arrays of ``values`` (of both factors), or converted ones."""

    values: tuple[int, ...] = ()
    converted: Converted | None = None

    @property
    def arrays(self) -> list[str]:
        """The text of each array, cut to the length of the chunk."""
        if self.converted is not None:
            return [f"{self.converted[0]}[:c1 - c0]"]
        return [f"x{value}" for value in self.values]


def operands(sweep: Sweep, at_hand: Set[int]) -> list[Operand]:
    """What each reduction of ``sweep`` reads; values ``at_hand`` are in arrays anyway."""
    needed = {arg for step in sweep.steps for arg in step.args} | set(sweep.outputs)
    needed |= {r.arg for r in sweep.reductions if r.op != "sum"}
    return [
        (r.op == "sum" and r.arg not in needed and _factors(sweep, r.arg, at_hand))
        or _operand(sweep, r)
        for r in sweep.reductions
    ]


def _factors(sweep: Sweep, value: int, at_hand: Set[int]) -> Operand | None:
    """The factors of a product, if keeping them costs no more than keeping the product."""
    first = len(sweep.inputs) + len(sweep.scalars)
    step = sweep.steps[value - first] if value >= first else None
    if step is None or step.op not in ("multiply", "square"):
        return None
    factors = step.args if step.op == "multiply" else step.args * 2
    vectors = [v for v in factors if not len(sweep.inputs) <= v < first]
    if len(vectors) < 2 or any(sweep.types[v] != _FLOAT for v in (value, *factors)):
        return None
    return Operand(factors) if len(set(factors) - at_hand) <= 1 else None


def _operand(sweep: Sweep, reduction: Reduction) -> Operand:
    value = reduction.arg
    truth = reduction.op in ("any", "all")
    dtype = sweep.types[value].dtype
    wide = "float64" if dtype.startswith("float") and not truth else "int64"
    if truth:
        return Operand(converted=(f"s{value}t", wide, f"{wide}(v{value} != 0)"))
    if dtype != wide:
        return Operand(converted=(f"s{value}", wide, f"{wide}(v{value})"))
    return Operand((value,))


def partial_names(k: int, reduction: Reduction) -> Iterator[str]:
    """Parameters that take the partial results of reduction ``k``."""
    yield f"red{k}"
    if reduction.op.startswith("arg"):
        yield f"where{k}"


def start(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
    """Accumulators at the start of a block, or of a further part. Blocks are never empty."""
    kind = "float64" if value.dtype.startswith("float") else "int64"
    if reduction.op in _IDENTITY:
        yield f"a{k} = red{k}[b] if skip else {_IDENTITY[reduction.op].format(kind=kind)}"
    else:
        yield f"first{k} = skip == 0"
        yield f"a{k} = {kind}(0) if first{k} else red{k}[b]"
    if reduction.op.startswith("arg"):
        yield f"w{k} = int64(0) if first{k} else where{k}[b]"


_IDENTITY = {"sum": "{kind}(0)", "prod": "{kind}(1)", "any": "int64(0)", "all": "int64(1)"}
_FOLD = {
    "sum": "a{k} += {sum}({chunk})",
    "prod": "a{k} *= _prod({chunk})",
    "any": "a{k} |= _largest({chunk})",
    "all": "a{k} &= _smallest({chunk})",
}


def fold(k: int, reduction: Reduction, value: ValueType, operand: Operand) -> Iterator[str]:
    """Take one chunk of operands into the accumulator of the block."""
    chunk, *other = operand.arrays
    op = reduction.op
    if other:
        yield f"a{k} += _dot({chunk}, {other[0]})"
        return
    if op in _FOLD:
        total = "_sum" if value.dtype.startswith("float") else "_int_sum"
        yield _FOLD[op].format(k=k, chunk=chunk, sum=total)
        return
    if op in ("min", "max"):
        # For floats a NaN, once there, stays.
        helper = f"_{op}imum" if value.dtype.startswith("float") else op
        whole = (
            f"_{op}"
            if value.dtype.startswith("float")
            else f"_{'small' if op == 'min' else 'larg'}est"
        )
        yield f"e{k} = {whole}({chunk})"
        yield f"a{k} = e{k} if first{k} else {helper}(a{k}, e{k})"
    else:
        sign = "<" if op == "argmin" else ">"
        yield f"j{k} = _{op}({chunk})"
        yield f"e{k} = {chunk}[j{k}]"
        yield f"if first{k} or e{k} {sign} a{k} or (e{k} != e{k} and a{k} == a{k}):"
        yield f"    a{k} = e{k}"
        yield f"    w{k} = offset + c0 + j{k}"
    yield f"first{k} = False"


def end(k: int, reduction: Reduction) -> Iterator[str]:
    """Store the partial result of a block."""
    yield f"red{k}[b] = a{k}"
    if reduction.op.startswith("arg"):
        yield f"where{k}[b] = w{k}"
