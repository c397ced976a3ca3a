"""Linear combinations and inner products as a program states them: what is a lie is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import InvalidProgram
from ps_backend.program.rules import verify_sweep
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import (
    LINK_OPERANDS,
    Combination,
    Link,
    Program,
    Reduction,
    Step,
    Sweep,
    SweepCall,
)
from ps_backend.program.types import ValueType
from ps_backend.wire.codec import decode_sweep, encode_sweep
from tests.ps_backend.helpers import in_process, put

F, S, INT = ValueType("float64"), ValueType("float32"), ValueType("int64")
LINKS = (
    Link("start", 0, 2, negative=True),
    Link("add", 1),
    Link("scale", scalar=2),
    Link("divide", scalar=2),
    Link("negate"),
    Link("shift", scalar=2, negative=True),
    Link("add", 0, 2),
)
GOOD = Sweep(
    (F, F),
    (F,),
    (Combination(LINKS, F), Combination((Link("start", 3), Link("add", 1)), F)),
    (3, 4),
    (Reduction("dot", (0, 3)), Reduction("dot", (4, 4)), Reduction("dot", (2, 0))),
)


def saying(*links: Link, type: ValueType = F) -> Sweep:
    return dataclasses.replace(GOOD, steps=(Combination(links, type), GOOD.steps[1]))


def test_it_passes_and_prints_and_travels() -> None:
    verify_sweep(GOOD)
    assert {link.op for link in LINKS} == set(LINK_OPERANDS), "links of every op"
    assert str(GOOD).splitlines()[3:] == [
        "%3 = combine(-%2*%0, +%1, *%2, /%2, negate, -%2, +%2*%0) float64",
        "%4 = combine(%3, +%1) float64",
        "store %3",
        "store %4",
        "reduce dot(%0, %3)",
        "reduce dot(%4, %4)",
        "reduce dot(%2, %0)",
    ]
    assert decode_sweep(encode_sweep(GOOD)) == GOOD
    other = saying(*LINKS[:-1], Link("add", 0, 2, negative=True))
    assert other.digest != GOOD.digest and hash(other) != hash(GOOD)


LIES = {
    "starts nowhere": (saying(), "start once"),
    "does not start": (saying(Link("add", 0)), "start once"),
    "starts twice": (saying(Link("start", 0), Link("start", 1)), "start once"),
    "unknown link": (saying(Link("start", 0), Link("power", scalar=2)), "operands of its op"),
    "adds nothing": (saying(Link("start", 0), Link("add", scalar=2)), "operands of its op"),
    "scales by a vector": (saying(Link("start", 0), Link("scale", 1)), "operands of its op"),
    "divides by nothing": (saying(Link("start", 0), Link("divide")), "operands of its op"),
    "negates a scalar": (saying(Link("start", 0), Link("negate", scalar=2)), "operands of its op"),
    "scales by minus": (
        saying(Link("start", 0), Link("scale", scalar=2, negative=True)),
        "operands of its op",
    ),
    "adds a scalar": (saying(Link("start", 0), Link("add", 2)), "combinations scale and add"),
    "scales by an input": (
        saying(Link("start", 0), Link("scale", scalar=1)),
        "combinations scale and add",
    ),
    "adds what is computed": (
        dataclasses.replace(
            GOOD,
            steps=(Combination(LINKS, F),) * 2
            + (Combination((Link("start", 0), Link("add", 3)), F),),
        ),
        "combinations scale and add",
    ),
    "scales what it goes on from": (
        dataclasses.replace(
            GOOD, steps=(GOOD.steps[0], Combination((Link("start", 3, 2), Link("add", 1)), F))
        ),
        "combinations scale and add",
    ),
    "reads what comes later": (saying(Link("start", 4)), "are values before it"),
    "names no value": (saying(Link("start", 9)), "are values before it"),
    "another dtype": (saying(*LINKS, type=S), "one float dtype"),
    "integers": (
        Sweep((INT, INT), (INT,), (Combination(LINKS, INT),), (3,), ()),
        "combinations are of values of one float dtype",
    ),
    "one factor": (
        dataclasses.replace(GOOD, reductions=(Reduction("dot", (0,)),)),
        "as many values as it takes",
    ),
    "two summands": (
        dataclasses.replace(GOOD, reductions=(Reduction("sum", (0, 1)),)),
        "as many values as it takes",
    ),
    "nothing to reduce": (
        dataclasses.replace(GOOD, reductions=(Reduction("sum", ()),)),
        "as many values as it takes",
    ),
    "factors of two dtypes": (
        Sweep((F, S), (), (), (), (Reduction("dot", (0, 1)),)),
        "inner products are of two values of one float dtype",
    ),
    "factors that are integers": (
        Sweep((INT, INT), (), (), (), (Reduction("dot", (0, 1)),)),
        "inner products are of two values of one float dtype",
    ),
    "an op of the table with that name": (
        Sweep((F,), (), (Step("combine", (0,), F),), (1,), ()),
        "is an op of the op table",
    ),
}


@pytest.mark.parametrize(("sweep", "rule"), LIES.values(), ids=LIES)
def test_a_lie_breaks_a_rule(sweep: Sweep, rule: str) -> None:
    with pytest.raises(InvalidProgram, match=rule):
        verify_sweep(sweep)


@pytest.mark.parametrize("lie", [name for name in LIES if not name.startswith("an op")])
def test_a_server_refuses_a_lie(lie: str) -> None:
    sweep, rule = LIES[lie]
    space = DenseSpace(10)
    with Client(in_process(1)) as client:
        inputs = tuple(put(client, space, np.ones(10, kind.dtype)) for kind in sweep.inputs)
        outputs = tuple(client.new_id() for _ in sweep.outputs)
        call = SweepCall(sweep, space, inputs, (0,) * len(sweep.scalars), outputs)
        with pytest.raises(InvalidProgram, match=rule):
            client.run(Program((call,)))
        assert client.status()[0].buffers == len(inputs)
