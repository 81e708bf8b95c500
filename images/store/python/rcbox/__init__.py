"""A client of rcbox, and of any other store that speaks RAMCloud's protocol.

>>> import rcbox
>>> with rcbox.Cluster("tcp:host=127.0.0.1,port=11100") as cluster:  # doctest: +SKIP
...     fruit = cluster.create_table("fruit")
...     version = fruit.write("apple", "green")
...     fruit.write("apple", "red", if_version=version)
...     fruit.read("apple").text()
2
'red'

``rcbox.aio`` has the same calls for asyncio. Everything that is raised about a store is an ``RcboxError``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rcbox import aio
from rcbox._cluster import Cluster, Table
from rcbox._errors import (
    Closed,
    InvalidArgument,
    InvalidObject,
    NoTableSpace,
    ObjectDoesntExist,
    ObjectExists,
    RcboxError,
    TableDoesntExist,
    Timeout,
    TooManyOperations,
    Unimplemented,
    Unreachable,
    WrongVersion,
)
from rcbox._types import (
    Bytes,
    Conditions,
    ControlOutput,
    Incremented,
    Lease,
    LogMetrics,
    MasterConfig,
    Object,
    PerfStats,
    Server,
    ServerConfig,
    Tablet,
    TabletStatistics,
)

__all__ = [
    "Bytes",
    "Closed",
    "Cluster",
    "Conditions",
    "ControlOutput",
    "Incremented",
    "InvalidArgument",
    "InvalidObject",
    "Lease",
    "LogMetrics",
    "MasterConfig",
    "NoTableSpace",
    "Object",
    "ObjectDoesntExist",
    "ObjectExists",
    "PerfStats",
    "RcboxError",
    "Server",
    "ServerConfig",
    "Table",
    "TableDoesntExist",
    "Tablet",
    "TabletStatistics",
    "Timeout",
    "TooManyOperations",
    "Unimplemented",
    "Unreachable",
    "WrongVersion",
    "aio",
    "succeeded",
]

R = TypeVar("R")


def succeeded(results: Iterable[R | RcboxError]) -> list[R]:
    """The results of a multi-op if all of its objects succeeded; else the first failure is raised."""
    good: list[R] = []
    for result in results:
        if isinstance(result, RcboxError):
            raise result
        good.append(result)
    return good


def _show_as_public() -> None:
    """Error texts and help name things as users import them."""
    for name in __all__:
        if isinstance(public := globals()[name], type):
            public.__module__ = __name__


_show_as_public()
