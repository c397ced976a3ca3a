"""The files of deploy/: they fit together, and their commands run."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import distvec as dv
from distvec.command_line import command_parser
from tests.waiting import PATIENCE

DEPLOY = Path(__file__).parents[2] / "deploy"
USER = 10001
UNIT = DEPLOY / "systemd" / "distvec@.service"
SCRIPT = DEPLOY / "slurm" / "distvec.sbatch"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def kustomized(name: str) -> dict[str, Any]:
    """Each object of the base and of an overlay by its kind."""
    found: dict[str, Any] = {}
    folder = DEPLOY / "kubernetes" / name
    (index,) = documents(folder / "kustomization.yaml")
    for resource in index["resources"]:
        path = folder / resource
        if path.is_dir():
            found |= kustomized(str(path.resolve().relative_to(DEPLOY / "kubernetes")))
        else:
            found |= {one["kind"]: one for one in documents(path)}
    for patch in index.get("patches", ()):
        target = found[patch["target"]["kind"]]
        for step in yaml.safe_load(patch["patch"]):
            *way, last = step["path"].strip("/").split("/")
            place = target
            for part in way:
                place = place[int(part) if part.isdigit() else part]
            if last == "-":
                place.append(step["value"])
            else:
                assert last in place
                place[last] = step["value"]
    return found


def container_of(objects: dict[str, Any]) -> Any:
    (container,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return container


def serve_commands() -> Iterator[tuple[str, list[str]]]:
    for name in ("base", "tls", "monitoring"):
        yield f"kubernetes/{name}", container_of(kustomized(name))["args"]
    (compose,) = documents(DEPLOY / "compose" / "compose.yaml")
    yield "compose", compose["services"]["ps-0"]["command"]
    image = (DEPLOY / "docker" / "Dockerfile").read_text().replace("\\\n", "")
    yield "docker", yaml.safe_load(re.search(r"^CMD (\[.*\])", image, re.MULTILINE)[1])
    command = re.search(r"^ExecStart=\S+ (.*)", UNIT.read_text(), re.MULTILINE)[1]
    own = re.search(r"^# .*OPTIONS=(.*)", UNIT.read_text(), re.MULTILINE)[1]
    yield "systemd", shlex.split(command.replace("%i", "7070").replace("$OPTIONS", own))
    script = SCRIPT.read_text().replace("\\\n", "")
    command = re.search(r"distvec (serve .*) &", script)[1]
    command = re.sub(r'"\$PORT"|\$\(\(PORT \+ \d\)\)', "7070", command)
    yield "slurm", shlex.split(command)


COMMANDS = dict(serve_commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_exist(name: str) -> None:
    options = command_parser().parse_args(COMMANDS[name])
    assert options.token_file is not None


@pytest.mark.parametrize("name", ["base", "tls", "monitoring"])
def test_the_objects_of_kubernetes_fit_together(name: str) -> None:
    objects = kustomized(name)
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    container = container_of(objects)
    options = command_parser().parse_args(container["args"])
    assert pod["terminationGracePeriodSeconds"] > options.grace
    assert objects["StatefulSet"]["spec"]["serviceName"] == objects["Service"]["metadata"]["name"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {
        "requests": options.port, "bulk": options.bulk_port, "http": options.http_port,
    }  # fmt: skip
    assert {one["name"]: one["port"] for one in objects["Service"]["spec"]["ports"]} == ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    rules = objects["NetworkPolicy"]["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == ports.keys()
    volumes = {one["name"] for one in pod["volumes"]}
    mounts = {one["name"]: Path(one["mountPath"]) for one in container["volumeMounts"]}
    assert volumes == mounts.keys()
    for file in (options.token_file, options.tls_cert, options.tls_key, options.tls):
        assert file is None or file.parent in mounts.values()
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert options.memory + 3 * 2**28 <= limit * 2**30
    assert pod["securityContext"]["runAsUser"] == USER
    if "PodMonitor" in objects:
        (endpoint,) = objects["PodMonitor"]["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in ports


def test_the_image_runs_as_the_user_of_the_manifests() -> None:
    image = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert f"--uid {USER} " in image and f"USER {USER}\n" in image
    ignored = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    assert all((DEPLOY.parent / name).exists() for name in kept)


def test_compose_names_files_that_are_there() -> None:
    (compose,) = documents(DEPLOY / "compose" / "compose.yaml")
    for name in ("prometheus", "grafana"):
        for volume in compose["services"][name]["volumes"]:
            assert (DEPLOY / "compose" / volume.split(":")[0]).exists()
    (server, other) = (compose["services"][f"ps-{k}"] for k in range(2))
    grace = command_parser().parse_args(server["command"]).grace
    assert int(server["stop_grace_period"].removesuffix("s")) > grace
    (prometheus,) = documents(DEPLOY / "compose" / "prometheus.yml")
    (targets,) = prometheus["scrape_configs"][0]["static_configs"]
    assert targets["targets"] == [f"{one['hostname']}:7072" for one in (server, other)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def test_the_command_of_the_pod_runs_and_its_probes_answer(tmp_path: Path) -> None:
    """With ports and folders of this machine; it ends as Kubernetes ends a pod."""
    container = container_of(kustomized("base"))
    args = list(container["args"])
    own = {"--host": "127.0.0.1", "--port": str(free_port()), "--bulk-port": "0"}
    own |= {"--http-port": str(free_port()), "--memory": "64m"}
    own |= {"--token-file": str(tmp_path / "token")}
    for option, value in own.items():
        args[args.index(option) + 1] = value
    (tmp_path / "token").write_text("a token of 32 characters or more")
    (tmp_path / "token").chmod(0o600)
    command = [sys.executable, "-m", "ps_backend", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(3):
                process.stdout.readline()
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                path = container[probe]["httpGet"]["path"]
                url = f"http://127.0.0.1:{own['--http-port']}{path}"
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    assert answer.status == 200
            token = (tmp_path / "token").read_text()
            with dv.connect(f"127.0.0.1:{own['--port']}", token=token) as ps:
                assert float(ps.ones(3).sum()) == 3.0
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_systemd_is_told_that_it_is_ready_alive_and_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        command = [sys.executable, "-m", "ps_backend", "serve", "--port", "0", "--memory", "64m"]
        command += ["--token-file", str(tmp_path / "token")]
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with subprocess.Popen(["env", *(f"{k}={v}" for k, v in env.items()), *command]) as process:
            try:
                first = manager.recv(1000).decode().splitlines()
                assert first[0] == "READY=1" and first[1].startswith("STATUS=serving at 127.0.0.1:")
                assert manager.recv(1000) == b"WATCHDOG=1"
                process.send_signal(signal.SIGTERM)
                told = iter(lambda: manager.recv(1000), b"")
                last = next(itertools.dropwhile(lambda text: text == b"WATCHDOG=1", told))
                assert last.startswith(b"STOPPING=1\n")
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


def test_the_unit_is_one_of_systemd(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = UNIT.read_text().replace("/opt/distvec/bin/distvec", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    command = ["systemd-analyze", "verify", str(tmp_path / UNIT.name)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert UNIT.name.partition("@")[0] not in found.stderr


def test_the_job_of_slurm_serves_and_ends(tmp_path: Path) -> None:
    """With stand-ins for the commands of Slurm that start its servers on this machine."""
    port = free_port()
    commands = {
        "srun": '#!/bin/bash\nshift\nexec "$@"\n',
        "scontrol": "#!/bin/bash\necho 127.0.0.1\n",
        "distvec": f'#!/bin/bash\nexec {sys.executable} -m ps_backend "$@" --memory 64m\n',
        "python3": f'#!/bin/bash\nexec {sys.executable} "$@"\n',
    }
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    program = (
        "import os, distvec as dv\n"
        "addresses, token = (os.environ[f'DISTVEC_{name}'] for name in ('ADDRESSES', 'TOKEN'))\n"
        "with dv.connect(addresses, token=token) as ps:\n"
        "    print(float(ps.ones(5).sum()))\n"
        "raise SystemExit(7)\n"
    )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "SLURM_JOB_NODELIST": "x"}
    env |= {"DISTVEC_PORT": str(port), "PYTHONPATH": str(DEPLOY.parent)}
    command = ["bash", str(SCRIPT), sys.executable, "-c", program]
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert found.returncode == 7, found.stderr
    assert found.stdout.splitlines()[-1] == "5.0"
    assert not list(tmp_path.glob(".distvec-token*"))
