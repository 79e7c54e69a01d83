"""The entry point of the Kafka backend. Opens nothing itself: each part connects when it is entered."""

from contextlib import AbstractAsyncContextManager

from forwarder.topics.kafka.admin import kafka_admin
from forwarder.topics.kafka.connection import KafkaConnection, secured
from forwarder.topics.kafka.consumer import kafka_consumer
from forwarder.topics.kafka.publisher import kafka_publisher
from forwarder.topics.kafka.security.transport import KafkaSecurity
from forwarder.topics.kafka.tail import kafka_tail
from forwarder.topics.port import Consumer, GapFound, PartitionsChanged, Publisher, Tail, TopicAdmin


class KafkaLog:
    """See `port.Log`. Times are seconds; see `KafkaConnection` for what each of them limits.

    Without `security` the brokers are reached in plaintext.
    `replication_factor` is for the topics that its admin creates: None for three, or as many as there are brokers.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        security: KafkaSecurity | None = None,
        client_id: str = "forwarder",
        publish_timeout_seconds: float = 10.0,
        session_timeout_seconds: float = 10.0,
        silence_seconds: float = 15.0,
        replication_factor: int | None = None,
    ) -> None:
        self._connection = KafkaConnection(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            publish_timeout_seconds=publish_timeout_seconds,
            session_timeout_seconds=session_timeout_seconds,
            silence_seconds=silence_seconds,
            security={} if security is None else secured(security),
        )
        self._replication_factor = replication_factor

    def publisher(self) -> AbstractAsyncContextManager[Publisher]:
        return kafka_publisher(self._connection)

    def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: GapFound | None = None
    ) -> AbstractAsyncContextManager[Consumer]:
        return kafka_consumer(topic, group, on_partitions, self._connection, on_gap)

    def tail(self, topic: str, *, from_beginning: bool = False) -> AbstractAsyncContextManager[Tail]:
        return kafka_tail(topic, self._connection, from_beginning=from_beginning)

    def admin(self) -> AbstractAsyncContextManager[TopicAdmin]:
        return kafka_admin(self._connection, self._replication_factor)
