"""Brings the broker to the cost that it has in service, before anything is measured.

Kafka runs on Java, which compiles what it runs often: a broker that was just started takes several times the CPU for a request that
one takes which has served some hundred thousand. Whoever is measured first would pay for that.
"""

import asyncio
import os
import secrets
from collections.abc import Sequence
from itertools import count
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic

from bench.cpu import Meter, engines
from bench.flows import PARTITIONS, topics_under

_REQUESTS: Final = 6_000  # to produce, in a round
_MOST_ROUNDS: Final = 15
_LAST: Final = 3  # rounds, in which the cost did not fall below
_STEADY: Final = 0.95  # of what it was
_SENDERS: Final = 8
_MESSAGE: Final = os.urandom(1_000)


async def warm_broker(kafka: str) -> str:
    """Produce and consume until a request costs the broker no less than the ones before; what it cost, in words. A broker that is
    not this bench's own, whose cost cannot be seen, gets one round."""
    topic = f"bench-warm-{secrets.token_hex(4)}."
    costs: list[float] = []
    async with topics_under(kafka, topic) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        async with AIOKafkaProducer(bootstrap_servers=kafka, acks="all", enable_idempotence=True) as producer:
            costs.append(await _round(producer, topic))
            async with AIOKafkaConsumer(topic, bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
                reading = asyncio.create_task(_read(consumer))
                while not _settled(costs):
                    costs.append(await _round(producer, topic))
                reading.cancel()
    said = (
        f"{costs[0]:,.0f} µs of CPU a request at first, {min(costs):,.0f} in the end"
        if costs[0]
        else "not this bench's own"
    )
    return f"Kafka, warmed up by {len(costs) * _REQUESTS:,} requests to produce: {said}."


def _settled(costs: Sequence[float]) -> bool:
    """Whether the last rounds cost about as much as the least of those before, or it was tried long enough."""
    before, last = costs[:-_LAST], costs[-_LAST:]
    return len(costs) >= _MOST_ROUNDS or (bool(before) and min(last) >= min(before) * _STEADY)


async def _round(producer: AIOKafkaProducer, topic: str) -> float:
    """What a request cost the broker: µs of CPU, that of consuming it included."""
    meter, numbers = Meter(engines()), count()

    async def sender() -> None:
        while (number := next(numbers)) < _REQUESTS:
            await producer.send_and_wait(topic, _MESSAGE, partition=number % PARTITIONS)

    await asyncio.gather(*(sender() for _ in range(_SENDERS)))
    return meter.spent().get("Kafka", 0.0) * 1e6 / _REQUESTS


async def _read(consumer: AIOKafkaConsumer) -> None:
    while True:
        await consumer.getmany(timeout_ms=1_000)
