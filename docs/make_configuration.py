"""Write docs/reference/configuration.md, with its values: ``python -m docs.make_configuration``."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import distvec
from distvec.spark import PSContext

PAGE = Path(__file__).with_name("reference") / "configuration.md"

_INTRODUCTION = """\
# Configuration: environment variables, timeouts and limits

Look up each environment variable, timeout and limit of distvec here. Arguments of functions
configure sessions; [the command line](cli.md) configures servers that you start by hand.

```python
import distvec as dv

with dv.local(servers=2, memory="512m", in_process=True) as ps:
    print(len(ps.client.status()))
```

```text
2
```

## Arguments

| Argument | Default | Effect |
|---|---|---|
"""
_SPARK = """\

Spark's own settings apply, too: distvec reads `spark.driver.host`, `spark.driver.bindAddress`,
`spark.task.cpus`, `spark.executor.instances` and `spark.dynamicAllocation.enabled`.
"""

_END = """
See also: [Size servers](../operate/sizing.md), [Security](../operate/security.md).
"""

_SHARE = "an equal share of 80 % of the machine's memory"
_ANSWER = "time for the servers to answer the first request"
_LEASE = "the servers' `--lease`"
_OUTLIVES = "time that the session outlives its last client"
ARGUMENTS = (
    (distvec.local, "memory", _SHARE, "memory per server"),
    (distvec.connect, "timeout", "", _ANSWER),
    (distvec.connect, "lease", _LEASE, _OUTLIVES),
    (distvec.attach, "timeout", "", _ANSWER),
    (distvec.attach, "lease", _LEASE, _OUTLIVES),
    (PSContext.get_or_create, "memory", _SHARE, "memory per server"),
    (PSContext.get_or_create, "timeout", "", "time for Spark to start the servers"),
    (PSContext.get_or_create, "lease", _LEASE, "as in `dv.connect`; only with `addresses=`"),
)

ENVIRONMENT = {
    "DISTVEC_CACHE": "Folder for compiled kernels (default: `XDG_CACHE_HOME`, then `~/.cache`). "
    "Only its user may be able to write to it",
    "DISTVEC_KERNELS": "Folder with kernels that were compiled before, which a new cache begins "
    "with; only root or its user may be able to write to it",
    "XDG_CACHE_HOME": "Parent of the folder for compiled kernels, if `DISTVEC_CACHE` is not set",
    "NUMBA_CACHE_DIR": "numba's own cache. Other users must not be able to write to it",
    "NOTIFY_SOCKET": "Socket of systemd, which sets it; `distvec serve` tells it when it is ready and "
    "when it stops",
    "WATCHDOG_USEC": "Microseconds between signs of life that systemd expects, which sets it",
    "WATCHDOG_PID": "Process that systemd expects them from",
    "OMP_NUM_THREADS": "Threads of a kernel in one server (default: all cores). `dv.local` and "
    "Spark's servers divide the cores among the servers",
    "PYSPARK_PYTHON": "Python of Spark's workers. If it is not set on a local master, tasks use "
    "the driver's Python",
    "SPARK_LOCAL_DIRS": "Spark's scratch folders; `LogisticLoss` writes its rows to the first one",
    "PYTHONPATH": "Passed on to server processes, with the folder of distvec in front",
}

TIMEOUTS = {
    "Requests to a server": {
        "ps_backend.transport.timeouts:PING_SECONDS": "A silent connection is pinged after",
        "ps_backend.transport.timeouts:PING_ANSWER_SECONDS": "A ping must be answered within",
        "ps_backend.transport.timeouts:REPEAT_SECONDS": "After a broken connection, a request is "
        "repeated for",
        "ps_backend.transport.timeouts:SHORT_SECONDS": "Deadline of a short request: open, close, "
        "status, renew, cancel",
        "ps_backend.client.server_link:REPLACED_SECONDS": "Requests wait for the replacement of a "
        "lost server for",
        "ps_backend.client.server_link:_BUSY_SECONDS": "A client retries a server that accepts no "
        "more requests for",
        "ps_backend.wire.protocol:LONGEST_WAIT_SECONDS": "One waiting request returns, and is "
        "repeated, after",
        "ps_backend.limits:LONGEST_SECONDS": "Longest wait that a client can ask for",
    },
    "Sessions": {
        "ps_backend.arguments:LEASE_SECONDS": "Default lease of a session",
        "ps_backend.arguments:LONGEST_SECONDS": "Longest lease",
        "distvec.durability.policy:_WAIT_SECONDS": "A checkpointed session waits for replaced "
        "servers, besides the time of each request, for",
    },
    "Server processes": {
        "ps_backend.processes.server_process:START_SECONDS": "A new server process must answer "
        "within",
        "ps_backend.processes.server_process:SILENT_SECONDS": "A server that gives no sign is "
        "killed and replaced after",
        "ps_backend.processes.server_process:_SHORT_LIFE_SECONDS": "A server that ends three times "
        "in a row within this time is not started again",
        "ps_backend.processes.launcher:_STOP_SECONDS": "Stopped servers may finish their requests "
        "for",
        "ps_backend.processes.launcher:_JOIN_SECONDS": "The threads that watch servers end within",
        "ps_backend.processes.parent_watch:_LAST_SECONDS": "Running requests may continue, after "
        "the parent asked the server to stop, for",
    },
    "Connections to a server": {
        "ps_backend.server.endpoints.authentication:_BRIEF_SECONDS": "A silent call is never ended "
        "before",
        "ps_backend.server.endpoints.authentication:_LONG_SECONDS": "A silent call is always ended "
        "after",
        "ps_backend.server.endpoints.framed_server:SILENT_SECONDS": "A new connection must "
        "authenticate within",
        "ps_backend.server.endpoints.framed_server:SEND_SECONDS": "A client must read a reply "
        "within",
        "ps_backend.server.endpoints.framed_server:_IDLE_SECONDS": "A connection without requests "
        "is closed after",
        "ps_backend.server.endpoints.relay_process:_START_SECONDS": "The process that accepts "
        "connections must start within",
        "ps_backend.server.endpoints.relay_process:_END_SECONDS": "It must end within",
        "ps_backend.server.state.files:_PATIENCE_SECONDS": "A program waits for memory that a file "
        "is being written from for",
    },
    "Memory of a server": {
        "ps_backend.server.state.memory:_KEPT_SECONDS": "Memory of freed arrays is kept for new "
        "ones for",
    },
    "Health, metrics and the dashboard": {
        "ps_backend.processes.http_server:_SECONDS": "A request by HTTP must be answered within",
        "ps_backend.server.meters:SLOW_SECONDS": "A request counts as slow after",
        "distvec.dashboard.collector:LOOK_SECONDS": "While a browser shows the page, the dashboard "
        "asks the servers every",
        "distvec.dashboard.collector:IDLE_SECONDS": "Else it asks them every",
    },
    "Servers on Spark": {
        "distvec.spark.cluster.registry:LEASE_SECONDS": "Another task may replace a server that "
        "was silent for",
        "distvec.spark.cluster.registry:SERVE_SECONDS": "A server without a connection to the "
        "driver stops after",
        "distvec.spark.cluster.registry:COMING_SECONDS": "A server without a free slot waits for "
        "new executors for",
        "distvec.spark.cluster.registry:_ASK_SECONDS": "The driver must answer a question of a "
        "task within",
        "distvec.spark.cluster.supervise:_ALONE_SECONDS": "A server task fails if it cannot reach "
        "the driver for",
        "distvec.spark.cluster.supervise:_MESSAGE_SECONDS": "The driver must answer a claim within",
        "distvec.spark.cluster.supervise:_LEAST_SECONDS": "A claim waits at least",
        "distvec.spark.cluster.supervise:_STOP_SECONDS": "A server of a task must stop within",
        "distvec.spark.cluster.supervised_servers:_CONNECT_SECONDS": "New servers must open the "
        "session within",
        "distvec.spark.cluster.supervised_servers:_TRY_SECONDS": "The driver tests again whether "
        "all servers run after",
        "distvec.spark.cluster.executors:_STOP_SECONDS": "`ps.stop()` waits for the servers for",
        "distvec.spark.cluster.executors:_CANCEL_SECONDS": "`ps.stop()` waits for cancelled tasks "
        "for",
    },
    "Jobs and tasks on Spark": {
        "distvec.spark.jobs.application:YOUNG_SECONDS": "An application may still be receiving "
        "executors for",
        "distvec.spark.jobs.application:_STOP_SECONDS": "Resident tasks may end by themselves for",
        "distvec.spark.jobs.application:_CANCEL_SECONDS": "Spark may take, to cancel them,",
        "distvec.spark.task_session:_JOIN_SECONDS": "A task must reach the servers within",
        "distvec.spark.objectives.evaluator:_START_SECONDS": "Resident tasks must all have a slot "
        "within",
        "distvec.spark.objectives.evaluator:_STALL_SECONDS": "An evaluation without progress tests "
        "for missing slots after",
        "distvec.spark.objectives.evaluator:_IDLE_SECONDS": "An idle objective offers its slots to "
        "other jobs after",
        "distvec.spark.objectives.evaluator:_STOP_SECONDS": "Resident tasks end within",
        "distvec.spark.objectives.evaluation_task:_WAIT_SECONDS": "One wait of a resident task for "
        "the next request lasts at most",
        "distvec.spark.loops.run:_START_SECONDS": "All tasks of a loop must have a slot within",
        "distvec.spark.loops.run:_SERVERS_SECONDS": "A loop tests its servers every",
        "distvec.spark.loops.worker_progress:ANSWER_SECONDS": "The driver must answer a report "
        "within",
        "distvec.spark.loops.worker_progress:_SILENCE_SECONDS": "The driver drops the connection "
        "of a silent worker after",
        "distvec.spark.loops.worker_progress:_CLOSE_SECONDS": "The last report of a worker takes "
        "at most",
        "distvec.spark.loops.checkpoint_barrier:_JOIN_SECONDS": "A loop's checkpoint must end, "
        "after the loop, within",
    },
    "Fits through Spark Connect": {
        "distvec.spark.barrier.job:_SLOT_SECONDS": "A barrier job waits for free slots for",
        "distvec.spark.barrier.settings:_SECONDS": "Default of `spark.distvec.timeout`, in which "
        "all tasks of a fit must answer",
        "distvec.spark.barrier.rank:_STOP_SECONDS": "A server of a task must stop within",
    },
}

LIMITS = {
    "Arrays": {
        "distvec.array.core.shapes:MOST_RANK": "Rank of an array",
        "ps_backend.limits:MOST_LENGTH": "Length of a vector, rows of a table",
        "ps_backend.limits:MOST_ROW_ITEMS": "Elements of one row",
        "ps_backend.limits:MOST_ROW_EXTENTS": "Dimensions of one row",
        "ps_backend.limits:MOST_SERVERS": "Servers of one session; more than 1024 hold no data",
        "distvec.graph.host_eval:MOST_ELEMENTS": "Elements of a small array on the client, as an "
        "operand",
        "distvec.array.core.conversion:MOST_ITERATED": "Elements that a `for` loop over an array "
        "reads",
        "distvec.array.repr:MOST_SHOWN": "Elements that `repr` shows in full",
        "distvec.array.manipulation.differences:MOST_TERMS": "Elements of a kernel of "
        "`np.convolve`",
        "distvec.array.manipulation.insert_delete:MOST_PLACES": "Places at which `np.insert` "
        "inserts along the partitioned axis",
        "distvec.array.manipulation.repeat:MOST_COLUMNS": "Columns of a table that `np.repeat` or "
        "`np.tile` creates",
        "distvec.array.manipulation.join:MOST_INPUTS": "Pieces that one pass concatenates; more "
        "are joined in groups",
        "distvec.array.manipulation.join:MOST_TRAVELLING": "Elements of the client that a "
        "concatenation sends with the program",
        "distvec.graph.node:MOST_COPIED": "Elements of an array on the servers of which the client "
        "keeps a copy that it sent or read",
        "distvec.array.collectives.counting:MOST_KEPT": "Counts of `np.bincount` that the client keeps; more "
        "stay on the servers",
    },
    "Programs and requests": {
        "ps_backend.limits:MOST_VALUES": "Inputs, scalars, operations and outputs of one program",
        "ps_backend.limits:MOST_CALLS": "Passes over memory in one program",
        "ps_backend.limits:MOST_ARGUMENTS": "Arguments of one operation",
        "ps_backend.limits:MOST_PARAMS": "Integer parameters of one operation",
        "ps_backend.limits:MOST_OPERAND_EXTENTS": "Dimensions of an operand from the client",
        "ps_backend.limits:MOST_OPERAND_BYTES": "Size of the operands that the client sends along",
        "ps_backend.limits:MOST_PARTIAL_BYTES": "Size of the partial results of one program",
        "ps_backend.limits:MOST_FORCED_BYTES": "Size of pairs added to a donated array in one "
        "request",
        "ps_backend.transport.grpc_transport:MOST_REQUEST_BYTES": "Size of one gRPC request; "
        "larger data is sent in chunks",
        "ps_backend.transport.grpc_transport:MOST_REPLY_BYTES": "Size of one gRPC reply; larger "
        "data is sent in chunks",
        "ps_backend.transport.messages:MOST_BYTES": "Size of one message between Spark's tasks and "
        "the driver",
        "ps_backend.server.state.call_cache:MOST_ELEMENTS": "Elements of a repeated program that a "
        "server runs without scheduling",
        "ps_backend.limits:MOST_DETAILS": "Size of the description of a space, besides its length",
    },
    "Names, sessions, loops and rounds": {
        "ps_backend.limits:MOST_NAME": "Characters of the name of a session, round or loop",
        "ps_backend.limits:MOST_SIGNATURE": "Characters of the signature of a plug-in",
        "ps_backend.program.user_signatures:MOST_ARGUMENTS": "Arguments and results of a plug-in",
        "ps_backend.limits:MOST_TOTALS": "Arrays that one commit creates or one tick adds to",
        "ps_backend.limits:MOST_CLOCK": "Clocks of one worker of a loop",
        "ps_backend.server.state.clocks:MOST_RANKS": "Workers of one loop",
        "ps_backend.client.journal:MOST_LOSSES": "Losses of servers in a row that one request "
        'survives with `durability="replay"`',
        "ps_backend.server.state.barriers:MOST_WAITING": "Waiting requests on one server",
        "ps_backend.wire.protocol:MOST_VALUE_BYTES": "Size of one value that a task shares",
        "ps_backend.wire.protocol:MOST_ANSWER_BYTES": "Size of all replies of tasks to one request",
    },
    "Estimators": {
        "distvec.spark.ml.least_squares:MOST_FEATURES": "Features of a linear regression by normal "
        "equations",
    },
    "Connections": {
        "ps_backend.transport.framed_client:MOST_CONNECTIONS": "Fast connections of a client to "
        "one server; further requests use gRPC",
        "ps_backend.server.endpoints.framed_server:MOST_CONNECTIONS": "Authenticated local "
        "connections of a server",
        "ps_backend.server.endpoints.framed_server:MOST_STRANGERS": "Unauthenticated local "
        "connections; the oldest is closed",
        "ps_backend.server.endpoints.relay_process:MOST_CONNECTIONS": "Authenticated connections "
        "from other hosts",
        "ps_backend.server.endpoints.relay_process:MOST_STRANGERS": "Unauthenticated connections "
        "from other hosts; one is closed",
        "ps_backend.server.endpoints.authentication:MOST_SILENT": "Calls that wait for the client "
        "to continue",
        "ps_backend.server.endpoints.authentication:MOST_QUEUED": "Calls that wait for a thread",
    },
}


def page() -> str:
    """The text of the page."""
    parts = [_INTRODUCTION]
    for function, name, default, effect in ARGUMENTS:
        given = inspect.signature(function).parameters[name].default
        name_of = function.__qualname__
        call = name_of if "." in name_of else f"dv.{name_of}"
        parts.append(f"| `{call}({name}=)` | {default or _seconds(given)} | {effect} |\n")
    parts.append(f"{_SPARK}\n## Environment variables\n\n| Variable | Effect |\n|---|---|\n")
    parts += [f"| `{name}` | {effect} |\n" for name, effect in ENVIRONMENT.items()]
    parts.append("\n## Timeouts\n\nThese times are constants; no setting changes them.\n")
    for title, rows in TIMEOUTS.items():
        parts.append(f"\n### {title}\n\n| Timeout | Value |\n|---|---|\n")
        parts += [f"| {effect} | {_seconds(value(key))} |\n" for key, effect in rows.items()]
    parts.append("\n## Limits\n\nThese limits are constants. Only the memory of the servers is a ")
    parts.append("limit that you set: `memory=`.\n")
    for title, rows in LIMITS.items():
        parts.append(f"\n### {title}\n\n| Limit | Value |\n|---|---|\n")
        parts += [f"| {effect} | {_count(key)} |\n" for key, effect in rows.items()]
    return "".join([*parts, _END])


def value(key: str) -> float:
    """The constant that ``module:NAME`` names."""
    module, _, name = key.partition(":")
    return float(getattr(import_module(module), name))


def _seconds(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds > unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def _count(key: str) -> str:
    number = int(value(key))
    if key.endswith(("_BYTES", "MOST_DETAILS")):
        for size, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if number >= size:
                return f"{number // size} {name}"
    power = number.bit_length() - 1
    return f"2^{power}" if number > 10_000 and number == 1 << power else f"{number:,}"


if __name__ == "__main__":
    PAGE.write_text(page())
