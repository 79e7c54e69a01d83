"""Section 2.5 of the contract: the reservation record, as the general operation answers it, and as it is read again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from forwarder.reservation.outcome import Status
from tests.support.stages.bodies import GENERAL
from tests.support.stages.http_stages import GENERAL_PATH, Stages, stages

NUMBER, TEXT, LIST = (int, float), str, list
RECORD: dict[str, Any] = {
    "id": NUMBER,
    "createdAt": TEXT,
    "updatedAt": TEXT,
    "cancelledAt": TEXT,
    "arrivalDate": TEXT,
    "departureDate": TEXT,
    "nights": NUMBER,
    "propertyId": NUMBER,
    "numberOfGuests": NUMBER,
    "primaryGuest": {"name": TEXT, "emails": LIST, "mobileNumbers": LIST, "nationality": type(None)},
    "source": TEXT,
    "totalPrice": NUMBER,
    "currency": TEXT,
    "status": TEXT,
    "arrivalEstimatedTime": TEXT,
    "departureEstimatedTime": TEXT,
    "codes": {"accessCode": LIST},
    "notes": (str, type(None)),
    "paymentUrl": TEXT,
    "finances": {
        "totalPrice": NUMBER,
        "currency": TEXT,
        "totalPaid": NUMBER,
        "remainingBalance": NUMBER,
        "basePrice": {"totalBasePrice": NUMBER, "breakdown": LIST},
        "fee": {"totalFee": NUMBER, "breakdown": LIST},
        "tax": {"totalTax": NUMBER, "breakdown": LIST},
        "discount": {"totalDiscount": NUMBER, "breakdown": LIST},
    },
}
OURS = {"requestId", "pmsReservationId", "roomId"}

MINIMAL = {"propertyId": 123, "arrivalDate": "2027-06-01", "departureDate": "2027-06-02", "guest": {"name": "A"}}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _created(house: Stages, body: dict[str, Any], **known: Any) -> dict[str, Any]:
    posted = asyncio.create_task(house.client.post(GENERAL_PATH, json=body))
    await house.settle(await house.requested(), Status.CONFIRMED, **known)
    answer = await posted
    assert answer.status_code == 201
    envelope: dict[str, Any] = answer.json()
    assert set(envelope) == {"success", "data"}
    assert envelope["success"] is True
    record: dict[str, Any] = envelope["data"]
    return record


def _assert_shape(value: Any, shape: Any, at: str = "") -> None:
    if not isinstance(shape, dict):
        assert isinstance(value, shape), at
        assert not isinstance(value, bool), at
        return
    assert set(shape) <= set(value), at
    for name, inner in shape.items():
        _assert_shape(value[name], inner, f"{at}/{name}")


@pytest.mark.parametrize("body", [GENERAL | {"propertyId": 123}, MINIMAL])
async def test_the_record_has_every_field_of_the_table_and_ours(house: Stages, body: dict[str, Any]) -> None:
    record = await _created(house, body, pms_reservation_id="pms-1")
    _assert_shape(record, RECORD)
    assert set(record) == set(RECORD) | OURS
    assert list(record)[: len(RECORD)] == list(RECORD)


async def test_the_record_in_full(house: Stages) -> None:
    assert await _created(house, GENERAL, pms_reservation_id="pms-1") == {
        "id": 1,
        "createdAt": "2027-01-01T00:00:00.000Z",
        "updatedAt": "2027-01-01T00:00:00.000Z",
        "cancelledAt": "",
        "arrivalDate": "2027-06-01",
        "departureDate": "2027-06-05",
        "nights": 4,
        "propertyId": "00123",
        "numberOfGuests": 2,
        "primaryGuest": {
            "name": "Ana Ruiz",
            "emails": ["ana.ruiz@example.com"],
            "mobileNumbers": ["+34 600 111 222"],
            "nationality": None,
        },
        "source": "UNKNOWN",
        "totalPrice": 480,
        "currency": "EUR",
        "status": "CONFIRMED",
        "arrivalEstimatedTime": "15.5",
        "departureEstimatedTime": "11:00",
        "codes": {"accessCode": []},
        "notes": "Late arrival",
        "paymentUrl": "",
        "finances": {
            "totalPrice": 480,
            "currency": "EUR",
            "totalPaid": 0,
            "remainingBalance": 480,
            "basePrice": {
                "totalBasePrice": 480,
                "breakdown": [{"name": "Room rate", "type": "RoomRate", "total": 480}],
            },
            "fee": {"totalFee": 0, "breakdown": []},
            "tax": {"totalTax": 0, "breakdown": []},
            "discount": {"totalDiscount": 0, "breakdown": []},
        },
        "requestId": house.published()["requestId"],
        "pmsReservationId": "pms-1",
        "roomId": 7,
    }


async def test_what_was_not_given_is_empty_or_null_where_the_table_says_so(house: Stages) -> None:
    record = await _created(house, MINIMAL)
    assert record["cancelledAt"] == record["arrivalEstimatedTime"] == record["departureEstimatedTime"] == ""
    assert record["notes"] is None
    assert record["paymentUrl"] == record["currency"] == ""
    assert record["primaryGuest"] == {"name": "A", "emails": [], "mobileNumbers": [], "nationality": None}
    assert record["roomId"] == 123


async def test_the_record_reads_the_same_wherever_it_is_read(house: Stages) -> None:
    record = await _created(house, GENERAL)
    one = (await house.client.get(f"{GENERAL_PATH}/{record['id']}")).json()["data"]
    listed = (await house.client.get(GENERAL_PATH)).json()["data"]
    status = (await house.client.get(f"/api/v1/vrs/submissions/{record['requestId']}")).json()["data"]["record"]
    assert one == listed[0] == status == record
