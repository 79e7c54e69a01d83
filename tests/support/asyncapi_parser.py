"""AsyncAPI's own parser, which is written for Node: fetched once by npm into the user's cache directory.

Touches that directory alone.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kafka_jars import cache_directory
from tests.support.ladder import Unavailable

_SOURCE = Path(__file__).parent / "asyncapi"
_FILES = ("package.json", "package-lock.json", "check.mjs")
_FETCH_SECONDS = 300
_PARSE_SECONDS = 60
_ADVICE = 2
"""The parser's severities count down in weight: 0 is an error, 1 a warning, from here on it is advice."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`understood`: the parser made a document of it. `faults`: its errors and warnings."""

    understood: bool
    faults: Sequence[str]


def parse(document: str) -> Verdict:
    """What the parser says of `document`. Raises `Unavailable` where it cannot be had."""
    program = _installed() / "check.mjs"
    done = subprocess.run(
        ["node", program], input=document, capture_output=True, text=True, timeout=_PARSE_SECONDS, check=True
    )
    said: dict[str, Any] = json.loads(done.stdout)
    grave = [one for one in said["diagnostics"] if one["severity"] < _ADVICE]
    return Verdict(said["document"], [f"{'/'.join(map(str, one['path']))}: {one['message']}" for one in grave])


def _installed() -> Path:
    """The directory of the program, put there now unless it is there; another lock file has another one."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"no {program} for AsyncAPI's parser")
    content = b"".join((_SOURCE / name).read_bytes() for name in _FILES)
    target = cache_directory() / f"asyncapi-{hashlib.sha256(content).hexdigest()[:12]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one fetch at a time, however many test runs start together
        if not target.exists():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name in _FILES:
        shutil.copy(_SOURCE / name, partial)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    try:
        done = subprocess.run(command, cwd=partial, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"npm could not fetch AsyncAPI's parser: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"npm could not fetch AsyncAPI's parser: {done.stderr.strip()[:500]}")
    partial.rename(target)  # whole or not there, whenever the run is interrupted
