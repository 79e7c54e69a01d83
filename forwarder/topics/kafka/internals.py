"""Every use of aiokafka's private names, each with its reason. Nothing else in this project uses one.

aiokafka has no way to give up: `stop` waits for brokers without a limit, stops half-way if a fetch fails meanwhile, and raises
before it has closed any connection if the client's own metadata task has failed. Nor does it say that this task has failed. A
member with a name never leaves its group. And its idempotent producer becomes unusable for a partition once a batch was refused,
even if only for its size. `tests/stage/topics/test_kafka_internals.py` fails if a release changes one of these names;
pyproject.toml has the upper bound."""

import asyncio
import logging
from asyncio import Future, Task
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient

from forwarder.topics.kafka.connection import KafkaConnection

_log = logging.getLogger(__name__)
_CANCEL_SECONDS = 1.0  # for aiokafka's tasks to end once they are cancelled


def metadata_task(client: AIOKafkaClient) -> Task[None]:
    """The task that refreshes a started client's metadata. Once it has ended, the client never learns of a new leader or
    coordinator, and waits for them forever: it must be replaced. uvloop's refusal to write to a closed connection ends it with an
    error, which aiokafka does not expect."""
    task: Task[None] = client._sync_task  # noqa: SLF001
    return task


def client_of(consumer: AIOKafkaConsumer) -> AIOKafkaClient:
    """The client of a consumer; a producer's is public."""
    return consumer._client  # noqa: SLF001


def make_closable(client: AIOKafkaClient) -> None:
    """Drop a metadata task that has ended: `close` would raise its error, and leave the connections open."""
    task = client._sync_task  # noqa: SLF001
    if task is not None and task.done():
        retrieve_exception(task)
        client._sync_task = None  # noqa: SLF001


def take_back_numbers(producer: AIOKafkaProducer, topic: str, partition: int, count: int) -> None:
    """Reuses the sequence numbers of a batch of `count` messages that the brokers refused as a whole, the only one in flight to its
    partition. Otherwise they would take the next batch for out of order."""
    manager = producer._txn_manager  # noqa: SLF001
    if manager is not None:
        manager.increment_sequence_number(TopicPartition(topic, partition), -count)


async def abandon_producer(producer: AIOKafkaProducer, *, within: float) -> None:
    """Closes without flushing: `stop` would wait for the brokers during their whole outage."""
    producer._closed = True  # noqa: SLF001 - it warns of producers that are dropped without `stop`
    try:
        async with asyncio.timeout(within):
            await producer._sender.close()  # noqa: SLF001 - the task that keeps retrying
    except TimeoutError:
        _log.warning("kafka producer closed with a request under way")
    finally:
        make_closable(producer.client)
        await producer.client.close()


async def stop_consumer(consumer: AIOKafkaConsumer, connection: KafkaConnection) -> None:
    """Leaves the group, if any, and closes the connections. Waits at most one session time-out for brokers that do not respond:
    after that the group drops the member anyway."""
    if connection.member is not None:
        # A member with a name leaves its group when it stops, as one without does: its partitions go to others at once.
        consumer._coordinator._group_instance_id = None  # noqa: SLF001
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait({stopping}, timeout=connection.session_timeout_seconds)
    if not stopping.done():
        # aiokafka sometimes swallows a cancellation, and then keeps waiting.
        stopping.add_done_callback(retrieve_exception)
        stopping.cancel()
        await asyncio.wait({stopping}, timeout=_CANCEL_SECONDS)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is None:
        return
    _log.info("kafka consumer did not stop cleanly")
    # Complete the failed `stop`: a heartbeat left running would keep the member in its group indefinitely.
    names = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")
    tasks = [getattr(consumer._coordinator, name, None) for name in names]  # noqa: SLF001 - by kind of coordinator
    if consumer._fetcher is not None:  # noqa: SLF001
        tasks += [consumer._fetcher._fetch_task, *consumer._fetcher._pending_tasks]  # noqa: SLF001
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
        task.add_done_callback(retrieve_exception)
    if running:
        await asyncio.wait(running, timeout=_CANCEL_SECONDS)
    client = client_of(consumer)
    make_closable(client)
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            await client.close()
    except TimeoutError:
        _log.warning("kafka consumer closed with a connection left")


def retrieve_exception(abandoned: Future[Any]) -> None:
    """A callback for a future that is no longer awaited: asyncio would report its error as never retrieved."""
    if not abandoned.cancelled():
        abandoned.exception()
