"""Objects one at a time, and every condition."""

from __future__ import annotations

import copy
import pickle
import struct

import pytest

import rcbox


def test_write_read_remove(table: rcbox.Table) -> None:
    version = table.write("apple", "green")
    apple = table.read("apple")
    assert (apple.value, apple.version, apple.key) == (b"green", version, b"apple")
    assert apple == b"green"
    assert apple.text() == "green"
    assert table.write("apple", "red") > version
    assert table.remove("apple") > version
    assert table.remove("apple") == 0
    with pytest.raises(rcbox.ObjectDoesntExist, match="key b'apple'"):
        table.read("apple")


def test_keys_and_values_are_bytes_or_texts(table: rcbox.Table) -> None:
    every_byte = bytes(range(256))
    table.write(every_byte, every_byte)
    assert table.read(every_byte).value == every_byte
    table.write(bytearray(b"k"), memoryview(b"v"))
    assert table.read(memoryview(b"k")) == b"v"
    table.write("schlüssel 🔑", "grün 🍏")
    assert table.read("schlüssel 🔑".encode()).text() == "grün 🍏"
    assert table.read("schlüssel 🔑").value == "grün 🍏".encode()
    table.write("empty", b"")
    assert table.read("empty").value == b""
    largest = bytes(1 << 20)
    table.write("k" * 65535, largest)
    assert table.read("k" * 65535).value == largest
    with pytest.raises(TypeError, match="bytes or str, not int"):
        table.write(5, "v")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not NoneType"):
        table.write("k", None)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused(table: rcbox.Table) -> None:
    for key, value in [("", b"v"), ("k" * 65536, b"v"), ("k", bytes((1 << 20) + 1))]:
        with pytest.raises(rcbox.InvalidArgument):
            table.write(key, value)


def test_objects_are_their_values(table: rcbox.Table) -> None:
    table.write("k", "value")
    found = table.read("k")
    assert isinstance(found, bytes)
    assert type(found.value) is bytes
    assert found[:2] == b"va"
    table.write("copy", found)
    assert table.read("copy") == found
    assert repr(found) == f"Object(b'value', version={found.version}, keys=(b'k',))"
    for same in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert (same.value, same.version, same.keys) == (found.value, found.version, found.keys)


def test_if_absent(table: rcbox.Table) -> None:
    version = table.write("k", "1", if_absent=True)
    with pytest.raises(rcbox.ObjectExists) as refused:
        table.write("k", "2", if_absent=True)
    assert refused.value.status == "OBJECT_EXISTS"
    assert refused.value.version == version
    assert table.read("k") == b"1"


def test_if_exists(table: rcbox.Table) -> None:
    for change in (table.remove, table.increment):
        with pytest.raises(rcbox.ObjectDoesntExist):
            change("k", if_exists=True)
    with pytest.raises(rcbox.ObjectDoesntExist):
        table.write("k", "1", if_exists=True)
    table.write("k", "1")
    table.write("k", "2", if_exists=True)
    assert table.read("k") == b"2"


def test_if_version(table: rcbox.Table) -> None:
    version = table.write("k", "1")
    version = table.write("k", "2", if_version=version)
    with pytest.raises(rcbox.WrongVersion, match="read it again") as refused:
        table.write("k", "3", if_version=version - 1)
    assert refused.value.version == version
    with pytest.raises(rcbox.WrongVersion):
        table.remove("k", if_version=version + 1)
    assert table.read("k", if_version=version) == b"2"
    table.remove("k", if_version=version)
    # What is gone has no version, unless RAMCloud's own rule is asked for.
    with pytest.raises(rcbox.ObjectDoesntExist):
        table.write("k", "4", if_version=version)
    table.write("k", "4", if_version=version, if_exists=False)


def test_if_newer_than(table: rcbox.Table) -> None:
    version = table.write("k", "1")
    assert table.read("k", if_newer_than=version - 1) == b"1"
    with pytest.raises(rcbox.WrongVersion) as refused:
        table.read("k", if_newer_than=version)
    assert refused.value.version == version
    with pytest.raises(rcbox.ObjectDoesntExist):
        table.read("ghost", if_newer_than=0)
    table.write("ghost", "2", if_newer_than=7, if_exists=False)


def test_conditions_that_contradict_themselves(table: rcbox.Table) -> None:
    with pytest.raises(rcbox.InvalidArgument, match="not both"):
        table.read("k", if_version=1, if_newer_than=1)
    with pytest.raises(rcbox.InvalidArgument, match="contradicts"):
        table.read("k", if_absent=True, if_exists=True)
    with pytest.raises(rcbox.InvalidArgument, match="contradicts"):
        table.read("k", if_absent=True, if_version=3)
    with pytest.raises(rcbox.InvalidArgument, match="if_absent=True"):
        table.read("k", if_version=0)
    for version in (-1, 1 << 64):
        with pytest.raises(rcbox.InvalidArgument, match="from 0 to"):
            table.read("k", if_newer_than=version)


def test_increment(table: rcbox.Table) -> None:
    assert table.increment("n", 5).value == 5
    counted = table.increment("n", -7)
    assert counted.value == -2
    assert table.increment("n").value == -1
    number = table.read("n")
    assert number.int64() == -1
    assert number.version == counted.version + 1
    table.write("n", struct.pack("<q", (1 << 63) - 1))
    assert table.increment("n").value == -(1 << 63)
    assert table.increment_float("x", 0.25).value == 0.25
    assert table.increment_float("x", -1).value == -0.75
    assert table.read("x").float64() == -0.75
    with pytest.raises(rcbox.ObjectExists):
        table.increment("n", if_absent=True)
    with pytest.raises(rcbox.WrongVersion):
        table.increment_float("x", 1.0, if_version=99)


def test_what_cannot_be_incremented(table: rcbox.Table) -> None:
    table.write("word", "hello")
    with pytest.raises(rcbox.InvalidObject, match="8 bytes"):
        table.increment("word")
    with pytest.raises(rcbox.InvalidObject):
        table.increment_float("word", 1.0)
    with pytest.raises(rcbox.InvalidArgument, match="8 bytes"):
        table.read("word").int64()
    with pytest.raises(rcbox.InvalidArgument):
        table.read("word").float64()
    for by in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(rcbox.InvalidArgument, match="64 bits"):
            table.increment("n", by)
    with pytest.raises(TypeError, match="increment_float"):
        table.increment("n", 0.5)  # type: ignore[arg-type]


def test_objects_with_several_keys(table: rcbox.Table) -> None:
    version = table.write_keys(["primary", b"", "third"], "value")
    found = table.read_keys("primary")
    assert found.keys == (b"primary", b"", b"third")
    assert found.key == b"primary"
    assert (found.value, found.version) == (b"value", version)
    assert table.read("primary") == b"value"
    with pytest.raises(rcbox.WrongVersion):
        table.write_keys(["primary"], "other", if_version=version + 1)
    with pytest.raises(rcbox.ObjectDoesntExist):
        table.read_keys("third")
    with pytest.raises(rcbox.InvalidArgument, match="1 to 255 keys"):
        table.write_keys([], "value")
    with pytest.raises(TypeError, match="list of keys"):
        table.write_keys("primary", "value")


def test_a_table_is_a_mapping(table: rcbox.Table) -> None:
    table["apple"] = "green"
    table["banana"] = b"yellow"
    assert table["apple"].text() == "green"
    assert "apple" in table
    assert "cherry" not in table
    assert sorted(table) == [b"apple", b"banana"]
    assert dict(table.items()) == {b"apple": b"green", b"banana": b"yellow"}
    assert set(table.keys()) == {b"apple", b"banana"}
    del table["apple"]
    with pytest.raises(KeyError):
        table["apple"]
    with pytest.raises(KeyError):
        del table["apple"]
    assert table.get("apple") is None
    assert table.get("apple", "none") == "none"
    banana = table.get("banana")
    assert banana is not None
    assert banana.value == b"yellow"


def test_exceptions_are_python_s_own_as_well() -> None:
    for ours, theirs in [
        (rcbox.ObjectDoesntExist, KeyError),
        (rcbox.TableDoesntExist, LookupError),
        (rcbox.Timeout, TimeoutError),
        (rcbox.Unreachable, ConnectionError),
        (rcbox.InvalidArgument, ValueError),
        (rcbox.InvalidObject, ValueError),
        (rcbox.Unimplemented, NotImplementedError),
    ]:
        error = ours("what to do", "STATUS", 7)
        assert isinstance(error, theirs)
        assert isinstance(error, rcbox.RcboxError)
        assert str(error) == "what to do"
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.status, again.version) == (ours, "what to do", "STATUS", 7)
