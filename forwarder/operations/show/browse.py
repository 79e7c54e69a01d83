"""The messages of a topic, redacted for operators: ids and addressing are shown; guests' and card data only as present."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from forwarder.reservation.checks.card_numbers import mask
from forwarder.topics.codec import Undecodable, decode_data, header
from forwarder.topics.port import ConsumedMessage, Log, moment_of
from forwarder.topics.reading import read_to_end

HIDDEN: Final = "(hidden)"
_SHOWN: Final = frozenset(
    """
    accountId arrivalDate attempts cancellation cancelledAt code createdAt currency deadlineSeconds departureDate duplicateOf
    duplicateWindowSeconds fingerprint id instance integrationAccountId keyId keyed nights numberOfAdults numberOfChildren
    numberOfGuests numberOfInfants operation pmsReservationId problem propertyId requestId requestedAt reservation revision roomId
    status success test title totalPrice transactionOf type updatedAt workspaceId acceptedAt card
    """.split()
)
"""Members that identify neither a guest nor a card. All others are hidden."""
_HEADERS_HIDDEN: Final = frozenset({"dlt-exception-message"})
"""A PMS's own words, which may quote the guest."""
_MAX_TEXT: Final = 300
_MAX_READ: Final = 1_000


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A redacted message. `value` is None if it is not a JSON object: then it may hold anything."""

    partition: int
    offset: int
    at: datetime
    key: str
    kind: str
    size: int
    headers: Mapping[str, str]
    value: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Browsed:
    """The messages, earliest first. `whole`: no matching message in between is missing."""

    messages: Sequence[SeenMessage]
    whole: bool


async def browse(log: Log, topic: str, *, since: datetime, limit: int, partition: int | None = None) -> Browsed:
    """The first `limit` messages of `topic` that were appended at `since` or later, in one partition if given. Reads at most some
    thousand messages, spread over the partitions. Raises `LogUnavailable`."""
    found: list[SeenMessage] = []  # redacted at once: a message may have a megabyte
    read, whole = 0, True
    async with aclosing(read_to_end(log, topic, since=since)) as batches:
        async for batch in batches:
            read += len(batch)
            found += [_seen(each) for each in batch if partition in {None, each.partition}]
            if read >= _MAX_READ or (partition is not None and len(found) >= limit):
                whole = partition is not None and len(found) >= limit
                break
    found.sort(key=lambda each: (each.at, each.partition, each.offset))
    return Browsed(found[:limit], whole)


def _seen(consumed: ConsumedMessage) -> SeenMessage:
    message = consumed.message
    try:
        value = {name: _masked(name, each) for name, each in decode_data(message).items()}
    except Undecodable:
        value = None
    return SeenMessage(
        partition=consumed.partition,
        offset=consumed.offset,
        at=moment_of(consumed.timestamp_ms),
        key=_text(message.key.decode("utf-8", "replace")),
        kind=header(message.headers, "ce_type") or "",
        size=message.size,
        headers={
            name: HIDDEN if name in _HEADERS_HIDDEN else _text(each.decode("utf-8", "replace"))
            for name, each in message.headers
        },
        value=value,
    )


def _masked(name: str, value: Any) -> Any:
    if value is None or value in ("", [], {}):
        return value
    if name not in _SHOWN:
        return HIDDEN
    match value:
        case dict():
            return {inner: _masked(inner, each) for inner, each in value.items()}
        case list():
            return HIDDEN
        case str():
            return _text(value)
        case _:
            return value


def _text(text: str) -> str:
    return mask(text[:_MAX_TEXT])
