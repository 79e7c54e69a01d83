"""A client that openapi-python-client generates from a contract, and an environment to run it in.

The generator has an environment of its own in the user's cache directory, made once from its lock file: what it needs is not
what the forwarder needs.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from tools.servers.kafka_jars import cache_directory
from tools.servers.ladder import Unavailable

LOCK = Path(__file__).parent / "openapi_client" / "requirements.lock"
PACKAGE = "reservations"
_SECONDS = 300


def generate(contract: Path, folder: Path) -> Path:
    """The package generated from `contract`, in `folder`. Fails where the generator warns of anything. Raises `Unavailable`."""
    made = folder / PACKAGE
    done = _call(["openapi-python-client", "generate", "--path", contract, "--output-path", made, "--meta", "none"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arning" not in done.stdout + done.stderr, done.stdout + done.stderr
    return made


def run(script: Path, package: Path, arguments: Sequence[str]) -> str:
    """What `script` prints, with the generated `package` to import."""
    done = _call(["python", "-W", "error", script, *arguments], PYTHONPATH=str(package.parent))
    assert done.returncode == 0, done.stderr
    return done.stdout


def _call(command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    programs = _installed() / "bin"
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [programs / command[0], *command[1:]],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _installed() -> Path:
    """The environment, made now unless it is there; another lock file, or Python, has another one."""
    name = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    target = cache_directory() / f"openapi-client-{name}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time, however many test runs start together
        if not (target / "complete").exists():
            _install(target)
    return target


def _install(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    venv.create(target, with_pip=True)
    command: list[str | Path] = [
        target / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
    ]
    try:
        done = subprocess.run(
            [*command, "--require-hashes", "--requirement", LOCK],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"the client generator could not be installed: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"the client generator could not be installed: {done.stderr.strip()[-500:]}")
    (target / "complete").touch()
