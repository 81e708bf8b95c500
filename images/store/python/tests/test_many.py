"""Many objects at a time, and whole tables."""

from __future__ import annotations

from collections import Counter

import pytest

import rcbox
from rcbox import Conditions


def keys(count: int) -> list[str]:
    return [f"key {number}" for number in range(count)]


def test_multi_ops_give_an_outcome_for_each_object(table: rcbox.Table) -> None:
    versions = rcbox.succeeded(table.multi_write({key: key.upper() for key in keys(300)}))
    assert len(versions) == 300
    wanted: list[str | bytes] = [*keys(300), b"ghost"]
    *found, ghost = table.multi_read(wanted)
    assert isinstance(ghost, rcbox.ObjectDoesntExist)
    assert "key b'ghost'" in str(ghost)
    objects = rcbox.succeeded(found)
    assert [one.text() for one in objects] == [key.upper() for key in keys(300)]
    assert [one.version for one in objects] == versions
    assert [one.key.decode() for one in objects] == keys(300)
    assert table.multi_remove(keys(300)) == versions
    assert table.multi_remove(keys(1)) == [0]
    assert table.multi_read([]) == []
    with pytest.raises(rcbox.ObjectDoesntExist):
        rcbox.succeeded(table.multi_read(["ghost"]))


def test_conditions_hold_for_each_object(table: rcbox.Table) -> None:
    version = table.write("there", "1")
    results = table.multi_write([("there", "2"), ("new", "2")], if_absent=True)
    assert isinstance(results[0], rcbox.ObjectExists)
    assert results[0].version == version
    assert isinstance(results[1], int)
    (refused,) = table.multi_remove(["ghost"], if_exists=True)
    assert isinstance(refused, rcbox.ObjectDoesntExist)
    (refused_read,) = table.multi_read(["there"], if_newer_than=version)
    assert isinstance(refused_read, rcbox.WrongVersion)
    (refused_increment,) = table.multi_increment({"there": 1}, if_version=version + 1)
    assert isinstance(refused_increment, rcbox.WrongVersion)


def test_multi_increment(table: rcbox.Table) -> None:
    table.write("word", "hello")
    results = table.multi_increment([("n", 3), ("x", 0.5), ("word", 1)])
    assert [getattr(result, "value", None) for result in results] == [3, 0.5, None]
    assert isinstance(results[2], rcbox.InvalidObject)
    (again, zero) = rcbox.succeeded(table.multi_increment({"n": -4, "x": 0.0}))
    assert (again.value, zero.value) == (-1, 0.5)
    assert table.read("n").int64() == -1
    with pytest.raises(rcbox.InvalidArgument):
        table.multi_increment({"n": 1 << 63})


def test_multi_ops_over_several_tables(cluster: rcbox.Cluster, table: rcbox.Table) -> None:
    other = cluster.create_table("other table of a multi-op")
    gone = cluster.create_table("gone")
    cluster.drop_table("gone")
    written = cluster.multi_write([(table, "k", "1"), (other, "k", "2"), (gone, "k", "3")])
    assert isinstance(written[2], rcbox.TableDoesntExist)
    (first, second) = rcbox.succeeded(written[:2])
    read = cluster.multi_read([(table, "k"), (other, "k", Conditions(if_version=second + 1))])
    assert read[0] == b"1"
    assert isinstance(read[1], rcbox.WrongVersion)
    counted = cluster.multi_increment([(table, "n", 1), (other, "n", 2, Conditions(if_absent=True))])
    assert [number.value for number in rcbox.succeeded(counted)] == [1, 2]
    removed = cluster.multi_remove([(table, "k"), (other, "k", Conditions(if_version=second))])
    assert removed == [first, second]
    with pytest.raises(TypeError, match="3 values"):
        cluster.multi_write([(table, "k")])  # type: ignore[list-item]


def test_a_scan_gives_every_object_while_tablets_are_split(cluster: rcbox.Cluster, table: rcbox.Table) -> None:
    value = b"v" * 1000
    expected = {key.encode() for key in keys(4000)}
    rcbox.succeeded(table.multi_write((key, value) for key in expected))
    seen: Counter[bytes] = Counter()
    for number, found in enumerate(table.scan()):
        assert found.value == value
        assert found.version > 0
        seen[found.key] += 1
        if number % 1000 == 500:
            cluster.split_tablet(table.name, (number // 1000 * 2 + 1) << 60)
    assert set(seen) == expected
    assert len(cluster.table_config(table)) == 6
    without_values = list(table.scan(keys_only=True))
    assert {one.key for one in without_values} == expected
    assert all(one.value == b"" for one in without_values)


def test_a_scan_fetches_as_it_goes_on(cluster: rcbox.Cluster, table: rcbox.Table) -> None:
    rcbox.succeeded(table.multi_write((key, bytes(10_000)) for key in keys(1000)))
    scan = table.scan()
    next(scan)
    cluster.drop_table(table.name)
    with pytest.raises(rcbox.TableDoesntExist, match=table.name):
        list(scan)


def test_scans_of_nothing(cluster: rcbox.Cluster, table: rcbox.Table) -> None:
    assert list(table.scan()) == []
    cluster.drop_table(table.name)
    with pytest.raises(rcbox.TableDoesntExist):
        next(table.scan())
