"""A store of real processes: a coordinator and servers on ports that the kernel chooses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: Far above what is typical: only what hangs reaches it.
DEADLINE_S = 60.0

PROGRAMS = Path(os.environ.get("RCBOX_PROGRAMS", Path(__file__).parents[2] / "target" / "debug"))
LOOPBACK = "tcp:host=127.0.0.1,port=0"


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.005)


def exit_code(child: int) -> int:
    """Of a forked process; waits for it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Program:
    """A process with what it has logged."""

    def __init__(self, name: str, *arguments: str) -> None:
        path = PROGRAMS / name
        if not path.exists():
            pytest.exit(
                f"{path} is not there; build it: hack/test-programs.sh, or name its folder in RCBOX_PROGRAMS", 2
            )
        self.process = subprocess.Popen(
            [path, *arguments, "--logFormat", "json", "--logLevel", "debug"],
            env={},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self._lines.append(line.decode())

    def has_logged(self, *parts: str) -> bool:
        return any(all(part in line for part in parts) for line in list(self._lines))

    def line(self, *parts: str) -> dict[str, Any]:
        """The first line with all of these in it; waits for it."""

        def ended() -> bool:
            return self.has_logged(*parts) or self.process.poll() is not None

        wait_until(f"a line with {parts}", ended)
        for line in self._lines:
            if all(part in line for part in parts):
                found: dict[str, Any] = json.loads(line)
                return found
        raise AssertionError(f"the program ended without a line with {parts}: {self._lines}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


def is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Store:
    """A coordinator and its servers."""

    def __init__(self, servers: int, *more: str) -> None:
        self.coordinator = Program("coordinator", "-C", LOOPBACK)
        self.programs = [self.coordinator]
        #: Of the coordinator.
        self.locator: str = self.coordinator.line("serving", '"member"')["locator"]
        #: Of the servers.
        self.locators: list[str] = []
        try:
            for _ in range(servers):
                self._add_server(*more)
        except BaseException:
            self.stop()
            raise

    def _add_server(self, *more: str) -> None:
        server = Program("server", "-C", self.locator, "-L", LOOPBACK, "-t", "64", *more)
        self.programs.append(server)
        http = server.line("serving health")["http"]
        wait_until("a server that is ready", lambda: is_ready(http))
        host, port = server.line("serving", '"shard":0,')["listening"].rsplit(":", 1)
        self.locators.append(f"tcp:host={host},port={port}")

    def stop(self) -> None:
        for program in self.programs:
            program.stop()

    @contextmanager
    def first_server_stopped(self) -> Iterator[None]:
        """Within this, the first server keeps its connections and says nothing."""
        server = self.programs[1]
        server.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{server.process.pid}/stat")
        wait_until("a process that is stopped", lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        try:
            yield
        finally:
            server.signal(signal.SIGCONT)


@contextmanager
def silent_locator() -> Iterator[str]:
    """Of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp:host=127.0.0.1,port={server.getsockname()[1]}"


def unreachable_locator() -> str:
    """Of nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp:host=127.0.0.1,port={server.getsockname()[1]}"
