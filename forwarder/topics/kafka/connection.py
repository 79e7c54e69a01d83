"""The connection settings of the Kafka backend's clients, and the one place where the driver's errors are translated: KafkaError,
OSError, TimeoutError  ->  LogUnavailable"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.errors import IllegalSaslStateError, KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.protocol.metadata import MetadataRequest

from forwarder.process.loading import load
from forwarder.topics.kafka.security import KafkaSecurity
from forwarder.topics.port import LogUnavailable


@dataclass(eq=False)
class KafkaConnection:
    """How to reach the cluster, and how long to wait for it. All times are seconds. `publish_timeout_seconds` limits one publish
    with all its retries. `session_timeout_seconds` is how long a dead member of a group keeps its partitions. `silence_seconds` is
    how long the brokers may not answer before a reader calls them unavailable; a rebalance is silent too, and takes up to the
    session timeout. `member`: the name of this process in its groups (static membership, KIP-345): after it was killed, it has its
    partitions again as soon as it comes back under its name. Without `security` the brokers are reached in plaintext. Raises as
    `KafkaSecurity.tls`."""

    bootstrap_servers: str
    security: KafkaSecurity | None = None
    client_id: str = "forwarder"
    publish_timeout_seconds: float = 10.0
    session_timeout_seconds: float = 10.0
    silence_seconds: float = 15.0
    member: str | None = None

    def __post_init__(self) -> None:
        # Half of a publish, so that a hanging broker leaves time for another to take over.
        self.request_timeout_seconds = self.publish_timeout_seconds / 2
        # As aiokafka's arguments. All clients of a process share the access token.
        security, self.secured = self.security, dict[str, Any]()
        if security is not None:
            arguments = {
                "security_protocol": security.protocol,
                "ssl_context": security.tls(),
                "sasl_mechanism": security.mechanism,
                "sasl_plain_username": security.username,
                "sasl_plain_password": security.password,
            }
            if (oauth := security.oauth) is not None:  # only then is the HTTP client imported
                kind = "TokenFile" if isinstance(oauth, Path) else "ClientCredentials"
                provider = load(f"forwarder.topics.kafka.oauth:{kind}")(oauth, security.ca_file)
                arguments["sasl_oauth_token_provider"] = provider
            self.secured = {name: value for name, value in arguments.items() if value is not None}
        self.arguments = {"bootstrap_servers": self.bootstrap_servers, "client_id": self.client_id, **self.secured}


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


def unavailable(doing: str, within: float, error: Exception) -> LogUnavailable:
    """A `KafkaError` or an `OSError` (`TimeoutError` is one) as our error."""
    why = f"no answer within {within:g} s" if isinstance(error, TimeoutError) else repr(error)
    return LogUnavailable(f"{doing}: {why}")


@asynccontextmanager
async def connecting(connection: KafkaConnection, doing: str, *, within: float) -> AsyncIterator[None]:
    """As `reaching_kafka`, for connecting. If secured brokers refuse, the error says why."""
    try:
        async with reaching_kafka(doing, within=within):
            yield
    except LogUnavailable as error:
        why = None
        if connection.secured:
            with suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    why = await refusal(connection.bootstrap_servers, connection.secured)
        if why is None:
            raise
        raise LogUnavailable(f"{doing}: {why}") from error


_CLOSED = (
    "it closes the connection: check that this port is the listener of FORWARDER_KAFKA_SECURITY_PROTOCOL, and whether it wants a "
    "client certificate (FORWARDER_KAFKA_CERTIFICATE_FILE, FORWARDER_KAFKA_KEY_FILE)"
)


class NoToken(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """The authorization server issued no token. Says why, without the client's secret or the server's response."""


async def refusal(bootstrap_servers: str, arguments: Mapping[str, Any]) -> str | None:
    """Why the first of these brokers refuses the connection, with the remedy; None if none refuses."""
    for server in bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            connection = await create_conn(host.strip("[]"), int(port), **arguments)
            if arguments.get("sasl_mechanism") == "OAUTHBEARER":
                # Test the token: the driver mistakes a broker's refusal for success, and the next request gets no response.
                try:
                    await connection.send(MetadataRequest([]))
                except KafkaError:
                    raise SaslAuthenticationFailed from None
        except (KafkaError, OSError, ValueError) as error:
            return f"{server.strip()}: {_in_words(error, host)}"
        connection.close()
    return None


def _in_words(error: Exception, host: str) -> str:
    match error:
        case ssl.SSLCertVerificationError(verify_code=62 | 64):  # OpenSSL's codes for another host name or address
            return (
                f"its certificate is not for {host}: name the brokers in FORWARDER_KAFKA_BOOTSTRAP_SERVERS as it does"
            )
        case ssl.SSLCertVerificationError(verify_code=10):
            return "its certificate has expired"
        case ssl.SSLCertVerificationError(verify_message=why):
            return f"its certificate is not trusted ({why}): FORWARDER_KAFKA_CA_FILE must hold the authority that signed it"
        case ssl.SSLError(reason=why):
            return (
                f"no TLS can be agreed on ({why}): check the port, and FORWARDER_KAFKA_SECURITY_PROTOCOL. Or {_CLOSED}"
            )
        case NoToken():
            return str(error.args[0])
        case UnsupportedSaslMechanismError():
            return "it does not take this FORWARDER_KAFKA_SASL_MECHANISM"
        case SaslAuthenticationFailed():
            return (
                "it refuses the credentials: check FORWARDER_KAFKA_SASL_USERNAME and FORWARDER_KAFKA_SASL_PASSWORD "
                "(OAUTHBEARER: the client and its scope, or the token in the file)"
            )
        case IllegalSaslStateError():
            return "it does not take SASL on this port: check the port, and FORWARDER_KAFKA_SECURITY_PROTOCOL"
        case TimeoutError():
            return "no answer"
        case OSError(strerror=str(why)):
            return why
        case OSError() | KafkaError():
            return _CLOSED
        case _:  # SCRAM: the broker must prove that it knows the password, too
            return f"it does not answer as a broker should: {error}"
