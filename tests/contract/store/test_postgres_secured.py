"""PostgreSQL that takes TLS alone: by password and by client certificate; who is not let in is told what to mend, and no secret."""

import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import text

from forwarder.store.database import Database
from forwarder.store.engine import open_engine
from forwarder.store.migrate import migrate
from forwarder.store.submissions.port import StoreUnavailable
from tests.support.backends import missing
from tools.servers.certificates import Authority
from tools.servers.ladder import Unavailable
from tools.servers.postgres.process import PostgresServer, Secured
from tools.servers.real_servers import RealServers

PASSWORD = "database-password"


@dataclass(frozen=True)
class SecuredPostgres:
    server: PostgresServer
    authority: Authority

    def url(self, *, user: str = f"forwarder:{PASSWORD}", host: str = "localhost", **parameters: object) -> str:
        given = {"sslmode": "verify-full", "sslrootcert": self.authority.file} | parameters
        query = "&".join(f"{name}={value}" for name, value in given.items())
        return f"postgresql://{user}@{host}:{self.server.port}/postgres?{query}"


@pytest.fixture(scope="module")
def postgres(real_servers: RealServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPostgres]:
    try:
        authority = Authority(tmp_path_factory.mktemp("authority"))
        certificate = authority.issue("database", "DNS:localhost")
        secured = Secured(certificate.certificate, certificate.key, authority.file, PASSWORD)
        server = PostgresServer(real_servers.reaper, durable=False, secured=secured)
        server.start()
    except Unavailable as reason:
        missing(reason)
    yield SecuredPostgres(server, authority)
    server.stop()


@pytest.fixture(autouse=True)
def _abandoned() -> Iterator[None]:
    """asyncpg closes a refused connection over TLS when the server confirms that, perhaps after the test's event loop has ended. A
    later test would be blamed for the open transport."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def asked(url: str, question: str) -> object:
    engine = open_engine(url)
    try:
        async with Database(engine).transaction() as connection:
            return await connection.scalar(text(question))
    finally:
        await engine.dispose()


async def refused(url: str) -> str:
    """As `forwarder migrate` says it."""
    with pytest.raises(StoreUnavailable) as error:
        await migrate(url)
    assert "password@" not in str(error.value)
    assert PASSWORD not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", ["verify-full", "verify-ca", "require"])
async def test_a_password_over_tls(postgres: SecuredPostgres, mode: str) -> None:
    url = postgres.url(sslmode=mode)
    assert await asked(url, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") is True


async def test_a_client_certificate_in_place_of_a_password(postgres: SecuredPostgres) -> None:
    engine = open_engine(postgres.url())
    async with engine.begin() as connection:
        await connection.execute(text("CREATE ROLE client LOGIN"))
    await engine.dispose()
    ours = postgres.authority.issue("client")
    url = postgres.url(user="client", sslcert=ours.certificate, sslkey=ours.key)
    assert await asked(url, "SELECT current_user") == "client"
    strangers = postgres.authority.issue("stranger")
    said = await refused(postgres.url(user="client", sslcert=strangers.certificate, sslkey=strangers.key))
    assert "check the user, password and certificate in FORWARDER_DATABASE_URL" in said


async def test_an_authority_that_did_not_sign_is_named(postgres: SecuredPostgres, tmp_path: Path) -> None:
    said = await refused(postgres.url(sslrootcert=Authority(tmp_path, "stranger").file))
    assert "PostgreSQL's certificate is not trusted" in said
    assert "sslrootcert in FORWARDER_DATABASE_URL must hold the authority that signed it" in said


async def test_a_host_name_that_the_certificate_lacks_is_named(postgres: SecuredPostgres) -> None:
    said = await refused(postgres.url(host="127.0.0.1"))
    assert "the host be one that it names" in said
    assert await asked(postgres.url(host="127.0.0.1", sslmode="verify-ca"), "SELECT 1") == 1


async def test_a_wrong_password_is_named_and_not_shown(postgres: SecuredPostgres) -> None:
    said = await refused(postgres.url(user="forwarder:another-password"))
    assert "check the user, password and certificate in FORWARDER_DATABASE_URL" in said
    assert "another-password" not in said


async def test_a_server_for_tls_alone_refuses_plaintext(postgres: SecuredPostgres) -> None:
    assert "PostgreSQL lets us not in (no pg_hba.conf entry" in await refused(postgres.url(sslmode="disable"))
