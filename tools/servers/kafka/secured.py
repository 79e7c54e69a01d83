"""A broker that has a listener for each way to secure it, and who may use them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.servers.access_tokens import TokenSigner
from tools.servers.certificates import Authority
from tools.servers.kafka.process import KafkaCluster, Listener, add_scram_user
from tools.servers.reaper import Reaper
from tools.servers.server_process import ServerFailed, free_ports

USER: Final = "forwarder"
PASSWORD: Final = "kafka-password"
_PROTOCOLS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SCRAM": "SASL_SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "OAUTH": "SASL_SSL",
}
_MODULES: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """`USER` may log in by SCRAM-SHA-512 and PLAIN. Its certificate is for `localhost`, not for 127.0.0.1. OAUTHBEARER takes
    tokens that `tokens` signs until they end, and closes connections then. It was seen to take those of other signers, too."""

    cluster: KafkaCluster
    authority: Authority
    tokens: TokenSigner
    listeners: dict[str, Listener] = field(default_factory=dict)

    def address(self, listener: str) -> str:
        """Of `TLS`, `MUTUAL`, `SCRAM`, `PLAIN` or `OAUTH`."""
        return self.listeners[listener].address


def secured_kafka(reaper: Reaper) -> SecuredKafka:
    """Started. Raises `Unavailable`, `ServerFailed`."""
    authority = Authority(reaper.directory())
    tokens = TokenSigner(reaper.directory(), "https://id.example.com", "kafka")
    ports = free_ports(len(_PROTOCOLS))
    listeners = {
        name: Listener(name, protocol, port) for (name, protocol), port in zip(_PROTOCOLS.items(), ports, strict=True)
    }
    keystore = authority.issue("broker", "DNS:localhost").chained()
    cluster = KafkaCluster(
        reaper,
        listeners=list(listeners.values()),
        properties=_properties(authority.file, keystore) | _token_properties(tokens),
        # Kafka 4 reads keys from nowhere else.
        system_properties={
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": tokens.jwks.as_uri(),
            "org.apache.kafka.sasl.oauthbearer.allowed.files": str(tokens.jwks),
        },
    )
    cluster.start()
    try:
        add_scram_user(cluster, "SCRAM-SHA-512", USER, PASSWORD)
    except ServerFailed:
        cluster.kill()
        raise
    return SecuredKafka(cluster, authority, tokens, listeners)


def _properties(authority: Path, keystore: Path) -> dict[str, str]:
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.scram.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": plain,
    }


def _token_properties(tokens: TokenSigner) -> dict[str, str]:
    handler = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ours = {
        "sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        "sasl.server.callback.handler.class": handler,
        "connections.max.reauth.ms": "3600000",
        "sasl.oauthbearer.jwks.endpoint.url": tokens.jwks.as_uri(),
        "sasl.oauthbearer.expected.issuer": tokens.issuer,
        "sasl.oauthbearer.expected.audience": tokens.audience,
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    return {"listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER"} | {
        f"listener.name.oauth.oauthbearer.{name}": value for name, value in ours.items()
    }
