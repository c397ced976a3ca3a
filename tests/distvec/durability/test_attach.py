"""A driver dies, or is taken for dead, and another one goes on with what it had published."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import distvec as dv
from ps_backend.server.sessions import Lease
from tests.ps_backend.helpers import TOKEN, served

ROOT = str(Path(__file__).parents[3])
X = np.random.default_rng(0).standard_normal(3000)

DRIVER = """
import sys
import numpy as np, distvec as dv

ps = dv.connect(sys.argv[1], token=sys.argv[2], name="run7")
w, t = ps.array(np.arange(3000.0)), ps.array(np.ones((50, 3), "float32"))
ps.publish(w=w, t=t)
lost = ps.array(np.ones(3000)).persist()
w += 1
print("published", flush=True)
while sys.stdin.readline():
    try:
        w += 1
        print(float(w.sum()), flush=True)
    except dv.SessionFenced as error:
        print("fenced", error, flush=True)
"""


@pytest.fixture
def servers():
    with served(2) as running:
        yield running


def addresses(servers) -> str:
    return ",".join(one.address for one in servers)


def connect(servers, **options):
    return dv.connect(addresses(servers), token=TOKEN, **options)


def attach(servers, **options):
    return dv.attach("run7", addresses(servers), token=TOKEN, **options)


def driver(servers) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, addresses(servers), TOKEN],
        env=os.environ | {"PYTHONPATH": ROOT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_driver_goes_on(servers, how):
    with driver(servers) as process:
        try:
            assert process.stdout.readline() == "published\n"
            process.send_signal(how)
            with attach(servers) as ps:
                assert list(ps.names) == ["t", "w"]
                assert ps["w"].numpy().tobytes() == np.arange(3000.0).tobytes()
                assert ps["t"].numpy().tobytes() == np.ones((50, 3), "float32").tobytes()
                assert [one.buffers for one in ps.client.status()] == [1, 2]  # t is short
                w = ps["w"] * 2
                ps.publish(w=w, t=None)
                if how == signal.SIGSTOP:
                    process.send_signal(signal.SIGCONT)
                    process.stdin.write("\n")
                    process.stdin.flush()
                    said = process.stdout.readline()
                    assert said.startswith("fenced another driver has taken over the session")
                    assert "distvec.attach(name, addresses" in said
                assert ps["w"].numpy().tobytes() == (2 * np.arange(3000.0)).tobytes()
                assert list(ps.names) == ["w"]
        finally:
            process.kill()
    assert [one.service.memory.used for one in servers] == [0, 0]


def test_what_has_a_name_stays_whatever_becomes_of_the_array(servers):
    with connect(servers, name="run7") as ps:
        x = ps.array(X)
        y = x * 2
        ps.publish(x=x, y=y, small=(x.reshape(1000, 3).sum(axis=0)))
        x += 1
        np.testing.assert_array_equal(ps["x"].numpy(), X)
        z = ps["y"]
        z *= 3  # not in the memory of what has the name
        float(z.sum())
        np.testing.assert_array_equal(ps["y"].numpy(), X * 2)
        small = ps["small"].numpy()
        ps.publish(x=x)
        ps.detach()
        ps.detach()
        with pytest.raises(dv.PSError, match="closed"):
            x.numpy()
    with attach(servers) as ps:
        assert list(ps.names) == ["small", "x", "y"]
        np.testing.assert_array_equal(ps["x"].numpy(), X + 1)
        np.testing.assert_array_equal(ps["y"].numpy(), X * 2)
        np.testing.assert_array_equal(ps["small"].numpy(), small)
        with pytest.raises(
            KeyError, match="no array was published as 'z'; published arrays: small, x, y"
        ):
            ps["z"]
        with attach(servers) as other:
            ps.close()  # it cannot end what is another's by now
            np.testing.assert_array_equal(other["x"].numpy(), X + 1)
    with pytest.raises(dv.SessionUnknown, match="it was closed"):
        attach(servers)


def test_names_are_refused_where_nobody_could_use_them(servers):
    with connect(servers) as ps:
        with pytest.raises(dv.PSError, match=r"needs a session with a name.*distvec\.connect\("):
            ps.publish(x=ps.ones(3))
        with pytest.raises(dv.PSError, match=r"name='run7'\), or call close\(\)"):
            ps.detach()
    with connect(servers, name="run7") as ps, connect(servers) as other:
        with pytest.raises(TypeError, match=r"ps\.array\(\[x\]\)"):
            ps.publish(x=ps.ones(3).sum())
        with pytest.raises(ValueError, match="session"):
            ps.publish(x=other.ones(3))
        with pytest.raises(dv.PSError, match="exists already"):
            connect(servers, name="run7")


def test_who_comes_after_the_lease_hears_what_happened_and_the_log_says_it_once(servers, caplog):
    ps = connect(servers, name="run7", lease=5.0)
    ps.publish(x=ps.array(X))
    for one in servers:
        for _ in range(3):
            one.service.let_pass(4.0)
    for use in (lambda: attach(servers), lambda: ps.ones(3).persist(), lambda: ps["x"].numpy()):
        with pytest.raises(dv.SessionExpired, match=r"lease of the session, 5 s, ran out.*lease="):
            use()
    assert [one.service.memory.used for one in servers] == [0, 0]
    lines = [record.message for record in caplog.records if "ran out" in record.message]
    assert lines == [f"the lease of session {ps.client.session[:8]} ran out"] * 2, "one a server"
    ps.close()
    with connect(servers, name="run7") as again:  # the name is free
        again.ones(3).persist()


def test_a_fenced_driver_does_not_renew_the_lease_of_its_heir(servers):
    with connect(servers, name="run7") as old, attach(servers) as new:
        sessions = [one.service.sessions.get(new.client.session) for one in servers]
        for session in sessions:
            session.lease.idle = 7.0
        with pytest.raises(dv.SessionFenced):
            old.ones(3).persist()
        assert [session.lease.idle for session in sessions] == [7.0, 7.0]
        assert isinstance(sessions[0].lease, Lease)
