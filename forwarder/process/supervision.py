"""Processes: signals, and several processes on one port. A process stops on SIGTERM or SIGINT within its grace period and exits 0;
a second signal ends it at once."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import structlog
import uvloop
from prometheus_client.multiprocess import mark_process_dead

from forwarder.process.loading import collect_rarely

Stop = asyncio.Event  # set once the process is to end
_log = structlog.get_logger(__name__)
BACKLOG: Final = 2048  # the length of the listen queue
# The variables by which `run_processes` passes its children the shared address, and a number from 0, which a replacement keeps.
SHARED_ADDRESS: Final = "FORWARDERSHARED_ADDRESS"
PROCESS_NUMBER: Final = "FORWARDERPROCESS_NUMBER"


def run_until_signalled(main: Callable[[Stop], Awaitable[None]]) -> None:
    """Runs `main` with an event that the first SIGTERM or SIGINT sets. Returns when `main` does."""

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

        def on_parent_ended() -> None:
            loop.remove_reader(sys.stdin.fileno())  # a closed pipe is always ready: the loop would spin
            stop.set()

        if is_child():
            # Standard input is the parent's pipe: it closes when the parent ends, however it ends.
            loop.add_reader(sys.stdin.fileno(), on_parent_ended)
        await main(stop)

    collect_rarely()
    # Each connection is an open file, and the default limit is for programs that use `select`.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hasattr(os, "SCHED_BATCH"):
        # A process that wakes does not preempt others (sched(7)); needs no privilege. With fewer processors than processes, each
        # then runs longer at a time, with warm caches; with enough processors nothing changes.
        with contextlib.suppress(OSError):  # a container may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(supervised())


def is_child() -> bool:
    """True in a process that `run_processes` of another started."""
    return SHARED_ADDRESS in os.environ


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket. Raises `OSError`: the address is taken. `shared`: for `run_processes`. The socket does not listen, but
    reserves the address for the child processes: each of these binds its own socket there, ignoring `host` and `port`, and must
    listen once it serves."""
    if is_child():
        host, _, number = os.environ[SHARED_ADDRESS].rpartition(":")
        port = int(number)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be named: asyncio sets TCP_NODELAY only on such sockets.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_child():
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
        if not shared and not is_child():
            bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return bound


def own_url(listening: socket.socket, *, tls: bool = False) -> str:
    """The URL at which processes of this machine reach `listening`."""
    scheme = "https" if tls else "http"
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return f"{scheme}://localhost:{port}" if tls or ":" in host else f"{scheme}://127.0.0.1:{port}"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextlib.asynccontextmanager
async def side_by_side(work: Awaitable[Any], stop: Stop, *, until_stopped: bool = False) -> AsyncIterator[None]:
    """Runs `work` during the block, and waits for it at the end. If it fails, sets `stop`, and the end of the block raises."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda _: stop.set())

    async def cancel() -> None:
        await stop.wait()
        task.cancel()

    cancelling = asyncio.create_task(cancel()) if until_stopped else None
    try:
        yield
    finally:
        stop.set()
        if cancelling is not None:
            await cancelling
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def run_processes(arguments: Sequence[str], *, count: int, bound: socket.socket) -> int:
    """Runs `count` processes of this program with `arguments` on the shared address of `bound`; returns the exit code. Each has its
    own listen queue, and Linux distributes connections among them: from a common queue the process that wakes first takes all
    waiting connections, so that a client's few long-lived connections could all end up in one process. Restarts a process that
    dies. Forwards SIGTERM and SIGINT, then waits for the processes."""
    host, port = bound.getsockname()[:2]
    command = [sys.executable, "-m", "forwarder", *arguments]

    async def keep_up(number: int, stop: Stop, metrics_dir: str) -> int:
        own = {SHARED_ADDRESS: f"{host}:{port}", PROCESS_NUMBER: str(number), "PROMETHEUS_MULTIPROC_DIR": metrics_dir}
        while True:
            child = await asyncio.create_subprocess_exec(*command, env={**os.environ, **own}, stdin=subprocess.PIPE)
            ended = asyncio.create_task(child.wait())
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                child.terminate()
            stopped.cancel()
            code = await ended
            mark_process_dead(child.pid, metrics_dir)  # type: ignore[no-untyped-call]
            if not stop.is_set():
                _log.error("process.died", pid=child.pid, exit_code=code)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 1.0)
            if stop.is_set():
                return abs(code)

    async def keep_all_up() -> int:
        stop, loop = Stop(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        with tempfile.TemporaryDirectory(prefix="forwarder-metrics-") as metrics_dir:
            return max(await asyncio.gather(*(keep_up(each, stop, metrics_dir) for each in range(count))), default=0)

    return asyncio.run(keep_all_up())
