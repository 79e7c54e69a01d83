"""Finds out why secured brokers refuse connections. aiokafka only logs the reason, and raises another error without it."""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

_HOST_NAME: Final = {62, 64}
"""OpenSSL's codes for a certificate of another host name or address."""
_EXPIRED: Final = 10
_CREDENTIALS = (
    "FORWARDER_KAFKA_SASL_USERNAME and FORWARDER_KAFKA_SASL_PASSWORD (OAUTHBEARER: the client and its scope, or the token in the "
    "file)"
)
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
                await _use(connection)
        except (KafkaError, OSError, ValueError) as error:
            return f"{server.strip()}: {_in_words(error, host)}"
        connection.close()
    return None


async def _use(connection: AIOKafkaConnection) -> None:
    """Tests the token: the driver mistakes a broker's refusal for success, and the next request gets no response. Raises
    `SaslAuthenticationFailed`."""
    try:
        await connection.send(MetadataRequest([]))
    except KafkaError:
        raise SaslAuthenticationFailed from None


def _in_words(error: Exception, host: str) -> str:
    match error:
        case ssl.SSLCertVerificationError(verify_code=code) if code in _HOST_NAME:
            return (
                f"its certificate is not for {host}: name the brokers in FORWARDER_KAFKA_BOOTSTRAP_SERVERS as it does"
            )
        case ssl.SSLCertVerificationError(verify_code=code) if code == _EXPIRED:
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
            return f"it refuses the credentials: check {_CREDENTIALS}"
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
