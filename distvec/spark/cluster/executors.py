"""Servers on Spark executors: an ordinary background job, one task per server.

Not a barrier job, since Spark never repeats the tasks of one. Here a lost task's server is placed
anew, by a job of its own: it begins empty, on any executor that has a slot to spare.

PySpark's handler of SIGINT calls ``cancelAllJobs``, and so would end the job whose tasks are the
servers, with all that they hold: ``CancelGuard`` spares it.
"""

from __future__ import annotations

import functools
import math
import time
import uuid
from collections import Counter
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests

from distvec.spark.cluster.registry import Registry
from distvec.spark.cluster.supervise import ServerSpec, supervise
from distvec.spark.cluster.supervised_servers import SupervisedServers
from distvec.spark.jobs.application import (
    YOUNG_SECONDS,
    BackgroundJob,
    all_slots,
    awaits_executors,
    has_stopped,
    seconds_since_start,
    slots,
)
from distvec.spark.jobs.failures import describe_failure
from ps_backend.arguments import NO_EXTENSIONS, Extensions
from ps_backend.errors import PSError
from ps_backend.processes.server_process import START_SECONDS


class CancelGuard:
    """While it is up, ``cancelAllJobs`` of a SparkContext spares the jobs of one group.

    A job that began some milliseconds ago may be spared, too, as Spark does not list it yet.
    """

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context, self._group = context, group
        self._cancel = self.cancel_others

    def up(self) -> None:
        """Take the place of the SparkContext's method, for this one object."""
        vars(self._context)["cancelAllJobs"] = self._cancel

    def down(self) -> None:
        """Give it back. Idempotent."""
        if vars(self._context).get("cancelAllJobs") is self._cancel:
            del vars(self._context)["cancelAllJobs"]

    def cancel_others(self) -> None:
        """Cancel all jobs that run or wait, but those of the group."""
        tracker = self._context.statusTracker()
        spared = set(tracker.getJobIdsForGroup(self._group))
        for job in tracker.getActiveJobsIds():
            if job not in spared:
                self._context._jsc.sc().cancelJob(job)


_STOP_SECONDS = 10.0
_CANCEL_SECONDS = 8.0
_POOL = "distvec"
_LOOK_SECONDS = 0.1
_ROOM_SECONDS = 0.5
"""It looks so often whether there is room for a lost server."""

_MOST_FAILURES = 3
"""After so many jobs in a row for a lost server that never came up, all is given up."""


class ExecutorServers(SupervisedServers):
    """Each is supervised by a task of a background job."""

    def __init__(
        self,
        spark_context: SparkContext,
        servers: int,
        *,
        memory: int | None = None,
        cores: int | None = None,
        resource_profile: ResourceProfile | None = None,
        tls: bool | None = None,
        extensions: Extensions = NO_EXTENSIONS,
        spares: int = 0,
    ) -> None:
        """``memory``: budget of each in bytes; 80 % of the machine's, shared as if all servers were
        on one, by default. ``cores`` of each: its threads, and what its task asks Spark for where
        that differs from ``spark.task.cpus``, the default. ``resource_profile`` says instead where
        the tasks may run. ``tls`` None: with TLS, if it can be had, unless the driver is on the
        loopback, and so all executors.
        """
        conf = spark_context.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        task_cores = max(1, int(float(conf.get("spark.task.cpus") or 1)))
        threads = task_cores if cores is None else cores
        super().__init__(servers, host=host, threads=threads, tls=tls)
        self.registry = Registry(servers)
        self.serve_directory(self.registry, conf.get("spark.driver.bindAddress") or host)
        self._orders = ServerSpec(
            self.registry_address,
            self.token,
            servers,
            memory,
            threads,
            tls=self.tls,
            extensions=extensions,
            spares=spares,
        )
        self._context = spark_context
        self._group = f"distvec-servers-{uuid.uuid4().hex}"
        self._guard = CancelGuard(spark_context, self._group)
        self._grows = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        self._elsewhere = resource_profile is not None
        if resource_profile is None and threads != task_cores:
            resource_profile = _profile_of(threads)
        self._profile = resource_profile
        self._slots_needed = servers * math.ceil(threads / task_cores)
        self._failures: Counter[int] = Counter()
        self._jobs: list[BackgroundJob[None]] = []
        self._placer = InheritableThread(target=self._place, name="distvec-placer", daemon=True)

    # --- starting and stopping --------------------------------------------------------------------

    def _begin(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._orders = replace(self._orders, start_seconds=max(timeout, START_SECONDS))
        self._guard.up()
        self._wait_for_executors(deadline)
        self._start_job(dict.fromkeys(range(self.servers), 0))
        self._placer.start()

    def _end(self) -> None:
        self._guard.down()
        self.registry.stop("the servers were stopped; start some: PSContext.get_or_create(spark)")
        seconds = 0.0 if self.registry.owned == 0 else _STOP_SECONDS
        deadline = time.monotonic() + seconds
        for job in self._jobs:
            job.join(deadline - time.monotonic())
        deadline = time.monotonic() + _CANCEL_SECONDS
        for job in self._jobs:  # tasks that wait for a slot hear of nothing else
            job.cancel(deadline - time.monotonic())

    def _wait_until_serving(self, seconds: float) -> bool:
        return self.registry.wait_until_serving(seconds)

    def _give_up(self, reason: str) -> None:
        self._failure = self._failure or f"{reason}; start again: PSContext.get_or_create(spark)"
        self.registry.stop(self._failure)

    def _wait_for_executors(self, deadline: float) -> None:
        """Let a young application get its executors, or all servers would be on the first one.

        Raises ``PSError`` if the servers would take all slots that it has then.
        """
        context, servers = self._context, self.servers
        while time.monotonic() < deadline and awaits_executors(context):
            young = seconds_since_start(context) < YOUNG_SECONDS
            if not self._lack() and not (young and len(slots(context)) < servers):
                break
            time.sleep(_LOOK_SECONDS)
        if lack := self._lack():
            raise PSError(f"{lack}. {_WHAT_TO_DO}")

    def _lack(self) -> str:
        """Why the servers should not all run, if so: they would leave no slot to other jobs."""
        if self._elsewhere or self._grows:
            return ""
        total = all_slots(self._context)
        if total > self._slots_needed:
            return ""
        servers, cores = self.servers, self.threads
        return (
            f"servers={servers} (cores={cores}) hold {self._slots_needed} slots as long as they "
            f"run, which would leave none for other jobs: the application has {total}"
        )

    def _not_all_up(self, timeout: float) -> str:
        got, wanted = self.registry.owned, self.servers
        seen = f"Seen: {self.registry.missing()}"
        if got == wanted:
            return f"{super()._not_all_up(timeout)}. {seen}"
        return (
            f"servers={wanted} need {wanted} free slots on executors "
            f"(cores={self.threads}), but only {got} came free in {timeout:g} s; there are "
            f"{all_slots(self._context)} for ordinary tasks. {_WHAT_TO_DO}, or end its other jobs. "
            f"{seen}"
        )

    # --- the jobs' threads ------------------------------------------------------------------------

    def _start_job(self, placements: dict[int, int]) -> None:
        """Start servers (by number) that were placed so often."""
        description = f"distvec: {len(placements)} of {self.servers} parameter servers"
        work = functools.partial(self._run_job, placements)
        job = BackgroundJob(self._context, work, self._group, description)
        self._jobs = [*(one for one in self._jobs if one.is_alive), job]

    def _run_job(self, placements: dict[int, int]) -> None:
        """Run them until the end; those whose job ended before are vacant then."""
        try:
            self._run_tasks(placements)
            reason = "it ended"
        except Exception as error:  # noqa: BLE001 - whatever ended it: nobody else would hear of it
            reason = describe_failure(error)
        for number, placement in placements.items():
            if self._stopping.is_set():
                return
            if has_stopped(self._context) or not self._vacate(number, placement):
                self._give_up(f"the Spark job of the servers failed: {reason}")
                return

    def _vacate(self, number: int, placement: int) -> bool:
        """A job of this number ended; False if it is no use to start another."""
        if self.registry.vacate(number, placement):
            self._failures[number] = 0
            return True
        self._failures[number] += 1
        if placement == 0 or self._failures[number] >= _MOST_FAILURES:
            return False
        self.registry.vacate(number, placement, served=True)
        return True

    def _run_tasks(self, placements: dict[int, int]) -> None:
        context, numbers = self._context, sorted(placements)
        context.clearJobTags()  # those of the caller, who may cancel by them
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        tasks = context.parallelize(numbers, len(numbers))
        if self._profile is not None:
            tasks = tasks.withResources(self._profile)
        orders = replace(self._orders, placement=max(placements.values()))
        tasks.mapPartitions(functools.partial(supervise, orders)).collect()

    def _place(self) -> None:
        """Give each lost server a job, as soon as it would not take the last slot of others."""
        while (number := self.registry.vacancy()) is not None:
            try:
                lack = self._lack()
            except (Py4JError, OSError, AttributeError):  # Spark is ending
                return
            if not lack:
                self._start_job({number: self.registry.place(number)})
                continue
            self.registry.hold_back(f"is not started again for want of slots: {lack}. {_WAITS}")
            if self.registry.wait_for_stop(_ROOM_SECONDS):
                return


_WHAT_TO_DO = "Start fewer servers, or give the application more executors or cores"
_WAITS = (
    "It restarts when there are more executors; or start fewer servers: ps.stop(), then "
    "PSContext.get_or_create(spark, servers=...)"
)


def _profile_of(cores: int) -> ResourceProfile:
    profile: ResourceProfile = (
        ResourceProfileBuilder().require(TaskResourceRequests().cpus(cores)).build
    )
    return profile
