"""Runs `forwarder` under a wall clock that a test sets: `python -m tests.fault.jumping_clock FILE command…`.

`FILE` holds by how many seconds the clock is wrong. Every moment that our code knows comes from `SystemClock.now`. The monotonic
clock goes on as it is, and so does the time that libraries read by themselves.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from forwarder.cli.program import run
from forwarder.process.clock import SystemClock


def launcher(file: Path) -> Sequence[str]:
    """What Python is to run in place of `-m forwarder`."""
    return ("-m", "tests.fault.jumping_clock", str(file))


def jump(file: Path, seconds: int) -> None:
    """From now on, be so far from the right time."""
    beside = file.with_suffix(".new")
    beside.write_text(str(seconds))
    beside.replace(file)


def _go_by(file: Path) -> None:
    def now(_clock: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=int(file.read_text()))

    setattr(SystemClock, "now", now)  # noqa: B010 - a method, which may not be assigned to


if __name__ == "__main__":
    _go_by(Path(sys.argv.pop(1)))
    run()
