"""A Kafka client whose own metadata task has failed is replaced, and closed with all its connections."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Never

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.group_coordinator import GroupCoordinator

from forwarder.topics.kafka.internals import client_of, make_closable, metadata_task
from forwarder.topics.kafka.log import KafkaConsumer, KafkaLog, KafkaTail
from forwarder.topics.kafka.publisher import KafkaPublisher
from forwarder.topics.port import LogUnavailable
from tests.support.log.messages import ignore_partitions, new_topic, numbered, numbers, take, until_published
from tools.servers.kafka.process import KafkaCluster


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(kafka_bootstrap)


async def fail(client: AIOKafkaClient) -> None:
    """Make its metadata task fail, as where uvloop refuses to write to a connection that was closed meanwhile."""

    def write() -> Never:
        raise RuntimeError("unable to perform operation; the handler is closed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.cluster, "brokers", write)
        update = client.force_metadata_update()
        await asyncio.wait([metadata_task(client)])
    assert isinstance(metadata_task(client).exception(), RuntimeError)
    update.cancel()


@pytest.fixture
def open_connections() -> Callable[[], int]:
    """How many connections the clients of this test have open."""

    def of_this_process() -> set[AIOKafkaConnection]:
        return {each for each in gc.get_objects() if isinstance(each, AIOKafkaConnection) and each.connected()}

    gc.collect()
    of_others = of_this_process()
    return lambda: len(of_this_process() - of_others)


def client_in_use(publisher: KafkaPublisher) -> AIOKafkaClient:
    """Asking for it by `accumulator` would replace one that is lost."""
    assert publisher._accumulator is not None  # noqa: SLF001
    return publisher._accumulator.producer.client  # noqa: SLF001


async def test_a_healthy_client_keeps_its_metadata_task(log: KafkaLog) -> None:
    async with log.publisher() as publisher:
        assert isinstance(publisher, KafkaPublisher)
        accumulator = await publisher.accumulator()
        assert not accumulator.metadata.done()
        make_closable(accumulator.producer.client)
        assert not metadata_task(accumulator.producer.client).done()


async def test_a_publisher_goes_on_with_another(log: KafkaLog, open_connections: Callable[[], int]) -> None:
    topic = await new_topic(log, 1)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        assert isinstance(publisher, KafkaPublisher)
        lost = (await publisher.accumulator()).producer.client
        await fail(lost)
        assert await publisher.ready()
        assert (await publisher.accumulator()).producer.client is not lost
        await publisher.publish(topic, numbered(3))
        await stack.aclose()
        assert open_connections() == 0


async def test_a_consumer_is_closed_with_all_its_connections(
    log: KafkaLog, open_connections: Callable[[], int]
) -> None:
    topic = await new_topic(log, 1)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        await publisher.publish(topic, numbered(3))
        consumer = await stack.enter_async_context(log.consumer(topic, group=topic, on_partitions=ignore_partitions))
        assert isinstance(consumer, KafkaConsumer)
        assert numbers(await take(consumer, 3)) == [0, 1, 2]
        assert consumer._reader is not None  # noqa: SLF001
        await fail(client_of(consumer._reader.consumer))  # noqa: SLF001
        await stack.aclose()
        assert open_connections() == 0


async def test_a_consumer_whose_driver_does_not_stop_is_closed_all_the_same(
    kafka_bootstrap: str, open_connections: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it heed the first cancellation: others wait for this one to leave."""
    log = KafkaLog(kafka_bootstrap, session_timeout_seconds=1.0)
    topic, going_on = await new_topic(log, 1), asyncio.Event()

    async def close(_coordinator: GroupCoordinator) -> None:
        with suppress(asyncio.CancelledError):
            await going_on.wait()
        await going_on.wait()

    monkeypatch.setattr(GroupCoordinator, "close", close)
    async with asyncio.timeout(60.0), log.consumer(topic, group=topic, on_partitions=ignore_partitions):
        pass
    assert open_connections() == 0
    going_on.set()


@pytest.mark.parametrize("kind", ["consumer", "tail"])
async def test_whoever_reads_goes_on_with_another(log: KafkaLog, kind: str) -> None:
    """Within the receive that comes next: it would never hear of a new leader, nor of a new coordinator to commit to."""
    topic = await new_topic(log, 1)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        await publisher.publish(topic, numbered(3))
        opened = (
            log.consumer(topic, group=topic, on_partitions=ignore_partitions)
            if kind == "consumer"
            else log.tail(topic, from_beginning=True)
        )
        reading = await stack.enter_async_context(opened)
        assert isinstance(reading, KafkaConsumer | KafkaTail)
        received = await take(reading, 3)
        if isinstance(reading, KafkaConsumer):
            await reading.commit(received)
        assert reading._reader is not None  # noqa: SLF001
        lost = client_of(reading._reader.consumer)  # noqa: SLF001
        await fail(lost)
        await publisher.publish(topic, numbered(2, first=3))
        assert numbers(await take(reading, 2)) == [3, 4]
        assert client_of(reading._reader.consumer) is not lost  # noqa: SLF001


async def test_a_publisher_that_nobody_asks_whether_it_is_ready_goes_on_with_another_too(
    log: KafkaLog, open_connections: Callable[[], int]
) -> None:
    topic = await new_topic(log, 1)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        assert isinstance(publisher, KafkaPublisher)
        await publisher.publish(topic, numbered(1))
        lost = client_in_use(publisher)
        await fail(lost)
        await publisher.publish(topic, numbered(1, first=1))
        assert client_in_use(publisher) is not lost
        await stack.aclose()
        assert open_connections() == 0


async def test_what_fails_after_the_client_lost_track_is_the_last_that_does(kafka_to_kill: KafkaCluster) -> None:
    """It is lost while a message is in flight, as where the broker that it goes to is lost as well."""
    log = KafkaLog(kafka_to_kill.bootstrap_servers, publish_timeout_seconds=2.0)
    topic = await new_topic(log, 1)
    async with log.publisher() as publisher:
        assert isinstance(publisher, KafkaPublisher)
        await publisher.publish(topic, numbered(1))
        lost = client_in_use(publisher)
        kafka_to_kill.kill()
        in_flight = asyncio.create_task(publisher.publish(topic, numbered(1, first=1)))
        await fail(lost)
        with pytest.raises(LogUnavailable):
            await in_flight
        assert publisher._accumulator is None  # noqa: SLF001
        kafka_to_kill.start()
        await until_published(publisher, topic, numbered(1, first=2))
