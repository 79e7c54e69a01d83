"""Environments for Python programs that need other packages than the forwarder does, in the user's cache directory, made once for
each lock file. Touches that directory, and asks the package index that pip is configured for."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tools.servers.kafka.jars import cache_directory
from tools.servers.ladder import Unavailable

_SECONDS = 300


def environment(name: str, lock_file: Path) -> Path:
    """The environment with what `lock_file` names, made now unless it is there; another lock file, or Python, has another one.
    Raises `Unavailable`."""
    digest = hashlib.sha256(lock_file.read_bytes() + sys.version.encode()).hexdigest()[:12]
    target = cache_directory() / f"{name}-{digest}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time, however many test runs start together
        if not (target / "complete").exists():
            _install(name, lock_file, target)
    return target


def _install(name: str, lock_file: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    venv.create(target, with_pip=True)
    pip: list[str | Path] = [target / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
    try:
        done = subprocess.run(
            [*pip, "install", "--require-hashes", "--requirement", lock_file],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"the packages of {name} could not be installed: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"the packages of {name} could not be installed: {done.stderr.strip()[-500:]}")
    (target / "complete").touch()
