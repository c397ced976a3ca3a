"""What a stochastic solver says of tables whose rows take steps one by one."""

from __future__ import annotations

from typing import Any, ClassVar

from optim.core.arrays import Array


class PerRow:
    """Of most formulas nothing need be said: what is elementwise is also of rows."""

    of_rows: ClassVar[frozenset[str]] = frozenset()
    """Those of the slots that hold one number for each row of a table, of shape (n, 1)."""
    needs_table: ClassVar[bool] = False
    """Whether its formula goes along the rows of a table."""

    def started(self, memory: Any, x: Array) -> Any:
        """`memory`, where elements that saw no gradient yet are as `init_memory` has them at `x`.

        For elements that start one by one, as the rows of a growing table do.
        """
        return memory
