"""The log of a server: lines of text or JSON, without a secret."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import distvec as dv
from ps_backend.processes.token_file import _is_readable_for_others
from tests.waiting import PATIENCE


def log_of(folder: Path, *options: str) -> tuple[list[str], list[str]]:
    """The lines of a server whose session is taken over and whose lease runs out; its secrets."""
    command = [sys.executable, "-m", "ps_backend", "serve", "--port", "0", "--memory", "64m"]
    command += ["--token-file", str(folder / "token"), *options]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            process.stdout.readline()
            token = (folder / "token").read_text().strip()
            first = dv.connect(address, token=token, name="mine")
            secret = first.client.secret
            second = dv.attach("mine", address, token=token)
            second.close()
            with pytest.raises(dv.PSError):
                dv.connect(address, token="of another server")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    return (folder / "log").read_text().splitlines(), [token, *secret.split("."), secret]


def test_lines_of_text(tmp_path):
    lines, _ = log_of(tmp_path, "--log-level", "info")
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ps_backend\.\S+: .*has taken over"
    assert any(re.match(pattern, line) for line in lines)


def test_objects_without_a_secret(tmp_path):
    lines, secrets = log_of(tmp_path, "--log-level", "debug", "--log-format", "json")
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    assert any("has taken over" in one["message"] for one in objects)
    assert {"time", "level", "logger", "message", "process"} <= objects[0].keys()
    for secret in secrets:
        assert len(secret) < 8 or secret not in "\n".join(lines)


def test_warnings_alone_by_default(tmp_path):
    lines, _ = log_of(tmp_path)
    assert not any("has taken over" in line for line in lines)


def test_a_token_that_others_can_read():
    def status(mode: int, user: int, group: int) -> os.stat_result:
        return os.stat_result((0o100000 | mode, 0, 0, 1, user, group, 0, 0, 0, 0))

    own, groups = os.geteuid(), [os.getegid(), *os.getgroups()]
    assert not _is_readable_for_others(status(0o600, own, groups[0]))
    assert _is_readable_for_others(status(0o640, own, groups[0]))
    assert not _is_readable_for_others(status(0o440, own + 1, groups[0]))  # a mounted secret
    assert _is_readable_for_others(status(0o444, own + 1, groups[0]))
    assert _is_readable_for_others(status(0o440, own + 1, max(groups) + 1))
