"""Row programs that rise to ``row_tiles`` once they are hot; numba is not imported before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ps_backend.kernels.background import in_background
from ps_backend.kernels.tiering import HotCounter
from ps_backend.program.row_program import RowProgram

if TYPE_CHECKING:
    from ps_backend.kernels.keyed.row_tiles import RowTiles


class HotRows:
    """How long a row program has run, and what runs it faster."""

    def __init__(self, program: RowProgram) -> None:
        self._program = program
        self._counter = HotCounter()
        self._is_asked = False
        self.tiles: RowTiles | None = None
        """None until it is hot and machine code is there, which all such programs share; and where
        a program is none of these."""

    def ran(self, seconds: float) -> None:
        """It ran for so long, some thousand rows at a time."""
        self._counter.runs += 1
        self._counter.seconds += seconds
        if self._counter.is_hot and not self._is_asked:
            self._is_asked = True
            in_background(self.rise)

    def rise(self) -> None:
        """Make ``tiles``, if there can be any; what has to be compiled for it is waited for."""
        from ps_backend.kernels.compiled.compile_worker import compile_in_subprocess
        from ps_backend.kernels.compiled.machine_code import row_source
        from ps_backend.kernels.keyed.row_tiles import RowTiles, has_tiles

        if has_tiles(self._program):
            compile_in_subprocess(row_source())
            self.tiles = RowTiles(self._program)
