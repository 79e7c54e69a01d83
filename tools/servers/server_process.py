"""One server as a child process: started, watched through its log, stopped, killed, frozen, started again.

Knows nothing of what the server is. Needs a Unix: process groups and signals; to freeze one, Linux.
"""

import os
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol, TypedDict

from tools.servers.reaper import Reaper

LOCALHOST = "127.0.0.1"
# Below what Linux and macOS hand out for outgoing connections, so that no client's own port sits on a stopped server's.
_PORTS = range(20_000, 32_000)
_LOG_TAIL_CHARACTERS = 2_000
_LOOK_SECONDS = 0.02


class ServerFailed(Exception):
    """The server ended, or did not become ready in time. Says what its log said last."""


_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """So many different ports that nothing listens on now, and that were not given out before: whoever was given one listens there
    a moment later only. Processes that share out a run of the tests each have ports of their own, for the same reason."""
    ours = _share_of_ports()
    if len(_given) > len(ours) // 2:
        _given.clear()
    found: list[int] = []
    for port in random.sample(ours, len(ours)):
        if port not in _given and _is_free(port):
            found.append(port)
        if len(found) == count:
            _given.update(found)
            return found
    raise ServerFailed(f"{count} free ports were not to be found in {ours}")


def _share_of_ports() -> range:
    name, count = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = name.removeprefix("gw")
    return _PORTS[int(number) :: count] if number.isdigit() else _PORTS


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Command:
    """What runs, and how it says that it is ready: by writing `ready` to its log."""

    name: str
    arguments: Sequence[str]
    log: Path
    ready: str
    stop_signal: signal.Signals = signal.SIGTERM
    user: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_seconds: float = 60.0
    stop_seconds: float = 20.0


class Process(Protocol):
    """As `subprocess.Popen` has it; a process in a session of its own."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def execute(command: Command, log: IO[bytes]) -> Process:
    """Run the command as the system does."""
    return subprocess.Popen(
        command.arguments,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **command.environment},
        **run_as(command.user),
        start_new_session=True,
    )


class ServerProcess:
    """A server that can be taken down and brought back, on the same command.

    All calls block; from a coroutine use a thread.
    """

    def __init__(
        self, command: Command, reaper: Reaper, run: Callable[[Command, IO[bytes]], Process] = execute
    ) -> None:
        self._command = command
        self._reaper = reaper
        self._run = run
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the running server; `ServerFailed` when it is not running."""
        if self._process is None:
            raise ServerFailed(f"{self._command.name} is not running")
        return self._process.pid

    def launch(self) -> None:
        """Start without waiting until it is ready."""
        if self.running:
            return
        command = self._command
        with command.log.open("ab") as log:
            self._process = self._run(command, log)
        self._reaper.adopt(self._process.pid)

    def start(self) -> None:
        """Start and return when it is ready; `ServerFailed` when it is not within `ready_seconds`.

        One that runs is left running, and goes on where it was frozen.
        """
        if self.running:
            return self.resume()
        said_before = self._log_size()
        self.launch()
        return self.wait_ready(said_before)

    def wait_ready(self, after: int = 0) -> None:
        """Return once the log says so, looking at what it says after its first `after` characters."""
        deadline = time.monotonic() + self._command.ready_seconds
        while self._command.ready not in self._read_log()[after:]:
            if not self.running:
                raise ServerFailed(f"{self._command.name} ended at its start: {self._log_tail()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self._command.name} was not ready in time: {self._log_tail()}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Ask it to end and wait; kill it where it does not."""
        if not self.running:
            return self._forget()
        process = self._signal(self._command.stop_signal)
        self.resume()  # a frozen one would never see the signal
        try:
            process.wait(self._command.stop_seconds)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL).wait()
        return self._forget()

    def end(self, number: signal.Signals) -> int:
        """Signal it and wait: its exit code. `subprocess.TimeoutExpired` where it does not end in time."""
        code = self._signal(number).wait(self._command.stop_seconds)
        self._forget()
        return code

    def kill(self) -> None:
        """As `kill -9` of the whole group: no chance to write anything more."""
        if self.running:
            self._signal(signal.SIGKILL).wait()
        self._forget()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers. Returns when the last of its threads stands still."""
        process = self._signal(signal.SIGSTOP)
        while not _stands_still(process.pid):
            time.sleep(_LOOK_SECONDS)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop it if it runs, and start it again on the same data and ports."""
        self.stop()
        self.start()

    def _signal(self, number: signal.Signals) -> Process:
        if self._process is None:
            raise ServerFailed(f"{self._command.name} is not running")
        os.killpg(self._process.pid, number)
        return self._process

    def _forget(self) -> None:
        if self._process is not None:
            self._reaper.release(self._process.pid)
            self._process = None

    def _read_log(self) -> str:
        return self._command.log.read_text(errors="replace") if self._command.log.exists() else ""

    def _log_size(self) -> int:
        return len(self._read_log())

    def _log_tail(self) -> str:
        return self._read_log()[-_LOG_TAIL_CHARACTERS:].strip() or "(its log is empty)"


def _stands_still(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def run_as(user: str | None) -> _Identity:
    """What `subprocess` takes to run a command as `user`; nothing for None, which is whoever we are."""
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
