"""`forwarder adapters check --account`: what is said before anything is sent, what is asked of the PMS, and what is never shown."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio

from forwarder.http.server import serve
from forwarder.process.clock import SystemClock
from forwarder.process.supervision import Stop, bind
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.deployment import warm

SECRET = "very-s3cret-of-acme"
CHECKS = ("--check", "makes-reservations", "--check", "survives-wrong-settings")


@dataclass(frozen=True, slots=True)
class Command:
    """Runs `forwarder` in a directory of its own, where account `acc` of kind guesty is at the simulator `at`."""

    directory: Path
    at: str
    asked: list[str]

    async def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        root = str(Path(__file__).parents[3])
        environment = {**os.environ, "PYTHONPATH": root, "FORWARDER_DATA_DIR": str(self.directory / ".forwarder")}
        return await asyncio.to_thread(warm.run, list(arguments), environment)

    async def check(self, *arguments: str, kind: str = "guesty") -> subprocess.CompletedProcess[str]:
        return await self("adapters", "check", kind, "--account", "acc", *arguments)


@pytest_asyncio.fixture
async def command(tmp_path: Path, migrated_file: Path) -> AsyncIterator[Command]:
    asked: list[str] = []
    (tmp_path / ".forwarder").mkdir()
    shutil.copy(migrated_file, tmp_path / ".forwarder")
    with World(SystemClock()) as world:
        listening, stop = bind("127.0.0.1", 0), Stop()
        serving = asyncio.create_task(serve(_heard(simulator_app(world), asked), listening, stop, grace_seconds=1.0))
        try:
            made = Command(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}/acme/guesty/v1", asked)
            added = await made("workspace", "add", "acme")
            assert added.returncode == 0, added.stderr
            where = ("--workspace", "acme", "--kind", "guesty", "--id", "acc", "--base-url", made.at)
            added = await made("account", "add", *where, "--credential", f"acme-client:{SECRET}")
            assert added.returncode == 0, added.stderr
            yield made
        finally:
            stop.set()
            await serving
            listening.close()


def _heard(app: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    async def heard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            asked.append(f"{scope['method']} {scope['path']}")
        await app(scope, receive, send)

    return heard


async def test_nothing_is_sent_before_a_yes(command: Command) -> None:
    refused = await command.check("--property", "77", "--first-night", "2027-05-01")
    assert refused.returncode == 1
    assert "Nothing was sent" in refused.stderr
    for said in (command.at, "account acc of workspace acme", "property 77", "2027-05-01", "POST ", "listingId"):
        assert said in refused.stderr
    assert command.asked == []


async def test_what_makes_no_sense_is_refused_before(command: Command) -> None:
    for arguments, kind, says in (
        ((), "guesty", "--property"),
        (("--property", "77"), "lodgify", "is of kind guesty, not lodgify"),
        (("--property", "77", "--base-url", "https://elsewhere.test/v1"), "guesty", "give another one by"),
        (("--property", "77", "--option", "tokenUrl=https://elsewhere.test/t"), "guesty", "give another one by"),
        (("--property", "77", "--option", "nonsense=1"), "guesty", "nonsense"),
    ):
        refused = await command.check("--yes", *arguments, kind=kind)
        assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
    assert command.asked == []


async def test_it_books_as_the_account_by_a_token_that_is_lent(command: Command) -> None:
    done = await command.check("--property", "77", "--yes", "--json", *CHECKS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["check"]: row["verdict"] for row in json.loads(done.stdout)} == {
        "makes-reservations": "passed",
        "survives-wrong-settings": "passed",
    }
    tokens = [one for one in command.asked if one.endswith("/oauth2/token")]
    assert (len(tokens), command.asked[0]) == (1, tokens[0])  # before anything was broken on purpose
    assert SECRET not in done.stdout + done.stderr
    assert "token-of-acme-client" not in done.stdout + done.stderr
    trail = await command("audit", "list", "--json")
    assert "account.check" in trail.stdout


async def test_an_account_that_is_not_let_in_books_nothing(command: Command) -> None:
    assert (await command("account", "set", "acc", "--credential", "acme-client:wrong")).returncode == 0
    refused = await command.check("--property", "77", "--yes", *CHECKS)
    assert refused.returncode == 1
    assert "nothing was booked" in refused.stderr
    assert "pms_unauthorized" in refused.stderr
    assert not [one for one in command.asked if one.startswith("POST") and "oauth2" not in one]
