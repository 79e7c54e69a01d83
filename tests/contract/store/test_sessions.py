"""What is read past SQLAlchemy: an answer, or `StoreUnavailable`, whatever becomes of the connection, and the next read works."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from forwarder.store.database import Database, Lookup, outages_translated
from forwarder.store.engine import PostgresqlEngine, open_engine
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import StoreUnavailable
from tests.support.backends import only
from tests.support.cases import for_each

SOON = 20.0  # seconds; a bound for failures, not a wait
AT_MOST = 3
APPLICATION = "forwarder-sessions"
SESSION = text("SELECT pg_backend_pid() AS session")
HANGS = text("SELECT pg_sleep(60)")
NOBODY_LISTENS = "postgresql://nobody@127.0.0.1:1/nothing"


@asynccontextmanager
async def opened(url: str, command_seconds: float) -> AsyncIterator[PostgresqlEngine]:
    engine = open_engine(url, pool_size=AT_MOST, command_seconds=command_seconds, application_name=APPLICATION)
    assert isinstance(engine, PostgresqlEngine)
    yield engine
    await engine.dispose()


@pytest.fixture
async def reading(migrated_url: str) -> AsyncIterator[PostgresqlEngine]:
    async with opened(migrated_url, SOON) as engine:
        yield engine


async def session(lookup: Lookup) -> int:
    """The session that reads."""
    (row,) = await lookup({})
    number: int = row.session
    return number


async def hang(database: Database) -> None:
    await database.lookup(HANGS)({})


async def ask_server(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


def cut_all(url: str) -> None:
    """Cut every session, and return before the event loop could see anything of it: it stands still meanwhile."""
    cut = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{APPLICATION}'"
    thread = threading.Thread(target=lambda: asyncio.run(ask_server(url, cut)))
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()


@only("distributed")
async def test_sessions_that_were_cut_unseen_fail_as_outages_and_are_not_used_again(
    migrated_url: str, reading: PostgresqlEngine
) -> None:
    lookup = Database(reading).lookup(SESSION)
    before = set(await asyncio.gather(*(session(lookup) for _ in range(AT_MOST))))
    assert len(before) == AT_MOST
    cut_all(migrated_url)
    failed = await asyncio.gather(*(session(lookup) for _ in range(AT_MOST)), return_exceptions=True)
    assert [type(each) for each in failed] == [StoreUnavailable] * AT_MOST
    after = await asyncio.gather(*(session(lookup) for _ in range(5 * AT_MOST)))
    assert before.isdisjoint(after)


@only("distributed")
async def test_sessions_that_were_cut_are_replaced_unnoticed_once_it_is_seen(
    migrated_url: str, reading: PostgresqlEngine
) -> None:
    lookup = Database(reading).lookup(SESSION)
    before = set(await asyncio.gather(*(session(lookup) for _ in range(AT_MOST))))
    await asyncio.to_thread(cut_all, migrated_url)
    async with asyncio.timeout(SOON):
        while not all(each.is_closed() for each in reading.sessions.open):
            await asyncio.sleep(0)
    assert before.isdisjoint([await session(lookup) for _ in range(AT_MOST)])


@only("distributed")
async def test_a_session_cut_in_the_middle_of_a_statement_is_an_outage(
    migrated_url: str, reading: PostgresqlEngine
) -> None:
    database = Database(reading)
    async with asyncio.timeout(SOON):
        hanging = asyncio.create_task(hang(database))
        cut = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name = '{APPLICATION}' AND wait_event = 'PgSleep'"
        )
        while not await ask_server(migrated_url, cut):
            pass
        with pytest.raises(StoreUnavailable):
            await hanging
    await session(database.lookup(SESSION))


@only("distributed")
async def test_a_statement_that_takes_too_long_is_given_up_with_its_session(migrated_url: str) -> None:
    async with opened(migrated_url, command_seconds=1.0) as engine:
        database = Database(engine)
        lookup = database.lookup(SESSION)
        before = await session(lookup)
        with pytest.raises(StoreUnavailable, match="Timeout"):
            await hang(database)
        assert await session(lookup) != before


@only("distributed")
async def test_who_leaves_in_the_middle_leaves_no_answer_for_the_next(reading: PostgresqlEngine) -> None:
    database = Database(reading)
    lookup = database.lookup(SESSION)
    before = await session(lookup)
    leaving = asyncio.create_task(hang(database))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await session(lookup) != before


@only("distributed")
async def test_no_more_than_so_many_sessions_and_no_endless_wait_for_one(
    reading: PostgresqlEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(reading)
    hanging = [asyncio.create_task(hang(database)) for _ in range(AT_MOST)]
    await asyncio.sleep(0)
    with monkeypatch.context() as impatient:
        impatient.setattr("forwarder.store.engine._FREE_SECONDS", 0.05)
        with pytest.raises(StoreUnavailable):
            await session(database.lookup(SESSION))
    for each in hanging:
        each.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    await asyncio.gather(*(session(database.lookup(SESSION)) for _ in range(2 * AT_MOST)))


@only("distributed")
async def test_closing_leaves_no_session_behind(migrated_url: str, reading: PostgresqlEngine) -> None:
    lookup = Database(reading).lookup(SESSION)
    await asyncio.gather(*(session(lookup) for _ in range(AT_MOST)))
    await reading.dispose()
    left = f"SELECT pid FROM pg_stat_activity WHERE application_name = '{APPLICATION}'"
    async with asyncio.timeout(SOON):
        while await ask_server(migrated_url, left):
            pass


@only("distributed")
async def test_a_wrong_value_is_no_outage_and_missing_tables_and_columns_are_one(reading: PostgresqlEngine) -> None:
    database = Database(reading)
    with pytest.raises(StoreUnavailable, match="UndefinedColumn"):
        await database.lookup(text("SELECT nothing FROM reservations"))({})
    with pytest.raises(asyncpg.DataError, match="invalid input"):
        await database.lookup(text("SELECT id FROM reservations WHERE id = :id"))({"id": "one"})
    async with reading.begin() as connection:
        await connection.execute(text("DROP TABLE reservations"))
    assert not await Reader(reading).ready()


async def test_where_nobody_listens_it_is_an_outage() -> None:
    away = open_engine(NOBODY_LISTENS)
    with pytest.raises(StoreUnavailable):
        await Database(away).lookup(SESSION)({})
    assert not await Reader(away).ready()
    await away.dispose()


@for_each(
    "error",
    [
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("got result for unknown protocol state 3"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.PostgresConnectionError("broken"),
        asyncpg.AdminShutdownError("terminating connection due to administrator command"),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.QueryCanceledError("canceling statement"),
        asyncpg.TooManyConnectionsError("sorry, too many clients already"),
        asyncpg.UndefinedColumnError("no such column"),
        asyncpg.UndefinedFunctionError("no such function"),
        asyncpg.InsufficientPrivilegeError("permission denied for table"),
        asyncpg.InvalidCachedStatementError("cached statement plan is invalid due to a change of the schema"),
        asyncpg.InvalidSQLStatementNameError("prepared statement does not exist"),
        ConnectionResetError(),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_says_nothing_of_the_values_is_an_outage(error: Exception) -> None:
    with pytest.raises(StoreUnavailable, match=type(error).__name__), outages_translated():
        raise error


@pytest.mark.parametrize(
    "error",
    [asyncpg.NumericValueOutOfRangeError("too large"), asyncpg.NotNullViolationError("null value")],
    ids=lambda error: type(error).__name__,
)
def test_what_says_that_the_values_are_wrong_is_none(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, outages_translated():
        raise error
    assert raised.value is error
