"""What the other suites rely on: real servers are found in the right order, can be killed, and never outlive the run."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from tests.support.backends import REQUIRE, missing
from tools.servers.ladder import Unavailable, plan
from tools.servers.lent_servers import Borrowed, Lender
from tools.servers.postgres.databases import EmptiedDatabases
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import FromEnvironment, RealServer

ROOT = Path(__file__).parents[2]
SOON = 30.0  # seconds; a bound for failures, not a wait


@dataclass
class FakeRung:
    origin: str
    closed_by: str | None = None
    failure: str | None = None
    starts: int = 0
    stops: int = 0

    def obstacle(self) -> str | None:
        return self.closed_by

    def start(self, open_until: ExitStack) -> str:
        self.starts += 1
        open_until.callback(self.stop)
        if self.failure is not None:
            raise Unavailable(self.failure)
        return f"at {self.origin}"

    def stop(self) -> None:
        self.stops += 1


def test_the_first_open_rung_is_taken_and_the_others_say_why_not() -> None:
    rungs = [FakeRung("named", "nothing named"), FakeRung("docker", "no daemon"), FakeRung("local"), FakeRung("never")]
    assert str(plan(rungs)) == "local (nothing named; no daemon)"
    assert str(plan(rungs[:2])) == "none, embedded alone (nothing named; no daemon)"


def test_a_server_named_in_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    named = FromEnvironment("FORWARDER_TEST_KAFKA")
    monkeypatch.delenv("FORWARDER_TEST_KAFKA", raising=False)
    assert plan([named, FakeRung("local")]).chosen != named
    monkeypatch.setenv("FORWARDER_TEST_KAFKA", "there:9092")
    with ExitStack() as stack:
        assert plan([named, FakeRung("local")]).start(stack) == "there:9092"


def test_a_server_is_started_at_its_first_use_and_once() -> None:
    rung = FakeRung("local")
    with ExitStack() as stack:
        server = RealServer("Kafka", [rung], stack)
        assert (rung.starts, server.found()) == (0, None)
        assert server.address() == server.address() == "at local"
        assert rung.starts == 1
        assert "at local" in (server.found() or "")


def test_a_server_that_cannot_start_is_not_tried_again_and_says_why() -> None:
    rung = FakeRung("local", failure="it is broken")
    with ExitStack() as stack:
        server = RealServer("Kafka", [rung], stack)
        for _ in range(2):
            with pytest.raises(Unavailable, match="it is broken"):
                server.address()
    assert rung.starts == 1
    assert server.found() == "Kafka: not tested, it is broken"


def test_a_rung_that_breaks_gives_way_to_the_next_and_leaves_nothing_open() -> None:
    docker = FakeRung("docker", failure="no such image")
    rungs = [FakeRung("named", "nothing named"), docker, FakeRung("remote", "no network"), FakeRung("local")]
    with ExitStack() as stack:
        server = RealServer("Kafka", rungs, stack)
        assert server.planned() == "Kafka: docker (nothing named)"
        assert server.address() == "at local"
        assert (docker.starts, docker.stops, rungs[-1].stops) == (1, 1, 0)
        assert "Kafka: local (nothing named; no such image; no network), at " in (server.found() or "")
    assert rungs[-1].stops == 1


def test_where_every_rung_breaks_each_says_why() -> None:
    with ExitStack() as stack:
        server = RealServer("Kafka", [FakeRung("docker", failure="no image"), FakeRung("local", "no java")], stack)
        with pytest.raises(Unavailable, match="no image; no java"):
            server.address()


def test_a_server_that_is_lent_is_started_once_however_many_ask(tmp_path: Path) -> None:
    rung, broken = FakeRung("local"), FakeRung("broken", failure="it is broken")
    with ExitStack() as stack:
        servers = {"kafka": RealServer("Kafka", [rung], stack), "postgres": RealServer("PostgreSQL", [broken], stack)}
        lender = stack.enter_context(Lender(tmp_path, servers))
        processes = [{name: Borrowed(lender.address, name) for name in servers} for _ in range(3)]
        assert rung.starts == 0
        with ThreadPoolExecutor(len(processes)) as threads:
            assert {*threads.map(lambda process: process["kafka"].address(), processes)} == {"at local"}
        for process in processes:
            with pytest.raises(Unavailable, match="it is broken"):
                process["postgres"].address()
    assert (rung.starts, rung.stops, broken.starts) == (1, 1, 1)


def test_a_missing_server_is_a_failure_where_real_ones_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no java"):
        missing(Unavailable("no java"))
    monkeypatch.setenv(REQUIRE, "real")
    with pytest.raises(pytest.fail.Exception, match="no java"):
        missing(Unavailable("no java"))


async def test_postgres_comes_back_from_kill_9_with_what_was_committed(postgres_server: PostgresServer) -> None:
    await _execute(postgres_server, "create table kept as select 1 as one")
    await asyncio.to_thread(postgres_server.kill)
    assert not postgres_server.running
    await asyncio.to_thread(postgres_server.start)
    assert await _execute(postgres_server, "select one from kept") == 1


async def _execute(server: PostgresServer, statement: str) -> object:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_a_database_is_lent_again_unless_its_schema_was_changed(
    postgres_url: str, migrated_template: str
) -> None:
    databases = EmptiedDatabases(postgres_url, migrated_template)
    try:
        lent = await changed(databases, "INSERT INTO workspaces (id, created_at) VALUES ('w', now())")
        for change in (
            "ALTER TABLE reservations RENAME COLUMN request_id TO request_number",
            "ALTER TABLE audit DISABLE TRIGGER USER",
            "CREATE FUNCTION added() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ):
            assert await changed(databases, change) == lent
            another = await changed(databases, "SELECT request_id FROM reservations")
            assert another != lent, change
            lent = another
    finally:
        await databases.close()


async def changed(databases: EmptiedDatabases, statement: str) -> str:
    """The database that was lent to execute `statement`."""
    async with databases.lent() as url, new_session(url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM workspaces") == 0
        await connection.execute(statement)
    return url


@asynccontextmanager
async def new_session(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url.replace("postgresql+asyncpg", "postgresql"))
    try:
        yield connection
    finally:
        await connection.close()


RUN_WITH_A_SERVER = """
import sys, time
from pathlib import Path
from tools.servers.reaper import Reaper
from tools.servers.server_process import Command, ServerProcess
with Reaper() as reaper:
    home = reaper.directory()
    command = Command("a server", [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"],
                      home / "log", "ready")
    server = ServerProcess(command, reaper)
    server.start()
    print(server.pid, home, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_run_that_is_killed_leaves_no_server_and_no_directory(number: signal.Signals) -> None:
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN_WITH_A_SERVER, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert run.stdout is not None
    pid, home = (await run.stdout.readline()).decode().split()
    run.send_signal(number)
    await run.wait()
    async with asyncio.timeout(SOON):
        while _is_there(int(pid)) or await asyncio.to_thread(Path(home).exists):
            await asyncio.sleep(0.01)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
