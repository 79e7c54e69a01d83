"""A disk that is small enough to run full: a tmpfs of its own, which takes the right to mount."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.servers.ladder import Unavailable

_BLOCK = bytes(64 * 1024)


class SmallDisk:
    """What is mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as file:
            for block in (_BLOCK, b"\0"):
                _write_until_full(file.write, block)

    def free(self) -> None:
        """Give back what was filled."""
        self._ballast.unlink(missing_ok=True)


def _write_until_full(write: object, block: bytes) -> None:
    assert callable(write)
    try:
        while True:
            write(block)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """An empty disk at `path`, unmounted at the end. Raises `Unavailable` where mounting is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    mode = f"mode={path.stat().st_mode & 0o777:o},uid={path.stat().st_uid}"
    options = f"size={megabytes}m,{mode}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "forwarder-test", path], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        raise Unavailable(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
