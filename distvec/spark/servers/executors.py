"""Servers on Spark executors: one ordinary background job, one task per server.

Not a barrier job, since Spark never repeats the tasks of one. Here a lost task alone runs again,
mostly on another executor; its server begins empty.
"""

from __future__ import annotations

import functools
import secrets
import threading
import time
import uuid
import warnings

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests

from distvec.spark.application import has_stopped, reason_of, seconds_since_start, slots
from distvec.spark.servers.registry import Registry
from distvec.spark.servers.registry_service import RegistryService
from distvec.spark.servers.shield import Shield
from distvec.spark.servers.supervise import Orders, supervise
from ps_backend.errors import PSError

_STOP_SECONDS = 10.0
_CANCEL_SECONDS = 8.0
_POOL = "distvec"
_YOUNG_SECONDS = 15.0
_LOOK_SECONDS = 0.1


class ExecutorServers:
    """``servers`` running servers, each supervised by a task of a background job."""

    def __init__(
        self,
        spark_context: SparkContext,
        servers: int,
        *,
        memory: int | None = None,
        cores: int | None = None,
        resource_profile: ResourceProfile | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Start the job and wait until all servers answer.

        ``memory``: budget of each in bytes; 80 % of the machine's, shared as if all servers were on
        one, by default. ``cores`` of each: its threads, and what its task asks Spark for where
        that differs from ``spark.task.cpus``, the default. ``resource_profile`` says instead where
        the tasks may run. ``PSError`` if not all answer in ``timeout`` seconds.
        """
        if servers < 1:
            raise ValueError(f"servers must be 1 or more, got {servers}")
        if cores is not None and cores < 1:
            raise ValueError(f"cores must be 1 or more, got {cores}")
        self.token = secrets.token_urlsafe(32)
        self.registry = Registry(servers)
        self.failure = ""
        """Why the job ended for good, if it did."""
        self._context = spark_context
        self._group = f"distvec-servers-{uuid.uuid4().hex}"
        self._shield = Shield(spark_context, self._group)
        self._stopping = threading.Event()
        conf = spark_context.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        bind = conf.get("spark.driver.bindAddress") or host
        self._service = RegistryService(self.registry, host, bind, self.token)
        task_cores = max(1, int(float(conf.get("spark.task.cpus") or 1)))
        threads = task_cores if cores is None else cores
        if resource_profile is None and threads != task_cores:
            resource_profile = _profile_of(threads)
        self._profile = resource_profile
        self._orders = Orders(self.registry_address, self.token, servers, memory, threads)
        self._thread = InheritableThread(target=self._run_jobs, name="distvec-servers", daemon=True)
        deadline = time.monotonic() + timeout
        self._shield.up()
        try:
            self._wait_for_executors(deadline)
            self._thread.start()
            self._wait(deadline, timeout)
        except BaseException:
            self.stop()
            raise

    @property
    def registry_address(self) -> tuple[str, int]:
        """Where the registry answers who knows the token."""
        return self._service.address

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, on the executors' machines; 0 for a server that is being replaced."""
        return self.registry.pids

    def diagnose(self, address: str) -> str | None:
        """What is known of the server at ``address`` if it is lost."""
        return self.failure or self.registry.diagnose(address)

    def stop(self) -> None:
        """End all servers, wait for them, and end the job; idempotent.

        Costs at most some seconds, also if the SparkContext has stopped or the JVM is gone.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._shield.down()
        self.registry.stop("the servers were stopped; start some: PSContext.get_or_create(spark)")
        if self._thread.is_alive():
            self._thread.join(0.0 if self.registry.owned == 0 else _STOP_SECONDS)
        if self._thread.is_alive() and not has_stopped(self._context):
            self._cancel()
        self._service.close()

    def _cancel(self) -> None:
        """Cancel the job: tasks that wait for a slot hear of nothing else."""
        deadline = time.monotonic() + _CANCEL_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            try:
                self._context.cancelJobGroup(self._group)
            except (Py4JError, OSError, AttributeError):
                return  # Spark is ending, and its jobs with it
            self._thread.join(1.0)

    # --- starting ---------------------------------------------------------------------------------

    def _wait_for_executors(self, deadline: float) -> None:
        """Let a young application get its executors, or all servers would be on the first one."""
        while (
            len(slots(self._context)) < self.registry.servers
            and seconds_since_start(self._context) < _YOUNG_SECONDS
            and time.monotonic() < deadline
        ):
            time.sleep(_LOOK_SECONDS)

    def _wait(self, deadline: float, timeout: float) -> None:
        if self.registry.wait_until_serving(max(0.0, deadline - time.monotonic())):
            self._warn_of_full_cluster()
            return
        if self.failure:
            raise PSError(self.failure)
        total, cores = sum(slots(self._context)), self._orders.threads
        raise PSError(_not_all_up(self.registry, total, cores, timeout))

    def _warn_of_full_cluster(self) -> None:
        conf = self._context.getConf()
        total = sum(slots(self._context))
        if self._profile is None and total <= self.registry.servers:
            if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
                return
            warnings.warn(
                f"the {self.registry.servers} servers take all {total} slots of the cluster, so "
                "no other job can run; give the application more executors or cores, or ask for "
                "fewer servers",
                RuntimeWarning,
                stacklevel=7,  # who called get_or_create
            )

    # --- the job's thread -------------------------------------------------------------------------

    def _run_jobs(self) -> None:
        """Run the job, and again if Spark gave it up after it had served."""
        while not self._stopping.is_set():
            try:
                self._run_job()
                reason = "it ended"
            except Exception as error:  # noqa: BLE001 - whatever ended it: nobody else would hear of it
                reason = reason_of(error)
            if self._stopping.is_set():
                return
            if has_stopped(self._context) or not self.registry.begin_again():
                self._give_up(reason)
                return

    def _run_job(self) -> None:
        context = self._context
        description = f"distvec: {self.registry.servers} parameter servers"
        context.setJobGroup(self._group, description, interruptOnCancel=True)
        context.clearJobTags()  # those of the caller, who may cancel by them
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        numbers = context.parallelize(range(self.registry.servers), self.registry.servers)
        if self._profile is not None:
            numbers = numbers.withResources(self._profile)
        numbers.mapPartitionsWithIndex(functools.partial(supervise, self._orders)).collect()

    def _give_up(self, reason: str) -> None:
        self.failure = (
            f"the Spark job of the servers failed: {reason}; start again: "
            "PSContext.get_or_create(spark)"
        )
        self.registry.stop(self.failure)


def _profile_of(cores: int) -> ResourceProfile:
    profile: ResourceProfile = (
        ResourceProfileBuilder().require(TaskResourceRequests().cpus(cores)).build
    )
    return profile


def _not_all_up(registry: Registry, total: int, cores: int, seconds: float) -> str:
    got, wanted = registry.owned, registry.servers
    if got == wanted:
        return f"not all of the {wanted} servers answered in {seconds:g} s; pass a longer timeout"
    return (
        f"servers={wanted} need {wanted} free slots on executors (cores={cores}), but only {got} "
        f"came free in {seconds:g} s; there are {total} for ordinary tasks. Ask for fewer servers, "
        "give the application more executors or cores, or end its other jobs"
    )
