"""Runs the tests as CI does: what fails is tried again alone, once, and passes only if it passes then, named as flaky.

    python -m tools.tried_again COMMAND…     COMMAND runs pytest with pytest-xdist; it names no files

Three tests at the most, and none that shows that nothing is lost or made twice: where these fail once, that is a finding.
Exits as pytest does.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

MAX_TRIED_AGAIN: Final = 3
GUARANTEES: Final = Path(__file__).parent.parent / "docs" / "explanation" / "guarantees.md"
_NEVER_AGAIN: Final = (
    "tests/fault/",
    "tests/net/",
    "tests/contract/test_webhook_guarantees.py",
    "tests/journey/test_main_job.py",
)
_HEADINGS: Final = ("Never twice", "Never lost", "Cancelled stays cancelled", "Safe by the specification alone")
_FAILED: Final = (
    "--numprocesses=0",
    "--last-failed",
    "--last-failed-no-failures=none",
    "--collect-only",
    "--verbosity=-1",
)


def main(command: Sequence[str]) -> int:
    """The exit code for CI."""
    code = subprocess.run([*command, "--cache-clear"], check=False).returncode
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    failed = _failed(command)
    if reason := why_not_again(failed, never_again(GUARANTEES.read_text(encoding="utf-8"))):
        print(f"not tried again: {reason}", flush=True)
        return code
    print("\n".join(["", f"== tried again, alone: {len(failed)}", *failed]), flush=True)
    code = subprocess.run([*command, "--numprocesses=0", *failed], check=False).returncode
    said = "FAILED AGAIN" if code else "FLAKY: failed, and passed when tried again alone. Mend what makes it so"
    print("\n".join(["", f"== {said}:", *failed]), flush=True)
    return code


def why_not_again(failed: Sequence[str], never: Sequence[str]) -> str:
    """What keeps these tests, by their ids, from being tried again; empty where nothing does."""
    if not 1 <= len(failed) <= MAX_TRIED_AGAIN:
        return f"{len(failed)} failed, and up to {MAX_TRIED_AGAIN} would be"
    findings = [test for test in failed if test.startswith(tuple(never))]
    return f"shows that nothing is lost or made twice: {', '.join(findings)}" if findings else ""


def never_again(guarantees: str) -> Sequence[str]:
    """How the ids begin of those that are not tried again, some of them named on the page of guarantees."""
    sections = [text for text in guarantees.split("\n### ") if text.partition("\n")[0] in _HEADINGS]
    return [*_NEVER_AGAIN, *(path for text in sections for path in re.findall(r"`(tests/[\w/.]+)`", text))]


def _failed(command: Sequence[str]) -> Sequence[str]:
    """The ids of what failed in the run before."""
    listed = subprocess.run([*command, *_FAILED], check=False, stdout=subprocess.PIPE, text=True)
    return [line for line in listed.stdout.splitlines() if re.match(r"tests/[\w/]+\.py::", line)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
