"""The simulated PMSs: what they count, refuse and remember, and how they go wrong."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from forwarder.pms.open_contract import open_pms_contract
from forwarder.simulator.app import simulator_app
from forwarder.simulator.faults import FaultBoard, Faults
from forwarder.simulator.world import World
from tests.support.manual_clock import ManualClock
from tests.support.simulator import running_simulator

NOW = datetime(2027, 1, 1, tzinfo=UTC)
ROOM = {"propertyId": 7, "roomId": "A", "arrivalDate": "2027-03-01", "departureDate": "2027-03-04"}
STAY = {**ROOM, "guest": {"name": "Maria"}, "totalPrice": 450.35, "currency": "EUR"}
CARD = {"cardNumber": "4111 1111 1111 1111", "cvv": "8264", "cardHolderName": "Maria"}
GENERIC = "/acme/generic/reservations"
SYNC = "/acme/booking-sync/api/v3"


class Client:
    """Speaks to a simulator in memory, as an account with a good credential unless another is given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(simulator_app(world)),
            base_url="http://simulator.test",
            headers={"Authorization": "Bearer secret"},
        )

    async def book(
        self, reference: str = "R1", *, path: str = GENERIC, key: str | None = None, **fields: Any
    ) -> httpx.Response:
        headers = {"Idempotency-Key": f'"{key or reference}"'}
        return await self.http.post(path, json={**STAY, "reference": reference, **fields}, headers=headers)

    async def sync(self, reference: str = "R1", *, rental: str = "7", **fields: Any) -> httpx.Response:
        booking = {"start_at": "2027-03-01", "end_at": "2027-03-04", "booked": True, "external_reference": reference}
        return await self.http.post(f"{SYNC}/rentals/{rental}/bookings", json={"bookings": [booking | fields]})

    async def count(self) -> int:
        return int((await self.http.get("/count")).text)

    async def go_wrong(self, **order: Any) -> None:
        assert (await self.http.put("/acme/faults", json=order)).status_code == 200


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    with World(ManualClock(NOW)) as world:
        opened = Client(world)
        async with opened.http:
            yield opened


# --- bookings ------------------------------------------------------------------------------------------------------------


async def test_a_booking_is_made_counted_and_found(client: Client) -> None:
    made = await client.book()
    assert made.status_code == 201
    assert made.json()["status"] == "CONFIRMED"
    assert made.json()["reference"] == "R1"
    assert await client.count() == 1
    found = await client.http.get(GENERIC, params={"reference": "R1"})
    assert found.json() == {"data": [made.json()]}
    assert (await client.http.get(GENERIC, params={"reference": "R2"})).json() == {"data": []}
    assert (await client.http.get(GENERIC)).json() == {"data": [made.json()]}


async def test_a_key_makes_one_booking_for_ever(client: Client) -> None:
    made = await client.book()
    again = await client.book()
    assert (made.status_code, again.status_code) == (201, 200)
    assert again.content == made.content
    other = await client.book(totalPrice=1)
    assert other.status_code == 422
    assert other.json()["code"] == "idempotency_key_reused"
    assert await client.count() == 1


async def test_each_name_kind_and_website_is_a_pms_of_its_own(client: Client) -> None:
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
async def test_nights_are_given_once(client: Client, arrival: str, departure: str, status: int) -> None:
    await client.book()
    second = await client.book("R2", arrivalDate=arrival, departureDate=departure)
    assert second.status_code == status
    if status == 409:
        assert second.json()["code"] == "room_unavailable"


async def test_without_calendars_a_room_takes_everybody() -> None:
    with World(ManualClock(NOW), calendars=False) as world:
        client = Client(world)
        async with client.http:
            assert [(await client.book(f"R{n}")).status_code for n in range(5)] == [201] * 5


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"propertyId": "unknown"}, 404, "property_not_found"),
        ({"roomId": "unknown"}, 404, "room_not_found"),
        ({"guest": {"email": "maria@refused.example"}}, 409, "guest_refused"),
        ({"cardDetails": {**CARD, "cardNumber": "4000000000000002"}}, 409, "card_refused"),
        ({"cardDetails": {**CARD, "cardNumber": "4111111111111112"}}, 409, "card_refused"),
        ({"cardDetails": {**CARD, "cardNumber": "42"}}, 409, "card_refused"),
        ({"arrivalDate": "2027-03-04"}, 422, "invalid_reservation"),
        ({"arrivalDate": "tomorrow"}, 422, "invalid_reservation"),
        ({"departureDate": None}, 422, "invalid_reservation"),
    ],
)
async def test_what_is_refused_on_purpose(client: Client, fields: dict[str, Any], status: int, code: str) -> None:
    answer = await client.book(**fields)
    assert answer.status_code == status
    assert answer.json()["code"] == code
    assert answer.headers["content-type"] == "application/problem+json"
    assert await client.count() == 0


async def test_bodies_that_are_none(client: Client) -> None:
    for body, status in ((b"{", 400), (b"[]", 422), (b"{}", 422)):
        assert (await client.http.post(GENERIC, content=body)).status_code == status
        assert (await client.http.post(f"{SYNC}/clients", content=body)).status_code == 422
        assert (await client.http.post(f"{SYNC}/rentals/7/bookings", content=body)).status_code == 422


async def test_a_card_pays_and_only_its_last_four_digits_stay(client: Client, tmp_path: Path) -> None:
    with World(ManualClock(NOW), journal=tmp_path / "world.jsonl") as world:
        writing = Client(world)
        async with writing.http:
            made = (await writing.book(cardDetails=CARD)).json()
            other_card = await writing.book(cardDetails={**CARD, "cardNumber": "5555555555554444"})
        assert other_card.status_code == 422
    assert made["cardLastFour"] == "1111"
    assert made["finances"] == {"totalPrice": 450.35, "currency": "EUR", "totalPaid": 450.35, "remainingBalance": 0}
    kept = (tmp_path / "world.jsonl").read_text() + repr(vars(world))
    for secret in ("4111", "11111", "8264", "cvv"):
        assert secret not in kept


@pytest.mark.parametrize("credential", ["Bearer wrong", "Basic secret", "Bearer ", ""])
async def test_who_is_not_let_in(client: Client, credential: str) -> None:
    headers = {"Authorization": credential}
    generic = await client.http.post(GENERIC, json=STAY, headers=headers)
    sync = await client.http.get(f"{SYNC}/bookings", headers=headers)
    assert (generic.status_code, sync.status_code) == (401, 401)
    assert sync.json() == {"error": "Not authorized"}
    assert await client.count() == 0


# --- BookingSync ---------------------------------------------------------------------------------------------------------


async def test_booking_sync_books_each_time_it_is_asked() -> None:
    with World(ManualClock(NOW), calendars=False) as world:
        client = Client(world)
        async with client.http:
            assert [(await client.sync()).status_code for _ in range(3)] == [201] * 3
            stats = (await client.http.get("/stats")).json()
    assert stats["made"] == 3
    assert stats["duplicates"] == {"most_per_reference": 3, "references": ["R1"], "surplus": 2}


async def test_booking_sync_refuses_in_its_own_words(client: Client) -> None:
    await client.sync()
    taken = await client.sync("R2", start_at="2027-03-02 16:00:00")
    assert taken.status_code == 422
    assert taken.json() == {"errors": {"start_at": ["is not available"], "end_at": ["is not available"]}}
    assert (await client.sync(start_at="2027-03-09")).json() == {"errors": {"start_at": ["must be before end_at"]}}
    assert (await client.sync(end_at="soon")).json() == {"errors": {"end_at": ["can't be blank"]}}
    assert (await client.sync(rental="unknown")).status_code == 404


async def test_booking_sync_clients(client: Client) -> None:
    path = f"{SYNC}/clients"
    made = await client.http.post(path, json={"clients": [{"fullname": "Maria", "emails": []}]})
    assert made.status_code == 201
    assert made.json()["clients"][0] == {"fullname": "Maria", "emails": [], "id": 1, "links": {"account": 1}}
    assert (await client.http.post(path, json={"clients": [{}]})).json() == {"errors": {"fullname": ["can't be blank"]}}
    assert await client.count() == 0


async def test_booking_sync_lists_by_rental_time_and_page(client: Client) -> None:
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


async def test_booking_sync_cancels_and_frees_the_nights(client: Client) -> None:
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


# --- the judge -------------------------------------------------------------------------------------------------------------


async def test_the_count_is_plain_text_and_the_rest_is_json(client: Client) -> None:
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


async def test_a_reset_forgets_everything(client: Client) -> None:
    await client.book()
    assert (await client.http.post("/reset")).status_code == 204
    assert await client.count() == 0
    assert (await client.book()).status_code == 201
    assert (await client.http.get("/stats")).json()["requests"] == 1


async def test_health_and_what_is_not_there(client: Client) -> None:
    assert (await client.http.get("/healthz")).status_code == 200
    assert (await client.http.get("/readyz")).status_code == 200
    missing = await client.http.get("/nowhere/at/all")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"


# --- the journal -----------------------------------------------------------------------------------------------------------


async def test_a_world_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = tmp_path / "deep" / "world.jsonl"
    with World(ManualClock(NOW), journal=journal) as world:
        before = Client(world)
        async with before.http:
            made = await before.book()
            [synced] = (await before.sync("S1")).json()["bookings"]
            await before.http.delete(f"{SYNC}/bookings/{synced['id']}")
            stats = world.stats()
    with World(ManualClock(NOW), journal=journal) as world:
        after = Client(world)
        async with after.http:
            assert {**world.stats(), "requests": 2, "requests_by_account": {"acme": 3}} | {"requests": 3} == stats
            again = await after.book()
            assert again.status_code == 200
            assert again.json() == made.json()
            assert (await after.book("R2")).status_code == 409
            assert (await after.sync("S2")).status_code == 201
            assert world.stats()["made"] == 3


async def test_every_answered_booking_is_on_the_disk(tmp_path: Path) -> None:
    journal = tmp_path / "world.jsonl"
    world = World(ManualClock(NOW), journal=journal)
    client = Client(world)
    async with client.http:
        for number in range(3):
            made = await client.book(f"R{number}", roomId=number)
            lines = journal.read_bytes().splitlines()
            assert len(lines) == number + 1
            assert json.loads(lines[-1])["answer"] == made.json()
    world.close()


async def test_a_line_that_was_cut_short_is_forgotten(tmp_path: Path) -> None:
    journal = tmp_path / "world.jsonl"
    with World(ManualClock(NOW), journal=journal) as world:
        client = Client(world)
        async with client.http:
            await client.book()
            await client.book("R2", roomId="B")
    journal.write_bytes(journal.read_bytes()[:-5])
    for made in (1, 2):
        with World(ManualClock(NOW), journal=journal) as world:
            client = Client(world)
            async with client.http:
                assert world.made == made
                await client.book("R2", roomId="B")
                assert world.made == 2


async def test_a_booking_that_cannot_be_written_down_is_not_made(tmp_path: Path) -> None:
    world = World(ManualClock(NOW), journal=tmp_path / "world.jsonl")
    world.close()
    client = Client(world)
    async with client.http:
        with pytest.raises(ValueError, match="closed file"):
            await client.book()
    assert world.made == 0


async def test_a_reset_empties_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "world.jsonl"
    with World(ManualClock(NOW), journal=journal) as world:
        client = Client(world)
        async with client.http:
            await client.book()
            await client.http.post("/reset")
            assert journal.read_bytes() == b""
            await client.book("R2")
    with World(ManualClock(NOW), journal=journal) as world:
        assert [made.reference for made in world.at("acme/generic")] == ["R2"]


# --- faults ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "status", "made"),
    [
        ("none", 201, 1),
        ("down", 503, 0),
        ("throttle", 429, 0),
        ("error500", 500, 0),
        ("redirect", 302, 0),
        ("garbage", 201, 0),
        ("huge", 201, 0),
        ("error500_after_booking", 500, 1),
        ("garbage_after_booking", 201, 1),
    ],
)
async def test_modes(client: Client, mode: str, status: int, made: int) -> None:
    await client.go_wrong(mode=mode)
    assert (await client.book()).status_code == status
    assert await client.count() == made
    assert (await client.http.delete("/acme/faults")).status_code == 204
    assert (await client.book()).status_code == (200 if made else 201)


async def test_a_wait_is_asked_for_as_each_vendor_does(client: Client) -> None:
    await client.go_wrong(mode="throttle", retry_after=30)
    assert (await client.book()).headers["retry-after"] == "30"
    limited = await client.sync()
    assert limited.headers["x-ratelimit-reset"] == str(int(NOW.timestamp()) + 30)
    assert "retry-after" not in limited.headers
    await client.go_wrong(mode="down")
    assert "retry-after" not in (await client.book()).headers


async def test_faults_are_of_one_name(client: Client) -> None:
    await client.go_wrong(mode="down")
    assert (await client.book(path="/other/generic/reservations")).status_code == 201
    assert (await client.book(path="/acme/website-builder/websites/1/reservations")).status_code == 503


async def test_a_fault_that_counts(client: Client) -> None:
    await client.go_wrong(mode="down", count=2)
    assert [(await client.book()).status_code for _ in range(3)] == [503, 503, 201]


async def test_a_fault_of_bookings_alone(client: Client) -> None:
    await client.go_wrong(mode="down", scope="bookings")
    assert (await client.book()).status_code == 503
    assert (await client.sync()).status_code == 503
    assert (await client.http.get(GENERIC)).status_code == 200
    assert (await client.http.post(f"{SYNC}/clients", json={"clients": [{"fullname": "M"}]})).status_code == 201


async def test_after_a_booking_means_after_one_that_was_made(client: Client) -> None:
    await client.book()
    await client.go_wrong(mode="error500_after_booking")
    assert (await client.book("R2")).status_code == 409
    assert (await client.http.get(GENERIC)).status_code == 200


async def test_a_fault_that_ends_by_itself() -> None:
    clock = ManualClock(NOW)
    with World(clock) as world:
        client = Client(world)
        async with client.http:
            await client.go_wrong(mode="down", until="2027-01-01T00:01:00Z")
            assert (await client.book()).status_code == 503
            await clock.advance(60)
            assert (await client.book()).status_code == 201


async def test_a_delay_holds_up_every_answer() -> None:
    clock = ManualClock(NOW)
    with World(clock, faults=Faults(delay_ms=1500)) as world:
        client = Client(world)
        async with client.http:
            booking = asyncio.create_task(client.book())
            await clock.advance(1.4)
            assert not booking.done()
            await clock.advance(0.2)
            assert (await booking).status_code == 201


def test_a_share_of_the_requests_is_hit_and_the_seed_repeats_which() -> None:
    def struck(seed: int) -> list[bool]:
        board = FaultBoard(ManualClock(NOW), Faults(mode="down", rate=0.25), seed)
        order = board.at("anywhere")
        assert order is not None
        return [board.strikes(order, books=True) for _ in range(1000)]

    assert 200 < sum(struck(1)) < 300
    assert struck(1) == struck(1) != struck(2)


@pytest.mark.parametrize(
    "order",
    [
        {"mode": "gremlins"},
        {"rate": 2},
        {"delay_ms": -1},
        {"count": -1},
        {"moods": 1},
        {"until": "2027-01-01T00:00:00"},
        [],
        5,
    ],
)
async def test_orders_that_are_none(client: Client, order: object) -> None:
    answer = await client.http.put("/acme/faults", json=order)
    assert answer.status_code == 422
    assert (await client.http.get("/acme/faults")).json() == Faults().model_dump()


async def test_what_is_ordered_can_be_seen(client: Client) -> None:
    await client.go_wrong(mode="hang", rate=0.5)
    shown = (await client.http.get("/acme/faults")).json()
    assert (shown["mode"], shown["rate"]) == ("hang", 0.5)


async def test_what_hangs_lets_go_when_the_fault_is_lifted_and_a_reset_is_one() -> None:
    async with running_simulator() as simulator, httpx.AsyncClient(timeout=5) as http:
        simulator.go_wrong("hang")
        order = simulator.world.faults.at("acme")
        assert order is not None
        url = f"{simulator.base_url('generic')}/reservations"
        hanging = asyncio.create_task(http.post(url, json=STAY, headers={"Authorization": "Bearer secret"}))
        await asyncio.wait_for(order.met.wait(), 5)
        simulator.go_wrong("reset_after_booking")
        with pytest.raises(httpx.TransportError):
            await hanging
        assert simulator.world.made == 0
        with pytest.raises(httpx.TransportError):
            await http.post(url, json=STAY, headers={"Authorization": "Bearer secret"})
        assert simulator.world.made == 1


async def test_in_memory_a_reset_is_an_error(client: Client) -> None:
    await client.go_wrong(mode="reset")
    with pytest.raises(ConnectionResetError):
        await client.book()


# --- the published contract ------------------------------------------------------------------------------------------------


def test_the_contract_is_openapi_and_published_as_it_is() -> None:
    contract = open_pms_contract()
    validate(contract)
    published = Path(__file__).resolve().parents[2] / "schemas" / "pms-openapi.json"
    assert published.read_text() == json.dumps(contract, indent=2, ensure_ascii=False) + "\n"


async def test_the_simulator_keeps_to_the_contract(client: Client) -> None:
    operations = open_pms_contract()["paths"]["/reservations"]
    answers = [
        ("post", await client.book()),
        ("post", await client.book()),
        ("post", await client.book("R3", roomId="C", cardDetails=CARD)),
        ("post", await client.book("R2")),
        ("post", await client.book(totalPrice=3)),
        ("post", await client.book("R4", propertyId="unknown")),
        ("post", await client.http.post(GENERIC, content=b"{")),
        ("get", await client.http.get(GENERIC, params={"reference": "R1"})),
    ]
    assert [answer.status_code for _, answer in answers] == [201, 200, 201, 409, 422, 404, 400, 200]
    for method, answer in answers:
        _matches(operations[method]["responses"][str(answer.status_code)], answer)
    for mode in ("down", "throttle"):
        await client.go_wrong(mode=mode, retry_after=1)
        answer = await client.book()
        assert str(answer.status_code) in operations["post"]["responses"]
        assert answer.headers["retry-after"] == "1"


def _matches(response: dict[str, Any], answer: httpx.Response) -> None:
    media_type = answer.headers["content-type"]
    schema = {**response["content"][media_type]["schema"], "components": open_pms_contract()["components"]}
    Draft202012Validator(schema).validate(answer.json())


def test_what_we_send_keeps_to_the_contract() -> None:
    contract = open_pms_contract()
    schema = {"$ref": "#/components/schemas/ReservationRequest", "components": contract["components"]}
    engine = {**STAY, "reference": "R1", "morChannel": "PMS", "paymentProviderId": 42, "cardDetails": CARD}
    general = {**ROOM, "reference": "R1", "guest": {"phone": 34600111222}, "propertyId": "00123"}
    for body in (engine, general):
        Draft202012Validator(schema).validate(body)
    assert not Draft202012Validator(schema).is_valid({**general, "propertyId": True})
    assert not Draft202012Validator(schema).is_valid({"reference": "R1"})
