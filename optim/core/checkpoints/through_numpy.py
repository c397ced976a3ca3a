"""Checkpoints of arrays of other libraries in main memory, by way of NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import Array, namespace
from optim.core.checkpoints.npz import NpzKeeper


@dataclass(frozen=True)
class ThroughNumPy:
    """A keeper for arrays like `x`, which share their memory with NumPy's by DLPack.

    Raises NotImplementedError for what is not in main memory, or of a dtype that NumPy lacks.
    """

    keeper: NpzKeeper
    x: Array

    def save(
        self,
        number: int,
        arrays: Mapping[str, Array],
        document: Mapping[str, Any],
        *,
        wait: bool = False,
    ) -> None:
        """See `Keeper`."""
        self.keeper.save(
            number, {name: _seen(x) for name, x in arrays.items()}, document, wait=wait
        )

    def load(self) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """See `Keeper`."""
        found = self.keeper.load()
        if found is None:
            return None
        number, arrays, document = found
        xp = namespace(self.x)
        return number, {name: xp.from_dlpack(x) for name, x in arrays.items()}, document

    def recovers(self, error: Exception) -> bool:
        """No."""
        return self.keeper.recovers(error)

    def close(self) -> None:
        """See `Keeper`."""
        self.keeper.close()


def _seen(x: Array) -> Array:
    """`x` as a NumPy array, without a copy."""
    plain = x.detach() if hasattr(x, "detach") else x
    try:
        return np.from_dlpack(plain)
    except (BufferError, RuntimeError, TypeError) as error:
        raise NotImplementedError(
            f"checkpoint=...: NumPy cannot read a {type(x).__name__} of {x.dtype} on "
            f"{getattr(x, 'device', 'its device')}; minimise on arrays in main memory, or keep "
            "states by yourself, by iterations(...) and resume=state"
        ) from error
