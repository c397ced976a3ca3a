"""A module of plug-ins, as an operator of servers has one."""

from __future__ import annotations

import time

import numpy as np

from ps_backend.plugins import row_plugin
from ps_backend.server.commands.command import Response, command
from ps_backend.wire import ps_pb2 as pb

calls: list[int] = []
"""How many keys each call of ``clip`` had."""


@row_plugin("w: rows float32[k], keys, most: number float64 -> w, norms: float64")
def clip(w, keys, most):
    """Rows of at most this norm; the norms that they had."""
    assert np.all(keys[1:] > keys[:-1]) and not keys.flags.writeable
    calls.append(len(keys))
    norms = np.linalg.norm(w.astype(float), axis=1)
    factors = np.minimum(1, most / np.maximum(norms, 1e-30))
    return {"w": (w * factors[:, None]).astype("float32"), "norms": norms}


@row_plugin("w: rows float64, g: each float64 -> w")
def breaks(w, g):
    """Raises, after it has written to what it got."""
    w += g
    raise KeyError("no such word")


@row_plugin("w: rows float64, kind: number int64 -> w, twice: float64[2]")
def lies(w, kind):
    """Makes what it has not declared."""
    twice = np.stack([w, w], axis=1)
    made = [
        {"w": w.astype("float32"), "twice": twice},
        {"w": w[:-1], "twice": twice},
        {"w": w, "twice": [1]},
        {"w": w},
        None,
    ]
    return made[kind]


@row_plugin("w: rows float64 -> stamp: int64")
def stamp(w):
    """Only reads."""
    return {"stamp": np.full(len(w), time.time_ns())}


@command(repeatable=True)
def greet(session, request, payload):
    """What a module may add besides."""
    return Response(pb.Reply(custom=b"hello"))
