"""A broker with an authorizer, which lets each of its users do nothing that no ACL allows."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.conn import create_conn
from aiokafka.protocol.admin import CreateAclsRequest

from tools.servers.kafka.process import KafkaCluster, Listener
from tools.servers.reaper import Reaper
from tools.servers.server_process import ServerFailed, free_ports

_RESOURCES: Final = {"topic": 2, "group": 3}
_OPERATIONS: Final = {"Read": 3, "Write": 4, "Create": 5, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}
_LITERAL: Final = 3
_ALLOW: Final = 3
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class GuardedKafka:
    """Users log in by SASL PLAIN at `address`, each with `password_of` it. Who comes by the plaintext listener may do anything."""

    cluster: KafkaCluster
    address: str

    async def allow(self, user: str, operation: str, resource: str, names: Sequence[str]) -> None:
        """As `kafka-acls --add` does, which a Java of its own would take seconds for."""
        host, _, port = self.cluster.bootstrap_servers.rpartition(":")
        connection = await create_conn(host, int(port))
        try:
            for name in names:
                what = (_RESOURCES[resource], name, _LITERAL, user, "*", _OPERATIONS[operation], _ALLOW)
                answer = await connection.send(CreateAclsRequest(*what))
                (refused,) = answer.creation_responses
                if refused[0]:
                    raise ServerFailed(f"{user}, {operation} of {resource} {name}: {refused}")
        finally:
            connection.close()


def password_of(user: str) -> str:
    return f"password-of-{user}"


def guarded_kafka(reaper: Reaper, users: Collection[str]) -> GuardedKafka:
    """Started, without an ACL. Raises `Unavailable`, `ServerFailed`."""
    (port,) = free_ports(1)
    listener = Listener("USERS", "SASL_PLAINTEXT", port)
    known = " ".join(f'user_{user}="{password_of(user)}"' for user in users)
    properties = {
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f"{_LOGIN} {known};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:ANONYMOUS",
    }
    cluster = KafkaCluster(reaper, listeners=[listener], properties=properties)
    cluster.start()
    return GuardedKafka(cluster, listener.address)
