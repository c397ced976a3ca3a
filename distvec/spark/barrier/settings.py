"""Settings of a barrier job, from the options of a session."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from ps_backend.arguments import check_seconds, parse_size, server_addresses
from ps_backend.client import Tls, tls_of

_SERVERS = 2
_SECONDS = 600.0
_PROBE_ROWS = 1 << 16
CONF = "spark.distvec."
_TOKEN_FILE = "DISTVEC_TOKEN_FILE"


@dataclass(frozen=True)
class Settings:
    """Settings of a barrier job, as plain data in its closure; they contain the token.

    Users set it as options of the session, such as ``spark.distvec.servers``.
    """

    tasks: int
    servers: int
    """That the tasks start; 0 with ``addresses``."""
    memory: int | None
    seconds: float
    """The tasks wait for each other so long."""
    addresses: tuple[str, ...]
    token: str
    tls: Tls | None
    secret: bytes
    """Signs the functions that the first task sends to the others."""

    @classmethod
    def of(cls, session: Any, slots: int, seconds: float) -> Settings:
        """Read the options of a session. ``ValueError`` for too many tasks or servers."""
        option = partial(_option, session)
        tasks = _count(option("tasks"), "tasks", slots)
        if tasks > slots:
            raise ValueError(
                f"{CONF}tasks={tasks}, but the application has {slots} slots, and the tasks of a "
                "fit must run at the same time; lower it, or give the application more cores"
            )
        addresses = option("addresses")
        given = tuple(server_addresses(addresses.split(","))) if addresses else ()
        servers = 0 if given else _count(option("servers"), "servers", min(_SERVERS, tasks))
        if servers > tasks:
            raise ValueError(
                f"{CONF}servers={servers}, but the fit has {tasks} tasks, and each one starts one "
                "server at most; lower it, or give the application more cores"
            )
        # Not an option: Spark Connect gives none back whose name looks like that of a secret.
        file = os.environ.get(_TOKEN_FILE, "")
        if given and not file:
            raise ValueError(
                f"{CONF}addresses needs the servers' token: set the environment variable "
                f"{_TOKEN_FILE} to the name of the file that has it"
            )
        return cls(
            tasks,
            servers,
            parse_size(option("memory")) if option("memory") else None,
            seconds,
            given,
            Path(file).read_text().strip() if given else secrets.token_urlsafe(32),
            tls_of(option("tls") or None),
            secrets.token_bytes(32),
        )


def timeout_of(session: Any) -> float:
    """The seconds for which tasks wait for each other."""
    seconds = float(_option(session, "timeout") or _SECONDS)
    check_seconds(f"{CONF}timeout", seconds)
    return seconds


def _option(session: Any, name: str) -> str:
    return str(session.conf.get(CONF + name, "") or "")


def _count(given: str, name: str, default: int) -> int:
    if not given:
        return default
    if not given.isdigit() or int(given) < 1:
        raise ValueError(f"{CONF}{name}={given!r}; must be a whole number, 1 or more")
    return int(given)


def count_slots(session: Any) -> int:
    """How many tasks can run at the same time: Spark splits a range into so many. One job.

    A barrier job with more tasks would wait for ten minutes until Spark refuses it.
    """
    numbers = session.range(_PROBE_ROWS).select(F.spark_partition_id().alias("partition"))
    return int(numbers.agg(F.max("partition")).first()[0]) + 1
