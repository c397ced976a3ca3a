"""Damaged and invented files: told so, in a sentence, and never read as other numbers."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from ps_backend.durability import formats, manifest
from ps_backend.durability.file_checksums import FileRange
from ps_backend.durability.file_ranges import read_rows
from ps_backend.durability.manifest import decode
from ps_backend.durability.stores import Directory
from ps_backend.errors import Corrupted
from ps_backend.program.spaces import decode_space
from tests.fuzz.files import FILES, _manifest, _sealed, try_one


@pytest.mark.parametrize("what", FILES)
@pytest.mark.filterwarnings("default")  # ast has some for what looks like Python
def test_seeded_files(what):
    assert not [(seed, wrong) for seed in range(300) if (wrong := try_one(what, seed))]


@pytest.mark.parametrize(
    "changes",
    [
        {"space": ["dense", 3.0, 0, ""]},
        {"space": ["dense", 3, 0.0, ""]},
        {"row": [2.0]},
        {"row": [True]},
        {"id": "7"},
        {"names": "w"},
        {"names": [1]},
        {"pieces": [["f", 0, 0, 3, 1024, ["-0000001"]]]},
        {"pieces": [["f", 0, 0, 3, 1024, "0123"]]},
    ],
)
def test_numbers_of_a_manifest_are_whole(changes):
    body = _manifest()
    body = {**body, "arrays": [{**body["arrays"][0], **changes}]}
    with pytest.raises(Corrupted, match="is not a manifest of arrays"):
        decode(_sealed(json.dumps(body).encode()), "m")


@pytest.mark.parametrize("changes", [{"number": float("inf")}, {"version": 0.5}, {"document": 5}])
def test_what_a_manifest_says_of_itself(changes):
    with pytest.raises(Corrupted, match="is not a manifest of arrays"):
        decode(_sealed(json.dumps({**_manifest(), **changes}).encode()), "m")


def test_a_length_that_is_no_integer_is_not_remembered_as_one():
    with suppress(TypeError, ValueError):
        decode_space("dense", 7117.0, 0, b"")
    assert type(decode_space("dense", 7117, 0, b"").length) is int


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"w": []}',
        '{"w": null}',
        '{"w": {"dtype": "F64", "shape": 5, "data_offsets": [0, 0]}}',
        '{"w": {"dtype": "F64", "shape": [0], "data_offsets": 5}}',
        '{"\\ud800": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}}',
        '{"w": {"dtype": "F64", "shape": [%s0], "data_offsets": [0, 0]}}' % ("9," * 65),
    ],
)
def test_a_header_of_safetensors_that_is_json_and_no_header(text):
    data = len(text).to_bytes(8, "little") + text.encode()
    with pytest.raises(Corrupted, match="has no header of a safetensors file"):
        formats.read_safetensors_header(lambda at, count: data[at : at + count], len(data), "f")


def test_a_header_of_numpys_with_more_extents_than_arrays_have():
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%s)}" % ((b"9" * 18 + b",") * 300)
    data = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text
    with pytest.raises(Corrupted, match="no header"):
        formats.read_npy_header(lambda at, count: data[at : at + count], len(data), "f")


def test_rows_that_a_short_file_cannot_have_take_no_memory(tmp_path):
    (tmp_path / "f").write_bytes(bytes(100))
    piece = FileRange("f", 0, 0, 1 << 50, 1 << 50, (0,))
    with pytest.raises(Corrupted, match="cut off"):
        read_rows(Directory(tmp_path), [piece], 8, 5, memoryview(bytearray(16)), "w")
    far = FileRange("f", (1 << 63) - 8, 0, 2, 1024, (0,))
    with pytest.raises(Corrupted, match="cut off"):
        read_rows(Directory(tmp_path), [far], 8, 0, memoryview(bytearray(16)), "w")


def test_versions_to_come_are_named():
    with pytest.raises(NotImplementedError, match="use a later distvec"):
        decode(_sealed(json.dumps({**_manifest(), "version": manifest.VERSION + 1}).encode()), "m")
