"""The calls of the operating system that a directory of files takes; the module ``os`` has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class System(Protocol):
    """Those of ``os`` by the same names. All raise ``OSError``."""

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """A descriptor."""

    def close(self, fd: int, /) -> None:
        """End it."""

    def write(self, fd: int, data: memoryview, /) -> int:
        """Write where it stands, some bytes at least; how many."""

    def preadv(self, fd: int, buffers: Sequence[memoryview], offset: int, /) -> int:
        """Read from there into the buffers, some bytes at least; how many."""

    def lseek(self, fd: int, position: int, how: int, /) -> int:
        """Let it stand elsewhere."""

    def ftruncate(self, fd: int, length: int, /) -> None:
        """Let the file be so long."""

    def fsync(self, fd: int, /) -> None:
        """Make a file, or the names in a folder, durable."""

    def stat(self, path: Path) -> os.stat_result:
        """Size and kind."""

    def fstat(self, fd: int) -> os.stat_result:
        """The same of an open file."""

    def listdir(self, path: Path) -> list[str]:
        """The names in a folder."""

    def mkdir(self, path: Path) -> None:
        """Make a folder."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty one."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def link(self, path: Path, to: Path) -> None:
        """Let a file have another name besides; ``FileExistsError`` where something has it."""

    def replace(self, path: Path, to: Path) -> None:
        """Let a file have another name, instead of the one that has it."""
