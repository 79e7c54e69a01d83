"""What others bring to Kafka: topics of their settings, record batches that no producer of ours would make."""

import asyncio
import struct
import uuid
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NoError, for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

_CRC, _CHECKED = 17, 21
"""Where a batch has its checksum, and where the bytes that it covers begin."""

_RETRY_SECONDS = 0.05

STANDS_FOR = "\x7f\x7f"
"""A header name that is written as `NOT_UTF8`, which is as long."""

NOT_UTF8 = b"\xff\xfe"

Raw = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""A key, a value, headers."""


async def write_batch(bootstrap_servers: str, topic: str, partition: int, records: Sequence[Raw]) -> None:
    """Append `records` as one batch, in which header names that are `STANDS_FOR` are not UTF-8."""
    batch = _batch(records)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        assert partition in await producer.partitions_for(topic)
        while (error := for_code(await _produce(producer.client, topic, partition, batch))) is not NoError:
            assert error.retriable, error  # the leader of a new partition is not ready at once
            await asyncio.sleep(_RETRY_SECONDS)
            await producer.client.force_metadata_update()


async def topic_with(bootstrap_servers: str, partitions: int, settings: Mapping[str, str]) -> str:
    """A topic that nobody else has, set up as an operator may set it up."""
    name = f"test.{uuid.uuid4().hex[:12]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    response = await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dict(settings))])
    await admin.close()
    assert [error[1] for error in response.topic_errors] == [0], response
    return name


async def _produce(client: AIOKafkaClient, topic: str, partition: int, batch: bytes) -> int:
    """The broker's error code."""
    leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
    request = ProduceRequest(None, -1, 10_000, [(topic, [(partition, batch)])])
    response = await client.send(leader, request)
    ((_, ((_, error_code, *_),)),) = response.topics
    return int(error_code)


def _batch(records: Sequence[Raw]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=2_000_000
    )
    for offset, (key, value, headers) in enumerate(records):
        assert builder.append(offset, None, key=key, value=value, headers=list(headers)) is not None
    written = bytearray(bytes(builder.build()).replace(STANDS_FOR.encode(), NOT_UTF8))
    struct.pack_into(">I", written, _CRC, calc_crc32c(bytes(written[_CHECKED:])))
    return bytes(written)
