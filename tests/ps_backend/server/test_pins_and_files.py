"""What pins and files of a session may ask of a server."""

import numpy as np

from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.service import Service
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array
from tests.ps_backend.requests import Sender


def test_what_no_memory_could_hold_is_refused_at_once_whatever_is_pinned():
    sender = Sender(Service(memory=1 << 20))
    sender.write(1, np.ones(10))
    assert not sender.send(pin=pb.Pin(name="p")).HasField("error")
    array = encode_array(2, array_type(DenseSpace(1 << 40), float))
    total = pb.Release(round="r", totals=[pb.Total(target=array, op="add")])
    assert sender.error(release=total).kind == "OutOfBudget"


def test_a_session_keeps_its_buffers_under_so_many_names():
    sender = Sender(Service(memory=1 << 20))
    for number in range(64):
        assert not sender.send(pin=pb.Pin(name=str(number))).HasField("error")
    assert not sender.send(pin=pb.Pin(name="0")).HasField("error")
    assert "unpin some" in sender.error(pin=pb.Pin(name="one more")).message
    sender.send(pin=pb.Pin(name="0", over=True))
    assert not sender.send(pin=pb.Pin(name="one more")).HasField("error")


def test_rows_go_into_files_that_begin_as_they_should(tmp_path):
    sender = Sender(Service(memory=1 << 20))
    (tmp_path / "f").write_bytes(b"of somebody else")
    save = pb.Save(store=str(tmp_path), file="f", names=[""], offsets=[0])
    sender.write(1, np.ones(10))
    save.arrays.append(encode_array(1, array_type(DenseSpace(10), float)))
    assert "rows need a file that has a head" in sender.error(save=save).message
    save.head, save.offsets[:] = b"of", [1 << 63]
    assert "offset must be 2" in sender.error(save=save).message
    assert (tmp_path / "f").read_bytes() == b"of somebody else"


def test_only_who_wrote_a_file_writes_over_it(tmp_path):
    """Another server that was taken for dead may be at work on it still."""
    array = encode_array(1, array_type(DenseSpace(10), float))

    def saved(sender, file, *spares):
        reply = sender.send(
            save=pb.Save(store=str(tmp_path), file=file, names=["a"], arrays=[array], spares=spares)
        )
        assert not reply.HasField("error"), reply.error
        assert reply.saved[0].file == file
        return (tmp_path / file).stat().st_ino

    one, other = (Sender(Service(memory=1 << 20)) for _ in range(2))
    one.write(1, np.ones(10))
    other.write(1, np.zeros(10))
    (tmp_path / "not its own").write_bytes(b"of somebody else")
    first = saved(one, "first")
    assert saved(other, "second", "first", "not its own") != first
    assert (tmp_path / "first").stat().st_ino == first
    assert (tmp_path / "not its own").read_bytes() == b"of somebody else"
    assert saved(one, "third", "not its own", "first") == first
    assert not (tmp_path / "first").exists()
    saved(one, "fourth", "first")
    assert (tmp_path / "third").stat().st_ino == first, "it is taken once"


def test_no_file_is_pushed_out_by_one_that_is_written_over(tmp_path):
    array = encode_array(1, array_type(DenseSpace(10), float))
    sender = Sender(Service(memory=1 << 20))
    sender.write(1, np.ones(10))
    (tmp_path / "new").write_bytes(b"of the server that took its place")
    save = pb.Save(store=str(tmp_path), file="old", names=["a"], arrays=[array])
    sender.send(save=save)
    save.file, save.spares[:] = "new", ["old"]
    reply = sender.send(save=save)
    assert reply.saved[0].file not in ("old", "new")
    assert (tmp_path / "new").read_bytes() == b"of the server that took its place"
