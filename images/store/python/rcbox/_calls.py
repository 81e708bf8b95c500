"""Every call, described once: what is asked for, and what to make of the answer.

``rcbox.Cluster`` runs a call and waits, ``rcbox.aio.Cluster`` awaits it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rcbox import _rcbox
from rcbox._errors import InvalidArgument, RcboxError, of_store
from rcbox._rcbox import RawCall, RawPosition, StoreError
from rcbox._types import (
    NO_RULES,
    Bytes,
    Conditions,
    ControlOutput,
    Incremented,
    Lease,
    LogMetrics,
    MasterConfig,
    Object,
    PerfStats,
    Rules,
    Server,
    ServerConfig,
    Tablet,
    TabletStatistics,
    as_bytes,
    unsigned,
)

A = TypeVar("A")
R = TypeVar("R")
K = TypeVar("K", bound=Bytes)

Keyed = tuple[int, tuple[bytes, ...], bytes]


@dataclass(frozen=True)
class TableBase:
    """What the tables of both kinds of clusters have in common."""

    id: int
    name: str


class Call(Generic[R]):
    """A call that is described and not made yet; to be made once."""

    __slots__ = ("_about", "_finish", "raw")

    def __init__(self, raw: RawCall[Any], finish: Callable[[Any], R], about: tuple[Any, ...]) -> None:
        self.raw = raw
        self._finish = finish
        self._about = about

    def finish(self, answer: Any) -> R:
        """What to make of the answer."""
        return self._finish(answer)

    def failure(self, error: StoreError) -> RcboxError:
        """What users see of a failure."""
        return of_store(error, describe(*self._about))


def describe(what: str = "", key: bytes | None = None) -> str:
    """What an operation was about, for the text of an error."""
    if key is None:
        return what
    shown = key if len(key) <= 64 else key[:61] + b"..."
    return f"table {what!r}, key {shown!r}"


def same(answer: R) -> R:
    return answer


def call(
    make: Callable[..., RawCall[A]], finish: Callable[[A], R], *arguments: Any, about: tuple[Any, ...] = ()
) -> Call[R]:
    try:
        return Call(make(*arguments), finish, about)
    except StoreError as error:
        raise of_store(error, describe(*about)) from None


# Tables.


def create_table(name: str, span: int) -> Call[int]:
    unsigned("span", span, 32)
    return call(_rcbox.create_table, same, name, span, about=(f"table {name!r}",))


def table_id(name: str) -> Call[int]:
    return call(_rcbox.table_id, same, name, about=(f"table {name!r}",))


def drop_table(name: str) -> Call[None]:
    return call(_rcbox.drop_table, same, name, about=(f"table {name!r}",))


def split_tablet(name: str, key_hash: int) -> Call[None]:
    unsigned("key_hash", key_hash, 64)
    return call(_rcbox.split_tablet, same, name, key_hash, about=(f"table {name!r}",))


def table_config(table: TableBase) -> Call[list[Tablet]]:
    return call(_rcbox.table_config, lambda tablets: [Tablet(*tablet) for tablet in tablets], table.id)


# One object.


def read(table: TableBase, key: Bytes, rules: Rules) -> Call[Object]:
    found = as_bytes(key)
    return call(
        _rcbox.read,
        lambda answer: Object(answer[1], answer[0], (found,)),
        table.id,
        found,
        rules,
        about=(table.name, found),
    )


def whole(answer: Keyed) -> Object:
    version, keys, value = answer
    return Object(value, version, keys)


def read_keys(table: TableBase, key: Bytes, rules: Rules) -> Call[Object]:
    key = as_bytes(key)
    return call(_rcbox.read_keys, whole, table.id, key, rules, about=(table.name, key))


def write(table: TableBase, key: Bytes, value: Bytes, rules: Rules) -> Call[int]:
    key = as_bytes(key)
    return call(_rcbox.write, same, table.id, key, as_bytes(value), rules, about=(table.name, key))


def write_keys(table: TableBase, keys: Iterable[Bytes], value: Bytes, rules: Rules) -> Call[int]:
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError("keys is a list of keys, the primary one first; for an object with one key use write")
    all_keys = [as_bytes(key) for key in keys]
    about = (table.name, all_keys[0] if all_keys else b"")
    return call(_rcbox.write_keys, same, table.id, all_keys, as_bytes(value), rules, about=about)


def remove(table: TableBase, key: Bytes, rules: Rules) -> Call[int]:
    key = as_bytes(key)
    return call(_rcbox.remove, same, table.id, key, rules, about=(table.name, key))


def increment(table: TableBase, key: Bytes, by: int, rules: Rules) -> Call[Incremented[int]]:
    key = as_bytes(key)
    if not isinstance(by, int):
        raise TypeError(f"increment adds an int, not {by!r}; for floating point numbers there is increment_float")
    return call(
        _rcbox.increment,
        lambda now: Incremented(now[1], now[0]),
        table.id,
        key,
        signed(by),
        rules,
        about=(table.name, key),
    )


def increment_float(table: TableBase, key: Bytes, by: float, rules: Rules) -> Call[Incremented[float]]:
    key = as_bytes(key)
    return call(
        _rcbox.increment_float,
        lambda now: Incremented(now[1], now[0]),
        table.id,
        key,
        float(by),
        rules,
        about=(table.name, key),
    )


def signed(by: int) -> int:
    if not -(1 << 63) <= by < 1 << 63:
        raise InvalidArgument(f"an increment is a signed number of 64 bits; {by} is not", "INVALID")
    return by


# Many objects. Each item: what to do, with conditions or without.

ReadItem = tuple[TableBase, Bytes] | tuple[TableBase, Bytes, Conditions]
WriteItem = tuple[TableBase, Bytes, Bytes] | tuple[TableBase, Bytes, Bytes, Conditions]
IncrementItem = tuple[TableBase, Bytes, float] | tuple[TableBase, Bytes, float, Conditions]


def parts(item: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    """The parts of an item, with rules at the end and the table's id; what it is about besides."""
    if len(item) == length:
        return (*item, NO_RULES)
    if len(item) == length + 1 and isinstance(item[-1], Conditions):
        return (*item[:-1], item[-1].rules())
    raise TypeError(f"an object of a multi-op is given by {length} values and perhaps Conditions, not {item!r}")


def each(
    about: list[tuple[str, bytes]], finish: Callable[[int, Any], R]
) -> Callable[[list[Any]], list[R | RcboxError]]:
    """What to make of the outcomes of all objects; those that failed become exceptions, which are not raised."""

    def outcomes(answers: list[Any]) -> list[R | RcboxError]:
        return [
            of_store(answer, describe(*about[at])) if isinstance(answer, StoreError) else finish(at, answer)
            for at, answer in enumerate(answers)
        ]

    return outcomes


def multi_read(items: Iterable[ReadItem]) -> Call[list[Object | RcboxError]]:
    about, objects = [], []
    for item in items:
        table, given, rules = parts(item, 2)
        key = as_bytes(given)
        about.append((table.name, key))
        objects.append((table.id, key, rules))
    return call(_rcbox.multi_read, each(about, lambda _, answer: whole(answer)), objects)


def multi_remove(items: Iterable[ReadItem]) -> Call[list[int | RcboxError]]:
    about, objects = [], []
    for item in items:
        table, given, rules = parts(item, 2)
        key = as_bytes(given)
        about.append((table.name, key))
        objects.append((table.id, key, rules))
    return call(_rcbox.multi_remove, each(about, version), objects)


def multi_write(items: Iterable[WriteItem]) -> Call[list[int | RcboxError]]:
    about, objects = [], []
    for item in items:
        table, given, value, rules = parts(item, 3)
        key = as_bytes(given)
        about.append((table.name, key))
        objects.append((table.id, key, as_bytes(value), rules))
    return call(_rcbox.multi_write, each(about, version), objects)


def multi_increment(items: Iterable[IncrementItem]) -> Call[list[Incremented[float] | RcboxError]]:
    about, objects, formats = [], [], []
    for item in items:
        table, given, by, rules = parts(item, 3)
        key = as_bytes(given)
        integer, real = (signed(by), 0.0) if isinstance(by, int) else (0, float(by))
        about.append((table.name, key))
        objects.append((table.id, key, integer, real, rules))
        formats.append("<q" if isinstance(by, int) else "<d")

    def incremented(at: int, now: tuple[int, bytes]) -> Incremented[float]:
        return Incremented(struct.unpack(formats[at], now[1])[0], now[0])

    return call(_rcbox.multi_increment, each(about, incremented), objects)


def version(_at: int, answer: int) -> int:
    return answer


def pairs(objects: Mapping[K, R] | Iterable[tuple[K, R]]) -> Iterable[tuple[K, R]]:
    """Keys with something each, as a mapping or as pairs."""
    return objects.items() if isinstance(objects, Mapping) else objects


# A whole table.


def scan_page(
    table: TableBase, keys_only: bool, position: RawPosition | None
) -> Call[tuple[list[Object], RawPosition | None]]:
    def page(answer: tuple[list[Keyed], RawPosition | None]) -> tuple[list[Object], RawPosition | None]:
        return [whole(one) for one in answer[0]], answer[1]

    return call(_rcbox.scan_page, page, table.id, keys_only, position, about=(f"table {table.name!r}",))


# The store.


def server_list() -> Call[list[Server]]:
    return call(_rcbox.server_list, lambda servers: [Server(*server) for server in servers])


def acquire_lease() -> Call[Lease]:
    return call(_rcbox.acquire_lease, lambda lease: Lease(*lease))


def lease_info(lease_id: int) -> Call[Lease]:
    unsigned("lease_id", lease_id, 64)
    return call(_rcbox.lease_info, lambda lease: Lease(*lease), lease_id)


def hint_server_crashed(server_id: int) -> Call[None]:
    unsigned("server_id", server_id, 64)
    return call(_rcbox.hint_server_crashed, same, server_id)


def runtime_option(option: str) -> Call[bytes]:
    return call(_rcbox.runtime_option, same, option, about=(f"runtime option {option!r}",))


def set_runtime_option(option: str, value: str) -> Call[None]:
    return call(_rcbox.set_runtime_option, same, option, value, about=(f"runtime option {option!r}",))


def server_control(table: TableBase, key: Bytes, operation: int, input: Bytes) -> Call[ControlOutput]:
    key = as_bytes(key)
    unsigned("operation", operation, 32)
    return call(
        _rcbox.server_control,
        lambda output: ControlOutput(*output),
        table.id,
        key,
        operation,
        as_bytes(input),
        about=(table.name, key),
    )


def control_all(operation: int, input: Bytes) -> Call[list[ControlOutput]]:
    unsigned("operation", operation, 32)
    return call(_rcbox.control_all, lambda all: [ControlOutput(*one) for one in all], operation, as_bytes(input))


def log_message_all(level: int, text: str) -> Call[None]:
    unsigned("level", level, 32)
    return call(_rcbox.log_message_all, same, level, text)


def perf_stats(table: TableBase, key: Bytes) -> Call[PerfStats]:
    key = as_bytes(key)
    return call(_rcbox.perf_stats, lambda stats: PerfStats(**stats), table.id, key, about=(table.name, key))


def perf_stats_all() -> Call[dict[int, PerfStats]]:
    return call(_rcbox.perf_stats_all, lambda all: {id: PerfStats(**stats) for id, stats in all})


def fill_with_test_data(table: TableBase, objects: int, object_bytes: int) -> Call[None]:
    unsigned("objects", objects, 32)
    unsigned("object_bytes", object_bytes, 32)
    about = (f"table {table.name!r}",)
    return call(_rcbox.fill_with_test_data, same, table.id, objects, object_bytes, about=about)


# One server.


def ping(locator: str) -> Call[None]:
    return call(_rcbox.ping, same, locator, about=(locator,))


def server_id(locator: str) -> Call[int | None]:
    return call(_rcbox.server_id, same, locator, about=(locator,))


def server_config(locator: str) -> Call[ServerConfig]:
    def config(answer: dict[str, Any]) -> ServerConfig:
        master = answer.pop("master")
        return ServerConfig(**answer, master=None if master is None else MasterConfig(**master))

    return call(_rcbox.server_config, config, locator, about=(locator,))


def server_statistics(locator: str) -> Call[list[TabletStatistics]]:
    return call(
        _rcbox.server_statistics,
        lambda tablets: [TabletStatistics(*tablet) for tablet in tablets],
        locator,
        about=(locator,),
    )


def metrics(locator: str) -> Call[dict[str, int]]:
    return call(_rcbox.metrics, lambda pairs: dict(pairs), locator, about=(locator,))


def log_metrics(locator: str) -> Call[LogMetrics]:
    return call(_rcbox.log_metrics, lambda metrics: LogMetrics(**metrics), locator, about=(locator,))


def echo(locator: str, data: Bytes, answer_bytes: int) -> Call[bytes]:
    unsigned("answer_bytes", answer_bytes, 32)
    return call(_rcbox.echo, same, locator, as_bytes(data), answer_bytes, about=(locator,))


def proxy_ping(locator: str, server_id: int, timeout_s: float) -> Call[float | None]:
    unsigned("server_id", server_id, 64)
    return call(_rcbox.proxy_ping, same, locator, server_id, timeout_s, about=(locator,))


def kill(locator: str) -> Call[None]:
    return call(_rcbox.kill, same, locator, about=(locator,))
