"""Server processes come up, say what is wrong, and never outlive their parent."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ps_backend.arguments import Extensions, parse_size
from ps_backend.client import Client
from ps_backend.errors import PSError
from ps_backend.processes.cli import command_parser
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from tests.ps_backend.helpers import put, run_main, served
from tests.waiting import PATIENCE, has_ended

ROOT = str(Path(__file__).parents[3])
SPACE = DenseSpace(3000)

PARENT = """
import json, os, subprocess, sys, threading
from ps_backend.processes.launcher import launch_local

found = []
def launch():
    found.append(launch_local(2, memory=1 << 26))
thread = threading.Thread(target=launch)  # servers must survive the thread that launched them
thread.start()
thread.join()
if sys.argv[1] == "fork":
    if os.fork() == 0:  # inherits the pipes to the servers, and outlives its parent
        sys.stdin.read()
        os._exit(0)
print(json.dumps(found[0].pids), flush=True)
sys.stdin.read()
"""

SLOW_TO_STOP = """
import json, os, subprocess, sys

server = '''
import threading
from ps_backend.processes import parent_watch

parent_watch._LAST_SECONDS = 3600.0  # a bound of some seconds would be one of the machine
parent_watch.supervision(threading.Event()).report("here")
threading.Event().wait()  # as for a request that does not end
'''
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process = subprocess.Popen([sys.executable, "-c", server], bufsize=0, **pipes)
orders = {"token": "", "parent": os.getpid(), "life": 0, "until": 1e9}
process.stdin.write(json.dumps(orders).encode() + bytes([10]))
process.stdout.readline()
print(process.pid, flush=True)
sys.stdin.read()
"""


def python(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": ROOT}
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def loads(pid: int, package: str) -> bool:
    """Has the process machine code of the package?"""
    return f"/{package}/" in Path(f"/proc/{pid}/maps").read_text()


def test_local_servers_serve_and_end():
    with launch_local(2, memory=1 << 26) as servers:
        assert len(set(servers.addresses)) == len(set(servers.pids)) == 2
        assert [loads(servers.pids[0], package) for package in ("numpy", "scipy")] == [True, False]
        with Client.connect(servers.addresses, token=servers.token) as client:
            put(client, SPACE, np.ones(SPACE.length))
            assert [server.pid for server in client.status()] == list(servers.pids)
            assert [server.budget for server in client.status()] == [1 << 26] * 2
        assert servers.diagnose(servers.addresses[0]) is None
        assert servers.diagnose("elsewhere:1") is None
        pids = servers.pids
    assert all(has_ended(pid, 0) for pid in pids)
    servers.stop()


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_parent_leaves_no_server_and_no_log(how, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with python("-c", PARENT, how) as parent:
        pids = json.loads(parent.stdout.readline())
        assert not any(has_ended(pid, 0) for pid in pids)
        parent.kill()
        assert all(has_ended(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGALRM, signal.SIGKILL])
def test_a_server_ends_with_its_parent_whatever_it_is_doing(ending):
    """A request that runs kept it for two seconds: here for as long as no test may wait."""
    with python("-c", SLOW_TO_STOP) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(ending)
        assert has_ended(pid)


WITHOUT_DESCRIPTORS = """
import os

def refuse(*_):
    raise OSError("Function not implemented")

os.pidfd_open, parent_watch._LAST_SECONDS = refuse, 0.0
"""


def test_a_server_ends_with_its_parent_on_systems_without_descriptors_of_processes():
    """As Linux before 5.3, and some containers."""
    before = "parent_watch._LAST_SECONDS = 3600.0"
    with python("-c", SLOW_TO_STOP.replace(before, WITHOUT_DESCRIPTORS)) as parent:
        pid = int(parent.stdout.readline())
        assert not has_ended(pid, 0)
        parent.kill()
        assert has_ended(pid)


def test_ctrl_c_in_the_terminal_leaves_the_servers_to_their_parent():
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    with python("-c", ignore + PARENT, "alone", process_group=0) as parent:
        pids = json.loads(parent.stdout.readline())
        os.killpg(parent.pid, signal.SIGINT)
        assert not any(has_ended(pid, 0.5) for pid in pids)
        parent.kill()
        assert all(has_ended(pid) for pid in pids)


def test_servers_that_nobody_stopped_end_with_the_interpreter():
    code = "from ps_backend.processes.launcher import launch_local as launch"
    with python("-c", f"{code}; s = launch(1, memory=1 << 26); print(s.pids[0])") as parent:
        pid = int(parent.stdout.read())
    assert parent.returncode == 0
    assert has_ended(pid, 0)


def test_a_server_that_does_not_come_up_shows_what_it_wrote(monkeypatch):
    monkeypatch.setenv("PYTHONMALLOC", "no such allocator")
    with pytest.raises(PSError, match=r"server 0 ended; it wrote:\n.*PYTHONMALLOC"):
        launch_local(1)


def test_what_a_dead_server_wrote_is_part_of_its_diagnosis(monkeypatch):
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    with launch_local(1, memory=1 << 26) as servers:
        (pid,) = servers.pids
        os.kill(pid, signal.SIGABRT)
        assert has_ended(pid)
        said = servers.diagnose(servers.addresses[0])
    assert f"its process {pid} was killed by signal 6; it wrote:\n" in said
    assert re.search(r"threading\.py\W+line \d+ in ", said)  # the end of where its threads were


def test_a_silent_server_is_given_up():
    with pytest.raises(PSError, match="did not start in time"):
        launch_local(1, timeout=0)


def test_the_token_is_not_on_the_command_line():
    with launch_local(1, memory=1 << 26) as servers:
        command = Path(f"/proc/{servers.pids[0]}/cmdline").read_bytes()
        environment = Path(f"/proc/{servers.pids[0]}/environ").read_bytes()
        assert servers.token.encode() not in command + environment


def test_some_servers_are_needed():
    with pytest.raises(ValueError, match="1 or more, got 0"):
        launch_local(0)


# --- the command ----------------------------------------------------------------------------------


def test_serve_with_a_token_of_its_own():
    serve = ["-m", "ps_backend", "serve", "--port", "0", "--memory", "64m"]
    with python(*serve) as process:
        address = process.stdout.readline().split()[-1]
        file = Path(process.stdout.readline().split()[-1])
        assert file.stat().st_mode & 0o777 == 0o600
        with Client.connect([address], token=file.read_text().strip()) as client:
            assert client.status()[0].budget == 64 << 20
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert not file.exists()


def serving(*arguments, **options):
    return python("-m", "ps_backend", "serve", "--port", "0", *arguments, **options)


def test_serve_makes_the_token_file_that_is_missing(tmp_path):
    file = tmp_path / "token"
    with serving("--token-file", "token", cwd=tmp_path, stderr=subprocess.PIPE) as process:
        address = process.stdout.readline().split()[-1]
        assert file.stat().st_mode & 0o777 == 0o600
        with Client.connect([address], token=file.read_text().strip()) as client:
            assert len(client.status()) == 1
        process.terminate()
        assert "made a new token in token, readable by you alone" in process.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["token"], "it stays, and nothing else"
    with serving("--token-file", str(file), stderr=subprocess.PIPE) as process:
        address = process.stdout.readline().split()[-1]
        with Client.connect([address], token=file.read_text().strip(), retry=0.1):
            process.terminate()
        assert process.stderr.read() == ""


def test_a_token_file_that_cannot_be_made_is_named(tmp_path, capsys):
    missing = tmp_path / "nowhere" / "token"
    assert run_main("serve", "--port", "0", "--token-file", str(missing)) == 1
    assert capsys.readouterr().err == f"distvec serve: {missing}: No such file or directory\n"


def test_serve_says_that_the_port_is_in_use(tmp_path, capsys):
    token = tmp_path / "token"
    token.write_text("secret\n")
    with served() as (server,):
        code = run_main("serve", "--port", str(server.port), "--token-file", str(token))
    assert code == 1
    text = capsys.readouterr().err
    assert f"distvec serve: port {server.port} on 127.0.0.1 is in use" in text
    assert "secret" not in text


def test_status_of_running_servers(tmp_path, capsys):
    token = tmp_path / "token"
    with served(2, token="secret") as servers:
        addresses = ",".join(server.address for server in servers)
        token.write_text("wrong")
        assert run_main("status", addresses, "--token-file", str(token)) == 1
        assert "the token is wrong" in capsys.readouterr().err
        token.write_text("secret\n")
        assert run_main("status", addresses, "--token-file", str(token)) == 0
        assert servers[1].address in capsys.readouterr().out
        token.write_text("")
        assert run_main("status", addresses, "--token-file", str(token)) == 1
        assert "is empty" in capsys.readouterr().err
    assert run_main("status", addresses, "--token-file", str(tmp_path / "nowhere")) == 1
    assert f"{tmp_path / 'nowhere'}: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("2g", 2 << 30), ("1.5GiB", 3 << 29), ("512 MB", 512 << 20)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


def test_a_bad_size_is_refused(capsys):
    with pytest.raises(SystemExit):
        run_main("serve", "--memory", "much")
    assert "'much' is not a size; write it like 512m or 2g" in capsys.readouterr().err


@pytest.mark.parametrize("given", [Extensions(), Extensions(("a.b", "c"), "numexpr")])
def test_extensions_survive_the_command_line(given):
    words = given.as_options()
    options = command_parser().parse_args(["serve", *words])
    assert Extensions.from_options(options) == given
