"""CPU time of whole process trees, as Linux counts it below `/proc`: exact, but in ticks of 10 ms. Elsewhere all of it is 0."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
# Of the fields of /proc/<pid>/stat that follow the command's closing bracket.
_PARENT, _USED = 1, slice(11, 15)  # user, system, and the same of the children that have ended
_IDLE = slice(3, 5)  # of the processors' line in /proc/stat: idle, and waiting for a disk
_COUNTED_TWICE = 8  # from here on guests, who are in the user's time already
_ENGINES: Final = {"Kafka": b"kafka.Kafka", "PostgreSQL": b"/postgres\0"}


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    seconds: float


def _processes() -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks = sum(map(int, fields[_USED]))
        found[int(path.parent.name)] = _Process(int(fields[_PARENT]), ticks / _TICKS_A_SECOND)
    return found


def _descendants(root: int, processes: Mapping[int, _Process]) -> Iterator[int]:
    if root in processes:
        yield root
    for pid, process in processes.items():
        if process.parent == root:
            yield from _descendants(pid, processes)


def _used(root: int, processes: Mapping[int, _Process]) -> float:
    return sum(processes[pid].seconds for pid in _descendants(root, processes))


def descendants(root: int) -> list[int]:
    """The process and all that descend from it."""
    return list(_descendants(root, _processes()))


def tree_seconds(root: int) -> float:
    """What they have used since they were started."""
    return _used(root, _processes())


def engines() -> dict[str, list[int]]:
    """Kafka's and PostgreSQL's processes among the children of this one, by name; none where they run elsewhere."""
    found: dict[str, list[int]] = {}
    for pid, process in _processes().items():
        command = _command(pid) if process.parent == os.getpid() else b""
        for name, mark in _ENGINES.items():
            if mark in command:
                found.setdefault(name, []).append(pid)
    return found


def _command(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def _machine_seconds() -> float:
    """What all processors of the machine have been busy."""
    statistics = _PROC / "stat"
    if not statistics.exists():
        return 0.0
    ticks = [int(field) for field in statistics.read_text().split("\n", 1)[0].split()[1:]]
    return (sum(ticks[:_COUNTED_TWICE]) - sum(ticks[_IDLE])) / _TICKS_A_SECOND


class Meter:
    """What the named process trees use from its making on. The bench's own process is among them, as `bench`."""

    def __init__(self, roots: Mapping[str, Sequence[int]]) -> None:
        self._roots = roots
        self._before = self._read()

    def spent(self) -> dict[str, float]:
        """Seconds by name; `machine`: by everything that runs on it."""
        return {name: seconds - self._before[name] for name, seconds in self._read().items()}

    def _read(self) -> dict[str, float]:
        processes = _processes()
        used = {name: sum(_used(pid, processes) for pid in pids) for name, pids in self._roots.items()}
        return {**used, "bench": sum(os.times()[:2]), "machine": _machine_seconds()}
