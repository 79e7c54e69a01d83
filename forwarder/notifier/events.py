"""Result events as customers receive them. Pure."""

from dataclasses import dataclass, field
from typing import Final

from pydantic_core import to_json

from forwarder.reservation.result import RESULT_TYPES
from forwarder.topics.codec import Undecodable, decode_data, header
from forwarder.topics.port import Message

EVENT_TYPES_SENT: Final = RESULT_TYPES
"""What an endpoint may ask for."""

TEST_EVENT: Final = "webhook.test.v1"
"""What `test` sends, whatever the endpoint takes."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one workspace. `body` is what is posted; `id` is the same however often it is published."""

    id: str
    type: str
    workspace_id: str
    body: str = field(repr=False)


def decode_event(message: Message) -> Event:
    """The event in a message of the results topic. Raises `Undecodable`."""
    workspace_id = decode_data(message).get("workspaceId")
    told = [header(message.headers, name) for name in ("ce_id", "ce_type", "ce_time")]
    if not isinstance(workspace_id, str) or not all(told):
        raise Undecodable("not a result event: it says not whose it is, or what")
    event_id, kind, time = (each or "" for each in told)
    return Event(event_id, kind, workspace_id, body_of(kind, time, message.value.decode()))


def body_of(kind: str, time: str, data: str) -> str:
    """What is posted. `data` is JSON and goes in as it is."""
    return f'{{"type":{to_json(kind).decode()},"timestamp":{to_json(time).decode()},"data":{data}}}'
