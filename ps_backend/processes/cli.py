"""The ``distvec`` command: ``serve`` runs one parameter server, ``status`` asks running ones."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ps_backend.arguments import LEASE_SECONDS, Extensions, check_lease, parse_size
from ps_backend.client.status import ServerStatus, server_status, slow_table, status_table
from ps_backend.durability.stores import open_store, open_within
from ps_backend.errors import PSError
from ps_backend.processes.http_server import serve_health
from ps_backend.processes.logs import FORMATS, LEVELS, write_logs
from ps_backend.processes.parent_watch import Supervision, supervision
from ps_backend.processes.service_manager import ServiceManager
from ps_backend.processes.token_file import TokenFile, read_tokens
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.endpoints.tls_identity import FileIdentity, Identity
from ps_backend.server.service import Incarnation, Service
from ps_backend.server.sessions import VERSION
from ps_backend.server.state.memory import share_one_heap

_LOG = logging.getLogger(__name__)

_LONGEST_GRACE = 86_400.0
_LOOK_SECONDS = 0.5
_MOST_FILES = 16_384
"""Open at once: four times the connections that are let in."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_command(lambda: command_parser().parse_args(argv))


def run_command(parse: Callable[[], argparse.Namespace]) -> int:
    """Run the function ``run`` of the options; errors become lines and exit codes."""
    name = "distvec"
    try:
        options = parse()
        name = f"distvec {options.command}"
        code: int = options.run(options)
        return code
    except (PSError, OSError, ValueError) as error:
        reason: object = error
        if isinstance(error, OSError) and error.strerror:
            reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        print(f"{name}: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    try:
        return check_lease(float(text), "a lease")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _grace(text: str) -> float:
    seconds = float(text)
    if not 0.0 <= seconds <= _LONGEST_GRACE:
        raise argparse.ArgumentTypeError(
            f"must be between 0 and {_LONGEST_GRACE:g} seconds, got {text}"
        )
    return seconds


def command_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line; ``docs/reference/cli.md`` is made from it, too."""
    parser = argparse.ArgumentParser(
        prog="distvec",
        description="Run parameter servers, and show what running ones hold.",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"distvec {VERSION}",
        help="Print the version and exit",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_status(commands)
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser(
        "serve",
        help="Run one parameter server until it is stopped",
        description="Run one parameter server until SIGTERM or Ctrl-C stops it. The server prints "
        "its address\nand, unless you name one, the path of its token file. Clients connect with\n"
        "distvec.connect(addresses, token=...).",
        epilog="example:\n  distvec serve --host 10.0.0.5 --port 7070 --memory 8g "
        "--token-file /etc/distvec/token",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.set_defaults(run=_serve)
    serve.add_argument(
        "--grace",
        type=_grace,
        default=25.0,
        metavar="SECONDS",
        help="Seconds to serve open sessions after SIGTERM, while no new session is taken; a "
        "second SIGTERM or Ctrl-C ends the server immediately (default: %(default)g)",
    )
    network = serve.add_argument_group("network")
    network.add_argument(
        "--host",
        default="127.0.0.1",
        help="Address to listen on (default: %(default)s, which only this machine can reach)",
    )
    network.add_argument(
        "--port",
        type=int,
        default=7070,
        help="Port for requests; 0 selects a free port (default: %(default)s)",
    )
    network.add_argument(
        "--bulk-port",
        type=int,
        default=0,
        metavar="PORT",
        help="Port for large transfers between hosts. If clients cannot reach it, they use gRPC "
        "instead (default: any free port)",
    )
    network.add_argument(
        "--http-port",
        type=int,
        metavar="PORT",
        help="Port for /healthz, /readyz and /metrics (Prometheus), without a token; 0 selects a "
        "free port (default: no port)",
    )
    network.add_argument(
        "--http-host",
        metavar="HOST",
        help="Address for --http-port (default: --host)",
    )
    network.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="File with the token that clients must pass, or several of which each lets in, one a "
        "line; read again when it changes, and at SIGHUP; created if it is missing (default: a "
        "new temporary file)",
    )
    memory = serve.add_argument_group("memory, sessions and files")
    memory.add_argument(
        "--memory",
        type=_size,
        metavar="SIZE",
        help="Maximum memory for arrays, for example 2g (default: 80%% of the machine's memory)",
    )
    memory.add_argument(
        "--lease",
        type=_seconds,
        default=LEASE_SECONDS,
        metavar="SECONDS",
        help="Seconds to keep a session after its last client disappears; clients can override "
        "it (default: %(default)g)",
    )
    memory.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="DIR",
        help="Folder, or URL such as s3://bucket/models, for files of arrays that this server "
        "reads and writes for clients; repeat the option for more (default: no folder)",
    )
    tls = serve.add_argument_group("TLS (all files are PEM)")
    tls.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="Certificate chain of this server. A renewed file is used without a restart; so is "
        "a renewed key",
    )
    tls.add_argument("--tls-key", type=Path, metavar="FILE", help="Private key of this server")
    tls.add_argument(
        "--tls-client-ca",
        type=Path,
        metavar="FILE",
        help="Require client certificates signed by this CA (default: clients need no certificate)",
    )
    tls.add_argument(
        "--tls",
        type=Path,
        metavar="FILE",
        help="CA that signed the other servers' certificates (default: the file of --tls-cert)",
    )
    logs = serve.add_argument_group("log, on standard error")
    logs.add_argument(
        "--log-level",
        choices=LEVELS,
        default="warning",
        help="Least level of messages that are written (default: %(default)s)",
    )
    logs.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        help="Lines of text, or a JSON object on each line (default: %(default)s)",
    )
    extending = serve.add_argument_group("extensions")
    Extensions.add_options(extending)
    serve.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def _add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    status = commands.add_parser(
        "status",
        help="Show what running servers hold",
        description="Print a table with one line for each server: its memory, sessions, leases "
        "and digests.\nThe command does not change the servers.",
        epilog="example:\n  distvec status 10.0.0.5:7070,10.0.0.6:7070 --token-file "
        "/etc/distvec/token",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    status.set_defaults(run=_status)
    add_servers(status)
    status.add_argument(
        "--slow",
        action="store_true",
        help="Print the last requests that took longer than a second instead",
    )


def add_servers(command: argparse.ArgumentParser) -> None:
    """Add the options of a command that asks running servers: see ``asked_servers``."""
    command.add_argument("addresses", help="Servers, as host:port,host:port,...")
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="File with the servers' token (default: no token)",
    )
    tls = command.add_argument_group("TLS (all files are PEM)")
    tls.add_argument(
        "--tls",
        type=Path,
        metavar="FILE",
        help="CA that signed the servers' certificates (default: connect without TLS)",
    )
    tls.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="Certificate of the client, if required"
    )
    tls.add_argument("--tls-key", type=Path, metavar="FILE", help="Private key of the client")


def _allow_connections() -> None:
    """Each connection is an open file, and the usual limit of 1024 is soon reached."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(most, _MOST_FILES) if most != resource.RLIM_INFINITY else _MOST_FILES
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _serve(options: argparse.Namespace) -> int:
    _allow_connections()
    share_one_heap()
    stop, leave, renew = threading.Event(), threading.Event(), threading.Event()

    def terminate(*_: object) -> None:
        (stop if options.supervised or leave.is_set() else leave).set()

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    supervised = supervision(stop) if options.supervised else None
    if supervised is not None:
        tokens, token_file = [supervised.token], None
    else:
        write_logs(options.log_level, options.log_format)
        token_file = TokenFile(options.token_file)
        tokens = token_file.tokens
        if not os.isatty(0):  # else it says that the terminal is gone
            signal.signal(signal.SIGHUP, lambda *_: renew.set())
    life = Incarnation() if supervised is None else supervised.life
    manager, http = ServiceManager(), None
    try:
        server = Server(
            Service(
                memory=options.memory,
                lease=options.lease,
                life=life,
                # The driver of this user could write the same files itself.
                open_store=open_store if supervised else open_within(options.store),
                extensions=Extensions.from_options(options),
            ),
            host=options.host,
            port=options.port,
            bulk_port=options.bulk_port,
            token=tokens[0],
            identity=_identity(options) if supervised is None else supervised.identity,
        )
        if options.http_port is not None:
            host = options.host if options.http_host is None else options.http_host
            http = serve_health(server.service, host, options.http_port)
        server.accept(tokens)
        server.start()
        _announce(server.address, token_file, supervised)
        if http is not None:
            print(f"health and metrics at http://{http.address}/metrics", flush=True)
        manager.notify("READY=1", f"STATUS=serving at {server.address}")
        # Python sees a signal that another thread got only in between.
        while not stop.wait(_LOOK_SECONDS):
            manager.keep_alive()
            if token_file is not None and (renew.is_set() or token_file.has_changed()):
                renew.clear()
                _renew(server, token_file)
            if leave.is_set():
                manager.notify("STOPPING=1", "STATUS=serving open sessions until they end")
                _drain(server.service, options.grace, stop)
                break
        server.service.ready = False
        server.stop()
    finally:
        if http is not None:
            http.close()
        if token_file is not None:
            token_file.close()
    return 0


def _renew(server: Server, file: TokenFile) -> None:
    """Accept the tokens that are in the file now; those before stay if they cannot be read."""
    try:
        server.accept(file.read())
        _LOG.warning("the tokens in %s were read: %d are accepted", file.path, len(file.tokens))
    except (OSError, ValueError) as error:
        _LOG.error("the tokens were not renewed, those before stay: %s", error)


def _drain(service: Service, grace: float, stop: threading.Event) -> None:
    """Serve the open sessions until they are closed, time is up, or ``stop`` is set."""
    deadline = time.monotonic() + grace
    service.drain(grace)
    while service.sessions.all() and time.monotonic() < deadline:
        if stop.wait(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            return


def _identity(options: argparse.Namespace) -> Identity | None:
    """What the options on TLS say; ``ValueError`` if they do not fit together."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise ValueError("TLS needs both --tls-cert and --tls-key")
    if options.tls_cert is None:
        if options.tls_client_ca is not None or options.tls is not None:
            raise ValueError("--tls and --tls-client-ca need --tls-cert and --tls-key")
        return None
    return FileIdentity(options.tls_cert, options.tls_key, options.tls, options.tls_client_ca)


def _announce(address: str, token_file: TokenFile | None, supervised: Supervision | None) -> None:
    if supervised is not None:
        supervised.report(address)
        return
    print(f"distvec server at {address}", flush=True)
    if token_file is not None:
        print(f"clients need the token in {token_file.path}", flush=True)


def asked_servers(options: argparse.Namespace, *, metrics: bool) -> list[ServerStatus]:
    """The status of the servers that the options of ``add_servers`` name."""
    token = read_tokens(options.token_file)[0] if options.token_file is not None else None
    addresses = [address.strip() for address in options.addresses.split(",") if address.strip()]
    tls, own, key = options.tls, options.tls_cert, options.tls_key
    return server_status(
        addresses, token=token, tls=tls, tls_cert=own, tls_key=key, metrics=metrics
    )


def _status(options: argparse.Namespace) -> int:
    servers = asked_servers(options, metrics=options.slow)
    print(slow_table(servers) if options.slow else status_table(servers))
    return 0
