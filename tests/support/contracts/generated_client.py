"""A client that openapi-python-client generates from a contract, and an environment to run it in."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.contracts.environments import environment

LOCK = Path(__file__).parent / "openapi_client" / "requirements.lock"
CONFIGURATION = LOCK.with_name("generator.yaml")
PACKAGE = "reservations"
_SECONDS = 300


def generate(contract: Path, folder: Path) -> Path:
    """The package generated from `contract`, in `folder`. Fails where the generator warns of anything. Raises `Unavailable`."""
    made = folder / PACKAGE
    options: list[str | Path] = ["--path", contract, "--output-path", made, "--meta", "none", "--config", CONFIGURATION]
    done = _call(["openapi-python-client", "generate", *options])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arning" not in done.stdout + done.stderr, done.stdout + done.stderr
    return made


def run(script: Path, package: Path, arguments: Sequence[str]) -> str:
    """What `script` prints, with the generated `package` to import."""
    done = _call(["python", "-W", "error", script, *arguments], PYTHONPATH=str(package.parent))
    assert done.returncode == 0, done.stderr
    return done.stdout


def _call(command: Sequence[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    programs = environment("openapi-client", LOCK) / "bin"
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [programs / command[0], *command[1:]],
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
