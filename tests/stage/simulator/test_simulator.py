"""The simulated PMSs: what they make, refuse and count."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forwarder.simulator.world import World
from tests.support.memory.clock import ManualClock
from tests.support.simulator.client import GENERIC, NOW, PAYING_CARD, STAY, SYNC, SimulatorClient, simulated


@pytest.fixture
async def client() -> AsyncIterator[SimulatorClient]:
    async with simulated() as opened:
        yield opened


async def test_a_booking_is_made_counted_and_found(client: SimulatorClient) -> None:
    made = await client.book()
    assert made.status_code == 201
    assert made.json()["status"] == "CONFIRMED"
    assert made.json()["reference"] == "R1"
    assert await client.count() == 1
    found = await client.http.get(GENERIC, params={"reference": "R1"})
    assert found.json() == {"data": [made.json()]}
    assert (await client.http.get(GENERIC, params={"reference": "R2"})).json() == {"data": []}
    assert (await client.http.get(GENERIC)).json() == {"data": [made.json()]}


async def test_a_key_makes_one_booking_for_ever(client: SimulatorClient) -> None:
    made = await client.book()
    again = await client.book()
    assert (made.status_code, again.status_code) == (201, 200)
    assert again.content == made.content
    other = await client.book(totalPrice=1)
    assert other.status_code == 422
    assert other.json()["code"] == "idempotency_key_reused"
    assert await client.count() == 1


async def test_each_name_kind_and_website_is_a_pms_of_its_own(client: SimulatorClient) -> None:
    paths = [
        GENERIC,
        "/other/generic/reservations",
        *(f"/acme/website-builder/websites/{n}/reservations" for n in "12"),
    ]
    answers = [await client.book(path=path) for path in paths]
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 4
    for path, answer in zip(paths, answers, strict=True):
        assert (await client.http.get(path)).json() == {"data": [answer.json()]}


@pytest.mark.parametrize(
    ("arrival", "departure", "status"),
    [
        ("2027-02-27", "2027-03-01", 201),
        ("2027-02-27", "2027-03-02", 409),
        ("2027-03-02", "2027-03-03", 409),
        ("2027-02-01", "2027-04-01", 409),
        ("2027-03-04", "2027-03-05", 201),
    ],
)
async def test_nights_are_given_once(client: SimulatorClient, arrival: str, departure: str, status: int) -> None:
    await client.book()
    second = await client.book("R2", arrivalDate=arrival, departureDate=departure)
    assert second.status_code == status
    if status == 409:
        assert second.json()["code"] == "room_unavailable"


async def test_without_calendars_a_room_takes_everybody() -> None:
    async with simulated(World(ManualClock(NOW), calendars=False)) as client:
        assert [(await client.book(f"R{n}")).status_code for n in range(5)] == [201] * 5


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"propertyId": "unknown"}, 404, "property_not_found"),
        ({"roomId": "unknown"}, 404, "room_not_found"),
        ({"guest": {"email": "maria@refused.example"}}, 409, "guest_refused"),
        ({"cardDetails": {**PAYING_CARD, "cardNumber": "4000000000000002"}}, 409, "card_refused"),
        ({"cardDetails": {**PAYING_CARD, "cardNumber": "4111111111111112"}}, 409, "card_refused"),
        ({"cardDetails": {**PAYING_CARD, "cardNumber": "42"}}, 409, "card_refused"),
        ({"arrivalDate": "2027-03-04"}, 422, "invalid_reservation"),
        ({"arrivalDate": "tomorrow"}, 422, "invalid_reservation"),
        ({"departureDate": None}, 422, "invalid_reservation"),
    ],
)
async def test_what_is_refused_on_purpose(
    client: SimulatorClient, fields: dict[str, Any], status: int, code: str
) -> None:
    answer = await client.book(**fields)
    assert answer.status_code == status
    assert answer.json()["code"] == code
    assert answer.headers["content-type"] == "application/problem+json"
    assert await client.count() == 0


async def test_bodies_that_are_none(client: SimulatorClient) -> None:
    for body, status in ((b"{", 400), (b"[]", 422), (b"{}", 422)):
        assert (await client.http.post(GENERIC, content=body)).status_code == status
        assert (await client.http.post(f"{SYNC}/clients", content=body)).status_code == 422
        assert (await client.http.post(f"{SYNC}/rentals/7/bookings", content=body)).status_code == 422


async def test_a_card_pays_and_only_its_last_four_digits_stay(tmp_path: Path) -> None:
    journal = tmp_path / "world.jsonl"
    async with simulated(World(ManualClock(NOW), journal=journal)) as client:
        made = (await client.book(cardDetails=PAYING_CARD)).json()
        other_card = await client.book(cardDetails={**PAYING_CARD, "cardNumber": "5555555555554444"})
    assert other_card.status_code == 422
    assert made["cardLastFour"] == "1111"
    assert made["finances"] == {"totalPrice": 450.35, "currency": "EUR", "totalPaid": 450.35, "remainingBalance": 0}
    kept = journal.read_text() + repr(vars(client.world))
    for secret in ("4111", "11111", "8264", "cvv"):
        assert secret not in kept


@pytest.mark.parametrize("credential", ["Bearer wrong", "Basic secret", "Bearer ", ""])
async def test_who_is_not_let_in(client: SimulatorClient, credential: str) -> None:
    headers = {"Authorization": credential}
    generic = await client.http.post(GENERIC, json=STAY, headers=headers)
    sync = await client.http.get(f"{SYNC}/bookings", headers=headers)
    assert (generic.status_code, sync.status_code) == (401, 401)
    assert sync.json() == {"error": "Not authorized"}
    assert await client.count() == 0


async def test_the_count_is_plain_text_and_the_rest_is_json(client: SimulatorClient) -> None:
    await client.book()
    await client.book("R2", path="/other/generic/reservations")
    await client.book("R2", path="/other/generic/reservations")
    answer = await client.http.get("/count")
    assert answer.headers["content-type"] == "text/plain"
    assert answer.text == "2\n"
    assert (await client.http.get("/stats")).json() == {
        "made": 2,
        "cancelled": 0,
        "by_account": {"acme": 1, "other": 1},
        "duplicates": {"most_per_reference": 1, "references": [], "surplus": 0},
        "requests": 3,
        "requests_by_account": {"acme": 1, "other": 2},
    }


async def test_a_reset_forgets_everything(client: SimulatorClient) -> None:
    await client.book()
    assert (await client.http.post("/reset")).status_code == 204
    assert await client.count() == 0
    assert (await client.book()).status_code == 201
    assert (await client.http.get("/stats")).json()["requests"] == 1


async def test_health_and_what_is_not_there(client: SimulatorClient) -> None:
    assert (await client.http.get("/healthz")).status_code == 200
    assert (await client.http.get("/readyz")).status_code == 200
    missing = await client.http.get("/nowhere/at/all")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
