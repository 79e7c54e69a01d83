"""clients/typescript as it is built, tested and packed. The guide is followed in `test_in_sequence.py`."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "clients" / "typescript"
OLDEST = (20, 3)
SECONDS = 600
MADE = ("node_modules", "build", "dist", "contract.ts", "*.tgz")


def _reason_to_skip() -> str | None:
    if not shutil.which("node") or not shutil.which("npm"):
        return "node and npm are not installed"
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    version = tuple(int(part) for part in said.removeprefix("v").split("."))
    return None if version >= OLDEST else f"node {said} is older than 20.3"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A copy of the client, where a checkout has it, with the tools that its lock file names."""
    if reason := _reason_to_skip():
        pytest.skip(reason)
    client = tmp_path / "clients" / "typescript"
    shutil.copytree(CLIENT, client, ignore=shutil.ignore_patterns(*MADE))
    (tmp_path / "schemas").mkdir()
    shutil.copy(ROOT / "schemas" / "openapi.json", tmp_path / "schemas")
    done = _call(client, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
    if done.returncode and re.search(r"ENOTFOUND|ECONN|ETIMEDOUT|EAI_AGAIN|ENOTCACHED", done.stderr):
        pytest.skip(f"its tools cannot be had: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return client


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS)
async def test_it_is_built_tested_and_packed(built: Path, running: Mapping[str, str]) -> None:
    tested = await asyncio.to_thread(_print, built, "npm", "test", environment=running)
    assert re.search(r"^# fail 0$", tested, re.MULTILINE), tested
    assert re.search(r"^# skipped 0$", tested, re.MULTILINE), tested
    await asyncio.to_thread(_pack, built)


def _pack(client: Path) -> None:
    """What would be published is built code, its types, and nothing else."""
    printed = _print(client, "npm", "pack", "--json", "--silent")
    (told,) = json.loads(printed[printed.index("[\n") :])  # after what building it said
    names = {one["path"] for one in told["files"]}
    modules = {path.stem for path in (client / "src").glob("*.ts")}
    assert names == {"package.json", "README.md", "LICENSE"} | {
        f"dist/{name}{end}" for name in modules for end in (".js", ".d.ts")
    }
    assert "dependencies" not in json.loads((client / "package.json").read_text())


def _print(directory: Path, *command: str, environment: Mapping[str, str] | None = None) -> str:
    done = _call(directory, *command, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _call(
    directory: Path, *command: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it came to. It has a process group of its own: npm leaves what it started alone when it is killed."""
    with subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "NO_UPDATE_NOTIFIER": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, told = process.communicate(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, told)


def test_its_lock_file_names_no_host_to_get_things_from() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text(encoding="utf-8"))
    assert lock["packages"][""]["version"] == json.loads((CLIENT / "package.json").read_text())["version"]
    for name, package in lock["packages"].items():
        assert "resolved" not in package, name
        assert name == "" or package["integrity"], name
