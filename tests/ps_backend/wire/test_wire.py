"""What is encoded is decoded, bit for bit."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend import errors
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Combination, Link, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import DTYPES, ValueType
from ps_backend.program.views import View
from ps_backend.wire import codec, protocol
from ps_backend.wire import ps_pb2 as pb

small = st.integers(0, 2**20)
arguments = st.lists(small, max_size=3).map(tuple)
axes = st.none() | st.integers(0, 1)
types = st.builds(
    ValueType, st.sampled_from(DTYPES), st.lists(st.integers(0, 9), max_size=2).map(tuple)
)
links = st.builds(Link, st.text(max_size=9), st.none() | small, st.none() | small, st.booleans())
params = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple)
sweeps = st.builds(
    Sweep,
    st.lists(types, max_size=4).map(tuple),
    st.lists(types, max_size=4).map(tuple),
    st.lists(
        st.builds(Step, st.text(max_size=9), arguments, types, params)
        | st.builds(Combination, st.lists(links, max_size=3).map(tuple), types),
        max_size=4,
    ).map(tuple),
    st.lists(small, max_size=3).map(tuple),
    st.lists(st.builds(Reduction, st.text(max_size=9), arguments, axes, small), max_size=3).map(
        tuple
    ),
)

numbers = st.integers(-(2**53), 2**53)
views = st.builds(
    View,
    st.builds(DenseSpace, st.integers(0, 2**40), st.integers(0, 2**64 - 1)),
    st.lists(st.integers(0, 9), max_size=2).map(tuple),
    numbers,
    numbers,
    st.booleans(),
    st.integers(0, 2**64 - 1),
)


def scalar_of(type_: ValueType):
    if type_.row:
        return st.integers(0, 2**32).map(
            lambda seed: np.random.default_rng(seed).normal(size=type_.row).astype(type_.dtype)
        )
    if type_.dtype == "bool":
        return st.booleans()
    if type_.dtype.startswith("float"):
        return st.floats(allow_nan=True, allow_infinity=True)
    limits = np.iinfo(type_.dtype)
    return st.integers(limits.min, limits.max)


@st.composite
def calls(draw):
    sweep = draw(sweeps)
    ids = st.integers(0, 2**64 - 1)
    return SweepCall(
        sweep,
        DenseSpace(draw(st.integers(0, 2**40)), draw(st.integers(0, 2**64 - 1))),
        tuple(draw(ids) for _ in sweep.inputs),
        tuple(draw(scalar_of(t)) for t in sweep.scalars),
        tuple(draw(ids) for _ in sweep.outputs),
        views=draw(st.just(()) | st.tuples(*(st.none() | views for _ in sweep.inputs))),
    )


def bits(value):
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return struct.pack("<d", value) if isinstance(value, float) else (type(value), value)


@given(calls())
def test_a_call_survives_the_wire(call):
    sent = codec.encode_call(call, full=True).SerializeToString()
    message = pb.SweepCall.FromString(sent)
    got = codec.decode_call(message, codec.decode_sweep(message.sweep))
    assert got.sweep == call.sweep
    assert got.sweep.digest == call.sweep.digest == message.digest
    assert (got.space, got.inputs, got.outputs) == (call.space, call.inputs, call.outputs)
    assert list(map(bits, got.scalars)) == list(map(bits, call.scalars))
    assert got.views == (call.views if any(call.views) else ())


def test_an_input_has_one_view():
    f8 = ValueType("float64")
    sweep, space = Sweep((f8,), (), (), (), ()), DenseSpace(5)
    for inputs in ([0, 0], [1]):
        message = codec.encode_call(SweepCall(sweep, space, (7,), (), ()), full=False)
        for number in inputs:
            message.views.add(input=number, space=codec.encode_space(space), step=1)
        with pytest.raises(errors.InvalidProgram, match=f"a view of input {number}, of 1"):
            codec.decode_call(message, sweep)


def test_the_bits_of_a_nan_survive():
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_DEAD_BEEF))[0]
    (got,) = codec.decode_scalars(
        (ValueType("float64"),), codec.encode_scalars((ValueType("float64"),), [odd])
    )
    assert bits(got) == bits(odd)


ROW = ValueType("float64", (3,))


@pytest.mark.parametrize(
    "given",
    [
        1.5,
        np.zeros(2),
        np.zeros((1, 3)),
        np.zeros(3, np.float32),
        np.zeros(6)[::2],
        [1.0, 2.0, 3.0],
    ],
)
def test_arrays_of_another_shape_or_dtype_are_refused(given):
    call = SweepCall(Sweep((), (ROW,), (), (), ()), DenseSpace(1), (), (given,), ())
    with pytest.raises(ValueError, match=r"is no C-contiguous array of float64 \(3,\)"):
        codec.encode_call(call, full=True)


@pytest.mark.parametrize("given", [np.zeros(2), np.zeros(4)])
def test_scalars_are_as_many_bytes_as_their_types_say(given):
    sweep = Sweep((), (ROW, ValueType("int64")), (), (), ())
    message = pb.SweepCall(space=pb.Space(kind="dense"), scalars=given.tobytes() + bytes(8))
    with pytest.raises(errors.InvalidProgram, match="2 scalars are 32 bytes, got"):
        codec.decode_call(message, sweep)


def test_bytes_that_are_no_truth_values_are_refused():
    sweep = Sweep((), (ValueType("bool", (3,)),), (), (), ())
    message = pb.SweepCall(space=pb.Space(kind="dense"), scalars=b"\x00\x01\x02")
    with pytest.raises(errors.InvalidProgram, match="has bytes that are no bool"):
        codec.decode_call(message, sweep)


@pytest.mark.parametrize("values", [(2**63,), (1.5,), (), (1, 2)])
def test_scalars_that_do_not_fit_are_refused(values):
    with pytest.raises(ValueError, match="int64"):
        codec.encode_scalars((ValueType("int64"),), values)


def test_a_structure_goes_along_only_once():
    call = SweepCall(Sweep((), (), (), (), ()), DenseSpace(1), (), (), ())
    assert codec.encode_call(call, full=True).HasField("sweep")
    assert not codec.encode_call(call, full=False).HasField("sweep")


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_chunks_are_plain_protobuf_and_come_back(pieces):
    parts = [memoryview(piece) for piece in pieces]
    frames = list(protocol.chunk_frames(parts))
    whole = b"".join(pieces)
    assert b"".join(pb.Request.FromString(frame).chunk for frame in frames) == whole
    target = bytearray(len(whole))
    protocol.copy_chunks(map(protocol.chunk_of, frames), memoryview(target))
    assert target == whole
    assert pb.Reply.FromString(protocol.chunk_field(parts)).chunk == whole


def test_bulk_is_cut_into_chunks():
    data = memoryview(bytes(2 * protocol.CHUNK_BYTES + 5))
    sizes = [len(protocol.chunk_of(frame)) for frame in protocol.chunk_frames([data])]
    assert sizes == [protocol.CHUNK_BYTES, protocol.CHUNK_BYTES, 5]


@given(st.binary(max_size=64))
def test_a_frame_that_is_no_chunk_is_refused_or_is_one(frame):
    try:
        chunk = bytes(protocol.chunk_of(frame))
    except protocol.PayloadBroken:
        return
    assert pb.Request.FromString(frame).chunk == chunk


@pytest.mark.parametrize("size", [3, 5])
def test_a_payload_of_another_size_is_refused(size):
    with pytest.raises(protocol.PayloadBroken, match="4 bytes"):
        protocol.copy_chunks([memoryview(bytes(size))], memoryview(bytearray(4)))


@pytest.mark.parametrize(
    "kind",
    [
        errors.PSError, errors.ServerLost, errors.BufferLost, errors.OutOfBudget,
        errors.AuthenticationError, errors.InvalidProgram, errors.RoundClosed,
        errors.StaleRequest, ValueError, IndexError, TypeError, NotImplementedError, MemoryError,
    ],
)  # fmt: skip
def test_an_error_comes_back_as_its_class(kind):
    got = protocol.decode_error(protocol.encode_error(kind("what and why")).error, "host:1")
    assert type(got) is kind
    assert str(got).startswith("what and why")
    assert ("host:1" in str(got)) == issubclass(kind, errors.PSError)


def test_an_unexpected_error_names_its_class():
    got = protocol.decode_error(protocol.encode_error(ZeroDivisionError("oh")).error, "host:1")
    assert type(got) is errors.PSError
    assert "ZeroDivisionError: oh" in str(got)


def test_byte_views_share_memory():
    array = np.zeros(3)
    protocol.byte_view(array)[7] = 0x40
    assert array[0] == 2.0


def test_errors_of_other_classes_are_what_they_are_cases_of():
    sent = protocol.encode_error(np.linalg.LinAlgError("Singular matrix"))
    got = protocol.decode_error(sent.error, "host:1")
    assert type(got) is ValueError
    assert str(got) == "Singular matrix"
