"""Kernels of users: what they compute beside Python, what is refused, and that nothing changes."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.rows.kernel_syntax import KernelSyntax
from distvec.rows.kinds import Number, RowsOf
from ps_backend import limits
from ps_backend.errors import FunctionFailed, InvalidProgram
from ps_backend.kernels.user.compiled import UserKernels
from ps_backend.kernels.user.source import source
from ps_backend.program.kernel_language.check import checked, encoded
from ps_backend.program.kernel_language.table import OPS
from ps_backend.program.signatures import Signature
from tests.distvec.keyed import kernels_of_ours as ours
from tests.distvec.keyed.conftest import messages

SIGNATURE = Signature.parsed("w: rows float32[k], s: number int64 -> w, r: float64")
KEYS = np.array([5, -3, 2**40, 5, 17, 0])


@pytest.fixture(scope="module")
def on():
    with dv.local(servers=2, in_process=True, kernels=True) as session:
        yield session


def test_it_gives_what_python_gives_with_one_message_to_each_server(on):
    space = on.keys()
    t = space.table(3, init=dv.normal(seed=1))
    w = t.pull(KEYS)
    expected = np.zeros(6)
    with np.errstate(all="ignore"):
        ours.clip.__wrapped__(wide := w.astype(float), 1.0, expected)
    with messages(on, 1):
        norms = space.apply(ours.clip, KEYS, t, 1.0)
    np.testing.assert_allclose(norms, expected, rtol=1e-15)
    np.testing.assert_allclose(t.pull(KEYS), wide, rtol=1e-6)
    assert len(space) == 5
    sent = on.counters.bytes_sent
    space.apply(ours.clip, KEYS, t, 1.0)
    assert on.counters.bytes_sent - sent < 1500  # the tree is there
    assert on.client.status()[0].kernels


@pytest.mark.parametrize("odd_only", [False, True])
def test_loops_conditions_and_integers(on, odd_only):
    space = on.keys()
    counts = space.zeros("int32")
    keys, start = np.arange(30), np.arange(30, 60)
    last = space.apply(ours.steps_to_one, keys, counts, start, odd_only)
    expected, made = np.zeros(30, np.int64), np.zeros((30, 3), np.int64)
    ours.steps_to_one.__wrapped__(expected, start, keys, odd_only, made)
    np.testing.assert_array_equal(counts.pull(keys), expected)
    np.testing.assert_array_equal(last, made)


EDGES = [-(2**63), 2**63 - 1, -1, 0, 1, 2, -7]
FLOATS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -2.5]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            *[st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)] * 2,
            *[st.sampled_from(FLOATS) | st.floats()] * 2,
        ),
        min_size=1,
        max_size=20,
    )
)
def test_arithmetic_is_that_of_numpy(on, rows):
    a, b = (np.array([row[k] for row in rows], np.int64) for k in (0, 1))
    x, y = (np.array([row[k] for row in rows], float) for k in (2, 3))
    whole, real = on.keys().apply(ours.arithmetic, np.arange(len(rows)), a, b, x, y)
    with np.errstate(all="ignore"):
        integers = np.stack([a // b, a % b, a * b + a - b], axis=1)
        floats = [x / y, np.minimum(x, y), np.maximum(x, y), np.sqrt(x), abs(x)]
    np.testing.assert_array_equal(whole, integers)
    np.testing.assert_array_equal(real, np.stack(floats, axis=1))


def test_a_kernel_that_fails_has_changed_nothing(on):
    space = on.keys()
    w = space.full(2.0)
    w.push([1], [1.0])
    for k in (2, -3, 2**62, -(2**63)):
        with pytest.raises(FunctionFailed, match="an index of the kernel is out of bounds"):
            space.apply(ours.beyond, [1], w, k)
    with pytest.raises(FunctionFailed, match="the step of a range is 0"):
        space.apply(ours.no_step, [1, 2], w, 0)
    assert space.keys().tolist() == [1] and w.pull([1, 2]).tolist() == [3, 2]
    space.apply(ours.beyond, [1], w, -1)
    assert w.pull([1]).tolist() == [1]


def test_an_endless_loop_ends():
    signature, tree = ours.forever.lowered({"w": RowsOf("float64")})
    kernel = UserKernels(seconds=0.05).get(signature, tree)
    with pytest.raises(FunctionFailed, match=r"longer than 0.05 s.*Does a loop never end"):
        kernel.run([np.zeros(3)])


def test_servers_refuse_unless_it_is_switched_on(ps):
    w = ps.keys().zeros()
    with pytest.raises(InvalidProgram, match=r"switches them on: distvec serve --kernels"):
        w.space.apply(ours.beyond, [1], w, 0)
    assert not ps.client.status()[0].kernels


REFUSED = {
    "import os": "Import is no statement",
    "w[0] = open('x')": "'open' cannot be called",
    "w[0] = __import__('os').system('ls')": "cannot be called",
    "w[0] = math.factorial(3)": "'math.factorial' cannot be called",
    "w[0] = w.size": "'w.size' is no expression",
    "w[0] = [i for i in range(3)][0]": "is no expression",
    "w[0] = (lambda: 1)()": "cannot be called",
    "w[0] = 'text'": "'text' is no number",
    "w[0] = 1j": "1j is no number",
    "w[0] = KEYS": "KEYS is not assigned before; what is outside comes as an argument",
    "w[0, 0] = 1": "w has 1 indices",
    "w[0] = w": "w is an array; take an element",
    "w = 1": "w is an argument; give the local another name",
    "a, b = 1, 2": "is no expression of kernels",
    "return 1": "fill an array that returns= names",
    "for i in w: pass": "a loop is 'for i in range",
    "w[0] = 1 << 70": "LShift is no operator",
    "w[0] = 1 < w[0] + 1 < 2": "the middle is a name",
    "w[w[0]] = 1": r"an index, .* int\(x\)",
    "w[0] = 9223372036854775808": "an integer is a number from",
    "with w: pass": "With is no statement",
    "s[0] = 1": "assign to a name, or to an element",
    "w[0] = " + "+".join(["1"] * 60): "nested at most 40 deep",
    "break": "no statement of a kernel",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_of_the_language_is_refused_by_its_line(line, tmp_path, monkeypatch):
    (tmp_path / "written.py").write_text(
        f"import math\nimport distvec as dv\nKEYS = 3\n@dv.kernel\ndef f(w, s):\n    {line}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = {}
    if line == "break":  # Python itself refuses it
        with pytest.raises(InvalidProgram, match=REFUSED[line]):
            checked(encoded([["break"]]), SIGNATURE)
        return
    exec(compile((tmp_path / "written.py").read_text(), str(tmp_path / "written.py"), "exec"), text)
    with pytest.raises(KernelSyntax, match=re.compile(f"^f.*{REFUSED[line]}", re.DOTALL)):
        text["f"].lowered({"w": RowsOf("float64"), "s": Number()})


def test_types_that_kernels_do_not_take(on):
    half = on.keys().zeros("float16")
    with pytest.raises(KernelSyntax, match=r"kernels take float64, .* and no float16"):
        half.space.apply(ours.beyond, [1], half, 0)
    with pytest.raises(TypeError, match="returns 'r'; give it an argument of that name"):
        dv.kernel(returns={"r": "float64"})(ours.forever.__wrapped__)


WORDS = [
    *OPS, "set", "put", "for", "while", "if", "break", "continue", "int", "float", "bool", "const",
    "local", "number", "get", "extent", "select", "__import__", "exec", "os", "",
]  # fmt: skip
VALUES = [0, 1, 2, -1, 63, 64, 2**63, -(2**63), 10**400, 0.5, 1e308, True, None, "inf", "x", [], {}]


def _some(rng: random.Random, depth: int):
    """A tree of no great sense; often one that is nearly right."""
    if depth == 0 or rng.random() < 0.2:
        kind = rng.choice(["int", "local", "number", "float", "bool", "const", "any"])
        near = {"int": 3, "local": rng.randrange(3), "number": 1, "float": 0.5, "bool": True,
                "const": "nan", "any": 0}  # fmt: skip
        return [kind, rng.choice(VALUES) if rng.random() < 0.05 else near[kind]]
    word = rng.choice(WORDS)
    if word in OPS:
        arity = OPS[word].arity + (rng.random() < 0.02)
        return [word, *(_some(rng, depth - 1) for _ in range(arity))]
    if word == "get":
        return ["get", 0, [["local", 0], ["int", rng.randrange(-2, 4)]]]
    if word == "extent":
        return ["extent", 0, rng.choice([0, 1, 2])]
    return ["select", *(_some(rng, depth - 1) for _ in range(3))]


def _block(rng: random.Random, depth: int) -> list:
    found = []
    for _ in range(rng.randrange(1, 3)):
        word = rng.choice(["set", "put", "for", "while", "if", "break", "odd"])
        x = _some(rng, 3)
        if word == "set":
            found.append(["set", rng.randrange(3), x])
        elif word == "put":
            found.append(["put", rng.choice([0, 2]), [["local", 0]] * rng.choice([1, 2]), x])
        elif word == "for" and depth:
            bounds = [["int", 0], ["int", 5], ["int", rng.choice([1, 1, 2, -1, 0])]]
            found.append(["for", 0, *bounds, _block(rng, depth - 1)])
        elif word == "while" and depth:
            found.append(["while", x, _block(rng, depth - 1)])
        elif word == "if" and depth:
            found.append(["if", x, _block(rng, depth - 1), _block(rng, depth - 1)])
        elif word == "odd":
            if rng.random() < 0.1:
                found.append(rng.choice([["break"], x, 5, [], ["set"], ["put", 1, [], x]]))
        elif word == "break":
            found.append(["set", 0, ["int", 0]])
    return found


def test_trees_of_any_kind_are_refused_or_become_code_of_ours():
    rng, accepted = random.Random(7), []
    for _ in range(4000):
        tree = json.dumps({"version": 1, "body": _block(rng, 3)}).encode()
        try:
            found = checked(tree, SIGNATURE)
        except InvalidProgram:
            continue
        text = source(found)
        compile(text, "kernel", "exec")
        names = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "0", text)))
        assert not {name for name in names if name.startswith("_")}, text
        accepted.append(tree)
    assert 200 < len(accepted) < 3900
    kernels = UserKernels(seconds=0.02)
    for tree in sorted(set(accepted), key=len)[-4:]:
        rows = np.zeros((4, 2), np.float32)
        with suppress(FunctionFailed):  # and nothing else
            kernels.get(SIGNATURE, tree).run([rows, 3, np.zeros(4)])


DEEP = 10**5


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (b"[" * DEEP, "no JSON"),
        (b'{"version":1,"body":' + b"[" * DEEP + b"]" * DEEP + b"}", "no JSON|no node"),
        (b" " * (limits.MOST_TREE_BYTES + 1), "at most 262144 bytes"),
        (encoded([["set", 0, ["int", 0]]] * 10**4), "at most 1500 operations"),
        (b'{"version":1,"body":[["set",0,["float",NaN]]]}', "no number of JSON"),
        (b'{"version":1,"body":[["set",0,["float",1e999]]]}', "no finite float"),
        (encoded([["set", 0, ["int", 10**30]]]), "an integer is a number from"),
        (encoded([["set", 0, ["int", True]]]), "an integer is a number from"),
        (encoded([["set", 64, ["int", 0]]]), "a local is a number from 0 to 63"),
        (encoded([["set", "__import__('os')", ["int", 0]]]), "a local is a number"),
        (encoded([["put", 1, [["int", 0]], ["int", 0]]]), "argument 1 has 0 indices"),
        (encoded([["put", 9, [["int", 0]], ["int", 0]]]), "an argument of a kernel is a number"),
        (encoded([["put", 2, [["float", 0.5]], ["int", 0]]]), "an index"),
        (b'{"version":2,"body":[]}', "version 1 alone"),
        (b'{"version":1}', "a tree with a version and a body"),
        (b"\xff\xfe", "no JSON"),
    ],
)
def test_hostile_trees_are_refused_before_any_work(tree, text):
    with pytest.raises(InvalidProgram, match=text):
        checked(tree, SIGNATURE)
