"""The folder where machine code is kept: what lies in it is run, so it must be ours alone."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path


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
            raise PermissionError(f"every user may rename what is in {above}")


def _check_owner(folder: Path) -> None:
    owner = folder.lstat().st_uid
    if owner != os.geteuid():
        raise PermissionError(f"belongs to user {owner}")
