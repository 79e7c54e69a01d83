"""A broker that has a listener for each way to secure it, and who may use them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.servers.certificates import Authority
from tools.servers.kafka_process import KafkaCluster, Listener, add_scram_user
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
    """`USER` may log in by SCRAM-SHA-512 and PLAIN. Its certificate is for `localhost`, not for 127.0.0.1. OAUTHBEARER takes any
    token that is well-formed, signed or not."""

    cluster: KafkaCluster
    authority: Authority
    listeners: dict[str, Listener] = field(default_factory=dict)

    def address(self, listener: str) -> str:
        """Of `TLS`, `MUTUAL`, `SCRAM`, `PLAIN` or `OAUTH`."""
        return self.listeners[listener].address


def secured_kafka(reaper: Reaper) -> SecuredKafka:
    """Started. Raises `Unavailable`, `ServerFailed`."""
    authority = Authority(reaper.directory())
    ports = free_ports(len(_PROTOCOLS))
    listeners = {
        name: Listener(name, protocol, port) for (name, protocol), port in zip(_PROTOCOLS.items(), ports, strict=True)
    }
    keystore = authority.issue("broker", "DNS:localhost").chained()
    cluster = KafkaCluster(reaper, listeners=list(listeners.values()), properties=_properties(authority.file, keystore))
    cluster.start()
    try:
        add_scram_user(cluster, "SCRAM-SHA-512", USER, PASSWORD)
    except ServerFailed:
        cluster.kill()
        raise
    return SecuredKafka(cluster, authority, listeners)


def _properties(authority: Path, keystore: Path) -> dict[str, str]:
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    token = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
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
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": token,
    }
