"""How much memory a process of ours has had, as Linux shows it."""

import re
from pathlib import Path

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_NOW = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


def peak_megabytes(pid: int) -> float:
    """The most that it ever had in memory at one time, since its start; 0.0 where the system does not show it."""
    return _shown(pid, _PEAK)


def megabytes(pid: int) -> float:
    """What it has in memory now; 0.0 where the system does not show it."""
    return _shown(pid, _NOW)


def _shown(pid: int, line: re.Pattern[str]) -> float:
    status = Path(f"/proc/{pid}/status")
    found = line.search(status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else 0.0
