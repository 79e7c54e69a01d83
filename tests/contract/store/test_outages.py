"""What callers of the store meet when its database is away, hangs, is busy or full: `StoreUnavailable`, and soon it works again."""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import UnusableDatabase, open_engine
from forwarder.store.lists.reader import Reader
from forwarder.store.migrate import migrate
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.access import Consumption
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sql.directory import SqlUsage
from tests.support.cases import for_each
from tests.support.store.stored import arrival, arrivals, final, lease
from tests.support.worker.works import NOW
from tools.servers.postgres.process import PostgresServer

SOON = 60.0  # seconds; a bound for failures, not a wait


async def use(recorder: Recorder, number: int) -> None:
    """Something of everything."""
    works = await recorder.ingest("w1", arrivals([number]), now=NOW)
    await recorder.claim("w1", "acc", [0], now=NOW, limit=1)
    events = await recorder.record("w1", [final(work) for work in works], [])
    await recorder.published([entry.id for entry in events.values()])
    assert len(events) == 1


# --- PostgreSQL -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def own_engine(own_url: str) -> AsyncIterator[AsyncEngine]:
    opened = open_engine(own_url, pool_size=3, command_seconds=1.0)
    await lease(Recorder(opened), "w1")
    yield opened
    await opened.dispose()


async def test_a_restart_of_postgresql_goes_unnoticed_between_two_calls(
    server: PostgresServer, own_engine: AsyncEngine
) -> None:
    recorder, reader = Recorder(own_engine), Reader(own_engine)
    await asyncio.gather(use(recorder, 1), reader.ready(), recorder.count_due(now=NOW))
    await asyncio.to_thread(server.restart)
    await asyncio.gather(use(recorder, 2), recorder.count_due(now=NOW), recorder.take_over([], now=NOW))
    assert await reader.ready()


async def test_postgresql_killed_and_brought_back(server: PostgresServer, own_engine: AsyncEngine) -> None:
    recorder, reader = Recorder(own_engine), Reader(own_engine)
    await use(recorder, 1)
    await asyncio.to_thread(server.kill)
    with pytest.raises(StoreUnavailable):
        await use(recorder, 2)
    with pytest.raises(StoreUnavailable):
        await reader.submission("acc", "rsv")
    assert not await reader.ready()
    await asyncio.to_thread(server.start)
    await use(recorder, 2)
    assert await reader.ready()


async def test_a_connection_cut_in_the_middle_leaves_nothing_half_done(own_engine: AsyncEngine) -> None:
    recorder = Recorder(own_engine)
    works = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    async with own_engine.connect() as other:
        # The outcome waits for this lock when its connection is cut.
        await other.execute(text("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE"))
        recording = asyncio.create_task(recorder.record("w1", [final(work) for work in works], []))
        cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'outbox'::regclass AND NOT granted"
        async with asyncio.timeout(SOON):
            while not (await other.execute(text(cut))).all():
                pass
        with pytest.raises(StoreUnavailable):
            await recording
    assert len(await recorder.record("w1", [final(work) for work in works], [])) == 2


async def test_a_session_that_hangs_is_given_up(own_engine: AsyncEngine) -> None:
    recorder = Recorder(own_engine)
    async with own_engine.connect() as connection:
        session = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
    started = time.monotonic()
    os.kill(session, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            await use(recorder, 1)
    finally:
        os.kill(session, signal.SIGCONT)
    assert time.monotonic() - started < SOON
    await use(recorder, 2)


async def test_no_more_than_so_many_sessions_and_no_endless_wait_for_one(
    own_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forwarder.store.database._LIMIT_SECONDS", 0.2)
    recorder = Recorder(own_engine)
    started = time.monotonic()
    async with own_engine.connect(), own_engine.connect(), own_engine.connect():
        with pytest.raises(StoreUnavailable):
            await recorder.count_due(now=NOW)
    assert time.monotonic() - started < SOON
    await recorder.count_due(now=NOW)


# --- SQLite ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite_file(data_dir: Path) -> Path:
    return data_dir / "store.sqlite3"


@pytest.fixture
async def sqlite_engine(sqlite_file: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncEngine]:
    monkeypatch.setattr("forwarder.store.engine._BUSY_SECONDS", 0.05)
    opened = open_engine(f"sqlite:///{sqlite_file}")
    await lease(Recorder(opened), "w1")
    yield opened
    await opened.dispose()


async def test_a_file_that_another_process_writes_for_too_long(sqlite_engine: AsyncEngine, sqlite_file: Path) -> None:
    recorder = Recorder(sqlite_engine)
    other = sqlite3.connect(sqlite_file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await use(recorder, 1)
    assert await Reader(sqlite_engine).ready()
    other.execute("COMMIT")
    other.close()
    await use(recorder, 1)


async def test_a_full_disk_refuses_and_loses_nothing(sqlite_engine: AsyncEngine) -> None:
    recorder = Recorder(sqlite_engine)
    works = await recorder.ingest("w1", arrivals(range(50)), now=NOW)
    await _limit_pages(sqlite_engine, 1)
    with pytest.raises(StoreUnavailable, match="full"):
        await recorder.ingest("w1", arrivals(range(50, 500)), now=NOW)
    with pytest.raises(StoreUnavailable, match="full"):
        await recorder.record("w1", [final(work, notes="x" * 10_000) for work in works], [])
    await _limit_pages(sqlite_engine, 1_000_000)
    assert len(await recorder.record("w1", [final(work) for work in works], [])) == 50
    assert len(await recorder.ingest("w1", arrivals(range(50, 500)), now=NOW)) == 450


async def _limit_pages(engine: AsyncEngine, pages: int) -> None:
    """As if the disk had room for so many pages; SQLite makes that no fewer than there are."""
    async with engine.connect() as connection:
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


# --- both -----------------------------------------------------------------------------------------------------------------


async def test_tables_of_another_version_are_an_outage_and_show_no_guest(engine: AsyncEngine) -> None:
    recorder = Recorder(engine)
    await lease(recorder, "w1")
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE reservations RENAME COLUMN request_id TO request_number"))
    with pytest.raises(StoreUnavailable) as caught:
        await recorder.ingest("w1", [arrival(1, notes="for Zoe alone")], now=NOW)
    assert "Zoe" not in f"{caught.value}{caught.value.__cause__}"


async def test_a_privilege_that_is_missing_is_an_outage_until_it_is_granted(
    own_url: str, own_engine: AsyncEngine
) -> None:
    async with own_engine.begin() as connection:
        await connection.execute(text("CREATE ROLE lesser LOGIN IN ROLE pg_read_all_data"))
    lesser = open_engine(make_url(own_url).set(username="lesser").render_as_string(hide_password=False))
    recorder, usage = Recorder(lesser), SqlUsage(lesser)
    with pytest.raises(StoreUnavailable, match="permission denied"):
        await recorder.ingest("w1", [arrival(1)], now=NOW)
    with pytest.raises(TenancyUnavailable, match="permission denied"):
        await usage.add([Consumption("key", 1, 0.0, 60)])
    async with own_engine.begin() as connection:
        await connection.execute(text("GRANT pg_write_all_data TO lesser"))
        await connection.execute(text("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO lesser"))
    assert len(await recorder.ingest("w1", [arrival(1)], now=NOW)) == 1
    await usage.add([Consumption("key", 1, 0.0, 60)])
    await lesser.dispose()


@for_each("url", ["mysql://localhost/x", "store.db", "sqlite://", "sqlite:///:memory:", "postgres:secret", ""])
def test_what_is_no_database_of_ours_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(UnusableDatabase, match="must") as caught:
        open_engine(url)
    assert "secret" not in str(caught.value)


def test_a_sqlite_without_returning_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(UnusableDatabase, match=r"3\.35"):
        open_engine(tmp_path / "store.sqlite3")


@pytest.mark.parametrize("name", ["a?1#b da ta 100%", "%3F a&b=c é:@"])
async def test_the_file_is_where_the_path_says_whatever_characters_it_has(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "store.sqlite3"
    path.parent.mkdir()
    await migrate(path)
    opened = open_engine(path)
    await lease(Recorder(opened), "w1")
    await opened.dispose()
    assert path.exists()
    assert [each.name for each in tmp_path.iterdir()] == [name]
