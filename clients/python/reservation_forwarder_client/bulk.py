"""Many reservations at once: what one of them is, and how they are put into bulks. Pure."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from reservation_forwarder_client.wire import json_bytes

Operation = Literal["booking-engine", "general"]
"""The two forms of a reservation: that of a booking engine, and the smaller one."""

MAX_ITEMS: Final = 1_000
_MAX_BYTES: Final = 7 * 1024 * 1024
"""The service takes 8 MiB."""


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, slots=True)
class Item:
    """One reservation of many; the fields are those of `ForwarderClient.submit`. Without a key of yours it gets one of the
    client's, which lasts for this call."""

    reservation: Mapping[str, Any]
    operation: Operation = "booking-engine"
    idempotency_key: str | None = None
    deadline: int | None = None


def bulks(items: Iterable[Item], max_items: int) -> Iterator[tuple[Sequence[Item], bytes]]:
    """The items, each with a key, in the order given and in bulks that the service takes; and each bulk's body. Takes no more of
    `items` than the next bulk needs."""
    held: list[Item] = []
    texts: list[bytes] = []
    size = 0
    for item in items:
        keyed = replace(item, idempotency_key=item.idempotency_key or new_key())
        text = json_bytes(_members(keyed))
        if held and (len(held) >= max_items or size + len(text) > _MAX_BYTES):
            yield held, _array(texts)
            held, texts, size = [], [], 0
        held.append(keyed)
        texts.append(text)
        size += len(text) + 1  # and a comma
    if held:
        yield held, _array(texts)


def _members(item: Item) -> Mapping[str, Any]:
    members = {
        "operation": item.operation,
        "idempotencyKey": item.idempotency_key,
        "reservation": item.reservation,
    }
    return members if item.deadline is None else {**members, "deadlineSeconds": item.deadline}


def _array(texts: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(texts) + b"]"
