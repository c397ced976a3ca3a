"""Where arrays lie in memory: what compiled loops over any number of them are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def address_of(array: npt.NDArray[Any]) -> int:
    """Where its first element lies."""
    address: int = array.__array_interface__["data"][0]
    return address


def addresses_of(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Where the arrays lie; one entry more, of no meaning."""
    return np.array([*map(address_of, arrays), 0], np.int64)
