"""Source text to machine code, kept on disk in a folder that belongs to the user alone.

The text of a structure is the same in every process, so it is written to a cache folder under its
digest and numba keeps the machine code beside it: a restarted server compiles nothing twice. The
files in that folder are run, so it must be ours alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding
import numba
import numpy as np


@cache
def cache_folder(tag: str) -> Path | None:
    """The folder for kernels of version ``tag``, or None (with a warning) if none is safe.

    ``DISTVEC_CACHE``, ``XDG_CACHE_HOME`` or ``~/.cache`` if it can be written to, else a folder of
    this user's in the system's temporary directory. It is made with mode 0700; one that is there
    must have that mode and belong to this user, and no stranger may be able to replace it. Nor may
    one be able to write to ``NUMBA_CACHE_DIR``, where numba puts machine code instead if it is set.
    """
    reasons = []
    for parent in _parents():
        folder = parent / f"kernels-{tag}"
        try:
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_owner(parent)  # of the link, if it is one
            if not folder.exists():
                _seed(folder)
            folder.mkdir(exist_ok=True, mode=0o700)
            folder = folder.resolve()
            _check(folder, 0o077)
            _check_numba()
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror or error}")
        else:
            return folder
    warnings.warn(
        f"kernels are compiled anew in each process, for want of a safe folder to keep them in "
        f"({'; '.join(reasons)}); set DISTVEC_CACHE to a folder of yours",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _seed(folder: Path) -> None:
    """Make ``folder`` a copy of the one in ``DISTVEC_KERNELS``, if that is set and has one.

    An image has kernels that were compiled when it was built, in a folder that a server cannot
    write to. They are run, so they must belong to root or to this user.
    """
    told = os.environ.get("DISTVEC_KERNELS")
    source = Path(told, folder.name).resolve() if told else None
    if source is None or not source.is_dir():
        return
    try:
        _check_sealed(source)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            copy = Path(made, folder.name)
            shutil.copytree(source, copy)  # with times of change, which numba compares
            for path in (copy, *copy.rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)
            copy.rename(folder)
    except OSError as error:
        if not folder.exists():  # else another process was faster
            reason = error.strerror or error
            warnings.warn(
                f"DISTVEC_KERNELS, {told}, is not used: {reason}", RuntimeWarning, stacklevel=3
            )


def _check_sealed(folder: Path) -> None:
    """``PermissionError`` if anyone but root and this user can change what lies in ``folder``."""
    for path in (folder, *folder.rglob("*"), *folder.parents):
        status = path.lstat()
        if status.st_uid not in (0, os.geteuid()):
            raise PermissionError(f"{path} belongs to user {status.st_uid}")
        sticky = path in folder.parents and status.st_mode & stat.S_ISVTX
        if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode) and not sticky:
            raise PermissionError(f"others can change {path}")


def _parents() -> Iterator[Path]:
    root = os.environ.get("DISTVEC_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    yield Path(os.path.expanduser(root), "distvec")
    yield Path(tempfile.gettempdir(), f"distvec-{os.geteuid()}")


def _check_numba() -> None:
    """As ``_check``, for the folder where numba was told to keep what it compiles, if it was."""
    told = os.environ.get("NUMBA_CACHE_DIR")
    if told:
        folder = Path(told)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            _check(folder.resolve(), 0o022)
        except PermissionError as error:
            raise PermissionError(f"NUMBA_CACHE_DIR, {told}, {error}") from None


def _check(folder: Path, forbidden: int) -> None:
    """``PermissionError`` if what lies in ``folder``, a path without links, may be another's.

    So it is if its mode has one of the bits in ``forbidden``.
    """
    _check_owner(folder)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & forbidden:
        raise PermissionError(f"has mode {mode:04o}; chmod it to {mode & ~forbidden:04o}")
    if not os.access(folder, os.W_OK):
        raise PermissionError("cannot be written to")
    for above in folder.parents:  # who may rename a folder on the way may put another in its place
        status = above.stat()
        if status.st_uid not in (0, os.geteuid()):
            raise PermissionError(f"{above} belongs to user {status.st_uid}")
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(f"every user can rename files in {above}")


def _check_owner(folder: Path) -> None:
    owner = folder.lstat().st_uid
    if owner != os.geteuid():
        raise PermissionError(f"belongs to user {owner}")


_COMPILED = ".compiled"


def load(source: str) -> Callable[..., None]:
    """The function ``kernel`` that ``source`` defines, compiled; loaded once a process."""
    place = cache_folder(_tag()), source
    if place not in _loaded:
        _raise_alias_check_limit()
        scalar_functions()
        if "distvec_linear" in source:
            linear_loops()
        if "distvec_tiles" in source:
            tile_loop()
        _loaded[place] = _import_source(_name_of(source), source).kernel
    return _loaded[place]


_loaded: dict[tuple[Path | None, str], Callable[..., None]] = {}
"""By folder and source. Machine code that was loaded stays in memory anyway."""


@cache
def row_source() -> str:
    """The source of the loop over rows of ``keyed/compiled_row_tiles.py``."""
    return _text_of("kernels/keyed/compiled_row_tiles")


def is_loaded(source: str) -> bool:
    """Whether ``load`` takes no time."""
    return (cache_folder(_tag()), source) in _loaded


def is_any_loaded() -> bool:
    """Whether there is a source of which that could be true."""
    return bool(_loaded)


def marker_of(source: str) -> Path | None:
    """The file that is there once ``source`` was compiled; of none: what all sweeps share.

    None without a folder to keep it in.
    """
    folder = cache_folder(_tag())
    return folder and folder / f"{_name_of(source) if source else 'shared'}{_COMPILED}"


def _name_of(source: str) -> str:
    return f"kernel_{hashlib.sha256(source.encode()).hexdigest()[:16]}"


@cache
def scalar_functions() -> Any:
    """The module ``scalar_math.py``, imported from a copy in the cache folder.

    There its machine code is renewed with that of the kernels when any helper changes, and can be
    kept even where the package itself cannot be written to.
    """
    return _import_source("scalar_math", _text_of("kernels/compiled/scalar_math"))


@cache
def linear_loops() -> Any:
    """The module ``linear.py``, likewise."""
    scalar_functions()
    return _import_source("linear", _text_of("kernels/compiled/linear"))


@cache
def tile_loop() -> Any:
    """The function ``run_tiles`` of ``tile_interpreter``, likewise; it has been run, on nothing."""
    scalar_functions()
    function = _import_source("tiles", _text_of("kernels/compiled/tile_interpreter")).run_tiles
    tables = [np.empty((0, columns), np.int64) for columns in (5, 3, 7)]
    function(*tables, np.empty((0, 0)), 0, 0, 0, 1, 1, 0)  # this compiles
    return function


def _import_source(name: str, source: str) -> Any:
    """The module of ``source``, imported from the cache folder after writing it there if new.

    Without a folder it is compiled in memory, for this process alone.
    """
    folder = cache_folder(_tag())
    if folder is None:
        return _execute_source(name, source.replace("cache=True", "cache=False"))
    path = folder / f"{name}.py"
    if not path.exists():
        # Servers on one machine share the folder: whoever renames last wins, with the same text.
        handle, draft = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(source)
        os.replace(draft, path)
    spec = importlib.util.spec_from_file_location(f"distvec_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import the kernel in {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba looks the module up by name when it loads machine code
    with _once_per_machine(path):
        spec.loader.exec_module(module)
    return module


def _execute_source(name: str, source: str) -> Any:
    module = ModuleType(f"distvec_{name}")
    sys.modules[module.__name__] = module
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module


@contextmanager
def _once_per_machine(path: Path) -> Iterator[None]:
    """Let one process compile what is in ``path``; the others wait and find the machine code."""
    done = path.with_suffix(_COMPILED)
    if done.exists():
        yield
        return
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it ends with the process, however that ends
        yield
        done.touch()


_PACKAGE = files("ps_backend")  # on executors it may be in an archive
_HELPERS = (
    "kernels/compiled/linear",
    "kernels/compiled/linear_tables",
    "kernels/compiled/llvm_loops",
    "kernels/compiled/llvm_random",
    "kernels/compiled/scalar_math",
    "kernels/compiled/tile_interpreter",
    "kernels/keyed/memory",
    "program/summation_order",
)


def _text_of(helper: str) -> str:
    return _PACKAGE.joinpath(f"{helper}.py").read_text(encoding="utf-8")


@cache
def _tag() -> str:
    """Of this version of the helpers, numba and Python; numba tells CPUs apart itself."""
    helpers = "".join(map(_text_of, _HELPERS))
    version = f"{numba.__version__} {sys.version_info[:2]}"
    return hashlib.sha256((helpers + version).encode()).hexdigest()[:12]


@cache
def _raise_alias_check_limit() -> None:
    """Let LLVM vectorise loops over many arrays.

    It guards a vectorised loop by comparing every output's range with every other array's and gives
    up past a number of comparisons that sweeps with several outputs exceed. There are two such
    numbers: one of the analysis, one of the vectoriser.
    """
    for limit in ("runtime-memory-check-threshold", "vectorize-memory-check-threshold"):
        llvmlite.binding.set_option("distvec", f"--{limit}=4096")
