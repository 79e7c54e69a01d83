"""Dead letters: a message as it came, with headers that say where it stood and why it was set aside. Pure."""

from forwarder.topics.port import Delivery, Message


def undecodable_letter(delivery: Delivery, error: Exception, group: str, failure_class: str) -> Message:
    """`delivery`'s message unchanged, under the header names of Spring Kafka's dead letters without their prefix."""
    headers = {
        "dlt-original-topic": delivery.topic,
        "dlt-original-partition": str(delivery.partition),
        "dlt-original-offset": str(delivery.offset),
        "dlt-original-timestamp": str(delivery.timestamp_ms),
        "dlt-original-consumer-group": group,
        "dlt-exception-class": type(error).__name__,
        "dlt-exception-message": str(error),
        "dlt-attempts": "1",
        "dlt-failure-class": failure_class,
    }
    added = tuple((name, value.encode()) for name, value in headers.items())
    return Message(delivery.message.key, delivery.message.value, (*delivery.message.headers, *added))
