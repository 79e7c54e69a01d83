"""The measured processes: each role a process of its own, ready when its health check says so, its log in a file."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.cpu import descendants, tree_seconds
from tools.servers.process_memory import megabytes
from tools.servers.reaper import Reaper
from tools.servers.server_process import Command, ServerFailed, ServerProcess, free_ports

FORWARDER = str(Path(sys.executable).with_name("forwarder"))
_READY_SECONDS = 30.0
_LOOK_SECONDS = 0.02
_TAIL_CHARACTERS = 3_000


class CommandFailed(Exception):
    """A command ended with something other than 0. Says what it wrote."""


@dataclass(frozen=True, slots=True)
class Role:
    """One command to run; it is ready when `ready_url` answers `ready_status`, or at once where that is None. `processes`: how many
    share its port."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    ready_url: str | None = None
    processes: int = 1
    ready_status: int = httpx.codes.OK


@dataclass(frozen=True, slots=True)
class StartUp:
    """What it took until the role was ready, and the memory of all its processes then."""

    role: str
    processes: int
    seconds: float
    cpu_seconds: float
    megabytes: float


class Running:
    """A role's process. `start_up` is there once it was ready."""

    start_up: StartUp | None = None

    def __init__(self, role: Role, logs: Path, reaper: Reaper) -> None:
        self._role = role
        self._log = logs / f"{role.name}.log"
        command = Command(role.name, role.arguments, self._log, ready="", environment=role.environment, stop_seconds=40)
        self._process = ServerProcess(command, reaper)

    async def start(self) -> None:
        """Return when it is ready. Raises `ServerFailed` with the end of its log when it is not within 30 s."""
        began = time.monotonic()
        self._process.launch()
        deadline = began + _READY_SECONDS
        async with httpx.AsyncClient(timeout=2) as http:
            while not await self._ready(http):
                if not self._process.running or time.monotonic() > deadline:
                    raise ServerFailed(f"{self._role.name} did not become ready: {self._tail()}")
                await asyncio.sleep(_LOOK_SECONDS)
        if self._role.ready_url is not None:
            self.start_up = self._look_back(time.monotonic() - began)

    def _look_back(self, seconds: float) -> StartUp:
        memory = sum(megabytes(pid) for pid in descendants(self.pid))
        return StartUp(self._role.name, self._role.processes, seconds, tree_seconds(self.pid), memory)

    def cpu_seconds(self) -> float:
        """What it and its children have used since it was started."""
        return tree_seconds(self.pid)

    @property
    def pid(self) -> int:
        """Of the process that was started, whose children the others are."""
        return self._process.pid

    async def _ready(self, http: httpx.AsyncClient) -> bool:
        if self._role.ready_url is None:
            return True
        try:
            return (await http.get(self._role.ready_url)).status_code == self._role.ready_status
        except httpx.TransportError:
            return False

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-_TAIL_CHARACTERS:] or "(its log is empty)"

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._process.kill()

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._process.stop()


@asynccontextmanager
async def running(role: Role, logs: Path, reaper: Reaper) -> AsyncIterator[Running]:
    """The role, ready; stopped at the end."""
    process = Running(role, logs, reaper)
    try:
        await process.start()
        yield process
    finally:
        process.stop()


def local_url() -> str:
    """The base URL of a port that nothing listens on."""
    (port,) = free_ports(1)
    return f"http://127.0.0.1:{port}"


def port_of(url: str) -> str:
    """The port, as a command's argument."""
    return str(httpx.URL(url).port)


async def output_of(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises `CommandFailed`."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    out, error = await process.communicate()
    if process.returncode != 0:
        raise CommandFailed(f"{' '.join(arguments)}: exit {process.returncode}\n{error.decode()}{out.decode()}")
    return out.decode()
