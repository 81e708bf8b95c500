"""The calls as coroutines."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from stores import DEADLINE_S, Store, exit_code, silent_locator, unreachable_locator

import rcbox
from rcbox import aio

Test = Callable[[aio.Cluster], Coroutine[Any, Any, None]]


def run(store: Store, test: Test) -> None:
    async def connected() -> None:
        async with aio.Cluster(store.locator, timeout_s=10 * DEADLINE_S) as cluster:
            await asyncio.wait_for(test(cluster), 5 * DEADLINE_S)

    asyncio.run(connected())


def calls_of(kind: type) -> dict[str, list[str]]:
    functions = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(it).parameters) for name, it in functions if not name.startswith("_")}


def test_both_kinds_have_the_same_calls() -> None:
    assert calls_of(aio.Cluster) == calls_of(rcbox.Cluster)
    # A mapping cannot be awaited.
    mapping = {"keys", "items"}
    sync = {name: parameters for name, parameters in calls_of(rcbox.Table).items() if name not in mapping}
    assert calls_of(aio.Table) == sync
    for kind in (aio.Cluster, aio.Table):
        for name in calls_of(kind):
            assert getattr(kind, name).__doc__, name


def test_thousands_of_calls_at_a_time(store: Store) -> None:
    async def test(cluster: aio.Cluster) -> None:
        table = await cluster.create_table("thousands of calls", span=2)
        numbers = range(5000)
        await asyncio.gather(*(table.write(f"{number}", f"value {number}") for number in numbers))
        objects = await asyncio.gather(*(table.read(f"{number}") for number in numbers))
        assert [found.text() for found in objects] == [f"value {number}" for number in numbers]
        counted = await asyncio.gather(*(table.increment("n") for _ in range(500)))
        assert sorted(now.value for now in counted) == list(range(1, 501))

    run(store, test)


def test_every_call_of_a_table(store: Store) -> None:
    async def test(cluster: aio.Cluster) -> None:
        table = await cluster.create_table("every call of a table")
        assert repr(table) == "<rcbox.aio.Table 'every call of a table'>"
        assert await cluster.table(table.name) == table
        version = await table.write("k", "1", if_absent=True)
        with pytest.raises(rcbox.ObjectExists) as refused:
            await table.write("k", "2", if_absent=True)
        assert refused.value.version == version
        assert (await table.read("k", if_version=version)).value == b"1"
        assert await table.get("k") == b"1"
        assert await table.get("ghost") is None
        assert await table.get("ghost", 7) == 7
        with pytest.raises(KeyError, match="ghost"):
            await table.read("ghost")
        await table.write_keys(["a", "b"], "v")
        assert (await table.read_keys("a")).keys == (b"a", b"b")
        assert (await table.increment("n", 3)).value == 3
        assert (await table.increment_float("x", 0.5)).value == 0.5
        assert await table.remove("k", if_exists=True) == version
        assert len(await table.multi_write({"m1": "1", "m2": "2"})) == 2
        (one, ghost) = await table.multi_read(["m1", "ghost"])
        assert one == b"1"
        assert isinstance(ghost, rcbox.ObjectDoesntExist)
        (now,) = rcbox.succeeded(await table.multi_increment({"n": 1}))
        assert now.value == 4
        assert len(await table.multi_remove(["m1", "m2"])) == 2
        assert {found.key async for found in table.scan()} == {b"a", b"n", b"x"}
        assert [found.value async for found in table.scan(keys_only=True)] == [b""] * 3
        assert (await table.perf_stats("k")).write_count > 0
        assert len((await table.server_control("k", 1007)).output) > 0
        with suppress(rcbox.ObjectExists):  # an answer that got lost: what was sent again finds it done
            await table.fill_with_test_data(10, 10)
        await cluster.drop_table(table.name)

    run(store, test)


def test_every_call_of_a_cluster(store: Store) -> None:
    async def test(cluster: aio.Cluster) -> None:
        table = await cluster.create_table("every call of a cluster")
        await cluster.split_tablet(table.name, 1 << 63)
        assert len(await cluster.table_config(table)) == 2
        rcbox.succeeded(await cluster.multi_write([(table, "k", "v")]))
        assert await cluster.multi_read([(table, "k")]) == [b"v"]
        rcbox.succeeded(await cluster.multi_increment([(table, "n", 1)]))
        rcbox.succeeded(await cluster.multi_remove([(table, "k")]))
        (first, second) = await cluster.server_list()
        lease = await cluster.acquire_lease()
        assert (await cluster.lease_info(lease.id)).id == lease.id
        await cluster.hint_server_crashed(first.id)
        with pytest.raises(rcbox.ObjectDoesntExist):
            await cluster.runtime_option("colour")
        with pytest.raises(rcbox.RcboxError):
            await cluster.set_runtime_option("colour", "green")
        assert {output.server_id for output in await cluster.control_all(1007)} <= {first.id, second.id}
        await cluster.log_message_all(3, "hello from a coroutine")
        assert set(await cluster.perf_stats_all()) <= {first.id, second.id}
        await cluster.ping(first.locator)
        assert await cluster.server_id(first.locator) == first.id
        assert (await cluster.server_config(first.locator)).local_locator == first.locator
        assert await cluster.server_statistics(first.locator)
        assert await cluster.metrics(first.locator)
        assert (await cluster.log_metrics(first.locator)).ticks_per_second > 0
        assert len(await cluster.echo(first.locator, "hello", 7)) == 7
        assert await cluster.proxy_ping(first.locator, second.id, 30.0) is not None
        with pytest.raises(rcbox.Unreachable):
            await cluster.ping(unreachable_locator())
        await cluster.kill(unreachable_locator())

    run(store, test)


def test_calls_do_not_wait_for_each_other(own_store: Store) -> None:
    async def test(cluster: aio.Cluster) -> None:
        table = await cluster.create_table("t")
        await table.write("k", "v")
        with own_store.first_server_stopped():
            reading = asyncio.create_task(table.read("k"))
            assert await cluster.table("t") == table
            assert not reading.done()
        assert await reading == b"v"

    run(own_store, test)


def test_a_task_that_is_cancelled_gives_its_call_up(own_store: Store) -> None:
    async def test(cluster: aio.Cluster) -> None:
        table = await cluster.create_table("t")
        await table.write("k", "v")
        with own_store.first_server_stopped():
            reading = asyncio.create_task(table.read("k"))
            await asyncio.sleep(0)
            assert len(cluster._under_way) == 1
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert not cluster._under_way
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(table.read("k"), 0.1)
            assert not cluster._under_way
        assert await table.read("k") == b"v"

    run(own_store, test)


def test_calls_that_are_cancelled_make_room_for_others(own_store: Store) -> None:
    async def test(cluster: aio.Cluster) -> None:
        table = await cluster.create_table("t")
        with own_store.first_server_stopped():
            for _ in range(5):  # together more than one client may have under way
                reading = [asyncio.create_task(table.read("k")) for _ in range(1000)]
                assert await cluster.table("t") == table
                for task in reading:
                    task.cancel()
                await asyncio.wait(reading)
                assert all(task.cancelled() for task in reading)

    run(own_store, test)


def test_closing_ends_what_is_under_way() -> None:
    async def test() -> None:
        with silent_locator() as locator:
            cluster = aio.Cluster(locator, timeout_s=10 * DEADLINE_S)
            waiting = asyncio.create_task(cluster.table("t"))
            await asyncio.sleep(0)
            await cluster.close()
            with pytest.raises(rcbox.Closed):
                await waiting
            await cluster.close()
            with pytest.raises(rcbox.Closed, match="make a new one"):
                await cluster.table("t")
            unused = aio.Cluster(locator)
            await unused.close()
            with pytest.raises(rcbox.Closed, match="make a new one"):
                await unused.table("t")
            assert unused._loop is None

    asyncio.run(test())


def test_nobody_answers() -> None:
    async def test() -> None:
        async with aio.Cluster(unreachable_locator(), timeout_s=0.2) as cluster:
            with pytest.raises(TimeoutError, match="refused"):
                await cluster.table("t")

    asyncio.run(test())


def test_a_client_belongs_to_one_loop(store: Store) -> None:
    cluster = aio.Cluster(store.locator)

    async def use() -> None:
        await cluster.server_list()

    asyncio.run(use())
    with pytest.raises(rcbox.InvalidArgument, match="one for each loop"):
        asyncio.run(use())
    asyncio.run(cluster.close())


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_process_needs_a_client_of_its_own(store: Store) -> None:
    def in_child(cluster: aio.Cluster, unused: aio.Cluster) -> None:
        for one, advice in [(cluster, "one for each loop"), (unused, "after a fork, make a new one")]:
            with pytest.raises(rcbox.RcboxError, match=advice):
                asyncio.run(one.server_list())
            one._raw.close()

    async def test(cluster: aio.Cluster) -> None:
        unused = aio.Cluster(store.locator)
        servers = await cluster.server_list()
        child = os.fork()
        if child == 0:
            try:
                in_child(cluster, unused)
                os._exit(0)
            finally:
                os._exit(1)
        assert await asyncio.to_thread(exit_code, child) == 0
        assert await cluster.server_list() == servers
        await unused.close()

    run(store, test)
