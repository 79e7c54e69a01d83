"""Leaves no server and no directory behind, even when the test run itself is killed with -9.

`Reaper` (used by the test run) keeps a pipe to a small process that runs this very file. When the pipe closes, for
whatever reason, that process kills every process group still on its list and removes the directories it was told of.
It touches nothing else. Standard library only, because the small process runs without the project's packages.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self


class Reaper:
    """Open it with `with` around everything that starts servers.

    What was adopted and not released is killed at the end.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # Its own session: Ctrl-C reaches the test run, which stops its servers in order, and not the reaper.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate(timeout=30)

    def adopt(self, group: int) -> None:
        """From now on the process group `group` does not outlive this test run."""
        self._say(f"adopt {group}")

    def release(self, group: int) -> None:
        """The group has ended; its number may be given to a stranger."""
        self._say(f"release {group}")

    def directory(self) -> Path:
        """A new empty directory, removed at the end. Servers that run as another user can reach what is inside."""
        path = Path(tempfile.mkdtemp(prefix="forwarder-test-"))
        self._say(f"remove {path}")
        path.chmod(0o711)
        return path

    def _say(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("the reaper is not running: open it with `with`")
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()


def reap(orders: IO[str]) -> None:
    """Follow `orders` to their end, then kill and remove what they left on the list."""
    groups: set[int] = set()
    directories: list[str] = []
    for order in orders:
        verb, _, argument = order.rstrip("\n").partition(" ")
        match verb:
            case "adopt":
                groups.add(int(argument))
            case "release":
                groups.discard(int(argument))
            case "remove":
                directories.append(argument)
    for group in groups:
        _kill(group)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    reap(sys.stdin)
