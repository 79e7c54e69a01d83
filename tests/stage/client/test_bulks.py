"""How the client cuts many reservations into bulks that the service takes."""

import json
from collections.abc import Iterator

import pytest

from forwarder.reservation.bulk import MAX_BULK_BYTES
from reservation_forwarder_client import Item
from reservation_forwarder_client.bulk import bulks


def numbered(count: int, text: str = "") -> list[Item]:
    return [Item({"propertyId": number, "notes": text}) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "most", "sizes"), [(0, 3, []), (1, 3, [1]), (3, 3, [3]), (4, 3, [3, 1]), (9, 3, [3, 3, 3])]
)
def test_they_are_cut_by_number_in_their_order(count: int, most: int, sizes: list[int]) -> None:
    made = list(bulks(numbered(count), most))
    assert [len(items) for items, _ in made] == sizes
    sent = [one for _, body in made for one in json.loads(body)]
    assert [one["reservation"]["propertyId"] for one in sent] == list(range(count))
    assert [one["idempotencyKey"] for one in sent] == [item.idempotency_key for items, _ in made for item in items]
    assert len({one["idempotencyKey"] for one in sent}) == count


def test_they_are_cut_by_bytes_as_well() -> None:
    made = list(bulks(numbered(300, "x" * 60_000), 1000))
    assert len(made) == 3
    assert all(len(body) < MAX_BULK_BYTES for _, body in made)
    assert sum(len(items) for items, _ in made) == 300


def test_only_what_is_asked_for_is_taken() -> None:
    taken: list[int] = []

    def endless() -> Iterator[Item]:
        number = 0
        while True:
            taken.append(number)
            yield Item({"propertyId": number})
            number += 1

    next(bulks(endless(), 10))
    assert len(taken) == 11
