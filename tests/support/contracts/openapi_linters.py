"""What Redocly and Spectral say of an OpenAPI document, by their recommended rules."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.contracts.node_program import installed

_SOURCE = Path(__file__).parent / "linters"
_FILES = ("package.json", "package-lock.json", "spectral.yaml")
_SECONDS = 200


def redocly(document: Path) -> list[str]:
    """Errors and warnings. Raises `Unavailable` where it cannot be had."""
    found = _json(["redocly", "lint", str(document), "--extends=recommended", "--format=json"])
    return [f"{one['ruleId']}: {one['message']}" for one in found["problems"]]


def spectral(document: Path) -> list[str]:
    """Errors, warnings, information and hints. Raises `Unavailable` where it cannot be had."""
    command = ["spectral", "lint", str(document), "--ruleset=spectral.yaml", "--format=json", "--quiet"]
    return [f"{one['code']}: {'.'.join(map(str, one['path']))}: {one['message']}" for one in _json(command)]


def _json(command: list[str]) -> Any:
    program, *arguments = command
    place = installed("contract-linters", {name: (_SOURCE / name).read_text(encoding="utf-8") for name in _FILES})
    done = subprocess.run(
        [place / "node_modules" / ".bin" / program, *arguments],
        cwd=place,
        env={"PATH": os.environ["PATH"], "HOME": str(place), "REDOCLY_TELEMETRY": "off", "CI": "1"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.stdout.strip(), done.stderr
    return json.loads(done.stdout)
