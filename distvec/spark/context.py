"""A session whose servers live beside a Spark application, and what ends with its last user."""

from __future__ import annotations

import atexit
import itertools
import logging
import operator
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, overload

from pyspark import RDD, SparkContext
from pyspark.resource import ResourceProfile
from pyspark.sql import DataFrame, SparkSession

from distvec import DistArray
from distvec.array.core.handle import Handle
from distvec.durability.policy import Durability
from distvec.keyed.array import KeyedArray
from distvec.session import Directory, Opener
from distvec.spark.cluster.start import Options, start
from distvec.spark.cluster.supervised_servers import SupervisedServers
from distvec.spark.jobs.application import classic_context, has_stopped, is_local
from distvec.spark.jobs.interpreter import send_wheel, use_this_python
from distvec.spark.rounds.accumulate import Function, Into, accumulate
from distvec.spark.rounds.contribute import Contributor, KeyedContributor
from distvec.spark.rounds.round import Block, Shared, check_arrays, check_keyed, open_round
from distvec.spark.rounds.shared import TaskArray, open_share
from distvec.spark.task_session import TaskSession
from ps_backend.arguments import (
    check_seconds,
    extensions,
    server_addresses,
    server_count,
    whole_count,
)
from ps_backend.client import Client, Tls, tls_of
from ps_backend.errors import PSError
from ps_backend.limits import check

Action = Callable[[], object]

_LOG = logging.getLogger(__name__)


class Hold:
    """Something in use: when the last reference to this object goes, its action runs."""


class FinalizerQueue:
    """A thread for actions that finalizers may not take: calls of Spark and of servers.

    A finalizer may run in the midst of another such call, so it only puts the action on a queue.
    """

    def __init__(self) -> None:
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="distvec-spark-finalizers", daemon=True).start()

    def hold(self, action: Action) -> Hold:
        """An object whose end is the sign for ``action``, which must not refer to it."""
        hold = Hold()
        weakref.finalize(hold, self._actions.put, action).atexit = False
        return hold

    def close(self) -> None:
        """End the thread, after what is on the queue; returns at once."""
        self._actions.put(None)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            try:
                action()
            except Exception:  # noqa: BLE001 - Spark or a server is ending, and its things with it
                _LOG.debug("what was forgotten could not be ended", exc_info=True)
            del action  # or it would live until the next one comes


_MANY = 16
"""With so many, and twice as many as at the last time, the JVM is asked which are still there."""


class HeldByPlans:
    """Arrays that tasks of lazy frames will pull, for as long as Spark has a plan that asks them.

    A frame made of a scored one is another object in Python, and so is a view; what all their plans
    share is the JVM's function object. The arrays go with it.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, list[Handle]]] = {}
        self._numbers = itertools.count()
        self._many = _MANY

    def hold(self, context: SparkContext, function: Any, arrays: list[Handle]) -> None:
        """Keep ``arrays`` until the JVM has collected ``function``, its object."""
        jvm: Any = context._jvm
        self.free()
        if len(self._held) >= self._many:
            jvm.System.gc()
            self.free()
            self._many = max(_MANY, 2 * len(self._held))
        self._held[next(self._numbers)] = jvm.java.lang.ref.WeakReference(function), arrays

    def free(self) -> None:
        """Give up the arrays of plans that are gone."""
        for number, (reference, _) in list(self._held.items()):
            if reference.get() is None:
                self._held.pop(number, None)

    def __len__(self) -> int:
        return len(self._held)


class FittedModels:
    """The models of arrays that objectives have seen, while those are there; by identity.

    The last objective counts.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Handle], Callable[[Any], Any]]] = {}

    def add(self, array: Handle, make: Callable[[Any], Any]) -> None:
        """``make(parameters)`` is the model; it must not refer to ``array``."""
        number, known = id(array), self._known
        known[number] = weakref.ref(array, lambda _: known.pop(number, None)), make

    def get(self, array: Handle) -> Callable[[Any], Any] | None:
        """The function that makes a model of it; None if no objective has seen it."""
        found = self._known.get(id(array))
        return found[1] if found is not None and found[0]() is array else None


class SessionStandIn:
    """Takes the place of a SparkSession where there is none, as in the tasks of a barrier job."""

    def __init__(self, context: PSContext | None) -> None:
        self.context = context


_WATCH_SECONDS = 1.0
_MOST_SPARES = 16
STOPPED = (
    "this PSContext was stopped and its arrays were freed; start one with "
    "PSContext.get_or_create(spark), and create the arrays again"
)


class PSContext(TaskSession):
    """Parameter servers for one SparkContext: a ``Session`` that Spark tasks can join.

    Get it with ``PSContext.get_or_create(spark)``. There is one for each SparkContext. It ends
    with ``stop()``, with the SparkContext, or with the interpreter.

    Parameters
    ----------
    spark_context : SparkContext
        The Spark application.
    client : Client
        The connection to the servers.
    token : str
        The servers' token.
    servers : SupervisedServers, optional
        The servers, if this context started them.
    options : Options, optional
        The options that they were started with.
    tls : Tls, optional
        The certificates of the servers.
    durability : Durability, optional
        Whether solvers and loops continue after the loss of a server.
    opener : Opener, optional
        How to open a session on other servers. Required by ``resize``.

    Attributes
    ----------
    spark_context : SparkContext
        The Spark application.

    See Also
    --------
    distvec.connect : Connect to servers without Spark.

    Examples
    --------
    >>> from distvec.spark import PSContext
    >>> ps = PSContext.get_or_create(spark, servers=2)
    >>> w = ps.zeros(3)
    >>> float(w.sum())
    0.0
    """

    _active: ClassVar[PSContext | None] = None
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        spark_context: SparkContext,
        client: Client,
        token: str,
        servers: SupervisedServers | None = None,
        options: Options | None = None,
        tls: Tls | None = None,
        durability: Durability | None = None,
        opener: Opener | None = None,
    ) -> None:
        super().__init__(spark_context, client, token, servers, tls, durability, opener)
        client.closed_message = STOPPED
        self.finalizers = FinalizerQueue()
        """Ends what belongs to this context and nobody holds any more."""
        self.scored = HeldByPlans()
        """Weights of models that lazy frames will pull."""
        self.fitted = FittedModels()
        """The models that weights are of."""
        self.standing_tasks: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those whose tasks stay, for ``release_slots``."""
        self._options = Options() if options is None else options
        self._stopped = threading.Event()
        atexit.register(self.stop)
        threading.Thread(target=self._watch, name="distvec-spark-watch", daemon=True).start()

    @classmethod
    def get_or_create(
        cls,
        spark: SparkSession | SparkContext,
        *,
        servers: int | None = None,
        addresses: str | Sequence[str] | None = None,
        token: str | None = None,
        memory: int | str | None = None,
        cores: int | None = None,
        resource_profile: ResourceProfile | None = None,
        timeout: float = 30.0,
        lease: float | None = None,
        tls: bool | str | Path | None = None,
        durability: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        plugins: Sequence[str] | None = None,
        spares: int | None = None,
    ) -> PSContext:
        """Return the context of a SparkContext; start servers for it if there are none.

        Parameters
        ----------
        spark : SparkSession or SparkContext
            The Spark application.
        servers : int, default 2
            The number of server processes to start.
        addresses : str or sequence of str, optional
            Connect to servers that ``distvec serve`` started, such as ``"host:port,host:port"``.
            The executors must reach them under the same names.
        token : str, optional
            The token of the servers at ``addresses``.
        memory : int or str, optional
            Memory limit of each started server, in bytes or as ``"2g"``.
        cores : int, optional
            Threads of each started server. On a cluster, if it differs from ``spark.task.cpus``,
            the task of a server asks for so many.
        resource_profile : ResourceProfile, optional
            On a cluster, the resources of the executors that run servers. It replaces ``cores``.
        timeout : float, default 30.0
            Seconds in which all servers must be running.
        lease : float, optional
            Seconds after which servers at ``addresses`` free the arrays of a dead process, as for
            ``distvec.connect``.
        tls : bool or path, optional
            Whether tasks, driver and servers communicate by TLS. By default they do if they are
            not on the loopback interface and the package ``cryptography`` is installed. With
            ``addresses``, the file with the certificate of the authority that signed the servers'
            certificates.
        durability : {"none", "rollback"}, optional
            With ``"rollback"`` solvers and ``run`` store their states at ``checkpoint``. After the
            loss of a server they restore the last one and continue to bitwise identical results.
            By default ``"none"``.
        checkpoint : str or path, optional
            A directory that driver and servers can access, or a URL.
        plugins : sequence of str, optional
            Modules that the started servers load. Their Python must find them.
        spares : int, default 0
            Number of processes that wait to replace a server that exits: on a cluster beside each
            server, for a lost executor they do not help. Each takes about 60 MB of memory.

        Returns
        -------
        PSContext
            The running context, or a new one.

        Raises
        ------
        PSError
            If the servers do not all run within ``timeout``, or if they would leave no slot for
            Spark jobs.
        ValueError
            If a context with other servers or options is running.

        Notes
        -----
        With a ``local[N]`` master servers run beside the driver. On a cluster they run on
        executors, in one task each, and occupy these slots as long as the context exists.

        A server that dies, gives no sign for ten seconds, or is lost with its executor is replaced
        by an empty one. Operations that need the lost arrays raise ``ServerLost`` with their
        buffer ids. All other operations wait for the new server, up to half a minute from the
        loss, and continue.

        A running context is discarded if its SparkContext has stopped, if its servers can no
        longer be replaced, or if servers at ``addresses`` do not answer.
        """
        if isinstance(spark, SessionStandIn):
            return spark.context  # type: ignore[return-value]  # None is for who does not use it
        spark_context = classic_context(spark)
        check_seconds("timeout", timeout)
        if servers is not None:
            servers = whole_count(servers)
        wanted = _addresses(addresses)
        added = extensions(plugins or ())
        if wanted is not None and plugins is not None:
            raise ValueError(
                "plugins= is for servers started here; start servers at addresses= with distvec "
                "serve --plugin package.module"
            )
        if wanted is not None and spares is not None:
            raise ValueError("spares= is for servers started here; leave it out with addresses=")
        if spares is not None:
            check("spares", operator.index(spares), 0, _MOST_SPARES)
        if wanted is not None and servers is not None and servers != len(wanted):
            raise ValueError(
                f"servers={servers}, but addresses= has {len(wanted)}; leave servers out"
            )
        if wanted is None and lease is not None:
            raise ValueError(
                "lease= goes with addresses=: servers started here end with the driver"
            )
        with cls._lock:
            running = cls._active
            if running is not None:
                if running.spark_context is spark_context and running._is_usable:
                    running._refuse_change(servers, wanted)
                    running._options.refuse_others(memory, cores, resource_profile, spares)
                    if plugins is not None:
                        running._options.refuse_other_extensions(added)
                    running._refuse_other_tls(tls)
                    running.durability.refuse_others(durability, checkpoint)
                    return running
                running.stop()
            level = Durability(durability or "none", checkpoint)
            if level.replays:
                raise ValueError(
                    "durability='replay' repeats the requests of this process, but not those "
                    "that Spark tasks have sent; use durability='rollback'"
                )
            if wanted is not None:
                cls._active = cls._connect(spark_context, wanted, token, lease, tls, level)
                return cls._active
            number = Options.servers if servers is None else servers
            if tls is not None and not isinstance(tls, bool):
                raise TypeError(
                    f"tls={tls!r}; servers started here make their own certificates: tls=True"
                )
            options = Options(
                number, memory, cores, resource_profile, timeout, tls, added, spares or 0
            )
            cls._active = cls._start(spark_context, options, level)
            return cls._active

    @classmethod
    def active(cls) -> PSContext:
        """Return the running context.

        Returns
        -------
        PSContext
            The context.

        Raises
        ------
        RuntimeError
            If there is no running context.
        """
        running = cls._active
        if running is None or running.is_stopped:
            raise RuntimeError(
                "no PSContext is running; start one first: PSContext.get_or_create(spark)"
            )
        return running

    @classmethod
    def _connect(
        cls,
        spark_context: SparkContext,
        addresses: tuple[str, ...],
        token: str | None,
        lease: float | None,
        tls: bool | str | Path | None,
        level: Durability,
    ) -> PSContext:
        if token is None:
            raise ValueError("addresses need the servers' token: pass token=...")
        if tls is True:
            raise ValueError(
                "tls=True with addresses; pass the file with the certificate of the authority that "
                "signed the servers': tls='authority.pem'"
            )
        use_this_python(spark_context)
        send_wheel(spark_context)
        trusted = tls_of(tls or None)

        def begin(
            addresses: str | Sequence[str], former: Client | None = None
        ) -> tuple[Client, None]:
            client = Client.connect(
                server_addresses(addresses), token=token, lease=lease, tls=trusted,
                restarts=level.survives, former=former,
            )  # fmt: skip
            return client, None

        client, _ = begin(addresses)
        opener = Opener(begin, has_disk=False)
        return cls(spark_context, client, token, tls=trusted, durability=level, opener=opener)

    @classmethod
    def _start(cls, spark_context: SparkContext, options: Options, level: Durability) -> PSContext:
        use_this_python(spark_context)
        send_wheel(spark_context)

        def begin(servers: int, former: Client | None = None) -> tuple[Client, SupervisedServers]:
            wanted = replace(options, servers=server_count(servers))
            started, client = start(spark_context, wanted, former)
            return client, started

        client, servers = begin(options.servers)
        opener = Opener(begin, has_disk=is_local(spark_context.master))
        try:
            return cls(
                spark_context, client, servers.token, servers, options, servers.tls, level, opener
            )
        except BaseException:
            servers.stop()
            raise

    def __repr__(self) -> str:
        if self.is_stopped:
            return f"<{type(self).__name__}: stopped>"
        addresses = ", ".join(self.client.addresses)
        return (
            f"<{type(self).__name__}: servers at {addresses}, for the Spark application "
            f"{self.spark_context.appName!r} on {self.spark_context.master}>"
        )

    @property
    def is_stopped(self) -> bool:
        """Whether ``stop`` has run, or the SparkContext has stopped."""
        return self._stopped.is_set() or has_stopped(self.spark_context)

    @property
    def server_pids(self) -> list[int]:
        """Process ids of the servers that this context started; empty with ``addresses``.

        On a cluster these are ids on the executors' machines. The id is 0 while a server is being
        replaced.
        """
        return [] if self._servers is None else list(self._servers.pids)

    @overload
    def round(self, array: DistArray, /, *, op: str = ...) -> AbstractContextManager[Contributor]:
        """Of one array: yields its contributor."""

    @overload
    def round(
        self, array: KeyedArray, /, *, op: str = ...
    ) -> AbstractContextManager[KeyedContributor]:
        """Of one keyed array: yields its contributor."""

    @overload
    def round(
        self, first: DistArray, second: DistArray, /, *more: DistArray, op: str = ...
    ) -> AbstractContextManager[tuple[Contributor, ...]]:
        """Of several: yields a contributor for each, in their order."""

    @overload
    def round(
        self, first: Shared, second: Shared, /, *more: Shared, op: str = ...
    ) -> AbstractContextManager[tuple[Any, ...]]:
        """The same, of which some are keyed."""

    def round(self, *arrays: Shared, op: str = "add") -> AbstractContextManager[Any]:
        """Let Spark tasks contribute to arrays, so that each partition counts exactly once.

        Use it in a ``with`` statement. At the end of the block each array is rebound to its value
        combined with the contributions, in the order of the partitions.

        Parameters
        ----------
        *arrays : DistArray or KeyedArray
            The arrays of this session.
        op : {"add", "min", "max"}, default "add"
            The operation that combines contributions.

        Returns
        -------
        context manager
            It yields a contributor for each array, or for a single array this contributor. Tasks
            call its ``push(indices, values)``.

        Raises
        ------
        RoundClosed
            In a task that pushes after the end of the block.
        OutOfBudget
            If servers have no room for new keys of a keyed array. No array is changed then.

        Warns
        -----
        UserWarning
            If no task ran in the block.

        Notes
        -----
        Retried tasks, speculative copies and lost executors count once. So results are bitwise
        identical to a run without faults. Other references to the old values keep them. If the
        block raises, the arrays keep their values.

        As with Spark's accumulators each action counts. So contribute in an action, instead of a
        transformation that several actions evaluate.

        A round costs the data that the tasks send, and one request per server; with keyed arrays
        three. The servers hold all contributions until the end of the block. Contributors of keyed
        arrays have ``push(keys, values)``, ``assign``, ``step`` and ``apply``. They take effect at
        the end of the block, by partition, and change the arrays in place.
        """
        return Block(open_round(self, arrays, op), "with ps.round(g) as r: ... r.push(...)")

    def accumulate(
        self, data: RDD[Any] | DataFrame, function: Function, /, *, into: Into, op: str = "add"
    ) -> None:
        """Combine arrays with the results of a function for each partition of some data.

        It is a ``round`` with its action: ``ps.accumulate(rdd, gradient_of, into=g)``.

        Parameters
        ----------
        data : RDD or DataFrame
            The rows.
        function : callable
            It takes an iterator over the rows of a partition; rows of a DataFrame are ``Row``
            objects. It returns a pair of indices and values (keys and values for a keyed array),
            an array of all values, or None. Or it yields any number of these. With several arrays
            it returns a tuple or a dict with one of these for each.
        into : DistArray or KeyedArray, or a sequence or dict of arrays
            The arrays to combine. With a dict, the function may omit names.
        op : {"add", "min", "max"}, default "add"
            The operation.

        Raises
        ------
        ServerLost
            If a part of the old value of ``into`` was lost. A keyed array has lost a part with any
            server.
        Exception
            The exception of ``function``, once Spark has tried the task as often as configured.
            The trace of the task is its cause.

        Warns
        -----
        RuntimeWarning
            If the round is repeated.

        Notes
        -----
        The round is repeated up to three times if a server or executors were lost, or if Spark
        repeated a stage ambiguously. So ``function`` may run several times for a partition, and
        counts once. If it raises, ``into`` keeps its value. It costs one Spark job, the data that
        the tasks send, and one request per server; with keyed arrays three.
        """
        self.release_slots()
        accumulate(self, data, function, into, op)

    @overload
    def share(self, array: DistArray) -> AbstractContextManager[TaskArray]:
        """Yields what tasks read and add to."""

    @overload
    def share(self, array: KeyedArray) -> AbstractContextManager[KeyedArray]:
        """Yields the array itself."""

    def share(self, array: DistArray | KeyedArray) -> AbstractContextManager[Any]:
        """Let Spark tasks read an array and add to it at any time, as Hogwild! does.

        Use it in a ``with`` statement. At the end of the block the array is rebound to the final
        values.

        Parameters
        ----------
        array : DistArray or KeyedArray
            The array.

        Returns
        -------
        context manager
            It yields an object with ``pull`` and ``push`` for tasks, and ``snapshot`` for the
            driver. A keyed array yields itself.

        See Also
        --------
        round : Count each partition exactly once.

        Notes
        -----
        All tasks see a push immediately. It counts at least once, because Spark may repeat a task.
        Other references to the old values keep them. If the block raises, the array keeps its
        value. The block costs one request per server at its start and at its end. A keyed array
        changes in place, and keeps its changes even if the block raises.
        """
        if isinstance(array, KeyedArray):
            check_keyed(self, array)
            return nullcontext(array)
        check_arrays(self, [array])
        return Block(open_share(self, array), "with ps.share(w) as shared: ... shared.push(...)")

    def resize(self, servers: int | str | Sequence[str], *, checkpoint: Directory = None) -> None:
        """Move all arrays to more, fewer or other servers.

        As ``distvec.Session.resize``: arrays, keyed arrays, models and objectives stay valid, and
        later results are bitwise identical to those without the call. If it raises an error, the
        context is unchanged.

        Parameters
        ----------
        servers : int or str or sequence of str
            The number of servers: new ones are started, and the former ones stop. For a context
            with ``addresses``, the addresses of all servers that are to hold the arrays.
        checkpoint : str or path-like, optional
            Directory or URL through which the arrays move. All servers must reach it. Default: the
            context's ``checkpoint=``, and for a ``local`` master a temporary directory.

        Raises
        ------
        PSError
            In a block of ``round`` or ``share``, during ``run``, if the new servers do not all
            run, or if another thread changed an array meanwhile.
        ValueError
            If the servers run on executors, or were given by ``addresses``, and there is no
            ``checkpoint``.
        OutOfBudget
            If the servers have too little memory.
        StoreFailed
            If the files cannot be written or read.

        Notes
        -----
        Resident tasks of objectives end, and start again with the next evaluation. On a cluster the
        former and the new servers need slots at the same time. Call it between Spark jobs that use
        the servers: tasks that began before, and lazy frames of models on the servers that were
        made before, still ask the former ones.

        Examples
        --------
        >>> from distvec.spark import PSContext
        >>> ps = PSContext.get_or_create(spark, servers=2)
        >>> w = ps.arange(4.0)
        >>> ps.resize(1)
        >>> len(ps.server_pids), float(w.sum())
        (1, 6.0)
        >>> ps.resize(2)
        """
        if self._work:
            raise PSError(f"resize() within {self._work[-1]}: call it when that has ended")
        self.release_slots()
        super().resize(servers, checkpoint=checkpoint)

    def release_slots(self) -> None:
        """End resident tasks that wait, so that another Spark job gets their slots immediately.

        The next evaluation starts them again.
        """
        for resident in list(self.standing_tasks):
            resident.close()

    def make_way(self) -> None:
        """Deprecated: use ``release_slots``."""
        warnings.warn(
            "PSContext.make_way() is deprecated; use release_slots()",
            DeprecationWarning,
            stacklevel=2,
        )
        self.release_slots()

    @property
    def _is_usable(self) -> bool:
        if self.is_stopped:
            return False
        if self._servers is not None:
            return not self._servers.failure
        return not self.client.lost or _answers(self.client)

    def stop(self) -> None:
        """Close the session and stop the servers that this context started.

        Stopping again has no effect.
        """
        self.close()

    def close(self) -> None:
        """Close the context, as ``stop`` does."""
        cls = type(self)
        with cls._lock:
            if cls._active is self:
                cls._active = None
            if self._stopped.is_set():
                return
            self._stopped.set()
        atexit.unregister(self.stop)
        self.finalizers.close()
        if self._servers is not None:
            self._servers.stop()  # first: or the client would wait for one that is lost
        super().close()

    def _watch(self) -> None:
        """Servers must not outlive the SparkContext; it tells nobody in Python that it stopped."""
        while not self._stopped.wait(_WATCH_SECONDS):
            if has_stopped(self.spark_context):
                self.stop()

    def _refuse_other_tls(self, asked: bool | str | Path | None) -> None:
        if asked is not None and bool(asked) != (self._tls is not None):
            raise ValueError(
                f"tls={asked!r}, but a PSContext {'with' if self._tls else 'without'} TLS is "
                "running; call stop() on it first, or leave tls out to use it"
            )

    def _refuse_change(self, servers: int | None, addresses: tuple[str, ...] | None) -> None:
        have = tuple(self.client.addresses)
        if servers is not None and servers != len(have):
            raise ValueError(
                f"servers={servers}, but a PSContext with {len(have)} is running; "
                "call stop() on it first, or leave servers out to use it"
            )
        if addresses is not None and addresses != have:
            raise ValueError(
                f"addresses={','.join(addresses)!r}, but a PSContext with {','.join(have)!r} is "
                "running; call stop() on it first, or leave addresses out to use it"
            )


def _answers(client: Client) -> bool:
    try:
        client.status()
    except PSError:
        return False
    return True


def _addresses(addresses: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if addresses is None:
        return None
    parts = addresses.split(",") if isinstance(addresses, str) else addresses
    return tuple(part.strip() for part in parts)
