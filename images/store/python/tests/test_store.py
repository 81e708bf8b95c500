"""Tables, the store, and single servers."""

from __future__ import annotations

import struct
import uuid
from contextlib import suppress

import pytest
from stores import Store, unreachable_locator, wait_until

import rcbox

GET_PERF_STATS = 1007


def test_tables(cluster: rcbox.Cluster) -> None:
    name = "tables 🍏"
    with pytest.raises(rcbox.TableDoesntExist, match="create the table"):
        cluster.table(name)
    table = cluster.create_table(name, span=2)
    assert cluster.create_table(name) == table == cluster.table(name)
    assert repr(table) == f"<rcbox.Table {name!r}>"
    tablets = cluster.table_config(table)
    assert [(one.start_key_hash, one.end_key_hash) for one in tablets] == [(0, (1 << 63) - 1), (1 << 63, (1 << 64) - 1)]
    # Two of them, unless one was out of reach at that moment.
    assert {one.server_id for one in tablets} <= {server.id for server in cluster.server_list()}
    assert all(one.is_normal for one in tablets)
    cluster.split_tablet(name, 1 << 62)
    assert [one.start_key_hash for one in cluster.table_config(table)] == [0, 1 << 62, 1 << 63]
    table.write("k", "v")
    cluster.drop_table(name)
    cluster.drop_table(name)
    assert cluster.table_config(table) == []
    with pytest.raises(rcbox.TableDoesntExist, match="tables"):
        table.read("k")
    with pytest.raises(rcbox.TableDoesntExist):
        cluster.split_tablet(name, 1)


def test_arguments_that_cannot_be_sent(cluster: rcbox.Cluster, table: rcbox.Table) -> None:
    for span in (-1, 1 << 32):
        with pytest.raises(rcbox.InvalidArgument, match="span"):
            cluster.create_table("x", span)
    for key_hash in (-1, 1 << 64):
        with pytest.raises(rcbox.InvalidArgument, match="key_hash"):
            cluster.split_tablet(table.name, key_hash)
    with pytest.raises(rcbox.InvalidArgument, match="NUL"):
        cluster.create_table("a\0b")
    with pytest.raises(rcbox.InvalidArgument, match="64 KiB"):
        cluster.create_table("x" * 70_000)
    with pytest.raises(TypeError):
        cluster.create_table(7)  # type: ignore[arg-type]
    with pytest.raises(rcbox.InvalidArgument, match="operation"):
        cluster.control_all(-1)
    with pytest.raises(rcbox.InvalidArgument, match="64 KiB"):
        cluster.control_all(GET_PERF_STATS, bytes(70_000))


def test_the_store_and_its_servers(cluster: rcbox.Cluster, store: Store) -> None:
    servers = cluster.server_list()
    assert [server.locator for server in servers] == store.locators
    wait_until("all servers up", lambda: [server.status for server in cluster.server_list()] == [0, 0])
    for server in servers:
        cluster.ping(server.locator)
        assert cluster.server_id(server.locator) == server.id
        cluster.hint_server_crashed(server.id)
    assert cluster.server_id(store.locator) is None
    cluster.ping(store.locator)


def test_counters(cluster: rcbox.Cluster, table: rcbox.Table, store: Store) -> None:
    table.write("k", "value")
    owner = table.server_control("k", GET_PERF_STATS).server_id
    before = table.perf_stats("k")
    for _ in range(10):
        table.read("k")
    after = table.perf_stats("k")
    assert after.read_count - before.read_count == 10
    assert after.read_object_bytes > before.read_object_bytes
    assert after.cycles_per_second > 0
    ids = [server.id for server in cluster.server_list()]
    # Those that do not answer in time are left out.
    wait_until("counters of all servers", lambda: sorted(cluster.perf_stats_all()) == ids)
    assert cluster.perf_stats_all().get(owner, after).read_count == after.read_count
    (locator,) = [server.locator for server in cluster.server_list() if server.id == owner]
    assert cluster.metrics(locator)["master.readCount"] == after.read_count
    assert cluster.log_metrics(locator).total_bytes_appended > 0
    config = cluster.server_config(locator)
    assert config.local_locator == locator
    assert config.master is not None
    assert config.master.log_bytes > 0
    used = [one for one in cluster.server_statistics(locator) if one.table_id == table.id]
    assert sum(one.reads_and_writes for one in used) >= 11
    assert cluster.metrics(store.locator)


def test_control(cluster: rcbox.Cluster, table: rcbox.Table, store: Store) -> None:
    ids = [server.id for server in cluster.server_list()]
    wait_until("all servers", lambda: [one.server_id for one in cluster.control_all(GET_PERF_STATS)] == ids)
    one = table.server_control("k", GET_PERF_STATS, b"")
    assert len(one.output) == 416
    assert struct.unpack_from("<Q", one.output, 24)[0] == table.perf_stats("k").read_count
    with pytest.raises(rcbox.Unimplemented, match="does not serve it"):
        table.server_control("k", 1000)
    line = f"a line for the log {uuid.uuid4()}"
    cluster.log_message_all(3, line)
    for server in store.programs[1:]:
        wait_until("the line in the log", lambda server=server: server.has_logged(line))  # type: ignore[misc]


def test_leases_and_options(cluster: rcbox.Cluster) -> None:
    lease = cluster.acquire_lease()
    assert lease.id > 0
    assert lease.expiration_ns > lease.timestamp_ns
    assert cluster.lease_info(lease.id).id == lease.id
    assert cluster.lease_info(lease.id + 1000).id == 0
    with pytest.raises(rcbox.ObjectDoesntExist, match="'colour'"):
        cluster.runtime_option("colour")
    with pytest.raises(rcbox.RcboxError):
        cluster.set_runtime_option("colour", "green")


def test_bytes_there_and_back(cluster: rcbox.Cluster, store: Store) -> None:
    assert len(cluster.echo(store.locators[0], "hello", 1000)) == 1000
    assert cluster.echo(store.locators[0], b"", 0) == b""
    with pytest.raises(rcbox.InvalidArgument, match="echo"):
        cluster.echo(store.locators[0], b"", (1 << 32) - 1)
    with pytest.raises(rcbox.InvalidArgument, match="answer_bytes"):
        cluster.echo(store.locators[0], b"", -1)


def test_a_server_pings_another(cluster: rcbox.Cluster, store: Store) -> None:
    (first, second) = (server.id for server in cluster.server_list())
    took = cluster.proxy_ping(store.locators[0], second, 30.0)
    assert took is not None
    assert 0 < took < 30
    assert cluster.proxy_ping(store.locators[0], first + second + 1000, 0.01) is None
    for timeout_s in (0.0, -1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(rcbox.InvalidArgument, match="timeout_s"):
            cluster.proxy_ping(store.locators[0], second, timeout_s)


def test_servers_that_are_not_there(cluster: rcbox.Cluster) -> None:
    with pytest.raises(rcbox.Unreachable, match="is it up"):
        cluster.ping(unreachable_locator())
    with pytest.raises(rcbox.InvalidArgument, match="tcp:host="):
        cluster.ping("nonsense")


def test_what_only_stores_for_tests_do(own_store: Store) -> None:
    with rcbox.Cluster(own_store.locator) as cluster:
        table = cluster.create_table("t")
        with suppress(rcbox.ObjectExists):  # an answer that got lost: what was sent again finds it done
            table.fill_with_test_data(100, 50)
        filled = list(table.scan())
        assert len(filled) == 100
        assert {len(one) for one in filled} == {50}
        cluster.kill(own_store.locators[0])
        own_store.programs[1].process.wait()
        with pytest.raises(rcbox.Unreachable):
            cluster.ping(own_store.locators[0])
