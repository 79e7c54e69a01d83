"""The processes that a process of ours has started, as Linux shows them."""

from pathlib import Path


def children(pid: int) -> list[int]:
    """Those that it has now, the eldest first; none where the system does not show them."""
    file = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in file.read_text().split()] if file.exists() else []
