"""Creates and lists Kafka topics, and reads their offsets."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from forwarder.topics.kafka.connection import KafkaConnection, connecting, milliseconds, reaching_kafka
from forwarder.topics.kafka.internals import stop_consumer
from forwarder.topics.kafka.reader import CannotRead, fetched
from forwarder.topics.port import Lag, TopicState, moment_of

_REPLICAS = 3
_POLL_SECONDS = 0.05
_DAY, _MILLISECOND = timedelta(days=1), timedelta(milliseconds=1)


class KafkaAdmin:
    """See `port.TopicAdmin`. With three replicas or more, two must be in sync for a publish to succeed. Messages have the brokers'
    append time."""

    def __init__(self, client: AIOKafkaAdminClient, connection: KafkaConnection) -> None:
        self._client, self._connection = client, connection

    def _reaching(self, doing: str) -> AbstractAsyncContextManager[None]:
        return reaching_kafka(doing, within=self._connection.publish_timeout_seconds)

    async def create(
        self, partitions: Mapping[str, int], *, retention: timedelta | None = None, replicas: int | None = None
    ) -> Sequence[str]:
        async with self._reaching("create topics"):
            existing = await self._existing()
            wanted = {name: count for name, count in partitions.items() if name not in existing}
            if not wanted:
                return ()
            # A broker that has just started knows no brokers, not even itself.
            while not (brokers := (await self._client.describe_cluster())["brokers"]):  # noqa: ASYNC110 - remote
                await asyncio.sleep(_POLL_SECONDS)
            replicas = replicas or min(_REPLICAS, len(brokers))
            settings = {"message.timestamp.type": "LogAppendTime"}
            if retention is not None:
                settings["retention.ms"] = str(retention // _MILLISECOND)
                # Whole segments are deleted: those of a quiet topic would be kept until they are full.
                settings["segment.ms"] = str(min(retention, _DAY) // _MILLISECOND)
            if replicas >= _REPLICAS:
                settings["min.insync.replicas"] = "2"
            topics = [NewTopic(name, count, replicas, topic_configs=settings) for name, count in wanted.items()]
            response = await self._client.create_topics(topics)
            created = []
            for name, code, reason in response.topic_errors:
                error = errors.for_code(code)
                if error is errors.NoError:
                    created.append(name)
                elif error is not errors.TopicAlreadyExistsError:  # which another process created meanwhile
                    raise error(f"{name}: {reason}")
            await self._wait_for_leaders(dict.fromkeys(created, 1))
        return created

    async def grow(self, partitions: Mapping[str, int]) -> None:
        async with self._reaching("add partitions"):
            await self._client.create_partitions({name: NewPartitions(count) for name, count in partitions.items()})
            await self._wait_for_leaders(partitions)

    async def list(self) -> Mapping[str, int]:
        async with self._reaching("list topics"):
            return await self._existing()

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        async with self._reaching("describe topics"):
            described = await self._described()
        states = {}
        for name, parts in ((each["topic"], each["partitions"]) for each in described if each["topic"] in topics):
            replicas, in_sync = (min((len(each[kind]) for each in parts), default=0) for kind in ("replicas", "isr"))
            states[name] = TopicState(len(parts), replicas, in_sync)
        return states

    async def members(self, group: str) -> int | None:
        async with self._reaching(f"describe {group}"):
            while True:
                with suppress(errors.GroupCoordinatorNotAvailableError):  # as in `_committed`
                    responses = await self._client.describe_consumer_groups([group])
                    # Of a group: error, group, state, protocol type, protocol, members.
                    return sum(len(each[5]) for response in responses for each in response.groups)
                await asyncio.sleep(_POLL_SECONDS)

    async def offsets(self, topic: str) -> Mapping[int, range]:
        async with self._reaching(f"read the offsets of {topic}"):
            every = await self._partitions(topic)
            async with self._offsets_client() as consumer:
                first, following = await consumer.beginning_offsets(every), await consumer.end_offsets(every)
        return {each.partition: range(first[each], following[each]) for each in every}

    async def offsets_at(self, topic: str, moments: Sequence[datetime]) -> Sequence[Mapping[int, int]]:
        since = [max(round(each.timestamp() * 1000), 0) for each in moments]
        async with self._reaching(f"find times in {topic}"):
            every = await self._partitions(topic)
            async with self._offsets_client() as consumer:
                # The ends first: a message published between the two requests is found by its time.
                ends = await consumer.end_offsets(every)
                asked = (consumer.offsets_for_times(dict.fromkeys(every, each)) for each in since)
                found = await asyncio.gather(*asked)
        return [
            {place.partition: places[place].offset if places.get(place) else end for place, end in ends.items()}
            for places in found
        ]

    async def settings(self, topic: str) -> Mapping[str, str]:
        async with self._reaching(f"read the settings of {topic}"):
            responses = await self._client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        entries = [entry for response in responses for resource in response.resources for entry in resource[4]]
        return {entry[0]: entry[1] for entry in entries if entry[1] is not None}

    async def retention(self, topic: str) -> timedelta | None:
        settings = await self.settings(topic)
        kept = int(settings.get("retention.ms") or -1)  # for ever
        deletes = "delete" in (settings.get("cleanup.policy") or "delete")
        return timedelta(milliseconds=kept) if deletes and kept != -1 else None

    async def committed(self, topic: str, *, group: str) -> Mapping[int, int]:
        async with self._reaching(f"read the offsets of {group}"):
            return await self._committed(await self._partitions(topic), group)

    async def lag(self, topic: str, *, group: str) -> Sequence[Lag]:
        async with self._reaching(f"read the lag of {group}"):
            every = await self._partitions(topic)
            committed = await self._committed(every, group)  # before the ends, so that it is never ahead of them
            async with self._offsets_client() as consumer:
                first, ends = await consumer.beginning_offsets(every), await consumer.end_offsets(every)
                begun = {each: max(committed.get(each.partition, 0), first[each]) for each in every}
                oldest: dict[TopicPartition, datetime] = {}
                behind = [each for each, offset in begun.items() if offset < ends[each]]
                consumer.assign(behind)
                for each in behind:
                    consumer.seek(each, begun[each])
                loop = asyncio.get_running_loop()
                deadline = loop.time() + 3.0
                for each in behind:  # without those that cannot be read, or do not come in time
                    left = milliseconds(max(deadline - loop.time(), 0.0))
                    with suppress(CannotRead):
                        for records in (await fetched(consumer, each, timeout_ms=left, max_records=1)).values():
                            oldest[each] = moment_of(records[0].timestamp)
        return [Lag(each.partition, max(0, ends[each] - begun[each]), oldest.get(each)) for each in every]

    async def _partitions(self, topic: str) -> Sequence[TopicPartition]:
        return [TopicPartition(topic, each) for each in range((await self._existing()).get(topic, 0))]

    async def _committed(self, places: Sequence[TopicPartition], group: str) -> Mapping[int, int]:
        while places:
            # There is none for the very first group, and while another broker takes over.
            with suppress(errors.GroupCoordinatorNotAvailableError):
                found = await self._client.list_consumer_group_offsets(group, partitions=places)
                # While a coordinator loads, its response has an error and no partitions, and aiokafka looks only at the partitions'
                # errors. Taken for a group that never committed, that would be a lag as old as the topic.
                if len(found) == len(places):
                    return {place.partition: at.offset for place, at in found.items() if at.offset >= 0}
            await asyncio.sleep(_POLL_SECONDS)
        return {}

    @asynccontextmanager
    async def _offsets_client(self) -> AsyncIterator[AIOKafkaConsumer]:
        """A consumer that consumes nothing: aiokafka's admin client cannot read offsets."""
        timeout = milliseconds(self._connection.request_timeout_seconds)
        consumer = AIOKafkaConsumer(**self._connection.arguments, request_timeout_ms=timeout)
        try:
            await consumer.start()
            yield consumer
        finally:
            await stop_consumer(consumer, self._connection)

    async def _existing(self) -> dict[str, int]:
        topics = await self._described()
        return {topic["topic"]: len(topic["partitions"]) for topic in topics if not topic["is_internal"]}

    async def _described(self) -> Sequence[Any]:
        while True:
            with suppress(errors.NodeNotReadyError):  # aiokafka then asks again which brokers there are
                return cast("Sequence[Any]", await self._client.describe_topics())
            await asyncio.sleep(_POLL_SECONDS)

    async def _wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Wait until every partition has a leader, and there are so many. Creation is confirmed before all brokers know of it."""
        while True:
            topics = await self._client.describe_topics(list(partitions))
            led = {each["topic"]: [part["leader"] >= 0 for part in each["partitions"]] for each in topics}
            if all(all(parts) and len(parts) >= partitions.get(name, 1) for name, parts in led.items()):
                return
            await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def kafka_admin(connection: KafkaConnection) -> AsyncIterator[KafkaAdmin]:
    """Connected on entry, else `LogUnavailable`."""
    timeout = milliseconds(connection.request_timeout_seconds)
    client = AIOKafkaAdminClient(**connection.arguments, request_timeout_ms=timeout)
    try:
        async with connecting(connection, "connect", within=connection.publish_timeout_seconds):
            await client.start()
        yield KafkaAdmin(client, connection)
    finally:
        await client.close()
