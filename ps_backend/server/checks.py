"""Whether a request keeps within the bounds of ``limits``: asked before anything is done with it.

What a bound depends on, such as the arrays that are there, is checked by the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import PROTOCOL

_MOST_DIGEST = 64
_MOST_KEY_BYTES = 64
_FEW_BYTES = 1 << 12
"""A program of no more bytes has no more values than are allowed; its lengths are checked where it
is decoded. (To look costs a tenth of what a small program does.)"""


def verify_request(request: pb.Request, kind: str | None) -> None:
    """Raise ``ValueError`` that names the first field beyond its bound; ``kind`` is the body's."""
    if kind == "run" and request.ByteSize() <= _FEW_BYTES:
        return
    check_name("session", request.session)
    check_name("client", request.client)
    check("bytes of a key", len(request.key), 0, _MOST_KEY_BYTES)
    verify = _RULES.get(kind or "")
    if verify is not None and kind is not None:
        verify(getattr(request, kind))


def _verify_run(run: pb.Run) -> None:
    check("calls of a program", len(run.calls), 0, limits.MOST_CALLS)
    values = 0
    for call in run.calls:
        check("length of a space", call.length, 0, limits.MOST_LENGTH)
        check("characters of a digest", len(call.digest), 0, _MOST_DIGEST)
        values += len(call.inputs) + len(call.outputs) + len(call.donors) + len(call.scalars) // 8
        check("values of a program", values, 0, limits.MOST_VALUES)
        if call.HasField("sweep"):
            values += _values_of(call.sweep)
            check("values of a program", values, 0, limits.MOST_VALUES)
            _verify_sweep(call.sweep)


def _values_of(sweep: pb.Sweep) -> int:
    """How many entries the lists of a sweep have; those of a call are counted apart."""
    return len(sweep.steps) + len(sweep.reductions)


def _verify_sweep(sweep: pb.Sweep) -> None:
    for name in ("inputs", "scalars", "outputs"):
        check(f"{name} of a sweep", len(getattr(sweep, name)), 0, limits.MOST_VALUES)
    for value in (*sweep.inputs, *sweep.scalars):
        _verify_row(value.row)
    for step in sweep.steps:
        check("arguments of a step", len(step.args), 0, limits.MOST_ARGUMENTS)
        _verify_row(step.type.row)


def _verify_row(row: Iterable[int]) -> None:
    extents = tuple(row)
    if extents:
        check("extents of a row", len(extents), 0, limits.MOST_ROW_EXTENTS)
        check("elements of a row", prod(extents), 0, limits.MOST_ROW_ITEMS)


def _verify_array(array: pb.Array) -> None:
    check("length of an array", array.length, 0, limits.MOST_LENGTH)
    _verify_row(array.row)


def _verify_open(body: pb.Open) -> None:
    if body.protocol != PROTOCOL:  # which is refused by itself
        return
    check("servers", body.servers, 1, limits.MOST_SERVERS)
    check("index of a server", body.index, 0, body.servers - 1)


def _verify_stage(body: pb.Stage) -> None:
    check_name("round", body.round)
    _verify_array(body.array)


def _verify_commit(body: pb.Commit) -> None:
    check_name("round", body.round)
    check("totals of a commit", len(body.totals), 0, limits.MOST_TOTALS)
    for total in body.totals:
        _verify_array(total.target)


def _verify_open_loop(body: pb.OpenLoop) -> None:
    check_name("loop", body.loop)


def _verify_join(body: pb.JoinLoop) -> None:
    check_name("loop", body.loop)
    check("clock to go on at", body.at, 0, limits.MOST_CLOCK)


def _verify_tick(body: pb.Tick) -> None:
    check_name("loop", body.loop)
    check("clock", body.clock, 0, limits.MOST_CLOCK - 1)
    check("additions of a tick", len(body.additions), 0, limits.MOST_TOTALS)
    for addition in body.additions:
        _verify_array(addition.array)


def _verify_pull(body: pb.Pull) -> None:
    check_name("loop", body.loop)
    check("clock", body.clock, 0, limits.MOST_CLOCK)
    check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)
    _verify_array(body.array)


def _verify_wait(body: pb.AwaitPost | pb.AwaitAnswers) -> None:
    check_name("topic", body.topic)
    check("seconds to wait", body.seconds, 0, limits.LONGEST_SECONDS)


def _name_of(field: str) -> Callable[[Any], None]:
    return lambda body: check_name(field, getattr(body, field))


def _array_of(body: Any) -> None:
    _verify_array(body.array)


_RULES: Mapping[str, Callable[[Any], None]] = MappingProxyType(
    {
        "open": _verify_open,
        "run": _verify_run,
        "write": _array_of,
        "read": _array_of,
        "gather": _array_of,
        "scatter_add": _array_of,
        "update": _array_of,
        "stage": _verify_stage,
        "commit": _verify_commit,
        "reopen": _name_of("round"),
        "drop_round": _name_of("round"),
        "post": _name_of("topic"),
        "await_post": _verify_wait,
        "answer": _name_of("topic"),
        "await_answers": _verify_wait,
        "close_topic": _name_of("topic"),
        "open_loop": _verify_open_loop,
        "join_loop": _verify_join,
        "tick": _verify_tick,
        "pull": _verify_pull,
        "exclude_rank": _name_of("loop"),
        "read_clocks": _name_of("loop"),
        "close_loop": _name_of("loop"),
    }
)
