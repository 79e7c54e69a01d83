"""Processes of ours that start at once, forked from one that has imported the forwarder already.

Importing is more than a second of processor time, and the tests start hundreds of processes. Each runs the `forwarder` command as
it is, in a session, with an environment and output of its own; it can be signalled, killed and waited for like any other. Only its
parent is another: `tests/journey/test_command.py` starts the command as a user does.

The parent is one process for each process of the tests, and ends when that does. Needs Linux.
"""

import asyncio
import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Lock
from typing import IO, Any

import anyio
import anyio.lowlevel

_MAX_REQUEST_BYTES = 1 << 17
_PID_BYTES = 10


class WarmProcess:
    """What `subprocess.Popen` is, as far as the tests need it."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._lock = Lock()
        self.returncode: int | None = None
        said = os.read(status, _PID_BYTES)
        if not said:
            raise RuntimeError("nothing can be forked: importing the forwarder failed")
        self.pid = int(said)

    def poll(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Block until it has ended. Raises `subprocess.TimeoutExpired`."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["forwarder"], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Signal the process, where it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _look(self, seconds: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
                said = os.read(self._status, 16)
                self.returncode = int(said) if said else -signal.SIGKILL
                os.close(self._status)
            return self.returncode


def start(arguments: Sequence[str], environment: Mapping[str, str], out: IO[Any], err: IO[Any]) -> WarmProcess:
    """Run `forwarder` with those arguments, with nothing to read, in a session of its own. `environment` is all that it has."""
    status, its_status = os.pipe()
    request = json.dumps({"arguments": list(arguments), "environment": dict(environment), "directory": str(Path.cwd())})
    try:
        with _lock:
            channel = _server()
            socket.send_fds(channel, [request.encode()], [out.fileno(), err.fileno(), its_status])
    finally:
        os.close(its_status)
    return WarmProcess(status)


def run(
    arguments: Sequence[str], environment: Mapping[str, str], seconds: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """As `start`, to its end: what it came to and wrote. Raises `subprocess.TimeoutExpired`."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        code = start(arguments, environment, out, err).wait(seconds)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


_lock = Lock()
"""Whoever starts the first processes does so from several threads at once: they are one server's all the same."""


def children(pid: int) -> list[int]:
    """The processes that the process has started and has now, the eldest first; none where the system does not show them."""
    file = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in file.read_text().split()] if file.exists() else []


@cache
def _server() -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())], pass_fds=[its.fileno()], start_new_session=True
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(channel: socket.socket) -> list[str]:
    """Fork whatever is asked for, until nobody can ask any more. Returns in each child, with the arguments of its command."""
    _import_everything()
    ended, tell = socket.socketpair()
    ended.setblocking(False)
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([channel, ended], [], [])
        if ended in ready:
            ended.recv(4096)
            _report_ended(running)
        if channel not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(channel, _MAX_REQUEST_BYTES, 3)
        if not data:
            os._exit(0)
        *output, status = descriptors
        pid = os.fork()
        if pid == 0:
            for end in (channel, ended, tell):
                end.close()
            return _become(json.loads(data), output, status)
        running[pid] = status
        for descriptor in output:
            os.close(descriptor)


def _import_everything() -> None:
    import forwarder
    from forwarder.pms import registry

    for module in pkgutil.walk_packages(forwarder.__path__, "forwarder."):
        if ".migrations" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    dict(registry.KINDS)  # reads their pages
    asyncio.run(_do_what_imports_late())
    gc.freeze()


async def _do_what_imports_late() -> None:
    """What a process imports and builds only as it begins to work, which is as much again: Alembic, anyio, statements."""
    from forwarder.store.engine import open_engine
    from forwarder.store.migrate import migrate
    from forwarder.store.submissions.recorder import Recorder

    with TemporaryDirectory() as directory:
        file = Path(directory) / "store.sqlite3"
        await migrate(file)
        for database in (file, "postgresql://nowhere"):
            Recorder(open_engine(database))
    await anyio.lowlevel.checkpoint()


def _report_ended(running: dict[int, int]) -> None:
    while running:
        pid, code = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        status = running.pop(pid)
        os.write(status, str(os.waitstatus_to_exitcode(code)).encode())
        os.close(status)


def _become(request: Mapping[str, Any], output: Sequence[int], status: int) -> list[str]:
    os.setsid()
    os.write(status, str(os.getpid()).ljust(_PID_BYTES).encode())  # from now on its group can be signalled
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  # a descriptor is all that is wanted
        for number, descriptor in enumerate((nothing.fileno(), *output)):
            os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:0] = added
    arguments: list[str] = request["arguments"]
    return arguments


def _main() -> None:
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    from forwarder.cli.program import run

    sys.argv = ["forwarder", *arguments]
    run()


if __name__ == "__main__":
    _main()
