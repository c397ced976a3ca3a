"""Starting the servers of a Spark application: beside the driver, or on executors."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark import SparkContext
from pyspark.resource import ResourceProfile

from distvec.spark.cluster.executors import ExecutorServers
from distvec.spark.cluster.supervised_servers import SupervisedServers
from distvec.spark.jobs.application import is_local
from ps_backend.arguments import NO_EXTENSIONS, Extensions, parse_size
from ps_backend.client import Client
from ps_backend.errors import PSError
from ps_backend.machine import usable_cores
from ps_backend.processes.launcher import LocalServers, launch_local

_HOST = "127.0.0.1"


class DriverServers(SupervisedServers):
    """Those that ``launch_local`` keeps running beside the driver, for ``local[N]``.

    Tasks there would take the slots of all other jobs. They end with the driver's process even if
    it is killed.
    """

    def __init__(
        self,
        servers: int,
        *,
        memory: int | None = None,
        threads: int | None = None,
        tls: bool | None = None,
        extensions: Extensions = NO_EXTENSIONS,
        spares: int = 0,
    ) -> None:
        """``memory``: budget of each in bytes; an equal share of 80 % of the machine's by default.

        ``threads`` of each: by default they share the machine's cores equally. ``tls`` None: they
        serve without, as only this machine reaches them.
        """
        share = max(1, usable_cores() // max(1, servers))
        super().__init__(
            servers, host=_HOST, threads=share if threads is None else threads, tls=tls
        )
        self._memory, self._extensions, self._spares = memory, extensions, spares
        self._local: LocalServers | None = None

    @property
    def failure(self) -> str:
        """Why a server will never run again, if so."""
        return "" if self._local is None else self._local.failure

    def _begin(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        try:
            self._local = launch_local(
                self.servers,
                memory=self._memory,
                token=self.token,
                timeout=timeout,
                threads=self.threads,
                restart=True,
                signer=self.signer,
                extensions=self._extensions,
                spares=self._spares,
            )
        except PSError as error:
            if time.monotonic() < deadline:
                raise
            raise PSError(f"{self._not_all_up(timeout)}. Seen: {error}") from None
        self.serve_directory(self._local, _HOST)

    def _end(self) -> None:
        if self._local is not None:
            self._local.stop()

    def _wait_until_serving(self, seconds: float) -> bool:
        return not self.failure


@dataclass(frozen=True)
class Options:
    """What the user said of the servers to start, as in ``PSContext.get_or_create``."""

    servers: int = 2
    memory: int | str | None = None
    cores: int | None = None
    resource_profile: ResourceProfile | None = None
    timeout: float = 30.0
    tls: bool | None = None
    extensions: Extensions = NO_EXTENSIONS
    spares: int = 0

    def refuse_others(
        self,
        memory: int | str | None,
        cores: int | None,
        resource_profile: ResourceProfile | None,
        spares: int | None = None,
    ) -> None:
        """ValueError for what is given and is not what running servers were started with."""
        asked = {
            "memory": memory, "cores": cores, "resource_profile": resource_profile,
            "spares": spares,
        }  # fmt: skip
        for name, value in asked.items():
            have = getattr(self, name)
            if value is not None and _normalize(value) != _normalize(have):
                raise ValueError(
                    f"{name}={_format_option(value)}, but a PSContext with "
                    f"{name}={_format_option(have)} is running; call stop() on it first, or "
                    f"leave {name} out to use it"
                )

    def refuse_other_extensions(self, asked: Extensions) -> None:
        """The same of plug-ins."""
        if asked != self.extensions:
            raise ValueError(
                f"a PSContext with plugins="
                f"{list(self.extensions.plugins)} is running; call stop() on it first, or leave "
                f"plugins out to use it"
            )


def _normalize(option: int | str | ResourceProfile | None) -> object:
    """What two equal options have in common: "2g" is 2 GiB, and profiles are what they require."""
    if isinstance(option, str):
        return parse_size(option)
    if isinstance(option, ResourceProfile):
        tasks = {name: one.amount for name, one in option.taskResources.items()}
        executors = {
            name: (one.amount, one.discoveryScript, one.vendor)
            for name, one in option.executorResources.items()
        }
        return tasks, executors
    return option


def _format_option(option: int | str | ResourceProfile | None) -> str:
    return str(_normalize(option)) if isinstance(option, ResourceProfile) else repr(option)


def start(
    spark_context: SparkContext, options: Options, former: Client | None = None
) -> tuple[SupervisedServers, Client]:
    """Running servers and a client with a session on them; or an error, and no servers.

    The session is for the arrays of ``former``, if that is given.
    """
    memory = None if options.memory is None else parse_size(options.memory)
    servers: SupervisedServers
    if is_local(spark_context.master):
        if options.resource_profile is not None:
            raise ValueError(
                f"resource_profile=... with master {spark_context.master!r}, but servers run "
                "beside the driver; leave it out"
            )
        servers = DriverServers(
            options.servers,
            memory=memory,
            threads=options.cores,
            tls=options.tls,
            extensions=options.extensions,
            spares=options.spares,
        )
    else:
        servers = ExecutorServers(
            spark_context,
            options.servers,
            memory=memory,
            cores=options.cores,
            resource_profile=options.resource_profile,
            tls=options.tls,
            extensions=options.extensions,
            spares=options.spares,
        )
    return servers, servers.start(options.timeout, former)
