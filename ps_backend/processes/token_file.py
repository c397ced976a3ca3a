"""The file with the tokens of a server: one a line, the first for calls to other servers."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from pathlib import Path


class TokenFile:
    """The file that ``--token-file`` names, made if it is missing; else a temporary one."""

    def __init__(self, file: Path | None) -> None:
        """Raises ``OSError``, or ``ValueError`` for a file without tokens."""
        self._is_temporary = file is None
        if file is None:
            handle, name = tempfile.mkstemp(prefix="distvec-token-")  # mode 0600
            _write_token(handle)
            file = Path(name)
        elif not file.exists():
            _make(file)
        elif _is_readable_for_others(file.stat()):
            print(
                f"distvec serve: others on this machine can read {file}; so they can use the "
                f"server: chmod 600 {file}",
                file=sys.stderr,
            )
        self.path = file
        self._stamp = self._stamp_now()
        self.tokens = read_tokens(file)
        """Those of the last read."""

    def has_changed(self) -> bool:
        """Whether the file is another one than before."""
        try:
            return self._stamp_now() != self._stamp
        except OSError:  # it is being replaced
            return False

    def read(self) -> list[str]:
        """The tokens of now. Raises as the constructor does, and then keeps those before."""
        self._stamp = self._stamp_now()
        self.tokens = read_tokens(self.path)
        return self.tokens

    def close(self) -> None:
        """Delete a temporary one."""
        if self._is_temporary:
            self.path.unlink(missing_ok=True)

    def _stamp_now(self) -> tuple[int, int, int]:
        status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns


def read_tokens(file: Path) -> list[str]:
    """The tokens in ``file``; ``ValueError`` if it has none."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    tokens = [line for line in lines if line]
    if not tokens:
        raise ValueError(f"the token file {file} is empty; write a long random string to it")
    return tokens


def _is_readable_for_others(status: os.stat_result) -> bool:
    """Kubernetes lends a secret of root to this process by a group of its own."""
    lent = status.st_uid != os.geteuid() and status.st_gid in (os.getegid(), *os.getgroups())
    return bool(status.st_mode & (0o007 if lent else 0o077))


def _make(file: Path) -> None:
    """A new token in ``file``, which only this user can read; the file of another who was first
    stays. It appears with its content, so two servers started at once agree."""
    try:
        handle, name = tempfile.mkstemp(prefix=f"{file.name}-", dir=file.parent)  # mode 0600
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    try:
        _write_token(handle)
        os.link(name, file)
    except FileExistsError:
        return
    finally:
        os.unlink(name)
    print(f"distvec serve: made a new token in {file}, readable by you alone", file=sys.stderr)


def _write_token(handle: int) -> None:
    with os.fdopen(handle, "w") as target:
        target.write(secrets.token_urlsafe(32) + "\n")
