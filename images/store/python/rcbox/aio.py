"""A store, for programs that wait for many things at a time: the calls of ``rcbox.Cluster``, awaited.

>>> async with rcbox.aio.Cluster("tcp:host=127.0.0.1,port=11100") as cluster:  # doctest: +SKIP
...     fruit = await cluster.create_table("fruit")
...     await asyncio.gather(*(fruit.write(f"apple {n}", "green") for n in range(1000)))
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar, overload

from rcbox import _calls as calls
from rcbox import _cluster
from rcbox._calls import Call, IncrementItem, ReadItem, TableBase, WriteItem, pairs
from rcbox._errors import Closed, InvalidArgument, ObjectDoesntExist, RcboxError, Unreachable, of_store
from rcbox._rcbox import RawAsyncCluster, StoreError
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

__all__ = ["Cluster", "Table"]

R = TypeVar("R")
D = TypeVar("D")
K = TypeVar("K", bound=Bytes)

#: Calls of one Cluster that are under way at a time; others wait for their turn.
MAX_UNDER_WAY = 1024


class Cluster:
    """A store, beside one event loop. Arguments as for ``rcbox.Cluster``; it does not spin unless it is told to.

    All calls share one connection to each server, served by a thread that is not Python's. A task that is cancelled gives its
    call up, which may take effect all the same.
    """

    def __init__(self, coordinator: str, timeout_s: float = 10.0, spin_us: int = 0) -> None:
        unsigned("spin_us", spin_us, 32)
        try:
            self._raw = RawAsyncCluster(coordinator, timeout_s, spin_us)
        except StoreError as error:
            raise of_store(error, "") from None
        self._coordinator = coordinator
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: dict[int, asyncio.Future[Any]] = {}
        self._turns = asyncio.Semaphore(MAX_UNDER_WAY)

    async def close(self) -> None:
        """Closes all connections; calls that are under way fail with ``Closed``. Closing again does nothing."""
        self._raw.close()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._raw.fileno())
        under_way, self._under_way = self._under_way, {}
        for future in under_way.values():
            if not future.done():
                text = "the client was closed while the operation was under way; it may have taken effect all the same"
                future.set_exception(Closed(text, "CLOSED"))

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"rcbox.aio.Cluster({self._coordinator!r})"

    async def _run(self, call: Call[R]) -> R:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise InvalidArgument("this client belongs to another event loop; make one for each loop", "INVALID")
        async with self._turns:
            try:
                number = self._raw.start(call.raw)
                if self._loop is None:
                    loop.add_reader(self._raw.fileno(), self._take_ended)
                    self._loop = loop
                future = self._under_way[number] = loop.create_future()
                try:
                    answer = await future
                finally:
                    if self._under_way.pop(number, None) is not None:  # cancelled
                        self._raw.cancel(number)
            except StoreError as error:
                raise call.failure(error) from None
        return call.finish(answer)

    def _take_ended(self) -> None:
        """Hands out what came; the event loop calls it when something has."""
        for number, is_result, outcome in self._raw.take_ended():
            future = self._under_way.pop(number, None)
            if future is None or future.done():
                continue
            if is_result:
                future.set_result(outcome)
            else:
                future.set_exception(outcome)

    # Tables.

    async def create_table(self, name: str, span: int = 1) -> Table:
        return Table(await self._run(calls.create_table(name, span)), name, self)

    async def table(self, name: str) -> Table:
        return Table(await self._run(calls.table_id(name)), name, self)

    async def drop_table(self, name: str) -> None:
        await self._run(calls.drop_table(name))

    async def split_tablet(self, name: str, key_hash: int) -> None:
        await self._run(calls.split_tablet(name, key_hash))

    async def table_config(self, table: TableBase) -> list[Tablet]:
        return await self._run(calls.table_config(table))

    # Objects of several tables.

    async def multi_read(self, items: Iterable[ReadItem]) -> list[Object | RcboxError]:
        return await self._run(calls.multi_read(items))

    async def multi_write(self, items: Iterable[WriteItem]) -> list[int | RcboxError]:
        return await self._run(calls.multi_write(items))

    async def multi_remove(self, items: Iterable[ReadItem]) -> list[int | RcboxError]:
        return await self._run(calls.multi_remove(items))

    async def multi_increment(self, items: Iterable[IncrementItem]) -> list[Incremented[float] | RcboxError]:
        return await self._run(calls.multi_increment(items))

    # The store.

    async def server_list(self) -> list[Server]:
        return await self._run(calls.server_list())

    async def acquire_lease(self) -> Lease:
        return await self._run(calls.acquire_lease())

    async def lease_info(self, lease_id: int) -> Lease:
        return await self._run(calls.lease_info(lease_id))

    async def hint_server_crashed(self, server_id: int) -> None:
        await self._run(calls.hint_server_crashed(server_id))

    async def runtime_option(self, option: str) -> bytes:
        return await self._run(calls.runtime_option(option))

    async def set_runtime_option(self, option: str, value: str) -> None:
        await self._run(calls.set_runtime_option(option, value))

    async def control_all(self, operation: int, input: Bytes = b"") -> list[ControlOutput]:
        return await self._run(calls.control_all(operation, input))

    async def log_message_all(self, level: int, text: str) -> None:
        await self._run(calls.log_message_all(level, text))

    async def perf_stats_all(self) -> dict[int, PerfStats]:
        return await self._run(calls.perf_stats_all())

    # One server, by its locator. Not tried again: Unreachable.

    async def ping(self, locator: str) -> None:
        await self._run(calls.ping(locator))

    async def server_id(self, locator: str) -> int | None:
        return await self._run(calls.server_id(locator))

    async def server_config(self, locator: str) -> ServerConfig:
        return await self._run(calls.server_config(locator))

    async def server_statistics(self, locator: str) -> list[TabletStatistics]:
        return await self._run(calls.server_statistics(locator))

    async def metrics(self, locator: str) -> dict[str, int]:
        return await self._run(calls.metrics(locator))

    async def log_metrics(self, locator: str) -> LogMetrics:
        return await self._run(calls.log_metrics(locator))

    async def echo(self, locator: str, data: Bytes, answer_bytes: int) -> bytes:
        return await self._run(calls.echo(locator, data, answer_bytes))

    async def proxy_ping(self, locator: str, server_id: int, timeout_s: float) -> float | None:
        return await self._run(calls.proxy_ping(locator, server_id, timeout_s))

    async def kill(self, locator: str) -> None:
        with suppress(Unreachable):  # it says nothing any more
            await self._run(calls.kill(locator))


@dataclass(frozen=True, repr=False)
class Table(TableBase):
    """A table of a store: the calls of ``rcbox.Table``, awaited."""

    _cluster: Cluster = field(compare=False)

    def __repr__(self) -> str:
        return f"<rcbox.aio.Table {self.name!r}>"

    # One object. Each operation is linearizable, and takes effect once.

    async def read(
        self,
        key: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Object:
        return await self._cluster._run(calls.read(self, key, rules(if_absent, if_exists, if_version, if_newer_than)))

    @overload
    async def get(self, key: Bytes) -> Object | None: ...
    @overload
    async def get(self, key: Bytes, default: D) -> Object | D: ...
    async def get(self, key: Bytes, default: D | None = None) -> Object | D | None:
        try:
            return await self.read(key)
        except ObjectDoesntExist:
            return default

    async def read_keys(
        self,
        key: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Object:
        return await self._cluster._run(
            calls.read_keys(self, key, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    async def write(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> int:
        return await self._cluster._run(
            calls.write(self, key, value, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    async def write_keys(
        self,
        keys: Iterable[Bytes],
        value: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> int:
        return await self._cluster._run(
            calls.write_keys(self, keys, value, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    async def remove(
        self,
        key: Bytes,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> int:
        return await self._cluster._run(calls.remove(self, key, rules(if_absent, if_exists, if_version, if_newer_than)))

    async def increment(
        self,
        key: Bytes,
        by: int = 1,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Incremented[int]:
        return await self._cluster._run(
            calls.increment(self, key, by, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    async def increment_float(
        self,
        key: Bytes,
        by: float,
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> Incremented[float]:
        return await self._cluster._run(
            calls.increment_float(self, key, by, rules(if_absent, if_exists, if_version, if_newer_than))
        )

    # Many objects at a time, in few messages to all servers at once. Not atomic. Conditions hold for each of them.

    async def multi_read(
        self,
        keys: Iterable[Bytes],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[Object | RcboxError]:
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return await self._cluster.multi_read((self, key, conditions) for key in keys)

    async def multi_write(
        self,
        objects: Mapping[K, Bytes] | Iterable[tuple[K, Bytes]],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[int | RcboxError]:
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return await self._cluster.multi_write((self, key, value, conditions) for key, value in pairs(objects))

    async def multi_remove(
        self,
        keys: Iterable[Bytes],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[int | RcboxError]:
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return await self._cluster.multi_remove((self, key, conditions) for key in keys)

    async def multi_increment(
        self,
        objects: Mapping[K, float] | Iterable[tuple[K, float]],
        *,
        if_absent: bool = False,
        if_exists: bool | None = None,
        if_version: int | None = None,
        if_newer_than: int | None = None,
    ) -> list[Incremented[float] | RcboxError]:
        conditions = Conditions(if_absent, if_exists, if_version, if_newer_than)
        return await self._cluster.multi_increment((self, key, by, conditions) for key, by in pairs(objects))

    # The whole table.

    async def scan(self, *, keys_only: bool = False) -> AsyncIterator[Object]:
        position = None
        while True:
            objects, position = await self._cluster._run(calls.scan_page(self, keys_only, position))
            for one in objects:
                yield one
            if position is None:
                return

    # The server that owns a key.

    async def perf_stats(self, key: Bytes) -> PerfStats:
        return await self._cluster._run(calls.perf_stats(self, key))

    async def server_control(self, key: Bytes, operation: int, input: Bytes = b"") -> ControlOutput:
        return await self._cluster._run(calls.server_control(self, key, operation, input))

    async def fill_with_test_data(self, objects: int, object_bytes: int) -> None:
        await self._cluster._run(calls.fill_with_test_data(self, objects, object_bytes))


def _copy_docs() -> None:
    """The calls are the same, and so is what there is to say about them."""
    for here, there in ((Cluster, _cluster.Cluster), (Table, _cluster.Table)):
        for name, function in inspect.getmembers(here, inspect.isfunction):
            if function.__doc__ is None and not name.startswith("_"):
                function.__doc__ = getattr(there, name).__doc__


_copy_docs()
