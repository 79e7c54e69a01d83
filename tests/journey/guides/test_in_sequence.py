"""The guides followed as printed, one after the other in one deployment: no page may break a later one by what it leaves."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.deployment.deployment import Deployment, Site, site_settings
from tests.support.deployment.guide import files_of
from tools.servers.real_servers import RealServers

ROOT = Path(__file__).parents[3]
GUIDES = ROOT / "docs" / "guides"
SECONDS = 300
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FAILED = re.compile(r'"success": ?false|idempotency_key_reused|Traceback')


@dataclass(frozen=True)
class Guide:
    """A page whose `sh` blocks are run in one shell, with the page's files in `directory`. `prints`: what must be printed, in that
    order. `needs`: programs without which the page is skipped."""

    page: Path
    prints: Sequence[str] = ()
    needs: Sequence[str] = ()
    directory: str = "."


SEQUENCE: Sequence[Guide] = (
    Guide(ROOT / "README.md", ['"status":"CONFIRMED"'], ["curl"]),
    Guide(GUIDES / "first-steps.md", ['"status":"CONFIRMED"', "CONFIRMED", "reservation.confirmed.v1"], ["curl"]),
    Guide(
        GUIDES / "client.md",
        [
            "booked as ",
            "refused: /currency",
            "safe\nsafe\nsafe\n",
            "cancelled: CANCELLED",
            "CONFIRMED",
            "C-0",
            "whsec_",
        ],
    ),
    Guide(
        GUIDES / "client-typescript.md",
        ["booked as ", "refused: /numberOfGuests", "safe\nsafe\nsafe\n", "cancelled: CANCELLED", "whsec_"],
        ["node", "npm"],
        "dist/bookings",
    ),
    Guide(
        GUIDES / "client-http.md",
        ['"status":"CONFIRMED"', '201 {"success":true', '"roomId":"H-2"', '201 {"success":true', '"roomId":"H-3"'],
        ["curl", "javac", "go"],
    ),
    Guide(GUIDES / "submit-reservations.md", ['"status":"CONFIRMED"', '"status":"CANCELLED"'], ["curl"]),
)


@pytest.fixture
async def checkout(tmp_path: Path, real_servers: RealServers) -> AsyncIterator[Path]:
    """A checkout in which `make run` is in progress."""
    as_the_guides_say = {"FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}
    settings = site_settings("embedded", tmp_path, None, None) | as_the_guides_say
    deployment = Deployment(Site("embedded", tmp_path, settings, real_servers.reaper))
    deployment.add("up")
    directory = tmp_path / "checkout"
    directory.mkdir()
    (directory / ".venv").symlink_to(sys.prefix)
    (directory / "schemas").symlink_to(ROOT / "schemas")
    made = shutil.ignore_patterns("node_modules", "build", "dist", "contract.ts", "*.tgz")
    shutil.copytree(ROOT / "clients", directory / "clients", ignore=made)
    try:
        await deployment.start()
        (environment,) = tmp_path.rglob("demo.env")
        (directory / ".forwarder").symlink_to(environment.parent)
        yield directory
    finally:
        await deployment.stop()
        await deployment.client.aclose()


@pytest.mark.slow
@pytest.mark.timeout(6 * SECONDS)
async def test_the_guides_are_followed_as_printed(checkout: Path) -> None:
    skipped = []
    submission = ""
    for guide in SEQUENCE:
        if missing := [program for program in guide.needs if not shutil.which(program)]:
            skipped.append(f"{guide.page.name} needs {', '.join(missing)}")
            continue
        script = "\n".join(["set -e", *_SHELL.findall(guide.page.read_text(encoding="utf-8"))])
        files = checkout / guide.directory
        files.mkdir(parents=True, exist_ok=True)
        for name, text in files_of(guide.page).items():
            (files / name).write_text(text, encoding="utf-8")
        printed = await asyncio.to_thread(_run, checkout, script.replace("rsv_…", submission))
        assert not _FAILED.search(printed), f"{guide.page.name}: {printed}"
        at = 0
        for text in guide.prints:
            assert text in printed[at:], f"{guide.page.name} does not print {text!r}: {printed}"
            at = printed.index(text, at) + len(text)
        submission = next(iter(re.findall(r"rsv_[a-z0-9]{32}", printed)), submission)
    if skipped:
        pytest.skip("; ".join(skipped))


def _run(checkout: Path, script: str) -> str:
    """What the script prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FORWARDER_")}
    done = subprocess.run(
        ["bash", "-c", script], cwd=checkout, env=clean, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if re.search(r"ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|ENOTCACHED", done.stderr):
        pytest.skip(f"packages cannot be had: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout
