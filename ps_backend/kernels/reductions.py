"""Source text of reductions: accumulators of a block, folded from one chunk of operands at a time.

The operands come in scratch arrays, and loops of their own accumulate them: so the order of
accumulation is fixed by the block alone, whatever the compiler makes of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from ps_backend.program import Reduction, Sweep, ValueType


def key(reduction: Reduction) -> tuple[int, bool]:
    """What a reduction reads: a value, as it is or as a truth value."""
    return reduction.arg, reduction.op in ("any", "all")


def operands(sweep: Sweep) -> dict[tuple[int, bool], tuple[str, str, str]]:
    """Scratch arrays by what they hold: (name, dtype, expression of an element)."""
    found = {}
    for reduction in sweep.reductions:
        value, truth = key(reduction)
        is_float = sweep.types[value].dtype.startswith("float") and not truth
        dtype = "float64" if is_float else "int64"
        text = f"{dtype}(v{value} != 0)" if truth else f"{dtype}(v{value})"
        found[value, truth] = (f"s{value}{'t' if truth else ''}", dtype, text)
    return found


def partial_names(k: int, reduction: Reduction) -> Iterator[str]:
    """Parameters that take the partial results of reduction ``k``."""
    yield f"red{k}"
    if reduction.op.startswith("arg"):
        yield f"where{k}"


def start(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
    """Accumulators at the start of a block. Blocks are never empty."""
    kind = "float64" if value.dtype.startswith("float") else "int64"
    if reduction.op in _IDENTITY:
        yield f"a{k} = {_IDENTITY[reduction.op].format(kind=kind)}"
    else:
        yield f"first{k} = True"
        yield f"a{k} = {kind}(0)"
    if reduction.op.startswith("arg"):
        yield f"w{k} = int64(0)"


_IDENTITY = {"sum": "{kind}(0)", "prod": "{kind}(1)", "any": "int64(0)", "all": "int64(1)"}
_FOLD = {
    "sum": "a{k} += {sum}({chunk})",
    "prod": "a{k} *= _prod({chunk})",
    "any": "a{k} |= _largest({chunk})",
    "all": "a{k} &= _smallest({chunk})",
}


def fold(k: int, reduction: Reduction, value: ValueType, scratch: str) -> Iterator[str]:
    """Take one chunk of operands into the accumulator of the block."""
    chunk = f"{scratch}[:c1 - c0]"
    op = reduction.op
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
        yield f"e{k} = {scratch}[j{k}]"
        yield f"if first{k} or e{k} {sign} a{k} or (e{k} != e{k} and a{k} == a{k}):"
        yield f"    a{k} = e{k}"
        yield f"    w{k} = offset + c0 + j{k}"
    yield f"first{k} = False"


def end(k: int, reduction: Reduction) -> Iterator[str]:
    """Store the partial result of a block."""
    yield f"red{k}[b] = a{k}"
    if reduction.op.startswith("arg"):
        yield f"where{k}[b] = w{k}"
