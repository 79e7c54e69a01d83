"""AsyncAPI's own parser, which is written for Node."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.contracts.node_program import installed

_SOURCE = Path(__file__).parent / "asyncapi"
_FILES = ("package.json", "package-lock.json", "check.mjs")
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
    return installed("asyncapi", {name: (_SOURCE / name).read_text(encoding="utf-8") for name in _FILES})
