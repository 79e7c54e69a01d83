"""Secured brokers: every way in publishes, consumes, tails and administers; who is not let in is told what to mend,
and no secret. `make test` has SCRAM over TLS, and what a wrong authority, host name or password comes to."""

import asyncio
import base64
import gc
import json
import secrets
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.kafka.security import KafkaSecurity, OAuthClient
from forwarder.topics.port import LogUnavailable, Message
from tests.support.backends import missing
from tools.servers.access_tokens import TokenSigner
from tools.servers.certificates import Authority
from tools.servers.kafka.process import add_scram_user
from tools.servers.kafka.secured import PASSWORD, USER, SecuredKafka, secured_kafka
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers

CLIENT_SECRET = "secret-of-the-client"


@pytest.fixture(scope="module")
def kafka(real_servers: RealServers) -> Iterator[SecuredKafka]:
    try:
        started = secured_kafka(real_servers.reaper)
    except Unavailable as reason:
        missing(reason)
    yield started
    started.cluster.kill()


def scram(kafka: SecuredKafka, mechanism: Any = "SCRAM-SHA-512") -> KafkaSecurity:
    return KafkaSecurity("SASL_SSL", mechanism, USER, PASSWORD, ca_file=kafka.authority.file)


def log_at(kafka: SecuredKafka, listener: str, security: KafkaSecurity, *, host: str = "localhost") -> KafkaLog:
    address = kafka.address(listener).replace("localhost", host)
    return KafkaLog(address, security=security, publish_timeout_seconds=5.0, session_timeout_seconds=2.0)


async def there_and_back(log: KafkaLog) -> None:
    """Through each of the log's clients: admin, producer, tail, consumer, and the reader of offsets."""
    topic = f"secured-{secrets.token_hex(4)}"

    async def ignore(owned: frozenset[int]) -> None: ...

    async with log.admin() as admin:
        await admin.create({topic: 1})
        async with log.tail(topic, from_beginning=True) as tail, log.publisher() as publisher:
            await publisher.publish(topic, [Message(key=b"k", value=b"v", headers=())])
            assert [each.message.value for each in await some(tail)] == [b"v"]
        async with log.consumer(topic, group=topic, on_partitions=ignore) as consumer:
            messages = await some(consumer)
            assert [each.message.value for each in messages] == [b"v"]
            await consumer.commit(messages)
        assert await admin.offsets(topic) == {0: range(1)}


async def some(reader: Any) -> Sequence[Any]:
    async with asyncio.timeout(90):
        while not (messages := await reader.receive(max_messages=10, wait_seconds=1.0)):
            pass
        return list(messages)


async def refused(log: KafkaLog) -> str:
    """What each of the clients says; the same of all."""

    async def ignore(owned: frozenset[int]) -> None: ...

    said = set()
    for opening in (log.admin(), log.publisher(), log.tail("t"), log.consumer("t", group="g", on_partitions=ignore)):
        with pytest.raises(LogUnavailable) as error:
            async with opening:
                pass
        said.add(str(error.value).partition(": ")[2])
    with (
        warnings.catch_warnings()
    ):  # aiokafka leaves connections that were refused open: not for a later test to be blamed
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    (one,) = said
    assert PASSWORD not in one
    return one


async def test_sasl_ssl_with_scram(kafka: SecuredKafka) -> None:
    await there_and_back(log_at(kafka, "SCRAM", scram(kafka)))


@pytest.mark.slow
async def test_the_shorter_scram(kafka: SecuredKafka) -> None:
    await asyncio.to_thread(add_scram_user, kafka.cluster, "SCRAM-SHA-256", USER, PASSWORD)
    await there_and_back(log_at(kafka, "SCRAM", scram(kafka, "SCRAM-SHA-256")))


@pytest.mark.slow
async def test_ssl(kafka: SecuredKafka) -> None:
    await there_and_back(log_at(kafka, "TLS", KafkaSecurity("SSL", ca_file=kafka.authority.file)))


@pytest.mark.slow
async def test_mutual_tls(kafka: SecuredKafka) -> None:
    ours = kafka.authority.issue("ingress")
    security = KafkaSecurity("SSL", ca_file=kafka.authority.file, certificate_file=ours.certificate, key_file=ours.key)
    await there_and_back(log_at(kafka, "MUTUAL", security))


@pytest.mark.slow
async def test_sasl_plaintext_with_plain(kafka: SecuredKafka) -> None:
    await there_and_back(log_at(kafka, "PLAIN", KafkaSecurity("SASL_PLAINTEXT", "PLAIN", USER, PASSWORD)))


@pytest.mark.slow
async def test_sasl_ssl_with_oauthbearer_asks_for_one_token(kafka: SecuredKafka) -> None:
    async with authorization_server(kafka) as server:
        await there_and_back(log_at(kafka, "OAUTH", oauth(kafka, server.url)))
    assert server.asked == ["grant_type=client_credentials&scope=kafka"]


@pytest.mark.slow
async def test_what_is_connected_goes_on_when_its_token_has_ended(kafka: SecuredKafka) -> None:
    """The broker closes the connection then, and takes no token that has ended: the next one was asked for before."""
    topic = f"secured-{secrets.token_hex(4)}"
    async with authorization_server(kafka, life=4.0) as server:
        log = log_at(kafka, "OAUTH", oauth(kafka, server.url))
        async with log.admin() as admin:
            await admin.create({topic: 1})
        async with asyncio.timeout(90), log.publisher() as publisher:
            before, published = len(server.asked), 0
            while len(server.asked) < before + 2:
                await publisher.publish(topic, [Message(key=b"k", value=b"%d" % published, headers=())])
                published += 1
    async with log_at(kafka, "SCRAM", scram(kafka)).admin() as admin:
        assert await admin.offsets(topic) == {0: range(published)}


@pytest.mark.slow
async def test_a_token_from_a_file_is_read_anew_for_each_connection(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "token"
    security = KafkaSecurity("SASL_SSL", "OAUTHBEARER", oauth=file, ca_file=kafka.authority.file)
    log = log_at(kafka, "OAUTH", security)
    assert f"FORWARDER_KAFKA_SASL_OAUTH_TOKEN_FILE={file} cannot be read: No such file" in await refused(log)
    file.write_text(f"{kafka.tokens.token(USER)}\n")
    await there_and_back(log)
    file.write_text(kafka.tokens.token(USER, life=-60))
    assert "it refuses the credentials" in await refused(log)


@pytest.mark.slow
async def test_an_authorization_server_that_refuses_is_named(kafka: SecuredKafka) -> None:
    async with authorization_server(kafka, status=401) as server:
        said = await refused(log_at(kafka, "OAUTH", oauth(kafka, server.url)))
    assert f"{server.url} gives no token (HTTP 401)" in said
    assert CLIENT_SECRET not in said


async def test_an_authority_that_did_not_sign_is_named(kafka: SecuredKafka, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").file
    said = await refused(log_at(kafka, "SCRAM", replace(scram(kafka), ca_file=stranger)))
    assert "FORWARDER_KAFKA_CA_FILE must hold the authority that signed it" in said


async def test_a_host_name_that_the_certificate_lacks_is_named(kafka: SecuredKafka) -> None:
    said = await refused(log_at(kafka, "SCRAM", scram(kafka), host="127.0.0.1"))
    assert (
        "its certificate is not for 127.0.0.1: name the brokers in FORWARDER_KAFKA_BOOTSTRAP_SERVERS as it does" in said
    )


@pytest.mark.parametrize("wrong", [{"password": "another-password"}, {"username": "somebody"}])
async def test_wrong_credentials_are_named_and_not_shown(kafka: SecuredKafka, wrong: dict[str, Any]) -> None:
    said = await refused(log_at(kafka, "SCRAM", replace(scram(kafka), **wrong)))
    assert "it refuses the credentials: check FORWARDER_KAFKA_SASL_USERNAME and FORWARDER_KAFKA_SASL_PASSWORD" in said
    assert "another-password" not in said


@pytest.mark.slow
async def test_a_mechanism_that_the_listener_lacks_is_named(kafka: SecuredKafka) -> None:
    said = await refused(log_at(kafka, "SCRAM", scram(kafka, "PLAIN")))
    assert "it does not take this FORWARDER_KAFKA_SASL_MECHANISM" in said


@pytest.mark.slow
async def test_a_missing_client_certificate_is_named(kafka: SecuredKafka) -> None:
    said = await refused(log_at(kafka, "MUTUAL", KafkaSecurity("SSL", ca_file=kafka.authority.file)))
    assert "FORWARDER_KAFKA_CERTIFICATE_FILE" in said


@pytest.mark.slow
async def test_tls_to_a_listener_without_is_named(kafka: SecuredKafka) -> None:
    said = await refused(log_at(kafka, "PLAIN", scram(kafka)))
    assert "check that this port is the listener of FORWARDER_KAFKA_SECURITY_PROTOCOL" in said


def oauth(kafka: SecuredKafka, url: str) -> KafkaSecurity:
    client = OAuthClient(url, "forwarder", CLIENT_SECRET, "kafka")
    return KafkaSecurity("SASL_SSL", "OAUTHBEARER", oauth=client, ca_file=kafka.authority.file)


class AuthorizationServer:
    """Grants tokens that end after `life` seconds, as it says; `asked` are the forms it was sent."""

    def __init__(self, tokens: TokenSigner, status: int, life: float) -> None:
        self.tokens = tokens
        self.status = status
        self.life = life
        self.url = ""
        self.asked: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length:")[2].split()[0])
        assert f"Basic {base64.b64encode(f'forwarder:{CLIENT_SECRET}'.encode()).decode()}" in head
        self.asked.append((await reader.readexactly(length)).decode())
        body = json.dumps({"access_token": await self._granted(), "expires_in": self.life}).encode()
        writer.write(
            f"HTTP/1.1 {self.status} -\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
        )
        writer.close()
        await writer.wait_closed()

    async def _granted(self) -> str:
        return await asyncio.to_thread(self.tokens.token, USER, life=self.life)


@asynccontextmanager
async def authorization_server(
    kafka: SecuredKafka, status: int = 200, life: float = 3600.0
) -> AsyncIterator[AuthorizationServer]:
    granting = AuthorizationServer(kafka.tokens, status, life)
    async with await asyncio.start_server(granting.answer, "127.0.0.1", 0) as server:
        granting.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        yield granting
