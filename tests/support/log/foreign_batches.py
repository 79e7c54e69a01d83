"""What other programs write to Kafka: record batches as they come out of no producer of ours."""

import struct
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

_CRC, _CHECKED = 17, 21
"""Where a batch has its checksum, and from where on it is reckoned."""

STANDS_FOR = "\x7f\x7f"
"""The name of a header that is to be written as `NOT_UTF8`, which is as long."""

NOT_UTF8 = b"\xff\xfe"

Raw = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""A key, a value, headers."""


async def write_batch(bootstrap_servers: str, topic: str, partition: int, records: Sequence[Raw]) -> None:
    """Append `records` as one batch, in which header names that are `STANDS_FOR` are no UTF-8."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", max_request_size=2_000_000)
    await producer.start()
    try:
        batch = producer.create_batch()
        for key, value, headers in records:
            assert batch.append(timestamp=None, key=key, value=value, headers=list(headers)) is not None
        _damage(batch)
        await (await producer.send_batch(batch, topic, partition=partition))
    finally:
        await producer.stop()


def _damage(batch: Any) -> None:
    written = bytearray(bytes(batch._build()).replace(STANDS_FOR.encode(), NOT_UTF8))
    struct.pack_into(">I", written, _CRC, calc_crc32c(bytes(written[_CHECKED:])))
    batch._buffer = written
