"""What is shown of a dead letter. A card never is, sealed or not: where one is, it says `sealed`. Pure."""

from typing import Any, Final

from forwarder.cli.operate.letters import Letter, Standing
from forwarder.process.clock import iso
from forwarder.topics.codec import Undecodable, decode_data
from forwarder.topics.port import Message

COLUMNS: Final = ("id", "at", "account", "failureClass", "reason", "attempts", "standing")
"""What a table has room for of `row`: a failure's id begins with its requestId."""

_SEALED = "sealed"


def row(letter: Letter, standing: Standing) -> dict[str, Any]:
    """A letter in a list."""
    return {
        "id": letter.id,
        "at": iso(letter.set_aside_at),
        "account": letter.account,
        "failureClass": letter.failure_class,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "requestId": letter.request_id or None,
        "standing": standing.value,
    }


def headers_of(message: Message) -> dict[str, str]:
    """The headers as text; what came several times under one name is joined, as HTTP does."""
    headers: dict[str, str] = {}
    for name, value in message.headers:
        text = value.decode("utf-8", "backslashreplace")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def value_of(letter: Letter, message: Message) -> dict[str, Any] | None:
    """The value of a letter that tells of a failure, without the card. None of one that could not be read: it may hold anything."""
    if letter.revision is None:
        return None
    try:
        value = dict(decode_data(message))
    except Undecodable:
        return None
    reservation = value.get("reservation")
    if isinstance(reservation, dict):
        value["reservation"] = _with_sealed(reservation, "cardDetails")
    return _with_sealed(value, "card")


def _with_sealed(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {**value, name: _SEALED} if value.get(name) is not None else value
