"""How the client cuts many reservations into bulks that the service takes."""

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

from forwarder.reservation.checks.fields import MAX_BULK_BYTES
from reservation_forwarder_client import BookingEngineItem, GeneralItem, Item, with_keys
from reservation_forwarder_client.bulk import bulks
from tests.support.cases import for_each


def numbered(count: int, text: str = "") -> list[Item]:
    return [numbered_item(number, text) for number in range(count)]


def numbered_item(number: int, text: str = "") -> GeneralItem:
    return GeneralItem(
        {
            "propertyId": number,
            "notes": text,
            "arrivalDate": date(2031, 6, 1),
            "departureDate": "2031-06-05",
            "guest": {},
        }
    )


@for_each(("count", "most", "sizes"), [(0, 3, []), (1, 3, [1]), (3, 3, [3]), (4, 3, [3, 1]), (9, 3, [3, 3, 3])])
def test_they_are_cut_by_number_in_their_order(count: int, most: int, sizes: list[int]) -> None:
    made = list(bulks(numbered(count), most))
    assert [len(bulk.keys) for bulk in made] == sizes
    sent = [one for bulk in made for one in json.loads(bulk.body)]
    assert [one["reservation"]["propertyId"] for one in sent] == list(range(count))
    assert [one["idempotencyKey"] for one in sent] == [key for bulk in made for key in bulk.keys]
    assert len({one["idempotencyKey"] for one in sent}) == count


def test_they_are_cut_by_bytes_as_well() -> None:
    made = list(bulks(numbered(300, "x" * 60_000), 1000))
    assert len(made) == 3
    assert all(len(bulk.body) < MAX_BULK_BYTES for bulk in made)
    assert sum(len(bulk.keys) for bulk in made) == 300


def test_only_what_is_asked_for_is_taken() -> None:
    taken: list[int] = []

    def endless() -> Iterator[Item]:
        number = 0
        while True:
            taken.append(number)
            yield numbered_item(number)
            number += 1

    next(bulks(endless(), 10))
    assert len(taken) == 10


def test_each_item_says_which_operation_it_is_of_and_until_when() -> None:
    reservation: Any = {"propertyId": 1}
    (bulk,) = bulks([BookingEngineItem(reservation, "order-1", 300), GeneralItem(reservation, "order-2")], 10)
    assert json.loads(bulk.body) == [
        {
            "operation": "booking-engine",
            "idempotencyKey": "order-1",
            "reservation": {"propertyId": 1},
            "deadlineSeconds": 300,
        },
        {"operation": "general", "idempotencyKey": "order-2", "reservation": {"propertyId": 1}},
    ]


def test_what_was_taken_and_did_not_fit_goes_with_the_next_one_and_is_named_by_the_first() -> None:
    first, second = bulks(numbered(2, "x" * 4_000_000), 1000)
    assert first.following == second.items
    assert len(first.items) == len(second.items) == 1


def test_keys_can_be_had_before_anything_is_sent() -> None:
    kept = with_keys([GeneralItem(numbered_item(1).reservation, "order-1", 300), numbered_item(2)])
    assert [one.deadline for one in kept] == [300, None]
    (sent,), (again,) = bulks(kept, 10), bulks(kept, 10)
    assert sent == again
    assert sent.keys[0] == "order-1"
    assert sent.keys[1]
