"""The file of tokens: made if it is missing, and read again while servers run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import distvec as dv
from ps_backend.processes.token_file import TokenFile, read_tokens
from ps_backend.server.endpoints.tokens import Tokens
from tests.waiting import wait_for

OLD, NEW = "the old token", "the new token"


def test_servers_started_at_once_make_one_token(tmp_path, monkeypatch):
    file, link = tmp_path / "token", os.link

    def another_is_first(made, name):
        file.write_text("of another\n")
        link(made, name)

    monkeypatch.setattr("os.link", another_is_first)
    assert TokenFile(file).tokens == ["of another"]
    assert list(tmp_path.iterdir()) == [file]


def test_a_token_that_others_can_read_is_warned_of(tmp_path, capsys):
    file = tmp_path / "token"
    file.write_text("secret\n")
    for mode, warned in ((0o600, False), (0o400, False), (0o640, True), (0o604, True)):
        file.chmod(mode)
        assert TokenFile(file).tokens == ["secret"]
        assert (f"chmod 600 {file}" in capsys.readouterr().err) == warned


def test_lines_are_tokens(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"\n  {OLD}\t\r\n\n{NEW}")
    assert read_tokens(file) == [OLD, NEW]
    assert not TokenFile(file).has_changed()
    file.write_text(" \n\n")
    with pytest.raises(ValueError, match="is empty; write a long random string"):
        read_tokens(file)


def test_a_token_that_cannot_be_sent_changes_nothing():
    tokens = Tokens(OLD)
    with pytest.raises(ValueError, match="printable ASCII"):
        tokens.replace([NEW, "gr\u00fcn"])
    assert tokens.accepts(OLD.encode()) and not tokens.accepts(NEW.encode())
    assert not Tokens() and Tokens().first is None


@contextmanager
def serving(file, count):
    """Processes of servers that read ``file``, and their addresses."""
    command = [sys.executable, "-m", "ps_backend", "serve", "--port", "0", "--memory", "64m"]
    command += ["--token-file", str(file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        processes = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(process.kill)
            processes.append(process)
        yield processes, [process.stdout.readline().split()[-1] for process in processes]


def lets_in(addresses, token):
    try:
        with dv.connect(",".join(addresses), token=token):
            return True
    except dv.AuthenticationError:
        return False


def test_a_token_replaces_another_while_sessions_go_on(tmp_path):
    """A sort asks other servers, which is refused over connections that show the old token."""
    file = tmp_path / "token"
    file.write_text(OLD + "\n")
    file.chmod(0o600)
    values = np.random.default_rng(0).normal(size=100_000)

    def sorts(ps):
        ps.counters.reset()
        assert (np.sort(ps.array(values)).numpy() == np.sort(values)).all()
        return ps.counters.peer_messages > 0

    with serving(file, 2) as (processes, addresses), ExitStack() as stack:

        def write(*tokens):
            file.write_text("\n".join(tokens) + "\n")
            for process in processes:
                process.send_signal(signal.SIGHUP)

        before = stack.enter_context(dv.connect(",".join(addresses), token=OLD))
        assert sorts(before) and not lets_in(addresses, NEW)
        write(OLD, NEW)
        wait_for(lambda: all(lets_in([address], NEW) for address in addresses))
        after = stack.enter_context(dv.connect(",".join(addresses), token=NEW))
        assert sorts(before) and sorts(after) and lets_in(addresses, OLD)
        write(NEW, OLD)
        assert sorts(before) and sorts(after)
        write(NEW)
        wait_for(lambda: not any(lets_in([address], OLD) for address in addresses))
        assert sorts(after) and lets_in(addresses, NEW)
        with pytest.raises(dv.AuthenticationError):
            float(before.ones(1000).sum())


def test_a_file_is_read_again_without_a_signal_and_a_bad_one_changes_nothing(tmp_path):
    file = tmp_path / "token"
    file.write_text(OLD)
    file.chmod(0o600)
    with serving(file, 1) as ((process,), addresses):
        file.write_text("\n")
        assert "those before stay: the token file" in process.stderr.readline()
        assert lets_in(addresses, OLD)
        os.unlink(file)
        process.send_signal(signal.SIGHUP)
        assert "those before stay: [Errno 2]" in process.stderr.readline()
        draft = tmp_path / "draft"
        draft.write_text(NEW)
        draft.replace(file)
        wait_for(lambda: lets_in(addresses, NEW))
        assert not lets_in(addresses, OLD) and process.poll() is None
