"""A whole forwarder on brokers and a database that take TLS alone, with its secrets in files; and one that is not let in."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.backends import missing
from tests.support.deployment.deployment import Deployment, Site, Typed, booking, deploy, site_settings
from tools.servers.kafka.secured import PASSWORD, USER, SecuredKafka, secured_kafka
from tools.servers.ladder import Unavailable
from tools.servers.postgres.process import PostgresServer, Secured
from tools.servers.real_servers import RealServers

DATABASE_PASSWORD = "database-password"


@pytest.fixture
def kafka(real_servers: RealServers) -> Iterator[SecuredKafka]:
    try:
        started = secured_kafka(real_servers.reaper)
    except Unavailable as reason:
        missing(reason)
    yield started
    started.cluster.kill()


@pytest.fixture
def database_url(kafka: SecuredKafka, real_servers: RealServers) -> Iterator[str]:
    certificate = kafka.authority.issue("database", "DNS:localhost")
    secured = Secured(certificate.certificate, certificate.key, kafka.authority.file, DATABASE_PASSWORD)
    try:
        server = PostgresServer(real_servers.reaper, durable=False, secured=secured)
        server.start()
    except Unavailable as reason:
        missing(reason)
    where = f"localhost:{server.port}/postgres?sslmode=verify-full&sslrootcert={kafka.authority.file}"
    yield f"postgresql://forwarder:{DATABASE_PASSWORD}@{where}"
    server.stop()


@pytest.fixture
def site(kafka: SecuredKafka, database_url: str, tmp_path: Path, real_servers: RealServers) -> Site:
    settings = site_settings("distributed", tmp_path, kafka.address("SCRAM"), database_url)
    (tmp_path / "database-url").write_text(settings.pop("FORWARDER_DATABASE_URL") + "\n")
    (tmp_path / "kafka-password").write_text(f"{PASSWORD}\n")
    (tmp_path / "secret-key").write_text(settings.pop("FORWARDER_SECRET_KEY") + "\n")
    secured = {
        "FORWARDER_DATABASE_URL_FILE": str(tmp_path / "database-url"),
        "FORWARDER_SECRET_KEY_FILE": str(tmp_path / "secret-key"),
        "FORWARDER_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "FORWARDER_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "FORWARDER_KAFKA_SASL_USERNAME": USER,
        "FORWARDER_KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "kafka-password"),
        "FORWARDER_KAFKA_CA_FILE": str(kafka.authority.file),
    }
    return Site("distributed", tmp_path, settings | secured, real_servers.reaper)


@pytest.fixture
async def deployment(site: Site) -> AsyncIterator[Deployment]:
    async with deploy(site) as running:
        await running.add_account("generic")
        yield running


@pytest.mark.slow
async def test_a_reservation_is_confirmed_and_a_wrong_password_is_named(deployment: Deployment, tmp_path: Path) -> None:
    answer = await deployment.submit("generic", booking(1))
    assert answer.status_code == 202, answer.text
    settled = await deployment.settled("generic", answer.json()["data"]["requestId"])
    assert settled["status"] == "CONFIRMED"
    assert (await deployment.made())["made"] == 1

    (tmp_path / "kafka-password").write_text("another-password\n")
    said = await Typed(deployment, "topics", "create").done()
    assert said.code == 1
    assert "it refuses the credentials: check FORWARDER_KAFKA_SASL_USERNAME" in said.err

    notifier = await Typed(deployment, "notifier", "--port", "0").done()
    assert notifier.code == 1
    assert "it refuses the credentials: check FORWARDER_KAFKA_SASL_USERNAME" in notifier.err

    url = tmp_path / "database-url"
    url.write_text(url.read_text().replace(DATABASE_PASSWORD, "another-password"))
    said = await Typed(deployment, "migrate").done()
    assert said.code == 1
    assert "check the user, password and certificate in FORWARDER_DATABASE_URL" in said.err

    written = "".join(each.read_text() for each in tmp_path.glob("*.log")) + said.err + said.out
    assert all(secret not in written for secret in (PASSWORD, DATABASE_PASSWORD, "another-password"))
