"""Sweeps over tables, said step by step, and run on servers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_backend.client import Client
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from tests.ps_backend.helpers import put


def type_of(array: np.ndarray, held: bool = False) -> ValueType:
    return ValueType(array.dtype.name, array.shape if held else array.shape[1:])


class Rows:
    """A sweep under construction over arrays, and what the client holds beside them.

    Values are numbers: inputs, scalars, then steps.
    """

    def __init__(self, inputs: Any = (), scalars: Any = (), length: int | None = None) -> None:
        self.inputs = [np.asarray(one) for one in inputs]
        self.scalars = [np.ascontiguousarray(one) for one in scalars]
        self.scalars = [
            one.reshape(np.shape(given)) for one, given in zip(self.scalars, scalars, strict=True)
        ]
        self.types = [type_of(one) for one in self.inputs]
        self.types += [type_of(one, held=True) for one in self.scalars]
        self.steps: list[Step] = []
        self.length = len(self.inputs[0]) if length is None else length

    def step(
        self, op: str, *args: int, row: Any = None, dtype: str | None = None, params: Any = ()
    ) -> int:
        """A step of the type of its first argument, if nothing else is said."""
        like = self.types[args[0]] if args else ValueType("int64")
        type = ValueType(dtype or like.dtype, like.row if row is None else row)
        self.steps.append(Step(op, args, type, tuple(params)))
        self.types.append(type)
        return len(self.types) - 1

    def sweep(self, outputs: Any = (), reductions: Any = ()) -> Sweep:
        made = tuple(Reduction(op, args, axis) for op, args, axis in reductions)
        count, held = len(self.inputs), len(self.inputs) + len(self.scalars)
        types = tuple(self.types)
        return Sweep(types[:count], types[count:held], tuple(self.steps), tuple(outputs), made)

    def run(
        self, client: Client, outputs: Any = (), reductions: Any = (), sources: Any = ()
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The outputs, and what comes of the reductions ``(op, args, axis)``.

        ``sources``: per input None, or the view that it is and an array over the view's space.
        """
        sweep, space = self.sweep(outputs, reductions), DenseSpace(self.length)
        sources = tuple(sources) or (None,) * len(self.inputs)
        given = tuple(
            put(client, space, one) if source is None else put(client, source[0].space, source[1])
            for one, source in zip(self.inputs, sources, strict=True)
        )
        views = tuple(None if source is None else source[0] for source in sources)
        made = tuple(client.new_id() for _ in outputs)
        scalars = tuple(one if one.shape else one.item() for one in self.scalars)
        call = SweepCall(sweep, space, given, scalars, made, views=views if any(views) else ())
        (found,) = client.run(Program((call,)))
        types = [array_type(space, value.dtype, value.row) for value in sweep.stored]
        stored = [client.read(*one) for one in zip(made, types, strict=True)]
        client.free((*given, *made))
        return stored, found
