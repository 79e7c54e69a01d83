"""Result events as customers receive them. Pure."""

from dataclasses import dataclass, field
from typing import Final

from pydantic_core import to_json

from forwarder.reservation.result import RESULT_TYPES
from forwarder.topics.codec import MAX_ID, Undecodable, decode_data, header
from forwarder.topics.port import Message

EVENT_TYPES_SENT: Final = RESULT_TYPES
"""What an endpoint may ask for."""

TEST_EVENT: Final = "webhook.test.v1"
"""What `test` sends, whatever the endpoint takes."""


_LONGEST_EVENT_ID: Final = MAX_ID + 32
"""An event is named for its submission."""


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
    if not (_is_id(workspace_id, MAX_ID) and _is_id(event_id, _LONGEST_EVENT_ID) and _is_id(kind, MAX_ID)):
        raise Undecodable("not a result event: it names what no store of ours can")
    return Event(event_id, kind, workspace_id, body_of(kind, time, message.value.decode()))


def _is_id(text: str, at_most: int) -> bool:
    """Whether databases take it, in their indexes too."""
    return len(text) <= at_most and "\0" not in text


def body_of(kind: str, time: str, data: str) -> str:
    """What is posted. `data` is JSON and goes in as it is."""
    return f'{{"type":{to_json(kind).decode()},"timestamp":{to_json(time).decode()},"data":{data}}}'
