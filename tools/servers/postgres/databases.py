"""A new PostgreSQL database for one test, on a server that others share.

Uses that server's maintenance database.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg


@asynccontextmanager
async def new_database(server_url: str, *, template: str | None = None, encoding: str = "UTF8") -> AsyncIterator[str]:
    """The `postgresql+asyncpg://` URL of a database of one's own; it is dropped at the end, whoever is connected.

    It is empty, or a copy of the database at the URL `template`, to which nobody may be connected meanwhile, and has its encoding.
    """
    url = await _create(server_url, template, encoding)
    try:
        yield url
    finally:
        await _drop(server_url, url)


_STATE = """
with relations as (select * from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'i')),
definitions as (
  select xmin from pg_attribute where attrelid in (select oid from relations)
  union all select xmin from pg_attrdef where adrelid in (select oid from relations)
  union all select xmin from pg_constraint where connamespace = 'public'::regnamespace
  union all select xmin from pg_proc where pronamespace = 'public'::regnamespace
)
select concat_ws(
  ' ',
  (select string_agg(concat_ws(' ', relname, relfilenode, reloptions, reltuples), ',' order by relname) from relations),
  (select md5(string_agg(xmin::text, ',' order by xmin::text)) from definitions),
  (select md5(string_agg(concat_ws(' ', tgname, tgenabled), ',' order by oid)) from pg_trigger),
  (select string_agg(version_num, ',') from alembic_version)
)
"""
"""What tells that a schema was changed, or a table analyzed. `xmin`: the transaction that last wrote a definition."""

_EMPTY = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
do $$ declare each text; refuses boolean; begin
  for each in select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'
    and relname <> 'alembic_version' order by oid desc loop  -- what refers to others was made after them
    refuses := exists (select from pg_trigger where tgrelid = each::regclass and not tgisinternal);  -- the audit trail does
    if refuses then execute format('alter table %I disable trigger user', each); end if;
    execute format('delete from %I', each);
    if refuses then execute format('alter table %I enable trigger user', each); end if;
  end loop;
  for each in select sequencename from pg_sequences where schemaname = 'public' and last_value is not null loop
    execute format('alter sequence %I restart', each);
  end loop;
end $$;
"""


class EmptiedDatabases:
    """Copies of `template` for one test after another, with every table and no rows: emptying one takes a twentieth of making one.

    A database whose schema a test changed, or whose tables it analyzed, is not used again. All are dropped by `close`.
    """

    def __init__(self, server_url: str, template: str) -> None:
        self._server_url = server_url
        self._template = template
        self._states: dict[str, object] = {}
        self._free: list[str] = []

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[str]:
        """One for as long as the block runs; whoever is connected to it at the end is sent away."""
        url = self._free.pop() if self._free else await self._make()
        yield url
        connection = await asyncpg.connect(_plain(url))
        try:
            same = await connection.fetchval(_STATE) == self._states[url]
            if same:
                await connection.execute(_EMPTY)
        finally:
            await connection.close()
        if same:
            self._free.append(url)
        else:
            del self._states[url]
            await _drop(self._server_url, url)

    async def close(self) -> None:
        """Drop them all."""
        for url in self._states:
            await _drop(self._server_url, url)

    async def _make(self) -> str:
        url = await _create(self._server_url, self._template)
        connection = await asyncpg.connect(_plain(url))
        try:
            self._states[url] = await connection.fetchval(_STATE)
        finally:
            await connection.close()
        return url


async def _create(server_url: str, template: str | None, encoding: str = "UTF8") -> str:
    name = f"forwarder_{uuid.uuid4().hex[:12]}"
    # A server that was set up without a locale has none that holds all texts, but makes one that does.
    copied = f"encoding '{encoding}' template template0" if template is None else f"template {_name(template)}"
    await _execute(server_url, f"create database {name} {copied}")
    return _with_driver(server_url, database=name)


async def _drop(server_url: str, url: str) -> None:
    await _execute(server_url, f"drop database {_name(url)} with (force)")


async def _execute(server_url: str, statement: str) -> None:
    connection = await asyncpg.connect(_plain(server_url))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _plain(url: str) -> str:
    """As asyncpg itself takes it: without the driver's name in the scheme."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql"))


def _with_driver(url: str, *, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql+asyncpg", path=f"/{database}"))
