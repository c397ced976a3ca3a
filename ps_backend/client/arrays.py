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
    """A buffer on the servers: its values never change."""

    buffer: int
    type: ArrayType

    def describe(self) -> pb.Array:
        """The array as it is named in messages."""
        return encode_array(self.buffer, self.type)


class SharedArray(NamedTuple):
    """An array that many add to in place. It is no buffer: no program and no read can name it.

    ``Client.share`` makes one, ``Client.snapshot`` makes a buffer of its values.
    """

    number: int
    type: ArrayType

    def describe(self) -> pb.Array:
        """As it is named in messages."""
        return encode_array(self.number, self.type)


class Change(NamedTuple):
    """What is added to an array: ``values[i]`` at ``indices[i]``, or all values without."""

    indices: Indices | None
    values: npt.NDArray[np.generic]
