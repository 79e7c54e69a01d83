"""A new PostgreSQL database for one test, on a server that others share.

Uses that server's maintenance database.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg


@asynccontextmanager
async def new_database(server_url: str, *, template: str | None = None) -> AsyncIterator[str]:
    """The `postgresql+asyncpg://` URL of a database of one's own; it is dropped at the end, whoever is connected.

    It is empty, or a copy of the database at the URL `template`, to which nobody may be connected meanwhile.
    """
    name = f"forwarder_{uuid.uuid4().hex[:12]}"
    copied = "" if template is None else f" template {_name(template)}"
    await _execute(server_url, f"create database {name}{copied}")
    try:
        yield _with_driver(server_url, database=name)
    finally:
        await _execute(server_url, f"drop database {name} with (force)")


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
