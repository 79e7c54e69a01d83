"""The data directory of an embedded forwarder: its own secret, and the lock that keeps a second one out. Touches files only."""

import fcntl
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_KEY_FILE: Final = "secret.key"
_LOCK_FILE: Final = "up.lock"


class AlreadyRunning(RuntimeError):
    """Another process works on the data directory. The message names it."""


@contextmanager
def alone_in(data_dir: Path) -> Iterator[None]:
    """No other process runs on this directory meanwhile; the lock ends with the process, however that ends.

    Raises `AlreadyRunning`.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / _LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"a forwarder already runs on the data directory {data_dir}") from None
        yield


def secret_in(data_dir: Path) -> str:
    """The secret that this directory's forwarder made for itself (mode 0600), made now where there is none."""
    path = data_dir / _KEY_FILE
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32), encoding="ascii")
    return path.read_text(encoding="ascii").strip()
