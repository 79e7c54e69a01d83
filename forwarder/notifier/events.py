"""Result events as customers receive them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic_core import to_json

from forwarder.topics.codec import MAX_ID, Undecodable, decode_data, header, trace_of
from forwarder.topics.port import Message

TEST_EVENT: Final = "webhook.test.v1"
"""The type that `test` sends, regardless of the endpoint's subscriptions."""

_MAX_EVENT_ID: Final = MAX_ID + 32
"""An event id contains the id of its submission."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one workspace. `body`: the body to post; `id`: the same each time it is published. `trace`: of the request that
    led to it."""

    id: str
    type: str
    workspace_id: str
    body: str = field(repr=False)
    trace: str | None = None
    account_id: str = ""
    property_id: str = ""


def decode_event(message: Message) -> Event:
    """The event in a message of the results topic. Raises `Undecodable`."""
    data = decode_data(message)
    workspace_id, account_id = data.get("workspaceId"), data.get("integrationAccountId")
    reservation = data.get("reservation")
    property_id = reservation.get("propertyId", "") if isinstance(reservation, Mapping) else ""
    attributes = [header(message.headers, name) for name in ("ce_id", "ce_type", "ce_time")]
    if not isinstance(workspace_id, str) or not all(attributes):
        raise Undecodable("not a result event: it has no workspace, id, type or time")
    event_id, kind, time = (each or "" for each in attributes)
    if not (_is_id(workspace_id, MAX_ID) and _is_id(event_id, _MAX_EVENT_ID) and _is_id(kind, MAX_ID)):
        raise Undecodable("not a result event: an identifier is too long or has U+0000")
    body = body_of(kind, time, message.value.decode())
    return Event(event_id, kind, workspace_id, body, trace_of(message.headers), str(account_id), str(property_id))


def _is_id(text: str, max_length: int) -> bool:
    """Whether databases can store and index it."""
    return len(text) <= max_length and "\0" not in text


def body_of(kind: str, time: str, data: str) -> str:
    """The body that is posted. `data` is JSON and is inserted unchanged."""
    return f'{{"type":{to_json(kind).decode()},"timestamp":{to_json(time).decode()},"data":{data}}}'
