"""Processes: signals, and several processes on one port.

A process stops on SIGTERM or SIGINT within its grace period and exits 0; a second signal ends it at once.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop
from prometheus_client.multiprocess import mark_process_dead

from forwarder.runtime.garbage import collect_seldom
from forwarder.runtime.listening import Tally

Stop = asyncio.Event
"""Set once the process is to end."""

_log = structlog.get_logger(__name__)

BACKLOG: Final = 2048
"""How many connections may wait to be taken."""

_INHERITED_FD = "FORWARDER_INHERITED_FD"
_TALLY = "FORWARDER_TALLY"
_EVERY_ADDRESS = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
_RESTART_PAUSE_SECONDS = 1.0


def run_until_signalled(main: Callable[[Stop], Awaitable[None]]) -> None:
    """Run `main` with an event that the first SIGTERM or SIGINT sets. Returns when `main` does."""

    async def supervised() -> None:
        stop = Stop()
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            if stop.is_set():
                os._exit(128 + number)
            _log.info("process.stopping", signal=number.name)
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
        if is_child():
            # Standard input is the parent's pipe: it ends when the parent does, however it ended.
            loop.add_reader(sys.stdin.fileno(), stop.set)
        await main(stop)

    collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(supervised())


def is_child() -> bool:
    """True in a process that `run_processes` of another started."""
    return _INHERITED_FD in os.environ


def shared_port() -> tuple[Tally, int] | None:
    """Where this process is one of several on its port: what they have, and which of them it is."""
    process, _, file = os.environ.get(_TALLY, "").partition(":")
    return (Tally(Path(file)), int(process)) if file else None


def bind(host: str, port: int) -> socket.socket:
    """A listening socket there, or the one that the parent process opened. Raises `OSError`: the address is taken."""
    inherited = os.environ.get(_INHERITED_FD)
    if inherited is not None:
        return socket.socket(fileno=int(inherited))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, because asyncio turns Nagle's delay off only where it is.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return listening


def own_url(listening: socket.socket) -> str:
    """The address by which processes of this machine reach `listening`."""
    host, port = listening.getsockname()[:2]
    if host in _EVERY_ADDRESS:
        return f"http://localhost:{port}" if ":" in host else f"http://127.0.0.1:{port}"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def side_by_side(work: Awaitable[Any], stop: Stop, *, until_stopped: bool = False) -> AsyncIterator[None]:
    """Run `work` beside the block, and wait for it at the end. Where it fails, everything stops, and the block's end raises."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda _: stop.set())
    cancelling = asyncio.create_task(_cancel_after(task, stop)) if until_stopped else None
    try:
        yield
    finally:
        stop.set()
        if cancelling is not None:
            await cancelling
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _cancel_after(task: asyncio.Future[Any], stop: Stop) -> None:
    await stop.wait()
    task.cancel()


def run_processes(arguments: Sequence[str], *, count: int, listening: socket.socket) -> int:
    """Run `count` processes of this program with `arguments` on one listening socket; the exit code.

    A process that dies is started again. SIGTERM and SIGINT are passed on; then the processes are waited for.
    """
    with tempfile.TemporaryDirectory(prefix="forwarder-") as shared:
        command = [sys.executable, "-m", "forwarder", *arguments]
        return asyncio.run(_Family(command, Path(shared), listening, count).run())


class _Family:
    """A parent and its children."""

    def __init__(self, command: Sequence[str], shared: Path, listening: socket.socket, count: int) -> None:
        """`shared` is a directory for what they have in common."""
        self._command = command
        self._listening = listening
        self._count = count
        self._stop = Stop()
        self._metrics = shared / "metrics"
        self._metrics.mkdir()
        self._tally_file = shared / "connections"
        self._tally = Tally.create(self._tally_file, count)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        codes = await asyncio.gather(*(self._raise_one(process) for process in range(self._count)))
        return max(codes, default=0)

    async def _raise_one(self, process: int) -> int:
        environment = {
            **os.environ,
            _INHERITED_FD: str(self._listening.fileno()),
            _TALLY: f"{process}:{self._tally_file}",
            "PROMETHEUS_MULTIPROC_DIR": str(self._metrics),
        }
        while True:
            child = await asyncio.create_subprocess_exec(
                *self._command, env=environment, pass_fds=[self._listening.fileno()], stdin=subprocess.PIPE
            )
            code = await self._watch(child)
            self._tally.note_away(process)
            mark_process_dead(child.pid, str(self._metrics))  # type: ignore[no-untyped-call]
            if self._stop.is_set():
                return abs(code)
            _log.error("process.died", pid=child.pid, exit_code=code)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _RESTART_PAUSE_SECONDS)
            if self._stop.is_set():
                return abs(code)

    async def _watch(self, child: asyncio.subprocess.Process) -> int:
        ended = asyncio.create_task(child.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            child.terminate()
        stopped.cancel()
        return await ended
