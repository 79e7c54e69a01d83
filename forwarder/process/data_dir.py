"""The data directory of an embedded forwarder: private to its user, with its own secret, and a lock against a second process."""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class AlreadyRunning(RuntimeError):
    """Another process uses the data directory. The message names it."""


class NotPrivate(RuntimeError):
    """The directory, or a file in it, cannot be used safely. The message says which, and how to fix it."""


def make_private(data_dir: Path) -> None:
    """Creates the directory and makes it and its files private to this user, whatever the umask; later files of this process are
    private too. Raises `NotPrivate` if it belongs to another user, or has a symbolic link among its files, which may lead
    anywhere."""
    os.umask(stat.S_IRWXG | stat.S_IRWXO)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotPrivate(f"The data directory {data_dir} cannot be made: {error.strerror}.") from error
    if data_dir.stat().st_uid != os.geteuid():
        raise NotPrivate(f"The data directory {data_dir} belongs to another user: choose one of your own.")
    data_dir.chmod(stat.S_IRWXU)
    for file in data_dir.iterdir():
        if file.is_symlink():
            raise NotPrivate(f"{file} is a symbolic link: the data directory must hold its files itself.")
        if file.is_file():
            file.chmod(stat.S_IRUSR | stat.S_IWUSR)


@contextmanager
def alone_in(data_dir: Path) -> Iterator[None]:
    """Locks the directory against other processes; the lock ends with the process, however that ends. Raises `AlreadyRunning`."""
    make_private(data_dir)
    with (data_dir / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"a forwarder already runs on the data directory {data_dir}") from None
        yield


def secret_in(data_dir: Path) -> str:
    """The directory's own secret (mode 0600), generated if there is none. Raises `NotPrivate` for an empty one."""
    path = data_dir / "secret.key"
    if not path.exists():
        made = path.with_suffix(".new")  # whole, or not there
        made.touch(mode=0o600)
        made.write_text(secrets.token_urlsafe(32), encoding="ascii")
        made.replace(path)
    secret = path.read_text(encoding="ascii").strip()
    if not secret:
        raise NotPrivate(f"{path} is empty: restore it from a backup, or remove it if this deployment has never run.")
    return secret
