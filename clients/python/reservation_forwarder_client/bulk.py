"""Many reservations at once: what one of them is, and how they are put into bulks. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from reservation_forwarder_client.bodies import BookingEngineReservation, GeneralReservation
from reservation_forwarder_client.keys import new_key
from reservation_forwarder_client.wire import json_bytes

MAX_ITEMS: Final = 1_000
_MAX_BYTES: Final = 7 * 1024 * 1024
"""The service takes 8 MiB."""


@dataclass(frozen=True, slots=True)
class BookingEngineItem:
    """One reservation of many, as `submit` takes it. Without a key of yours it gets one of the client's, as by `with_keys`."""

    reservation: BookingEngineReservation
    idempotency_key: str | None = None
    deadline: int | None = None


@dataclass(frozen=True, slots=True)
class GeneralItem:
    """One reservation of many, as `submit_general` takes it; otherwise as `BookingEngineItem`."""

    reservation: GeneralReservation
    idempotency_key: str | None = None
    deadline: int | None = None


Item = BookingEngineItem | GeneralItem


@dataclass(frozen=True, slots=True)
class Bulk:
    """What is sent at once: its items, each under a key, in their order, and its body. `following`: what was taken already and goes
    with the next one."""

    items: tuple[Item, ...]
    body: bytes
    following: tuple[Item, ...] = ()

    @property
    def keys(self) -> tuple[str | None, ...]:
        """The keys of its items."""
        return tuple(item.idempotency_key for item in self.items)


def with_keys(items: Iterable[Item]) -> list[Item]:
    """The same items, each under a key: its own, or a new one. Keep them before you submit them, and the same can be submitted
    again, by another process too, and nothing is booked twice."""
    return [_keyed(item) for item in items]


def _keyed(item: Item) -> Item:
    return item if item.idempotency_key else replace(item, idempotency_key=new_key())


def bulks(items: Iterable[Item], max_items: int) -> Iterator[Bulk]:
    """The items, each under a key, in the order given and in bulks that the service takes. Takes no more of `items` than the next
    bulk needs, but one that is too large for it."""
    taken: list[Item] = []
    texts: list[bytes] = []
    size = 0
    for item in map(_keyed, items):
        text = json_bytes(_members(item))
        if taken and size + len(text) > _MAX_BYTES:
            yield Bulk(tuple(taken), _array(texts), (item,))
            taken, texts, size = [], [], 0
        taken.append(item)
        texts.append(text)
        size += len(text) + 1  # and a comma
        if len(taken) >= max_items:
            yield Bulk(tuple(taken), _array(texts))
            taken, texts, size = [], [], 0
    if taken:
        yield Bulk(tuple(taken), _array(texts))


def _members(item: Item) -> Mapping[str, Any]:
    members = {
        "operation": _operation(item),
        "idempotencyKey": item.idempotency_key,
        "reservation": item.reservation,
    }
    return members if item.deadline is None else {**members, "deadlineSeconds": item.deadline}


def _operation(item: Item) -> str:
    match item:
        case BookingEngineItem():
            return "booking-engine"
        case GeneralItem():
            return "general"
        case _:
            assert_never(item)


def _array(texts: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(texts) + b"]"
