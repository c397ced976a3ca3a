"""Manifests say what was said, or that they were damaged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.durability.file_checksums import FileRange
from ps_backend.durability.manifest import Kept, Manifest, decode
from ps_backend.errors import Corrupted
from ps_backend.program.spaces import DenseSpace, RaggedSpace
from ps_backend.program.types import DTYPES, array_type

KIND = array_type(DenseSpace(3), np.dtype("int8"), (2,))
ONE = Manifest(
    (Kept(7, ("w",), KIND, (FileRange("a/b", 64, 0, 3, 1024, (5,)),)),), {"k": 1}, "s", 2
)


@given(
    st.sampled_from(DTYPES),
    st.sampled_from([DenseSpace(5000), RaggedSpace(3, 2, (0, 1, 3))]),
    st.sampled_from([(), (4,)]),
    st.dictionaries(st.text(), st.integers() | st.text() | st.none()),
)
def test_what_is_encoded_is_decoded(dtype, space, row, document):
    kept = Kept(1 << 60, ("", "w"), array_type(space, np.dtype(dtype), row), ())
    manifest = Manifest((kept,), document, "session", 3)
    assert decode(manifest.encode(), "m") == manifest


def test_a_manifest_that_is_torn_at_any_byte_or_has_a_flipped_bit_is_none():
    data = ONE.encode()
    assert decode(data, "m") == ONE
    for end in range(len(data)):
        with pytest.raises(Corrupted, match=r"^m is not a manifest, or was damaged"):
            decode(data[:end], "m")
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(Corrupted, match=r"^m is not a manifest, or was damaged"):
                decode(bytes(flipped), "m")
