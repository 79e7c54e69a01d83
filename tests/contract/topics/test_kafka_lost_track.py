"""What becomes of a client of the brokers whose own task for metadata has failed: it is replaced, and closed in order."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiokafka.client import AIOKafkaClient

from forwarder.topics.kafka.connection import closable, lost_track
from forwarder.topics.kafka.consumer import KafkaConsumer
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.kafka.publisher import KafkaPublisher
from forwarder.topics.port import LogUnavailable
from tests.support.log.deliveries import ignore_partitions, new_topic, numbered, numbers, take, until_published
from tools.servers.kafka_process import KafkaCluster


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(kafka_bootstrap)


async def fail(client: AIOKafkaClient) -> None:
    """As where uvloop refuses to write to a connection that was closed meanwhile."""

    async def write() -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    client._sync_task.cancel()
    await asyncio.wait([client._sync_task])
    client._sync_task = asyncio.create_task(write())
    await asyncio.wait([client._sync_task])
    assert lost_track(client)


def open_connections(client: AIOKafkaClient) -> list[object]:
    return [connection for connection in client._conns.values() if connection.connected()]


def client_of(publisher: KafkaPublisher) -> AIOKafkaClient:
    """The one in use. To ask for it by `started` would replace one that has lost track."""
    assert publisher._batches is not None
    return publisher._batches.producer.client


async def test_one_at_work_has_not_lost_track(log: KafkaLog) -> None:
    async with log.publisher() as publisher:
        assert isinstance(publisher, KafkaPublisher)
        client = (await publisher.started()).producer.client
        assert not lost_track(client)
        assert closable(client)._sync_task is not None


async def test_a_publisher_goes_on_with_another(log: KafkaLog) -> None:
    topic = await new_topic(log, 1)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        assert isinstance(publisher, KafkaPublisher)
        lost = (await publisher.started()).producer.client
        await fail(lost)
        assert await publisher.ready()
        assert (await publisher.started()).producer.client is not lost
        await publisher.publish(topic, numbered(3))
        await stack.aclose()
        assert open_connections(lost) == []


async def test_a_consumer_is_left_in_order(log: KafkaLog) -> None:
    topic = await new_topic(log, 1)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        await publisher.publish(topic, numbered(3))
        consumer = await stack.enter_async_context(log.consumer(topic, group="g", on_partitions=ignore_partitions))
        assert isinstance(consumer, KafkaConsumer)
        assert numbers(await take(consumer, 3)) == [0, 1, 2]
        assert consumer._reader is not None
        client = consumer._reader.consumer._client
        await fail(client)
        await stack.aclose()
        assert open_connections(client) == []


async def test_a_publisher_that_nobody_asks_whether_it_is_ready_goes_on_with_another_too(log: KafkaLog) -> None:
    topic = await new_topic(log, 1)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        assert isinstance(publisher, KafkaPublisher)
        await publisher.publish(topic, numbered(1))
        lost = client_of(publisher)
        await fail(lost)
        await publisher.publish(topic, numbered(1, first=1))
        assert client_of(publisher) is not lost
        await stack.aclose()
        assert open_connections(lost) == []


async def test_what_fails_after_the_client_lost_track_is_the_last_that_does(kafka_to_kill: KafkaCluster) -> None:
    """It is lost while a message is under way, as where the broker that it goes to is lost as well."""
    log = KafkaLog(kafka_to_kill.bootstrap_servers, publish_timeout_seconds=2.0)
    topic = await new_topic(log, 1)
    async with log.publisher() as publisher:
        assert isinstance(publisher, KafkaPublisher)
        await publisher.publish(topic, numbered(1))
        lost = client_of(publisher)
        kafka_to_kill.kill()
        under_way = asyncio.create_task(publisher.publish(topic, numbered(1, first=1)))
        await fail(lost)
        with pytest.raises(LogUnavailable):
            await under_way
        assert publisher._batches is None
        kafka_to_kill.start()
        await until_published(publisher, topic, numbered(1, first=2))
