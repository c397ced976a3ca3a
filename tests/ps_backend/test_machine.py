"""The limits of containers and services, as Linux writes them, and in a real group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ps_backend import machine

MB = 1 << 20


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Write files of groups, and say in which one this process is."""
    monkeypatch.setattr(machine, "_MOUNT", tmp_path / "fs")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))

    def write(groups: str, files: dict[str, str]):
        (tmp_path / "cgroup").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "fs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return machine.usable_cores.__wrapped__(), machine.usable_memory.__wrapped__()

    return write


def _all_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_no_limit(tree):
    assert tree("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}) == (16, _all_memory())
    assert tree("", {}) == (16, _all_memory())


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("50000 100000", 1), ("100000 100000", 1), ("150000 100000", 2), ("9900000 100000", 16)],
)
def test_quotas_are_rounded_up(tree, quota, cores):
    assert tree("0::/\n", {"cpu.max": quota})[0] == cores


def test_the_least_of_nested_groups_holds(tree):
    """As a service within a slice has it, or Slurm's step within its job."""
    files = {
        "a.slice/cpu.max": "200000 100000",
        "a.slice/b.service/cpu.max": "400000 100000",
        "a.slice/memory.max": str(512 * MB),
        "a.slice/b.service/memory.max": "max",
        "a.slice/b.service/memory.high": str(256 * MB),
        "other/cpu.max": "100000 100000",
    }
    assert tree("0::/a.slice/b.service\n", files) == (2, 256 * MB)


def test_version_1(tree):
    groups = "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n"
    files = {
        "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "300000",
        "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/docker/x/memory.limit_in_bytes": str(300 * MB),
        "memory/memory.limit_in_bytes": "9223372036854771712",
    }
    assert tree(groups, files) == (3, 300 * MB)


def test_a_container_sees_its_own_group_as_the_root(tree):
    """The path is one of the host, which is not mounted."""
    groups = "2:memory:/kubepods/pod1/c\n1:cpu:/kubepods/pod1/c\n"
    files = {
        "cpu/cpu.cfs_quota_us": "200000",
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": str(64 * MB),
    }
    assert tree(groups, files) == (2, 64 * MB)


_SERVE = """
import os, sys
for group in sys.argv[1:]:
    with open(os.path.join(group, "cgroup.procs"), "w") as procs:
        procs.write(str(os.getpid()))
import distvec as dv
from ps_backend.kernels.kernel import thread_count
with dv.local(1, in_process=True) as ps:
    (status,) = ps.client.status()
    print(thread_count(), status.budget, flush=True)
    try:
        ps.ones(200_000_000).persist().flush()
        float(ps.ones(200_000_000).persist()[0])
    except dv.OutOfBudget:
        print("refused")
"""


def test_a_server_in_a_real_group():
    """One core and 1 GiB: one thread, and it refuses before the kernel would end it."""
    folders = [Path("/sys/fs/cgroup", name, f"distvec-{os.getpid()}") for name in ("cpu", "memory")]
    try:
        for folder in folders:
            folder.mkdir()
        (folders[0] / "cpu.cfs_quota_us").write_text("100000")
        (folders[1] / "memory.limit_in_bytes").write_text(str(1024 * MB))
    except OSError:
        for folder in folders:
            if folder.exists():
                folder.rmdir()
        pytest.skip("no groups of version 1 that this user may make")
    try:
        environment = {k: v for k, v in os.environ.items() if not k.endswith("NUM_THREADS")}
        command = [sys.executable, "-c", _SERVE, *map(str, folders)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines == [f"1 {1024 * MB * 4 // 5}", "refused"]
    finally:
        for folder in folders:
            folder.rmdir()
