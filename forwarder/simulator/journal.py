"""The file in which a simulated world outlives its process: one JSON line for each thing that happened."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json


class Journal:
    """An append-only file. What `append` wrote survives a kill -9 of this process (not a loss of power)."""

    def __init__(self, path: Path) -> None:
        """Opens it, and cuts off a last line that was not finished. Raises `OSError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+", buffering=0)
        self._file.seek(0)
        whole = self._file.read()
        self._file.truncate(whole.rfind(b"\n") + 1)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Everything that was appended, oldest first."""
        self._file.seek(0)
        for line in self._file.read().splitlines():
            yield from_json(line)

    def append(self, line: bytes) -> None:
        """Add one line of JSON, given without its end. Raises `OSError`; then it does not count as written."""
        end = self._file.seek(0, 2)
        if self._file.write(line + b"\n") != len(line) + 1:
            self._file.truncate(end)
            raise OSError("the journal's disk is full")

    def clear(self) -> None:
        """Forget everything."""
        self._file.truncate(0)

    def close(self) -> None:
        self._file.close()
