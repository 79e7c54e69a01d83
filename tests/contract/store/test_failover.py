"""PostgreSQL that fails over: the pool finds the server that can be written to by itself, and keeps no connection to another."""

import asyncio
from collections.abc import AsyncIterator, Awaitable

import asyncpg
import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database, StoreFull
from forwarder.store.engine import IDENTITY, identity_of, open_engine
from forwarder.store.migrate import migrate
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.database import transaction
from tests.contract.store.conftest import DATABASE
from tests.support.store.stored import arrivals, lease
from tests.support.worker.works import NOW
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers

SOON = 60.0  # seconds; a bound for failures, not a wait


@pytest.fixture
async def engine(own_url: str) -> AsyncIterator[AsyncEngine]:
    opened = open_engine(own_url, pool_size=2)
    yield opened
    await opened.dispose()


async def sql(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def take_in(engine: AsyncEngine, number: int) -> int:
    return len(await Recorder(engine).ingest("w1", arrivals([number]), now=NOW))


async def session(engine: AsyncEngine) -> int:
    (row,) = await Database(engine).read(text("SELECT pg_backend_pid() AS pid"))
    pid: int = row.pid
    return pid


async def test_connections_made_while_the_database_was_read_only_are_not_kept(
    server: PostgresServer, own_url: str, engine: AsyncEngine
) -> None:
    await lease(Recorder(engine), "w1")
    await sql(server.url, f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
    await engine.dispose()
    with pytest.raises(StoreUnavailable, match="written to"):
        await take_in(engine, 1)
    with pytest.raises(StoreUnavailable, match="written to"):
        await Database(engine).lookup(text("SELECT 1"))({})
    with pytest.raises(TenancyUnavailable, match="written to"):
        async with transaction(engine, writes=False):
            pass
    await sql(server.url, f"ALTER DATABASE {DATABASE} RESET default_transaction_read_only")
    assert await take_in(engine, 1) == 1


async def test_a_server_that_becomes_read_only_loses_its_connections(
    server: PostgresServer, own_url: str, engine: AsyncEngine
) -> None:
    await lease(Recorder(engine), "w1")
    before = await session(engine)
    await sql(server.url, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    try:
        async with asyncio.timeout(SOON):
            while await succeeds(take_in(engine, 1)) or await succeeds(
                change(engine, "UPDATE reservations SET id = id")
            ):
                await asyncio.sleep(0)  # the server tells its sessions when it gets to it
    finally:
        await sql(
            server.url,
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )
    async with asyncio.timeout(SOON):
        while not await succeeds(take_in(engine, 2)):
            await asyncio.sleep(0)
    assert await session(engine) != before


async def succeeds(attempt: Awaitable[object]) -> bool:
    """Whether it does, rather than meet an outage."""
    try:
        await attempt
    except (StoreUnavailable, TenancyUnavailable):
        return False
    return True


async def change(engine: AsyncEngine, statement: str, *, by: str = "tenancy") -> None:
    begun = transaction(engine, writes=True) if by == "tenancy" else Database(engine).transaction()
    async with begun as connection:
        await connection.execute(text(statement))


@pytest.mark.parametrize("sqlstate", ["25006", "57P01", "57P03", "08006", "08003"])
@pytest.mark.parametrize(
    "when", [pytest.param("IMMEDIATE", marks=pytest.mark.slow), "DEFERRED"]
)  # in the statement, or in COMMIT
async def test_what_says_that_the_server_is_not_the_right_one_ends_the_connection(
    sqlstate: str, when: str, own_url: str, engine: AsyncEngine
) -> None:
    await sql(
        own_url,
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{sqlstate}'; END $$""",
        "CREATE TABLE written (id int)",
        f"""CREATE CONSTRAINT TRIGGER refuses AFTER INSERT ON written DEFERRABLE INITIALLY {when}
            FOR EACH ROW EXECUTE FUNCTION refuse()""",
    )
    for each in ("store", "tenancy"):
        before = await session(engine)
        with pytest.raises((StoreUnavailable, TenancyUnavailable), match="refused"):
            await change(engine, "INSERT INTO written VALUES (1)", by=each)
        assert await session(engine) != before


async def test_a_database_that_is_dropped_and_made_anew_is_an_outage_until_it_is_migrated(
    server: PostgresServer, own_url: str, engine: AsyncEngine
) -> None:
    async def is_away() -> None:
        with pytest.raises(StoreUnavailable):
            await take_in(engine, 1)
        with pytest.raises(StoreUnavailable):
            await Database(engine).lookup(text("SELECT id FROM reservations"))({})
        with pytest.raises(TenancyUnavailable):
            async with transaction(engine, writes=False) as connection:
                await connection.execute(text("SELECT * FROM integration_accounts"))

    await session(engine)
    await sql(server.url, f"DROP DATABASE {DATABASE} WITH (FORCE)")
    await is_away()
    await sql(server.url, f"CREATE DATABASE {DATABASE}")
    await is_away()
    await migrate(own_url)
    await lease(Recorder(engine), "w1")
    assert await take_in(engine, 1) == 1


async def test_what_sessions_rely_on_is_set_whatever_the_database_has_as_its_default(
    own_url: str, server: PostgresServer
) -> None:
    defaults = {
        "default_transaction_isolation": "'repeatable read'",
        "synchronous_commit": "off",
        "timezone": "'Asia/Kolkata'",
        "statement_timeout": "1",
        "standard_conforming_strings": "off",
    }
    for name, value in defaults.items():
        await sql(server.url, f"ALTER DATABASE {DATABASE} SET {name} = {value}")
    engine = open_engine(own_url)
    here = Database(engine)
    for ask in (here.read, lambda statement: here.lookup(statement)({})):
        shown = [(await ask(text(f"SELECT current_setting('{name}') AS value")))[0].value for name in defaults]
        assert shown == ["read committed", "on", "UTC", "17s", "on"]
    async with here.transaction() as connection:
        assert await connection.scalar(text("SELECT current_setting('transaction_isolation')")) == "read committed"
    await engine.dispose()


async def test_commits_that_wait_for_more_than_this_server_still_do(own_url: str, server: PostgresServer) -> None:
    await sql(server.url, f"ALTER DATABASE {DATABASE} SET synchronous_commit = remote_apply")
    engine = open_engine(own_url)
    (row,) = await Database(engine).read(text("SELECT current_setting('synchronous_commit') AS value"))
    assert row.value == "remote_apply"
    await engine.dispose()


async def test_of_several_servers_the_one_that_can_be_written_to_is_used(
    server: PostgresServer, own_url: str, real_servers: RealServers
) -> None:
    """A streaming standby, named first; then it is promoted, and the old primary stops."""
    standby = PostgresServer(real_servers.reaper)
    await asyncio.to_thread(standby.follow, server)
    both = own_url.replace("@", f"@127.0.0.1:{standby.port},")
    engine = open_engine(both, pool_size=2)
    port = text("SELECT current_setting('port')::int AS port")
    try:
        await lease(Recorder(engine), "w1")
        assert await take_in(engine, 1) == 1
        for read in (Database(engine).read, lambda statement: Database(engine).lookup(statement)({})):
            assert (await read(port))[0].port == server.port
        await _caught_up(standby.url, server.url)
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailable):
            await take_in(engine, 2)
        await sql(standby.url, "SELECT pg_promote()")
        async with asyncio.timeout(SOON):
            while not await succeeds(take_in(engine, 2)):
                await asyncio.sleep(0.02)
        assert (await Database(engine).lookup(port)({}))[0].port == standby.port
    finally:
        await engine.dispose()
        await asyncio.to_thread(standby.stop)
        await asyncio.to_thread(server.start)


async def test_a_server_that_does_not_answer_leaves_time_for_the_next(
    server: PostgresServer, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forwarder.store.engine._CONNECT_SECONDS", 1.0)

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(never_answers, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    engine = open_engine(own_url.replace("@", f"@127.0.0.1:{port},"))
    for read in (Database(engine).read, lambda statement: Database(engine).lookup(statement)({})):
        (row,) = await read(text("SELECT current_setting('port')::int AS port"))
        assert row.port == server.port
    await engine.dispose()
    silent.close()


async def _caught_up(standby_url: str, primary_url: str) -> None:
    primary, standby = await asyncpg.connect(primary_url), await asyncpg.connect(standby_url)
    written = await primary.fetchval("SELECT pg_current_wal_lsn()::text")
    async with asyncio.timeout(SOON):
        while not await standby.fetchval(f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"):
            await asyncio.sleep(0)
    await asyncio.gather(primary.close(), standby.close())


async def test_a_connection_that_broke_unnoticed_is_an_outage(own_url: str, engine: AsyncEngine) -> None:
    """asyncpg says that an operation is in progress, which is not one of the errors that a driver may raise."""

    def broke(*_: object) -> None:
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    listening = (engine.sync_engine, "do_execute", broke)
    event.listen(*listening)
    for ask, outage in (
        (Database(engine).read(text("SELECT 1")), StoreUnavailable),
        (Database(engine).run(text("SELECT 1")), StoreUnavailable),
        (TenancyAdmin(engine).workspaces(), TenancyUnavailable),
        (TenancyAdmin(engine).add_workspace("acme"), TenancyUnavailable),
    ):
        with pytest.raises(outage, match="broke"):
            await ask
    event.remove(*listening)
    assert (await Database(engine).read(text("SELECT 1 AS one")))[0].one == 1


async def test_a_new_connection_that_breaks_before_it_is_identified_is_an_outage(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetchval = asyncpg.Connection.fetchval

    async def cut(connection: asyncpg.Connection, query: str) -> object:
        if query == IDENTITY:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return await fetchval(connection, query)

    engine = open_engine(own_url)
    monkeypatch.setattr(asyncpg.Connection, "fetchval", cut)
    for ask, outage in (
        (Database(engine).read(text("SELECT 1")), StoreUnavailable),
        (TenancyAdmin(engine).workspaces(), TenancyUnavailable),
    ):
        with pytest.raises(outage, match="closed in the middle"):
            await ask
    await engine.dispose()


@pytest.mark.parametrize("sqlstate", ["53100", "58030"])
@pytest.mark.parametrize("when", [pytest.param("IMMEDIATE", marks=pytest.mark.slow), "DEFERRED"])
async def test_a_write_that_finds_the_disk_full_is_counted_for_the_readiness_check(
    sqlstate: str, when: str, own_url: str, engine: AsyncEngine
) -> None:
    await sql(
        own_url,
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '{sqlstate}'; END $$""",
        "CREATE TABLE written (id int)",
        f"""CREATE CONSTRAINT TRIGGER refuses AFTER INSERT ON written DEFERRABLE INITIALLY {when}
            FOR EACH ROW EXECUTE FUNCTION refuse()""",
    )
    with pytest.raises(StoreFull, match="No space left on device"):
        await change(engine, "INSERT INTO written VALUES (1)", by="store")
    assert identity_of(engine).refusals == 1
    assert not await succeeds(Database(engine).read(text("SELECT * FROM nothing")))  # an outage, and no lack of room
    assert identity_of(engine).refusals == 1
