"""A message as a CloudEvent in one JSON object, for whoever reads it away from the topic. Pure.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from typing import Any

from forwarder.topics.codec import Undecodable, decode_data, header
from forwarder.topics.port import Message

_PREFIX = "ce_"
_REQUIRED = ("specversion", "id", "source", "type")


def structured_event(message: Message) -> dict[str, Any]:
    """The event's attributes, extensions too, the trace where it has one, and its `data`. Raises `Undecodable`."""
    event: dict[str, Any] = {
        name.removeprefix(_PREFIX): value.decode("utf-8", "replace")
        for name, value in message.headers
        if name.startswith(_PREFIX)
    }
    missing = [name for name in _REQUIRED if not event.get(name)]
    if missing:
        raise Undecodable(f"not a CloudEvent: no {', '.join(missing)}")
    event["datacontenttype"] = header(message.headers, "content-type") or "application/json"
    if (trace := header(message.headers, "traceparent")) is not None:
        event["traceparent"] = trace
    return {**event, "data": decode_data(message)}
