"""A store, for programs that wait for each answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar, overload

from rcbox import _calls as calls
from rcbox._calls import Call, IncrementItem, ReadItem, TableBase, WriteItem, pairs
from rcbox._errors import ObjectDoesntExist, RcboxError, Unreachable, of_store
from rcbox._rcbox import RawCluster, StoreError
from rcbox._types import (
    Bytes,
    Conditions,
    ControlOutput,
    Incremented,
    Lease,
    LogMetrics,
    Object,
    PerfStats,
    Server,
    ServerConfig,
    Tablet,
    TabletStatistics,
    rules,
    unsigned,
)

R = TypeVar("R")
D = TypeVar("D")
K = TypeVar("K", bound=Bytes)


class Cluster:
    """A store.

    >>> with rcbox.Cluster("tcp:host=127.0.0.1,port=11100") as cluster:  # doctest: +SKIP
    ...     fruit = cluster.create_table("fruit")
    ...     fruit["apple"] = "green"
    ...     fruit["apple"].text()
    'green'

    ``coordinator``  its locator, or several separated by ``;``
    ``timeout_s``    a call that is not over after this raises ``Timeout``; until then it is tried again whenever that is safe
    ``spin_us``      how long to spin for an answer before sleeping: costs CPU time, saves the time to wake up

    Connections are opened when first needed. Any number of threads can call at a time; after a fork, the child needs a Cluster
    of its own.
    """

    def __init__(self, coordinator: str, timeout_s: float = 10.0, spin_us: int = 100) -> None:
        unsigned("spin_us", spin_us, 32)
        try:
            self._raw = RawCluster(coordinator, timeout_s, spin_us)
        except StoreError as error:
            raise of_store(error, "") from None
        self._coordinator = coordinator

    def close(self) -> None:
        """Closes all connections; what other threads wait for fails with ``Closed``. Closing again does nothing."""
        self._raw.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"rcbox.Cluster({self._coordinator!r})"

    def _run(self, call: Call[R]) -> R:
        try:
            answer = self._raw.run(call.raw)
        except StoreError as error:
            raise call.failure(error) from None
        return call.finish(answer)

    # Tables.

    def create_table(self, name: str, span: int = 1) -> Table:
        """Makes a table that is spread over ``span`` servers, or finds the one of that name."""
        return Table(self._run(calls.create_table(name, span)), name, self)

    def table(self, name: str) -> Table:
        """The table of that name, else ``TableDoesntExist``."""
        return Table(self._run(calls.table_id(name)), name, self)

    def drop_table(self, name: str) -> None:
        """Drops a table with all its objects; dropping one that is not there succeeds."""
        self._run(calls.drop_table(name))

    def split_tablet(self, name: str, key_hash: int) -> None:
        """Makes two tablets of the one that holds ``key_hash``, which becomes the first of the second. Nothing moves."""
        self._run(calls.split_tablet(name, key_hash))

    def table_config(self, table: TableBase) -> list[Tablet]:
        """Where its tablets are, as the coordinator knows it; empty if the table has been dropped."""
        return self._run(calls.table_config(table))

    # Objects of several tables.

    def multi_read(self, items: Iterable[ReadItem]) -> list[Object | RcboxError]:
        """Reads many objects, given as ``(table, key)`` or ``(table, key, Conditions(...))``.

        Gives for each, in order, the object or the exception that says why it was not read. See ``succeeded``.
        """
        return self._run(calls.multi_read(items))

    def multi_write(self, items: Iterable[WriteItem]) -> list[int | RcboxError]:
        """Writes many objects, given as ``(table, key, value)`` or ``(table, key, value, Conditions(...))``.

        Gives for each, in order, its new version or the exception that says why it was not written. Not atomic.
        """
        return self._run(calls.multi_write(items))

    def multi_remove(self, items: Iterable[ReadItem]) -> list[int | RcboxError]:
        """Removes many objects, given as ``(table, key)`` or ``(table, key, Conditions(...))``.

        Gives for each, in order, the version that was removed (0: there was none) or the exception that says why not.
        """
        return self._run(calls.multi_remove(items))

    def multi_increment(self, items: Iterable[IncrementItem]) -> list[Incremented[float] | RcboxError]:
        """Increments many objects, given as ``(table, key, by)`` or ``(table, key, by, Conditions(...))``; ``by`` is an int or a float.

        Gives for each, in order, the number as it is now or the exception that says why it was not changed. A part whose answer
        got lost may count twice.
        """
        return self._run(calls.multi_increment(items))

    # The store.

    def server_list(self) -> list[Server]:
        """The store's servers."""
        return self._run(calls.server_list())

    def acquire_lease(self) -> Lease:
        """Gets what the first write would have to wait for."""
        return self._run(calls.acquire_lease())

    def lease_info(self, lease_id: int) -> Lease:
        """When a client lease ends; its id is 0 if it has."""
        return self._run(calls.lease_info(lease_id))

    def hint_server_crashed(self, server_id: int) -> None:
        """Tells the coordinator that a server could not be reached."""
        self._run(calls.hint_server_crashed(server_id))

    def runtime_option(self, option: str) -> bytes:
        """An option of the coordinator."""
        return self._run(calls.runtime_option(option))

    def set_runtime_option(self, option: str, value: str) -> None:
        """Sets an option of the coordinator."""
        self._run(calls.set_runtime_option(option, value))

    def control_all(self, operation: int, input: Bytes = b"") -> list[ControlOutput]:
        """A control operation for every server; those that did not answer in time, or refused it, are missing."""
        return self._run(calls.control_all(operation, input))

    def log_message_all(self, level: int, text: str) -> None:
        """Has every server write a line to its log. Levels: 1 error, 2 warning, 3 notice, 4 debug."""
        self._run(calls.log_message_all(level, text))

    def perf_stats_all(self) -> dict[int, PerfStats]:
        """The performance counters of every server, by server id."""
        return self._run(calls.perf_stats_all())

    # One server, by its locator. Not tried again: Unreachable.

    def ping(self, locator: str) -> None:
        """Is anybody there? Else ``Unreachable``."""
        self._run(calls.ping(locator))

    def server_id(self, locator: str) -> int | None:
        """Who is there? ``None`` for a coordinator, or a server that is in no store yet."""
        return self._run(calls.server_id(locator))

    def server_config(self, locator: str) -> ServerConfig:
        """How it was started."""
        return self._run(calls.server_config(locator))

    def server_statistics(self, locator: str) -> list[TabletStatistics]:
        """What its tablets were used for."""
        return self._run(calls.server_statistics(locator))

    def metrics(self, locator: str) -> dict[str, int]:
        """Names and numbers."""
        return self._run(calls.metrics(locator))

    def log_metrics(self, locator: str) -> LogMetrics:
        """What happened in its log."""
        return self._run(calls.log_metrics(locator))

    def echo(self, locator: str, data: Bytes, answer_bytes: int) -> bytes:
        """Sends bytes there and gets ``answer_bytes`` of its own back."""
        return self._run(calls.echo(locator, data, answer_bytes))

    def proxy_ping(self, locator: str, server_id: int, timeout_s: float) -> float | None:
        """Has it ping another server: seconds that took, ``None`` if that did not answer in time."""
        return self._run(calls.proxy_ping(locator, server_id, timeout_s))

    def kill(self, locator: str) -> None:
        """Ends it, if it was started with ``--allowTestRpcs``."""
        with suppress(Unreachable):  # it says nothing any more
            self._run(calls.kill(locator))


@dataclass(frozen=True, repr=False)
class Table(TableBase):
    """A table of a store: a mapping of keys to objects, whose order means nothing.

    Keys and values are ``bytes`` or texts, which are stored in UTF-8. Conditions (``if_absent`` ...) are those of ``Conditions``; they are
    tested in the same moment as the operation takes effect.
    """

    _cluster: Cluster = field(compare=False)

    def __repr__(self) -> str:
        return f"<rcbox.Table {self.name!r}>"

    # One object. Each operation is linearizable, and takes effect once.

    def read(
        self,
        key: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Object:
        """Reads an object, else ``ObjectDoesntExist``."""
        return self._cluster._run(calls.read(self, key, rules(if_absent, if_exists, if_version, if_newer_than)))

    @overload
    def get(self, key: Bytes) -> Object | None: ...
    @overload
    def get(self, key: Bytes, default: D) -> Object | D: ...
    def get(self, key: Bytes, default: D | None = None) -> Object | D | None:
        """Reads an object, or gives ``default`` if there is none."""
        try:
            return self.read(key)
        except ObjectDoesntExist:
            return default

    def read_keys(
        self,
        key: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Object:
        """Reads an object with all its keys: ``object.keys``."""
        return self._cluster._run(calls.read_keys(self, key, rules(if_absent, if_exists, if_version, if_newer_than)))

    def write(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> int:
        """Writes an object; gives its new version."""
        return self._cluster._run(calls.write(self, key, value, rules(if_absent, if_exists, if_version, if_newer_than)))

    def write_keys(
        self,
        keys: Iterable[Bytes],
        value: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> int:
        """Writes an object with several keys, the first of them the primary one, by which it is found."""
        return self._cluster._run(
            calls.write_keys(self, keys, value, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    def remove(
        self,
        key: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> int:
        """Removes an object; gives the version that was removed, 0 if there was none."""
        return self._cluster._run(calls.remove(self, key, rules(if_absent, if_exists, if_version, if_newer_than)))

    def increment(
        self,
        key: Bytes,
        by: int = 1,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Incremented[int]:
        """Adds to a value of 8 bytes that is a little-endian integer; one that is not there counts as 0. Wraps around."""
        return self._cluster._run(
            calls.increment(self, key, by, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    def increment_float(
        self,
        key: Bytes,
        by: float,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Incremented[float]:
        """Adds to a value of 8 bytes that is a little-endian floating point number; one that is not there counts as 0."""
        return self._cluster._run(
            calls.increment_float(self, key, by, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    # Many objects at a time, in few messages to all servers at once. Not atomic. Conditions hold for each of them.

    def multi_read(
        self,
        keys: Iterable[Bytes],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[Object | RcboxError]:
        """Reads many objects: for each, in order, the object or the exception that says why not. See ``succeeded``."""
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return self._cluster.multi_read((self, key, conditions) for key in keys)

    def multi_write(
        self,
        objects: Mapping[K, Bytes] | Iterable[tuple[K, Bytes]],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[int | RcboxError]:
        """Writes many objects, keys with values: for each, in order, its new version or the exception that says why not."""
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return self._cluster.multi_write((self, key, value, conditions) for key, value in pairs(objects))

    def multi_remove(
        self,
        keys: Iterable[Bytes],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[int | RcboxError]:
        """Removes many objects: for each, in order, the version that was removed (0: none) or the exception that says why not."""
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return self._cluster.multi_remove((self, key, conditions) for key in keys)

    def multi_increment(
        self,
        objects: Mapping[K, float] | Iterable[tuple[K, float]],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[Incremented[float] | RcboxError]:
        """Increments many objects, keys with what to add: for each, in order, the number as it is now or the exception that says
        why not. A part whose answer got lost may count twice."""
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return self._cluster.multi_increment((self, key, by, conditions) for key, by in pairs(objects))

    # The whole table.

    def scan(self, *, keys_only: bool = False) -> Iterator[Object]:
        """All objects, fetched as the iteration goes on. ``keys_only`` leaves their values at the servers.

        What is there from beginning to end comes at least once, while tablets are split and moved; in rare cases twice.
        """
        position = None
        while True:
            objects, position = self._cluster._run(calls.scan_page(self, keys_only, position))
            yield from objects
            if position is None:
                return

    # The server that owns a key.

    def perf_stats(self, key: Bytes) -> PerfStats:
        """The performance counters of the server that owns ``key``."""
        return self._cluster._run(calls.perf_stats(self, key))

    def server_control(self, key: Bytes, operation: int, input: Bytes = b"") -> ControlOutput:
        """A control operation for the server that owns ``key``."""
        return self._cluster._run(calls.server_control(self, key, operation, input))

    def fill_with_test_data(self, objects: int, object_bytes: int) -> None:
        """Makes objects for tests, if the servers were started with ``--allowTestRpcs`` and the table has one tablet.

        If an answer gets lost, what is sent again raises ``ObjectExists``.
        """
        self._cluster._run(calls.fill_with_test_data(self, objects, object_bytes))

    # As a mapping.

    def __getitem__(self, key: Bytes) -> Object:
        return self.read(key)

    def __setitem__(self, key: Bytes, value: Bytes) -> None:
        self.write(key, value)

    def __delitem__(self, key: Bytes) -> None:
        self.remove(key, if_exists=True)

    def __contains__(self, key: Bytes) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[bytes]:
        return self.keys()

    def keys(self) -> Iterator[bytes]:
        """All keys; see ``scan``."""
        return (object.key for object in self.scan(keys_only=True))

    def items(self) -> Iterator[tuple[bytes, Object]]:
        """All keys with their objects; see ``scan``."""
        return ((object.key, object) for object in self.scan())
