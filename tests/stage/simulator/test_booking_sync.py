"""The simulated BookingSync."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from forwarder.simulator.world import World
from tests.support.memory.clock import ManualClock
from tests.support.simulator.client import NOW, SYNC, SimulatorClient, simulated


@pytest.fixture
async def client() -> AsyncIterator[SimulatorClient]:
    async with simulated() as opened:
        yield opened


async def test_booking_sync_books_each_time_it_is_asked() -> None:
    async with simulated(World(ManualClock(NOW), calendars=False)) as client:
        assert [(await client.sync()).status_code for _ in range(3)] == [201] * 3
        stats = (await client.http.get("/stats")).json()
    assert stats["made"] == 3
    assert stats["duplicates"] == {"most_per_reference": 3, "references": ["R1"], "surplus": 2}


async def test_booking_sync_refuses_in_its_own_words(client: SimulatorClient) -> None:
    await client.sync()
    taken = await client.sync("R2", start_at="2027-03-02 16:00:00")
    assert taken.status_code == 422
    assert taken.json() == {"errors": {"start_at": ["is not available"], "end_at": ["is not available"]}}
    assert (await client.sync(start_at="2027-03-09")).json() == {"errors": {"start_at": ["must be before end_at"]}}
    assert (await client.sync(end_at="soon")).json() == {"errors": {"end_at": ["can't be blank"]}}
    assert (await client.sync(rental="unknown")).status_code == 404


async def test_booking_sync_clients(client: SimulatorClient) -> None:
    path = f"{SYNC}/clients"
    made = await client.http.post(path, json={"clients": [{"fullname": "Maria", "emails": []}]})
    assert made.status_code == 201
    assert made.json()["clients"][0] == {"fullname": "Maria", "emails": [], "id": 1, "links": {"account": 1}}
    assert (await client.http.post(path, json={"clients": [{}]})).json() == {"errors": {"fullname": ["can't be blank"]}}
    assert await client.count() == 0


async def test_booking_sync_lists_by_rental_time_and_page(client: SimulatorClient) -> None:
    for day in range(1, 6):
        await client.sync(f"R{day}", start_at=f"2027-03-0{day}", end_at=f"2027-03-0{day + 1}")
    await client.sync("other", rental="8")

    async def listed(**query: str) -> tuple[list[str], str]:
        answer = await client.http.get(f"{SYNC}/bookings", params={"rental_id": "7", **query})
        return [booking["external_reference"] for booking in answer.json()["bookings"]], answer.headers["x-total-pages"]

    assert await listed() == (["R1", "R2", "R3", "R4", "R5"], "1")
    assert await listed(**{"from": "2027-03-03", "until": "2027-03-05"}) == (["R3", "R4"], "1")
    assert await listed(per_page="2", page="3") == (["R5"], "3")
    assert await listed(per_page="2", page="4") == ([], "3")
    assert await listed(rental_id="7,8") == (["R1", "R2", "R3", "R4", "R5", "other"], "1")
    assert await listed(rental_id="9") == ([], "1")


async def test_booking_sync_cancels_and_frees_the_nights(client: SimulatorClient) -> None:
    [made] = (await client.sync()).json()["bookings"]
    path = f"{SYNC}/bookings/{made['id']}"
    assert [(await client.http.delete(path)).status_code for _ in range(2)] == [204, 204]
    assert (await client.http.delete(f"{SYNC}/bookings/999999")).status_code == 404
    assert (await client.http.delete(path.replace("acme", "other"))).status_code == 404
    shown = (await client.http.get(f"{SYNC}/bookings")).json()["bookings"]
    with_cancelled = (await client.http.get(f"{SYNC}/bookings?include_canceled=true")).json()["bookings"]
    assert shown == []
    assert [booking["status"] for booking in with_cancelled] == ["Canceled"]
    assert (await client.sync("R2")).status_code == 201
    assert client.world.stats()["cancelled"] == 1


async def rotated(client: SimulatorClient, refresh: str, secret: str = "s") -> tuple[int, dict[str, Any]]:
    form = {"grant_type": "refresh_token", "client_id": "app", "client_secret": secret, "refresh_token": refresh}
    answer = await client.http.post(SYNC.replace("/api/v3", "/oauth/token"), data=form)
    return answer.status_code, answer.json()


async def lets_in(client: SimulatorClient, token: str) -> bool:
    answer = await client.http.get(f"{SYNC}/bookings", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code == 200


async def test_booking_sync_ends_old_tokens_when_the_new_one_is_first_used(client: SimulatorClient) -> None:
    _, first = await rotated(client, "the account's own")
    assert (first["expires_in"], first["token_type"]) == (7200, "bearer")
    assert await lets_in(client, first["access_token"])
    assert (await rotated(client, "the account's own"))[0] == 401
    _, second = await rotated(client, first["refresh_token"])
    _, third = await rotated(client, first["refresh_token"])
    assert await lets_in(client, first["access_token"])
    assert await lets_in(client, third["access_token"])
    assert not await lets_in(client, first["access_token"])
    assert (await rotated(client, first["refresh_token"]))[1]["error"] == "invalid_grant"
    assert await lets_in(client, second["access_token"])


async def test_booking_sync_tokens_end_with_their_time() -> None:
    clock = ManualClock(NOW)
    async with simulated(World(clock)) as client:
        _, token = await rotated(client, "r")
        await clock.advance(7199)
        assert await lets_in(client, token["access_token"])
        await clock.advance(1)
        assert not await lets_in(client, token["access_token"])
        assert not await lets_in(client, "sim-access-99")


@pytest.mark.parametrize(
    ("refresh", "secret", "error"),
    [
        ("wrong", "s", "invalid_grant"),
        ("sim-refresh-99", "s", "invalid_grant"),
        ("", "s", "invalid_grant"),
        ("r", "wrong", "invalid_client"),
        ("r", "", "invalid_client"),
    ],
)
async def test_booking_sync_grants_nothing_to_others(
    client: SimulatorClient, refresh: str, secret: str, error: str
) -> None:
    status, body = await rotated(client, refresh, secret)
    assert (status, body["error"]) == (401, error)


async def test_booking_sync_ends_what_was_only_held() -> None:
    clock = ManualClock(NOW)
    async with simulated(World(clock)) as client:
        held = await client.sync(booked=False, tentative_expires_at="2027-01-01T00:10:00Z")
        assert held.json()["bookings"][0]["status"] == "Tentative"
        assert (await client.sync("R2")).status_code == 422
        await clock.advance(600)
        assert (await client.sync("R2")).status_code == 201
        shown = (await client.http.get(f"{SYNC}/bookings?include_canceled=true")).json()["bookings"]
    assert [(booking["status"], booking["booked"]) for booking in shown] == [("Canceled", False), ("Booked", True)]


async def test_booking_sync_quotes_what_is_free(client: SimulatorClient) -> None:
    query = {"rental_id": "7", "start_at": "2027-03-01", "end_at": "2027-03-04"}
    [rental] = (await client.http.get(f"{SYNC}/rentals/search", params=query)).json()["rentals"]
    assert (rental["id"], rental["initial_price"], rental["final_price"]) == (7, 300.0, 380.0)
    await client.sync()
    assert (await client.http.get(f"{SYNC}/rentals/search", params=query)).json()["rentals"] == []
    query["start_at"], query["end_at"] = "2027-03-04", "2027-03-05"
    assert (await client.http.get(f"{SYNC}/rentals/search", params=query)).json()["rentals"]


async def test_booking_sync_wants_a_payments_facts(client: SimulatorClient) -> None:
    [made] = (await client.sync()).json()["bookings"]
    path = f"{SYNC}/bookings/{made['id']}/payments"
    for payment, missing in (
        ({"amount_in_cents": 100, "currency": "EUR", "kind": "cash"}, {"paid_at"}),
        (
            {"amount_in_cents": 100, "currency": "EUR", "kind": "instant-booking"},
            {"gateway_id", "gateway_name", "gateway_type"},
        ),
        ({"amount_in_cents": 100, "currency": "EUR", "kind": "gold", "paid_at": "2027-01-01T00:00:00Z"}, {"kind"}),
        ({}, {"amount_in_cents", "currency", "kind", "paid_at"}),
    ):
        refused = await client.http.post(path, json={"payments": [payment]})
        assert (refused.status_code, set(refused.json()["errors"])) == (422, missing)
    assert (await client.http.post(path.replace(str(made["id"]), "9"), json={"payments": [{}]})).status_code == 404


async def test_comments_are_shown(client: SimulatorClient) -> None:
    made = (await client.sync(comments=[{"content": "Infants: 1"}, {"content": "Twins"}])).json()["bookings"][0]
    [shown] = (await client.http.get(f"{SYNC}/bookings/{made['id']}")).json()["bookings"]
    assert [comment["content"] for comment in shown["booking_comments"]] == ["Infants: 1", "Twins"]
    assert shown["links"]["booking_comments"] == [comment["id"] for comment in shown["booking_comments"]]
