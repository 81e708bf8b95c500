"""Stores, clients and tables for the tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from stores import DEADLINE_S, Store

import rcbox

# Whoever runs the tests in the background has them inherit a SIGINT that is ignored; some are about Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """Two servers, which all tests share; each has tables of its own."""
    store = Store(2, "--allowTestRpcs")
    yield store
    store.stop()


@pytest.fixture
def own_store() -> Iterator[Store]:
    """One server that a test may end."""
    store = Store(1, "--allowTestRpcs")
    yield store
    store.stop()


@pytest.fixture
def cluster(store: Store) -> Iterator[rcbox.Cluster]:
    with rcbox.Cluster(store.locator, timeout_s=DEADLINE_S) as cluster:
        yield cluster


@pytest.fixture
def table(cluster: rcbox.Cluster, request: pytest.FixtureRequest) -> rcbox.Table:
    """A table of the test's own, over both servers."""
    return cluster.create_table(request.node.name, span=2)
