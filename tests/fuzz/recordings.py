"""What honest clients send: requests of every kind, in an order in which all succeed."""

from __future__ import annotations

import atexit
import shutil
from concurrent.futures import Future
from functools import lru_cache
from itertools import count, pairwise
from tempfile import mkdtemp
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import distvec as dv
from distvec.session import Session
from ps_backend.arguments import Extensions
from ps_backend.client import Change, Client, SharedArray, StoredArray
from ps_backend.client.server_link import Message
from ps_backend.in_process import InProcess, in_process_transports
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Combination, Link, Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from ps_backend.transport import Answer
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import Parts, ReleaseStep, Total, Winner, session_name

_F8, _I8, _B = ValueType("float64"), ValueType("int64"), ValueType("bool")
_SPACE = DenseSpace(1500)
_MEMORY = 1 << 28
STORE = "fuzzed-store"
"""A folder, as requests name it: ``target`` says where it is."""
SECRET, KEY = "the secret of the fuzzed session", b"the key of one ."
ADDRESSES = ("fuzzed:0", "fuzzed:1")


class Recorded(NamedTuple):
    """A request to one of the servers, and its payload."""

    server: int
    request: pb.Request
    payload: bytes


class _Recorder(InProcess):
    """Writes down what goes to one server, with all that is chosen at random taken out."""

    run_small = None  # messages only

    def __init__(self, inner: InProcess, server: int, seen: list[Recorded]) -> None:
        super().__init__(inner.service, inner.address)
        self._server, self._seen = server, seen

    def call(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Answer:
        copy = pb.Request()
        copy.CopyFrom(request)
        copy.session, copy.client, copy.key = session_name(SECRET), "recorded", KEY
        copy.payload = sum(map(len, payload))
        if copy.open.secret:
            copy.open.secret = SECRET
        for one in (copy.save, *copy.load.arrays):
            if one.store:
                one.store = one.store.replace(_folder(), STORE)
        if copy.run.peers:
            copy.run.peers[:] = ADDRESSES[: len(copy.run.peers)]
        self._seen.append(Recorded(self._server, copy, b"".join(payload)))
        return super().call(request, payload, into)

    def start(
        self, request: pb.Request, payload: Parts = (), into: memoryview | None = None
    ) -> Future[Answer]:
        done: Future[Answer] = Future()
        done.set_result(self.call(request, payload, into))
        return done

    promise = start


@lru_cache(maxsize=1)
def recordings() -> tuple[tuple[Recorded, ...], ...]:
    """Sessions of one server and of two, each from its opening to its end."""
    seen: list[list[Recorded]] = []
    tokens = count()
    with mock.patch("secrets.token_hex", lambda size: f"{next(tokens):0{2 * size}x}"):
        for work, servers in _WORK:
            inner = in_process_transports(servers, memory=_MEMORY, extensions=PLUGINS)
            seen.append([])
            recorders = [_Recorder(one, k, seen[-1]) for k, one in enumerate(inner)]
            with Client(recorders) as client:
                work(client)
    return tuple(map(tuple, seen))


def written() -> str:
    """The folder with what honest clients wrote, in the place of ``STORE``."""
    recordings()
    return _folder()


@lru_cache(maxsize=1)
def _folder() -> str:
    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return folder


# --- every command --------------------------------------------------------------------------------


def _commands(client: Client) -> None:
    values, where = np.linspace(-1, 1, _SPACE.length), np.arange(0, _SPACE.length, 7)
    x, y, z, s, i, b = (client.new_id() for _ in range(6))
    client.status()
    client.write(x, _SPACE, values)
    client.write(i, _SPACE, np.arange(_SPACE.length))
    client.write(b, _SPACE, values > 0)
    client.read(x, array_type(_SPACE, float))
    client.gather(x, array_type(_SPACE, float), where)
    client.run(Program(_calls(x, y, z, i, b)))
    client.run(Program((SweepCall(_DONATING, _SPACE, (y, z), (2.0,), (s,), (y,)),)))
    iota = Sweep((), (), (Step("iota", (), _I8),), (), (Reduction("sum", (0,)),))
    client.run(Program((SweepCall(iota, DenseSpace(100_000), (), (), ()),)))
    t = client.new_id()
    client.scatter_add(x, t, array_type(_SPACE, float), where, where * 1.0, donate=False)
    again = client.new_id()
    client.scatter_add(t, again, array_type(_SPACE, float), where, where * 1.0, donate=True)
    w = SharedArray(client.new_id(), array_type(_SPACE, float))
    client.share([x], [w])
    client.update(w, where, where * 1.0)
    client.pull(w)
    client.pull(w, where)
    client.snapshot([w], [client.new_id()])
    for attempt in range(2):
        client.stage("r", 0, attempt, _SPACE, where, where * 1.0)
        client.stage("r", 1, attempt, _SPACE, None, values, slot=1)
    totals = [
        Total(client.new_id(), array_type(_SPACE, float), [Winner(0, 1)], source=x),
        Total(client.new_id(), array_type(_SPACE, float), [Winner(1, 0)], op="max", slot=1),
    ]
    client.commit_totals("r", totals)
    targets = [total.target for total in totals]
    undone = [pb.Total(target=pb.Array(buffer=target)) for target in targets]
    undo = {"round": "r", "totals": undone, "step": ReleaseStep.UNDO}
    client._send(client._requests.each([0], "release", **undo))
    client.drop_round("r")
    _ask_and_answer(client, x)
    _work_in_a_loop(client, w)
    client.snapshot([w], [client.new_id()], last=True)
    array = pb.Array(buffer=x, space=pb.Space(kind="dense", length=_SPACE.length), dtype="float64")
    pieces = [pb.Pieces(array=array, start=3, step=7, count=9, width=2)]
    for kind, fields in (
        ("fetch", {"pieces": pieces}),
        ("renew", {}),
        ("cancel", {"sequence": 3}),
        ("custom", {"name": "unknown", "body": b"body", "arrays": [array]}),
    ):
        client._transports[0].call(client._requests.request(**{kind: fields}))
    client.free([z, i])
    client._send(client._requests.each([0], "nothing"))


def _ask_and_answer(client: Client, x: int) -> None:
    mailbox, array = client.mailbox("t"), StoredArray(x, array_type(_SPACE, float))
    mailbox.open()
    asked = mailbox.ask(b"value", array, array._replace(buffer=client.new_id()))
    asked.answers(2, 0.0)
    question = mailbox.question(0, 0.0, (array.type, np.empty(_SPACE.length)))
    for key, indices in ((1, None), (2, np.arange(_SPACE.length))):
        change = Change(indices, np.ones(_SPACE.length))
        mailbox.answer(question.number, key, b"answer", _SPACE, change)
    asked.answers(2, 0.0)
    mailbox.close()


def _work_in_a_loop(client: Client, shared: SharedArray) -> None:
    array, loop = shared.describe(), pb.Barrier(kind="loop", name="l")
    added = pb.Rows(array=array)
    rows = np.ones(_SPACE.length).tobytes()
    for body, payload in (
        ({"join": pb.Join(barrier=loop, ranks=2, staleness=0)}, b""),
        ({"join": pb.Join(barrier=loop, attempt=1)}, b""),
        ({"join": pb.Join(barrier=loop, member=1, attempt=1, at=0)}, b""),
        ({"wait": pb.Wait(barrier=loop, attempt=1, rows=pb.Rows(array=array))}, b""),
        ({"contribute": pb.Contribute(barrier=loop, attempt=1, rows=[added])}, rows),
        ({"join": pb.Join(barrier=loop, member=1, attempt=1, exclude=True)}, b""),
        ({"join": pb.Join(barrier=loop)}, b""),
        ({"end": pb.End(barrier=loop)}, b""),
    ):
        request = client._requests.request()
        request.MergeFrom(pb.Request(**body))
        if "contribute" in body:
            client._send({0: Message(request, (memoryview(payload),))})
        else:
            client._transports[0].call(request, (memoryview(payload),))


_DONATING = Sweep(
    (_F8, _F8), (_F8,), (Step("multiply", (0, 2), _F8), Step("add", (3, 1), _F8)), (4,), ()
)


def _calls(x: int, y: int, z: int, i: int, b: int) -> tuple[SweepCall, ...]:
    steps = (
        Step("exp", (0,), _F8),
        Step("multiply", (4, 3), _F8),
        Step("where", (2, 5, 0), _F8),
        Step("cast", (1,), _F8),
        Step("add", (6, 7), _F8),
        Step("less", (8, 0), _B),
    )
    ops = ("sum", "argmax", "min")
    sums = (*(Reduction(op, (value,)) for op in ops for value in (8, 1)), Reduction("any", (9,)))
    first = Sweep((_F8, _I8, _B), (_F8,), steps, (6, 8), sums)
    links = (Link("start", 0), Link("add", 1, 2, negative=True), Link("negate"))
    dot = Sweep((_F8, _F8), (_F8,), (Combination(links, _F8),), (), (Reduction("dot", (3, 1)),))
    return (
        SweepCall(first, _SPACE, (x, i, b), (0.5,), (y, z)),
        SweepCall(dot, _SPACE, (y, z), (0.5,), ()),
    )


# --- what users write -----------------------------------------------------------------------------


def _arrays(client: Client) -> None:
    """Tables, views, movements, masks: most of the steps and phases that there are."""
    ps = Session(client)
    rng = np.random.default_rng(0)
    n = 2500
    x, y = ps.array(rng.normal(size=n)), ps.array(rng.normal(size=n))
    i = ps.array(rng.integers(0, 50, n))
    t = ps.array(rng.normal(size=(n, 3)))
    small = rng.normal(size=(3, 2))
    float(np.sum(2 * x + y) + x @ y)
    np.asarray((t @ small).sum(axis=0))
    np.asarray(np.cumsum(x)[-1]), np.asarray(np.maximum.accumulate(y)[-1])
    np.asarray(np.sort(x)[:3]), np.asarray(np.argsort(i, stable=True)[:3])
    np.asarray(x[3:-3:2].sum()), np.asarray(x[::-1][:5]), np.asarray(x[i][:4])
    np.asarray(np.median(x)), np.asarray(np.unique(i)), np.asarray(np.bincount(i))
    np.asarray(x[x > 0][:3]), np.asarray(np.histogram(x, 7)[0])
    np.asarray(np.searchsorted(np.sort(x), y)[:3])
    np.asarray(np.linalg.qr(t)[1]), np.asarray(t.T @ t), np.asarray(t.std(axis=1)[:3])
    z = x.copy()
    z[5:900] = y[:895]
    z[i] = 3.0
    np.add.at(z, i, 1.0)
    z[z > 1] = 0.0
    np.asarray(z[:3]), np.asarray(np.concatenate([x, y]).reshape(-1, 2)[:2])
    np.asarray(np.roll(t, 1, axis=0)[:, ::2][:2]), np.asarray(ps.random.normal(size=20))
    np.asarray(np.take_along_axis(t, np.argsort(t, axis=1), axis=1)[:2])
    np.asarray(np.add.reduceat(x, [a for a, _ in pairwise(range(0, n, 500))]))
    np.asarray(dv.where(x > 0, x.astype("float32"), np.float32(1))[:2])


def _files(client: Client) -> None:
    """Save, load, checkpoint, restore: each server its own rows, in files that are made anew."""
    ps, folder = Session(client), _folder()
    x, t = ps.array(np.linspace(0, 1, 2500)), ps.array(np.ones((1500, 3), np.int32))
    for path in (f"{folder}/w.safetensors", f"{folder}/parts"):
        dv.save(path, x=x, t=t)
        dv.load(path, session=ps)
    dv.save(f"{folder}/x.npy", x=x)
    ps.checkpoint(f"{folder}/checkpoints", x=x)
    ps.restore(f"{folder}/checkpoints")
    for name in ("a", "b"):
        client.pin(name)
    client.unpin("a")


def _keyed(client: Client) -> None:
    """Keyed spaces: row programs and functions, views, eviction, what is loaded or restored."""
    ps, folder = Session(client), _folder()
    for options in ({}, {"admit": 2}, {"admit": 2, "sketch": 4096}, {"most_bytes": 1 << 24}):
        space = ps.keys(**options)
        w, t = space.zeros(), space.table(3, init=dv.uniform(-1, 1, seed=1))
        keys = np.arange(-40, 40) * 7
        for _ in range(2):
            w.push(keys, 1.0)
            t.assign(keys[::2], np.ones((40, 3)))
        t.pull(keys, return_found=True), space.keys(), space.state()
        view = t.at(keys)
        for kind in (None, "float16", "int8"):
            t.wire = kind
            view.push(np.ones((80, 3))), view.pull()
        space.apply(_step, keys, w, t, np.ones(80), 0.5)
        w.assign(2 * w), space.evict(w > 5), space.keep(20, by=w), space.remove(keys[:3])
    dv.save(f"{folder}/keyed", w=w, t=t)
    ps.load(f"{folder}/keyed")
    ps.checkpoint(f"{folder}/kept", w=w)
    ps.restore(f"{folder}/kept")


@dv.rows
def _step(w: Any, t: Any, g: Any, rate: Any) -> Any:
    return {"w": w - rate * g, "t": dv.rows.add(t * 0.5)}, t.sum(axis=1)


def _plugins(client: Client) -> None:
    """Functions of the operator; views; rows that come narrowed."""
    space = Session(client).keys()
    counts, t = space.zeros("int64"), space.table(3)
    clip, stamp = (dv.rows.plugin(f"{_OURS}.{name}") for name in ("clip", "stamp"))
    keys = np.arange(-9, 9) * 5
    for _ in range(3):
        space.apply(clip, keys, t, 2.0)
        t.at(keys).apply(clip, t, 0.5, wire="float16")
        space.apply(stamp, keys, space.zeros())
        space.apply(_step, keys, counts, t, np.ones(18, np.int64), 1)


_OURS = "tests.distvec.keyed.plugins_of_ours"
PLUGINS = Extensions((_OURS,))
"""Of all servers that are recorded, or fuzzed."""

_WORK = (
    (_commands, 1), (_arrays, 1), (_arrays, 2), (_files, 2), (_keyed, 2), (_plugins, 2)
)  # fmt: skip
"""What is recorded, and with how many servers."""
