"""The jars of Apache Kafka's broker, fetched once by Maven into the user's cache directory, and what Java makes of them there.

Touches that directory alone.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.servers.ladder import Unavailable

POM = Path(__file__).parent / "pom.xml"
_FETCH_SECONDS = 300


def cache_directory() -> Path:
    """Where the tests keep what is worth fetching only once."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "reservation-forwarder"


def cached_jars() -> Path:
    """The directory that holds the jars once they are fetched; another `pom.xml` has another one."""
    return cache_directory() / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def obstacle() -> str | None:
    """Why no broker can be run from jars here; None where it can, or may once they are fetched."""
    if shutil.which("java") is None:
        return "no java for a local Kafka"
    if not cached_jars().exists() and shutil.which("mvn") is None:
        return "no mvn to fetch Kafka's jars"
    return None


def jars() -> Path:
    """The directory of the jars, fetched now unless they are there. Raises `Unavailable`."""
    target = cached_jars()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_suffix(".lock")):
        if not target.exists():
            _fetch(target)
    return target


def class_archive(write: Callable[[Path], None]) -> Path | None:
    """Where this Java finds the broker's classes loaded and checked already; `write` makes it, once. None where it made none: Java
    does without, and takes twice as long to start."""
    java = Path(shutil.which("java") or "java").resolve()
    made_by = f"{java} {java.stat().st_mtime_ns}"
    # Not among the jars: what is in that directory, in which order, is the class path that the archive holds for.
    target = cached_jars().with_name(f"{cached_jars().name}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}.jsa")
    with _locked(target.with_suffix(".lock")):
        if not target.exists():
            partial = target.with_suffix(".partial")
            write(partial)
            if partial.exists():
                partial.rename(target)
    return target if target.exists() else None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One fetch at a time, however many test runs start together."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(target: Path) -> None:
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", POM, *goal], capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"mvn could not fetch Kafka's jars: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"mvn could not fetch Kafka's jars: {done.stdout.strip()[:500]}")
    partial.rename(target)  # whole or not there, whenever the run is interrupted
