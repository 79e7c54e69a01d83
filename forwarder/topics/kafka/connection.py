"""The connection settings of the Kafka backend's clients, and the one place where the driver's errors are translated:

KafkaError, OSError, TimeoutError  ->  LogUnavailable
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import KafkaError

from forwarder.process.loading import load
from forwarder.topics.kafka.security.refusal import refusal
from forwarder.topics.kafka.security.transport import KafkaSecurity
from forwarder.topics.port import LogUnavailable

_REFUSAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """How to reach the cluster, and how long to wait for it. All times are seconds.

    `publish_timeout_seconds` limits one publish with all its retries. `session_timeout_seconds` is how long a dead member
    of a group keeps its partitions. `silence_seconds` is how long the brokers may not answer before a reader calls
    them unavailable; a rebalance is silent too, and takes up to the session timeout. `security` is the result of `secured`; empty
    for plaintext.
    """

    bootstrap_servers: str
    client_id: str
    publish_timeout_seconds: float
    session_timeout_seconds: float
    silence_seconds: float
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments with which every aiokafka client connects."""
        return {"bootstrap_servers": self.bootstrap_servers, "client_id": self.client_id, **self.security}

    @property
    def request_timeout_seconds(self) -> float:
        """Half of a publish, so that a hanging broker leaves time for another to take over."""
        return self.publish_timeout_seconds / 2

    @property
    def join_timeout_seconds(self) -> float:
        """The time to join a group: in the worst case it waits for a dead member twice."""
        return 3 * self.session_timeout_seconds


def secured(security: KafkaSecurity) -> Mapping[str, Any]:
    """`security` as aiokafka's arguments. All clients of a process share the access token. Raises as `KafkaSecurity.tls`."""
    oauth = security.oauth
    arguments = {
        "security_protocol": security.protocol,
        "ssl_context": security.tls(),
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password,
        "sasl_oauth_token_provider": (
            # Import the HTTP client only if it is needed.
            None
            if oauth is None
            else load("forwarder.topics.kafka.security.oauth:token_provider")(oauth, security.ca_file)
        ),
    }
    return {name: value for name, value in arguments.items() if value is not None}


def milliseconds(seconds: float) -> int:
    """Aiokafka's unit of time."""
    return round(seconds * 1000)


@asynccontextmanager
async def reaching_kafka(doing: str, *, within: float) -> AsyncIterator[None]:
    """Limits the block to `within` seconds. Raises `LogUnavailable` if it takes longer, or if the brokers fail."""
    try:
        async with asyncio.timeout(within):
            yield
    except (KafkaError, OSError) as error:
        raise unavailable(doing, within, error) from error


@asynccontextmanager
async def connecting(connection: KafkaConnection, doing: str, *, within: float) -> AsyncIterator[None]:
    """As `reaching_kafka`, for connecting. If secured brokers refuse, the error says why."""
    try:
        async with reaching_kafka(doing, within=within):
            yield
    except LogUnavailable as error:
        why = await _refusal(connection)
        if why is None:
            raise
        raise LogUnavailable(f"{doing}: {why}") from error


async def _refusal(connection: KafkaConnection) -> str | None:
    if not connection.security:
        return None
    try:
        async with asyncio.timeout(_REFUSAL_SECONDS):
            return await refusal(connection.bootstrap_servers, connection.security)
    except TimeoutError:
        return None


def unavailable(doing: str, within: float, error: Exception) -> LogUnavailable:
    """A `KafkaError` or an `OSError` (`TimeoutError` is one) as our error."""
    if isinstance(error, TimeoutError):
        return LogUnavailable(f"{doing}: no answer within {within:g} s")
    return LogUnavailable(f"{doing}: {error!r}")
