"""Whoever saves is killed: what is there is the old model or the new one, whole."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import distvec as dv

SAVES = """
import sys
import distvec as dv
with dv.local(servers=2, in_process=True) as ps:
    for k in range(1, 1_000_000):
        ps.save(sys.argv[1], w=ps.full(20_000, float(k)), v=ps.full(3, -float(k)))
        if k == 3:
            print("begun", flush=True)
"""


@pytest.mark.parametrize("name", ["m.safetensors", "folder"])
def test_killed_at_some_moment(tmp_path, name):
    path = tmp_path / name
    command = [sys.executable, "-c", SAVES, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        end = threading.Timer(0.011, process.kill)
        end.start()
        process.wait()
        end.join()
    found = dv.load(path)
    assert np.unique(found["w"]).tolist() == [-found["v"][0]]
    assert found["w"].shape == (20_000,) and found["w"][0] >= 3.0
