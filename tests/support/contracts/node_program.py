"""Programs for Node whose packages npm fetches, once for each lock file, into the user's cache directory.

Touches that directory alone. Lock files name no registry: npm asks the one that it is configured for.
"""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.servers.kafka.jars import cache_directory
from tools.servers.ladder import Unavailable

_FETCH_SECONDS = 300


def installed(name: str, files: Mapping[str, str]) -> Path:
    """A directory with `files`, package.json and package-lock.json among them, and their packages; made now unless it is there.
    Other files have another one. Raises `Unavailable` where it cannot be had."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"no {program} for {name}")
    content = "\0".join(f"{file}\0{text}" for file, text in sorted(files.items()))
    target = cache_directory() / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one fetch at a time, however many test runs start together
        if not target.exists():
            _fetch(name, files, target)
    return target


def _fetch(name: str, files: Mapping[str, str], target: Path) -> None:
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for file, text in files.items():
        (partial / file).write_text(text, encoding="utf-8")
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    try:
        done = subprocess.run(command, cwd=partial, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"npm could not fetch the packages of {name}: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"npm could not fetch the packages of {name}: {done.stderr.strip()[:500]}")
    partial.rename(target)  # whole or not there, whenever the run is interrupted
