"""Functions that the servers' operator has loaded, run on the rows of chosen keys."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import distvec as dv
from ps_backend.arguments import extensions
from ps_backend.client import Client, Key, KeyBatch, RetryPolicy
from ps_backend.errors import FunctionFailed, InvalidProgram, PSError
from ps_backend.in_process import in_process_transports
from ps_backend.plugins import row_plugin
from ps_backend.program.row_program import own_program
from ps_backend.program.user_signatures import Signature
from ps_backend.server.commands.table import load
from ps_backend.server.service import Service
from tests.distvec.keyed import plugins_of_ours
from tests.distvec.keyed.conftest import messages
from tests.ps_backend.helpers import Faulty

OURS = "tests.distvec.keyed.plugins_of_ours"
CLIP = dv.rows.plugin(f"{OURS}.clip")
KEYS = np.array([5, -3, 2**40, 5, 17, 0])


@pytest.fixture
def loaded():
    with dv.local(servers=2, in_process=True, plugins=[OURS]) as session:
        yield session


def test_it_runs_on_the_rows_of_chosen_keys_with_one_message_to_each_server(loaded):
    space = loaded.keys()
    t = space.table(3, init=dv.normal(seed=1))
    before = t.pull(KEYS)
    norms = space.apply(CLIP, KEYS, t, 1.0)
    expected = np.linalg.norm(before.astype(float), axis=1)
    np.testing.assert_array_equal(norms, expected)
    clipped = before * np.minimum(1, 1.0 / expected)[:, None]
    np.testing.assert_array_equal(t.pull(KEYS), clipped.astype("float32"))
    assert len(space) == 5
    with messages(loaded, 1):
        space.apply(CLIP, KEYS, w=t, most=0.5)
    view = t.at(KEYS)
    view.apply(CLIP, t, 0.25)
    assert np.linalg.norm(view.pull(), axis=1).max() <= 0.25 * (1 + 1e-6)
    only = space.apply(dv.rows.plugin(f"{OURS}.stamp"), [99], space.zeros())
    assert only.shape == (1,) and 99 not in space


def test_a_round_takes_none_as_it_may_fail_at_its_end(loaded):
    w, name = loaded.keys().zeros(), f"{OURS}.breaks"
    signature = w.space.remote.plugin(name)
    program = own_program(name, signature, {"w": w.type, "g": w.type})
    key, keys = Key(0, 0, 0, 0), KeyBatch.of([1])
    with pytest.raises(InvalidProgram, match="after a part of the round was committed"):
        w.space.remote.stage("a round", key, program, [w.number], keys, [np.ones(1)])


def test_a_call_whose_answer_was_lost_runs_once():
    lost = []

    def lose_the_first(request):
        is_call = request.HasField("change_rows")
        lost.extend([1] * is_call)
        return "lose reply" if is_call and len(lost) == 1 else "ok"

    inner = in_process_transports(1, extensions=extensions([OURS]))
    client = Client([Faulty(one, lose_the_first) for one in inner], retry=RetryPolicy(5, 0.01))
    with dv.Session(client) as session:
        t = session.keys().table(2, init=1.0)
        plugins_of_ours.calls.clear()
        t.space.apply(CLIP, KEYS, t, 1.0)
        assert plugins_of_ours.calls == [5] and len(lost) == 2


def test_one_that_raises_has_changed_nothing_and_is_named(loaded):
    space = loaded.keys()
    w = space.full(2.0)
    w.push([1], [1.0])
    breaks = dv.rows.plugin(f"{OURS}.breaks")
    with pytest.raises(FunctionFailed, match=r"plug-in .*breaks raised KeyError: 'no such word'"):
        space.apply(breaks, [1, 2], w, [1.0, 1.0])
    assert space.keys().tolist() == [1] and w.pull([1, 2]).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (0, r"return w as float64 of shape \(2,\), but returned float32"),
        (1, r"return w as float64 of shape \(2,\), but returned float64 of shape \(1,\)"),
        (2, r"return twice as float64 of shape \(2, 2\), but returned a list"),
        (3, r"return a dict with w, twice, but returned \['w'\]"),
        (4, "but returned NoneType"),
    ],
)
def test_what_it_has_not_declared_is_refused(kind, text):
    with dv.local(servers=1, in_process=True, plugins=[OURS]) as session:
        w = session.keys().zeros()
        with pytest.raises(FunctionFailed, match=text):
            w.space.apply(dv.rows.plugin(f"{OURS}.lies"), [1, 2], w, kind)
        assert len(w.space) == 0


def test_arguments_are_checked_before_anything_is_sent(loaded):
    space = loaded.keys()
    t, wide = space.table(3), space.table(3, dtype="float64")
    space.apply(CLIP, [1], t, 1)
    with messages(loaded, 0):
        with pytest.raises(TypeError, match=r"w is to be rows float32\[k\], and is float64\[3\]"):
            space.apply(CLIP, [1], wide, 1.0)
        with pytest.raises(TypeError, match=r"takes most: number float64, but most is rows"):
            space.apply(CLIP, [1], t, t)
        with pytest.raises(TypeError, match="missing a required argument: 'most'"):
            space.apply(CLIP, [1], t)
        with pytest.raises(TypeError, match="not a row function; decorate it"):
            space.apply(len, [1], t)
    with pytest.raises(TypeError, match="kind must be int64, got float64"):
        space.apply(dv.rows.plugin(f"{OURS}.lies"), [1], space.zeros(), 0.5)


def test_an_unknown_one_says_what_the_operator_has_to_type(ps, loaded):
    w = ps.keys().zeros()
    with pytest.raises(PSError, match=r"no plug-in 'shop\.f'.*distvec serve --plugin shop \(or"):
        w.space.apply(dv.rows.plugin("shop.f"), [1], w)
    with pytest.raises(PSError, match=r"which has: tests\.\S+breaks, \S+clip"):
        loaded.keys().apply(dv.rows.plugin("shop.f"), [1], w)
    with pytest.raises(ValueError, match=r"'package\.module\.function', got 'f\(\)'"):
        dv.rows.plugin("f()")


def test_status_and_commands(loaded):
    assert loaded.client.call("greet") == [b"hello", b"hello"]
    (first, _) = loaded.client.status()
    assert (CLIP.name, str(plugins_of_ours.clip.signature)) in first.plugins
    assert first.commands == ("greet",)


def test_modules_that_cannot_be_loaded_say_why(tmp_path, monkeypatch):
    for name, text in {"empty_one": "x = 1", "broken_one": "1 / 0"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ValueError, match=r"no module nowhere for --plugin nowhere\.f; install"):
        Service(memory=1 << 20, extensions=extensions(["nowhere.f"]))
    with pytest.raises(
        ValueError, match="empty_one defines no plug-in; decorate a function with @row_plugin"
    ):
        load(["empty_one"])
    with pytest.raises(ValueError, match="broken_one cannot be imported: ZeroDivisionError"):
        load(["broken_one"])
    with pytest.raises(TypeError, match=r"write \['a'\]"):
        dv.local(plugins="a", in_process=True)
    with pytest.raises(ValueError, match=r"name of a module, such as 'package\.module', got '-x'"):
        dv.local(plugins=["-x"])


def test_server_processes_load_what_their_starter_would(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text(
        "from ps_backend.plugins import row_plugin\n"
        "@row_plugin('w: rows float64, by: number float64 -> w')\n"
        "def grow(w, by):\n    return {'w': w * by}\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with dv.local(servers=1, plugins=["beside"]) as session:
        w = session.keys().full(3.0)
        w.space.apply(dv.rows.plugin("beside.grow"), [1], w, 2)
        assert w.pull([1, 2]).tolist() == [6, 3]
    with pytest.raises(PSError, match="no module beyond for --plugin beyond"):
        dv.local(servers=1, plugins=["beyond"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("w: rows float64", "'arguments -> results'"),
        ("w: row float64 -> w", "an argument is"),
        ("w: rows float64 -> v", "let it be an argument 'v: rows"),
        ("w: rows float64 -> n: float64[k]", "no argument says how many k is"),
        ("a: number float64[k] -> n: float64", "a number has no row"),
        ("w: rows float64, w: each int8 -> w", "there twice"),
        ("w: rows float64 ->", "makes something"),
        ("__import__('os') -> w", "an argument is"),
        (", ".join(f"w{k}: rows float64" for k in range(80)) + " -> w1", "at most 64"),
    ],
)
def test_signatures_that_are_none(text, error):
    with pytest.raises(ValueError, match=error):
        Signature.parsed(text)


def test_a_signature_names_the_parameters():
    with pytest.raises(ValueError, match=r"takes \(v\), and its signature names \(w\)"):
        row_plugin("w: rows float64 -> w")(lambda v: {})
    with pytest.raises(TypeError, match="dtype 'complex128' is not supported"):
        row_plugin("w: rows complex128 -> w")
    text = "w: rows float32[k], g: each float32[k], keys, s: number float64 -> w, n: float64[2]"
    assert str(Signature.parsed(text)) == text
