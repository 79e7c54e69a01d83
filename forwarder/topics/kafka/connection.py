"""How the parts of the Kafka backend reach the brokers, and the one place where the driver's errors are translated:

KafkaError, OSError, TimeoutError  ->  LogUnavailable
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka.errors import KafkaError

from forwarder.topics.port import LogUnavailable


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """How to reach the cluster, and how long to wait for it. All times are seconds.

    `publish_timeout_seconds` limits one publish with all its retries. `session_timeout_seconds` is how long a dead member
    of a group keeps its partitions. `silence_seconds` is how long the brokers may not answer before a reader calls
    them unavailable; a rebalance is silent too, and takes up to the session timeout.
    """

    bootstrap_servers: str
    client_id: str
    publish_timeout_seconds: float
    session_timeout_seconds: float
    silence_seconds: float

    @property
    def request_timeout_seconds(self) -> float:
        """Half of a publish, so that a broker that hangs leaves time for another to take over."""
        return self.publish_timeout_seconds / 2

    @property
    def join_timeout_seconds(self) -> float:
        """To join a group: in the worst case a dead member has to be waited for twice."""
        return 3 * self.session_timeout_seconds


def milliseconds(seconds: float) -> int:
    """Aiokafka's unit of time."""
    return round(seconds * 1000)


@asynccontextmanager
async def reaching_kafka(doing: str, *, within: float) -> AsyncIterator[None]:
    """Give the block `within` seconds. Raises `LogUnavailable` if it takes longer, or if the brokers fail it."""
    try:
        async with asyncio.timeout(within):
            yield
    except (KafkaError, OSError) as error:
        raise unavailable(doing, within, error) from error


def unavailable(doing: str, within: float, error: Exception) -> LogUnavailable:
    """A `KafkaError` or an `OSError` (`TimeoutError` is one) as our error."""
    if isinstance(error, TimeoutError):
        return LogUnavailable(f"{doing}: no answer within {within:g} s")
    return LogUnavailable(f"{doing}: {error!r}")
