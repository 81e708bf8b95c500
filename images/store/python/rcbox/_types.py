"""What calls take and give."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rcbox._errors import InvalidArgument

#: Keys and values: bytes, or a text that is stored in UTF-8.
Bytes = bytes | bytearray | memoryview | str
Number = TypeVar("Number", bound=float, covariant=True)

#: Given version, and whether to refuse if the object: is absent, is there, has at most the version, has not the version.
Rules = tuple[int, bool, bool, bool, bool]
NO_RULES: Rules = (0, False, False, False, False)


class Object(bytes):
    """An object as it was read. It is its value: compare it, slice it, write it like any ``bytes``."""

    #: Grows with every write of this key; never 0.
    version: int
    #: All keys, the primary one first (a secondary key that is missing is empty). A plain ``read`` knows only the key that
    #: it was given.
    keys: tuple[bytes, ...]

    def __new__(cls, value: bytes = b"", version: int = 0, keys: tuple[bytes, ...] = ()) -> Object:
        self = super().__new__(cls, value)
        self.version = version
        self.keys = keys
        return self

    @property
    def key(self) -> bytes:
        """The key by which the object is found."""
        return self.keys[0] if self.keys else b""

    @property
    def value(self) -> bytes:
        """The value, as nothing but ``bytes``."""
        return bytes(self[:])

    def text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The value as a text."""
        return self.decode(encoding, errors)

    def int64(self) -> int:
        """The number that ``increment`` adds to: 8 bytes, little-endian, signed."""
        self._check_eight_bytes()
        return int.from_bytes(self, "little", signed=True)

    def float64(self) -> float:
        """The number that ``increment_float`` adds to: 8 bytes, little-endian."""
        self._check_eight_bytes()
        (number,) = struct.unpack("<d", self)
        return float(number)

    def __repr__(self) -> str:
        return f"Object({self.value!r}, version={self.version}, keys={self.keys!r})"

    def __str__(self) -> str:
        return self.__repr__()

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.value, self.version, self.keys

    def _check_eight_bytes(self) -> None:
        if len(self) != 8:
            raise InvalidArgument(f"a number has 8 bytes; this value has {len(self)}", "INVALID")


@dataclass(frozen=True)
class Incremented(Generic[Number]):
    """A number after it was added to."""

    value: Number
    version: int


@dataclass(frozen=True)
class Conditions:
    """When an operation takes effect; otherwise it is refused. All of them have to hold.

    ``if_absent``      there is no object with this key, else ``ObjectExists``
    ``if_exists``      there is one, else ``ObjectDoesntExist``
    ``if_version``     it has this version, else ``WrongVersion``
    ``if_newer_than``  it has a later version than this, else ``WrongVersion``

    The conditions about versions imply ``if_exists``; with ``if_exists=False`` they let an object pass that is not there, as
    RAMCloud's own reject rules do.
    """

    if_absent: bool = False
    if_exists: bool | None = None
    if_version: int | None = None
    if_newer_than: int | None = None

    def rules(self) -> Rules:
        """As the store has them: when to refuse."""
        return rules(self.if_absent, self.if_exists, self.if_version, self.if_newer_than)


def rules(if_absent: bool, if_exists: bool | None, if_version: int | None, if_newer_than: int | None) -> Rules:
    """Conditions of taking effect as reasons to refuse."""
    if not if_absent and not if_exists and if_version is None and if_newer_than is None:
        return NO_RULES
    if if_version is not None and if_newer_than is not None:
        raise InvalidArgument("give if_version or if_newer_than, not both", "INVALID")
    version = if_version if if_version is not None else if_newer_than
    if version is None:
        version, must_exist = 0, bool(if_exists)
    else:
        must_exist = if_exists is not False
        unsigned("the version", version, 64)
    if if_version == 0:
        raise InvalidArgument("versions begin at 1; say if_absent=True for an object that is not there", "INVALID")
    if if_absent and must_exist:
        raise InvalidArgument("if_absent contradicts the other conditions: leave one of them out", "INVALID")
    return version, must_exist, if_absent, if_newer_than is not None, if_version is not None


def unsigned(what: str, value: int, bits: int) -> int:
    """The value, if it fits."""
    if not 0 <= value < 1 << bits:
        raise InvalidArgument(f"{what} is {value}; it has to be from 0 to {(1 << bits) - 1}", "INVALID")
    return value


def as_bytes(data: Bytes) -> bytes:
    """Texts in UTF-8."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"keys and values are bytes or str, not {type(data).__name__}")


@dataclass(frozen=True)
class Tablet:
    """A part of a table: a closed range of key hashes, and who owns it."""

    start_key_hash: int
    end_key_hash: int
    #: ``None`` while nobody owns it.
    server_id: int | None
    #: Empty while the server is gone.
    locator: str
    #: False while it is being recovered.
    is_normal: bool


@dataclass(frozen=True)
class Server:
    """A server of the store: one shard of a process."""

    id: int
    #: Bit n: offers service n (0 master, 1 backup, 3 admin).
    services: int
    locator: str
    #: 0 up, 1 out of reach, 2 about to be removed.
    status: int


@dataclass(frozen=True)
class Lease:
    """What makes writes take effect once."""

    #: 0: it has ended.
    id: int
    #: In time of the cluster, ns.
    expiration_ns: int
    #: When the coordinator wrote this, in time of the cluster, ns.
    timestamp_ns: int


@dataclass(frozen=True)
class ControlOutput:
    """What a server answered to a control operation."""

    server_id: int
    output: bytes


@dataclass(frozen=True)
class PerfStats:
    """Counters of a server since it started, at a moment. Cycles are of ``cycles_per_second``."""

    collection_time: int
    cycles_per_second: float
    read_count: int
    read_object_bytes: int
    read_key_bytes: int
    write_count: int
    write_object_bytes: int
    write_key_bytes: int
    #: Time spent with requests, as opposed to waiting for them.
    dispatch_active_cycles: int
    worker_active_cycles: int
    log_bytes_appended: int
    cleaner_input_memory_bytes: int
    cleaner_survivor_bytes: int
    network_input_bytes: int
    network_output_bytes: int
    log_size_bytes: int
    log_used_bytes: int
    log_free_bytes: int
    log_live_bytes: int
    log_max_live_bytes: int
    log_appendable_bytes: int


@dataclass(frozen=True)
class MasterConfig:
    """How the part of a server that holds objects was started; names are RAMCloud's."""

    log_bytes: int
    hash_table_bytes: int
    disable_log_cleaner: bool
    disable_in_memory_cleaning: bool
    backup_disk_expansion_factor: float
    cleaner_write_cost_threshold: int
    cleaner_balancer: str
    cleaner_thread_count: int
    num_replicas: int
    use_hugepages: bool
    use_mincopysets: bool
    use_local_backup: bool
    use_plusonebackup: bool


@dataclass(frozen=True)
class ServerConfig:
    """How a server was started; names are RAMCloud's."""

    coordinator_locator: str
    local_locator: str
    cluster_name: str
    services: str
    detect_failures: bool
    pin_memory: bool
    segment_size: int
    seglet_size: int
    max_object_data_size: int
    max_object_key_size: int
    max_cores: int
    master: MasterConfig | None


@dataclass(frozen=True)
class TabletStatistics:
    """What a tablet was used for."""

    table_id: int
    start_key_hash: int
    end_key_hash: int
    reads_and_writes: int


@dataclass(frozen=True)
class LogMetrics:
    """What happened in a server's log since it started."""

    ticks_per_second: float
    total_sync_calls: int
    total_sync_ticks: int
    total_append_calls: int
    total_append_ticks: int
    total_no_space_ticks: int
    total_bytes_appended: int
    total_metadata_bytes_appended: int
