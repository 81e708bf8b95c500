"""How clients begin, wait, are shared, and end."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from stores import DEADLINE_S, Store, exit_code, silent_locator, unreachable_locator

import rcbox


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e300])
def test_timeouts_that_are_none(timeout_s: float) -> None:
    for kind in (rcbox.Cluster, rcbox.aio.Cluster):
        with pytest.raises(rcbox.InvalidArgument, match="timeout_s"):
            kind(unreachable_locator(), timeout_s=timeout_s)


@pytest.mark.parametrize("spin_us", [-1, 1 << 32])
def test_spinning_that_is_none(spin_us: int) -> None:
    for kind in (rcbox.Cluster, rcbox.aio.Cluster):
        with pytest.raises(rcbox.InvalidArgument, match="spin_us"):
            kind(unreachable_locator(), spin_us=spin_us)


def test_locators_that_are_none() -> None:
    for kind in (rcbox.Cluster, rcbox.aio.Cluster):
        with pytest.raises(rcbox.InvalidArgument, match="tcp:host="):
            kind("localhost")


def test_nobody_answers() -> None:
    with rcbox.Cluster(unreachable_locator(), timeout_s=0.2) as cluster, pytest.raises(rcbox.Timeout, match="refused"):
        cluster.table("t")
    with silent_locator() as locator, rcbox.Cluster(locator, timeout_s=0.2) as cluster:
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="no answer within 200ms"):
            cluster.table("t")
        assert time.monotonic() - started < DEADLINE_S / 2


def test_ctrl_c_ends_a_wait() -> None:
    with silent_locator() as locator, rcbox.Cluster(locator, timeout_s=10 * DEADLINE_S) as cluster:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            cluster.table("t")
        timer.join()


def test_a_client_goes_on_after_ctrl_c(own_store: Store) -> None:
    with rcbox.Cluster(own_store.locator, timeout_s=10 * DEADLINE_S) as cluster:
        table = cluster.create_table("t")
        table.write("k", "v")
        with own_store.first_server_stopped():
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                table.read("k")
            timer.join()
        assert table.read("k") == b"v"


def test_threads_share_a_client(table: rcbox.Table) -> None:
    def count(_: int) -> None:
        for _ in range(100):
            table.increment("n")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    assert table.read("n").int64() == 800


def test_nobody_waits_for_another_thread_s_call(own_store: Store) -> None:
    with rcbox.Cluster(own_store.locator, timeout_s=10 * DEADLINE_S) as cluster, ThreadPoolExecutor(1) as thread:
        table = cluster.create_table("t")
        table.write("k", "v")
        with own_store.first_server_stopped():
            reading = thread.submit(table.read, "k")
            assert cluster.table("t") == table
            assert not reading.done()
        assert reading.result(DEADLINE_S) == b"v"


def test_what_is_closed_is_closed(store: Store) -> None:
    cluster = rcbox.Cluster(store.locator)
    table = cluster.create_table("what is closed is closed")
    cluster.close()
    cluster.close()
    with pytest.raises(rcbox.Closed, match="make a new one"):
        table.read("k")
    with pytest.raises(rcbox.Closed), cluster:
        cluster.server_list()


def test_closing_ends_the_waits_of_other_threads() -> None:
    with silent_locator() as locator, ThreadPoolExecutor(1) as thread:
        cluster = rcbox.Cluster(locator, timeout_s=10 * DEADLINE_S)
        waiting = thread.submit(cluster.table, "t")
        cluster.close()
        assert isinstance(waiting.exception(DEADLINE_S), rcbox.Closed)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_process_needs_a_client_of_its_own(cluster: rcbox.Cluster, table: rcbox.Table, store: Store) -> None:
    table.write("k", "v")
    extra = rcbox.Cluster(store.locator)
    assert extra.table(table.name) == table
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(rcbox.Closed, match="after a fork, make a new one"):
                table.read("k")
            extra.close()
            del extra
            with rcbox.Cluster(store.locator) as own:
                assert own.table(table.name).read("k") == b"v"
            os._exit(0)
        finally:
            os._exit(1)
    assert exit_code(child) == 0
    # The child's closing is nothing to us.
    assert table.read("k") == b"v"
    assert extra.table(table.name).read("k") == b"v"
    extra.close()
