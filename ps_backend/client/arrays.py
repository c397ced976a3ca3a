"""How arrays on the servers, and what is added to them, are named between client modules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.client.selection import Indices
from ps_backend.program.types import ArrayType
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array


class StoredArray(NamedTuple):
    """An array on the servers."""

    buffer: int
    type: ArrayType

    def describe(self) -> pb.Array:
        """The array as it is named in messages."""
        return encode_array(self.buffer, self.type)


class Change(NamedTuple):
    """What is added to an array: ``values[i]`` at ``indices[i]``, or all values without."""

    indices: Indices | None
    values: npt.NDArray[np.generic]
