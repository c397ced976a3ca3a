"""The numba engine: a sweep becomes the source text of one loop, compiled for this machine.

The text of a structure is the same in every process, so it is written to a cache folder under its
digest and numba keeps the machine code beside it: a restarted server compiles nothing twice.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt

from ps_backend import ops
from ps_backend.program import Reduction, Scalar, Sweep, ValueType, partial_dtypes

_HEADER = """\
import math
import numpy as np
from numba import boolean, float32, float64, int32, int64, njit
from ps_backend.kernels.scalar_math import (
    _argmax, _argmin, _floor_divide, _int_floor_divide, _int_pow, _int_remainder, _isinf, _largest,
    _log, _max, _maximum, _min, _minimum, _prod, _remainder, _rint, _sigmoid, _sign, _smallest,
    _sum, _uniform,
)

"""

_CONVERT = {
    "float64": "float64({})",
    "float32": "float32({})",
    "int64": "int64({})",
    "int32": "int32({})",
    "bool": "boolean({})",
}


class NumbaKernel:
    """One compiled loop; blocks are shared out over the threads that this process may use."""

    def __init__(self, sweep: Sweep) -> None:
        self.source = source_of(sweep)
        self._sweep = sweep
        self._function = _load(sweep.digest, self.source)
        self._scalar_types = [np.dtype(value.dtype).type for value in sweep.scalars]
        self._partials = [
            dtype
            for reduction in sweep.reductions
            for dtype in partial_dtypes(reduction, sweep.types[reduction.arg])
        ]

    def __call__(
        self,
        inputs: Sequence[npt.NDArray[np.generic]],
        scalars: Sequence[Scalar],
        outputs: Sequence[npt.NDArray[np.generic]],
        offset: int,
        length: int,
        block_size: int,
    ) -> list[npt.NDArray[np.generic]]:
        """Run over one server's range; see ``kernels.Kernel``."""
        blocks = -(-length // block_size)
        partials = [np.empty(blocks, dtype) for dtype in self._partials]
        typed = [kind(value) for kind, value in zip(self._scalar_types, scalars, strict=True)]
        arrays = (*inputs, *typed, *outputs, *partials)
        threads = min(thread_count(), blocks)
        if threads <= 1:
            self._function(0, blocks, block_size, offset, length, *arrays)
            return partials
        cuts = [blocks * part // threads for part in range(threads + 1)]
        list(
            _pool().map(
                lambda low, high: self._function(low, high, block_size, offset, length, *arrays),
                cuts[:-1],
                cuts[1:],
            )
        )
        return partials


def thread_count() -> int:
    """Threads a kernel may use: ``OMP_NUM_THREADS`` where set, else the cores of the machine."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdigit() and int(setting) > 0 else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="distvec-kernel")


# --- source text ----------------------------------------------------------------------------------


def source_of(sweep: Sweep) -> str:
    """Python source of the loop, in the subset that numba compiles.

    A block is walked in chunks that fit the innermost cache. The elementwise loop of a chunk leaves
    the operands of the reductions in scratch arrays, which loops of their own then accumulate: so
    the order of accumulation is fixed by the block alone, whatever the compiler makes of the rest.
    """
    first_step = len(sweep.inputs) + len(sweep.scalars)
    operands = _operands(sweep)
    parameters = [
        *(f"in{k}" for k in range(len(sweep.inputs))),
        *(f"v{k}" for k in range(len(sweep.inputs), first_step)),
        *(f"out{k}" for k in range(len(sweep.outputs))),
        *(name for k, r in enumerate(sweep.reductions) for name in _partial_names(k, r)),
    ]
    body = [
        *(f"v{k} = x{k}[i]" for k in range(len(sweep.inputs))),
        *(f"v{k} = {_expression(step)}" for k, step in enumerate(sweep.steps, first_step)),
        *(f"y{k}[i] = v{value}" for k, value in enumerate(sweep.outputs)),
        *(f"{name}[i] = {text}" for name, _, text in operands.values()),
    ]
    # Indices count from the start of the chunk: then the compiler sees that none is negative,
    # which in Python would mean another element.
    views = [
        *(f"x{k} = in{k}[c0:c1]" for k in range(len(sweep.inputs))),
        *(f"y{k} = out{k}[c0:c1]" for k in range(len(sweep.outputs))),
    ]
    types = sweep.types
    reductions = list(enumerate(sweep.reductions))
    starts = [line for k, r in reductions for line in _start(k, r, types[r.arg])]
    folds = [
        line for k, r in reductions for line in _fold(k, r, types[r.arg], operands[_key(r)][0])
    ]
    ends = [line for k, r in reductions for line in _end(k, r)]
    lines = [
        f"def kernel({', '.join(['b0', 'b1', 'size', 'offset', 'n', *parameters])}):",
        *(f"    {name} = np.empty({_CHUNK}, np.{dtype})" for name, dtype, _ in operands.values()),
        "    for b in range(b0, b1):",
        "        lo = b * size",
        "        hi = min(lo + size, n)",
        *(f"        {line}" for line in starts),
        f"        for c0 in range(lo, hi, {_CHUNK}):",
        f"            c1 = min(c0 + {_CHUNK}, hi)",
        *(f"            {line}" for line in views),
        "            for i in range(c1 - c0):",
        "                _index = offset + c0 + i",
        *(f"                {line}" for line in body),
        *(f"            {line}" for line in folds),
        *(f"        {line}" for line in ends),
    ]
    decorator = f"@njit({_signature(sweep)!r}, nogil=True, error_model='numpy', cache=True)"
    return "\n".join([_HEADER, decorator, *lines, ""])


_CHUNK = 1024


def _key(reduction: Reduction) -> tuple[int, bool]:
    """What a reduction reads: a value, as it is or as a truth value."""
    return reduction.arg, reduction.op in ("any", "all")


def _operands(sweep: Sweep) -> dict[tuple[int, bool], tuple[str, str, str]]:
    """Scratch arrays by what they hold: (name, dtype, expression of an element)."""
    operands = {}
    for reduction in sweep.reductions:
        value, truth = _key(reduction)
        is_float = sweep.types[value].dtype.startswith("float") and not truth
        dtype = "float64" if is_float else "int64"
        text = f"{dtype}(v{value} != 0)" if truth else f"{dtype}(v{value})"
        operands[value, truth] = (f"s{value}{'t' if truth else ''}", dtype, text)
    return operands


def _expression(step: Any) -> str:
    template = ops.TABLE[step.op].numba
    expression = template.format(*(f"v{arg}" for arg in step.args))
    if step.op == "cast" and step.type.dtype == "bool":
        expression = f"{expression} != 0"
    return _CONVERT[step.type.dtype].format(expression)


def _signature(sweep: Sweep) -> str:
    def array(dtype: str) -> str:
        return f"{'boolean' if dtype == 'bool' else dtype}[::1]"

    partials = (
        array(dtype.name)
        for r in sweep.reductions
        for dtype in partial_dtypes(r, sweep.types[r.arg])
    )
    arguments = [
        *["int64"] * 5,
        *(array(value.dtype) for value in sweep.inputs),
        *("boolean" if v.dtype == "bool" else v.dtype for v in sweep.scalars),
        *(array(sweep.types[value].dtype) for value in sweep.outputs),
        *partials,
    ]
    return f"void({', '.join(arguments)})"


def _partial_names(k: int, reduction: Reduction) -> Iterator[str]:
    yield f"red{k}"
    if reduction.op.startswith("arg"):
        yield f"where{k}"


def _start(k: int, reduction: Reduction, value: ValueType) -> Iterator[str]:
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
    "sum": "a{k} += _sum({chunk})",
    "prod": "a{k} *= _prod({chunk})",
    "any": "a{k} |= _largest({chunk})",
    "all": "a{k} &= _smallest({chunk})",
}


def _fold(k: int, reduction: Reduction, value: ValueType, scratch: str) -> Iterator[str]:
    """Take one chunk of operands into the accumulator of the block."""
    chunk = f"{scratch}[:c1 - c0]"
    op = reduction.op
    if op in _FOLD:
        yield _FOLD[op].format(k=k, chunk=chunk)
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


def _end(k: int, reduction: Reduction) -> Iterator[str]:
    yield f"red{k}[b] = a{k}"
    if reduction.op.startswith("arg"):
        yield f"where{k}[b] = w{k}"


# --- compilation and the cache on disk ------------------------------------------------------------


def _load(digest: str, source: str) -> Callable[..., None]:
    """Import the module of ``source`` from the cache folder, after writing it there if new."""
    _raise_alias_check_limit()
    folder = _cache_folder()
    path = folder / f"kernel_{digest}.py"
    if not path.exists():
        # Servers on one machine share the folder: whoever renames last wins, with the same text.
        handle, draft = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(source)
        os.replace(draft, path)
    name = f"distvec_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import the kernel in {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba looks the module up by name when it loads machine code
    spec.loader.exec_module(module)
    function: Callable[..., None] = module.kernel
    return function


@cache
def _cache_folder() -> Path:
    """A folder for this version of the helpers, numba and Python; numba tells CPUs apart itself."""
    from ps_backend.kernels import scalar_math

    helpers = Path(scalar_math.__file__).read_bytes()
    version = f"{numba.__version__} {sys.version_info[:2]}".encode()
    tag = hashlib.sha256(helpers + version).hexdigest()[:12]
    root = os.environ.get("DISTVEC_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    for parent in (Path(root).expanduser(), Path(tempfile.gettempdir())):
        folder = parent / "distvec" / f"kernels-{tag}"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="distvec-kernels-"))


@cache
def _raise_alias_check_limit() -> None:
    """Let LLVM vectorise loops over many arrays.

    It guards a vectorised loop by comparing every output's range with every other array's and gives
    up past a number of comparisons that sweeps with several outputs exceed.
    """
    llvmlite.binding.set_option("distvec", "--runtime-memory-check-threshold=512")
