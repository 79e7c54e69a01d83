"""What the parts of the Kafka backend share: how to reach the brokers, and what their errors mean to us.

KafkaError, OSError, TimeoutError  ->  LogUnavailable, by `unavailable` and nothing else
"""

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from forwarder.topics.port import LogUnavailable


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """How to reach the cluster, and how long to wait for it. All times are seconds.

    `publish_timeout_seconds` bounds one publish, retries and all. `session_timeout_seconds` is how long a dead member
    of a group keeps its partitions. `silence_seconds` is how long the brokers may say nothing before a reader calls
    them unavailable; a rebalance is silence too, and takes up to the session timeout.
    """

    bootstrap_servers: str
    client_id: str
    publish_timeout_seconds: float
    session_timeout_seconds: float
    silence_seconds: float

    @property
    def request_timeout_seconds(self) -> float:
        """Of one request: half a publish, so that a broker that hangs leaves time for another to take over."""
        return self.publish_timeout_seconds / 2

    @property
    def join_timeout_seconds(self) -> float:
        """To become a member of a group: a member that died may have to be waited for, twice at worst."""
        return 3 * self.session_timeout_seconds


def milliseconds(seconds: float) -> int:
    """As aiokafka takes its times."""
    return round(seconds * 1000)


@asynccontextmanager
async def reaching_kafka(doing: str, *, within: float) -> AsyncIterator[None]:
    """Give the block `within` seconds; raise `LogUnavailable` where it fails for the brokers' sake or does not end in time.

    Raises `LogUnavailable`.
    """
    try:
        async with asyncio.timeout(within):
            yield
    except (KafkaError, OSError) as error:
        raise unavailable(doing, within, error) from error


def unavailable(doing: str, within: float, error: Exception) -> LogUnavailable:
    """What a `KafkaError` or an `OSError`, which `TimeoutError` is too, means to us."""
    if isinstance(error, TimeoutError):
        return LogUnavailable(f"{doing}: no answer within {within:g} s")
    return LogUnavailable(f"{doing}: {error!r}")


def lost_track(client: AIOKafkaClient) -> bool:
    """Whether its task that keeps metadata has ended by an error: it learns of no new leader any more, and to close it would raise
    that error and leave its connections open.

    uvloop raises where something is written to a connection that was closed meanwhile; aiokafka does not expect that.
    """
    keeping = client._sync_task  # noqa: SLF001 - what aiokafka does not look at before its end
    return keeping is not None and keeping.done()


def closable(client: AIOKafkaClient) -> AIOKafkaClient:
    """The same, with nothing left in it that would keep it from being closed."""
    if lost_track(client):
        look_at(client._sync_task)  # noqa: SLF001
        client._sync_task = None  # noqa: SLF001
    return client


def look_at(abandoned: Future[Any]) -> None:
    """As a callback of a future nobody waits for any more: asyncio would report an error that nobody looked at."""
    if not abandoned.cancelled():
        abandoned.exception()
