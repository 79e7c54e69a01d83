"""The simulated Cloudbeds: prices of its own, references of third-party sources alone, nights that come free."""

from typing import Any

from tests.support.cases import for_each
from tests.support.simulator.client import SimulatorClient, simulated

AT = "/acme/cloudbeds/api/v1.3"
FORM = {
    "propertyID": "77",
    "sourceID": "ss-7-1",
    "thirdPartyIdentifier": "R1",
    "startDate": "2027-03-01",
    "endDate": "2027-03-04",
    "guestFirstName": "Maria",
    "guestLastName": "Gonzalez",
    "rooms[0][roomTypeID]": "9",
    "paymentMethod": "cash",
}


async def book(client: SimulatorClient, **fields: str) -> Any:
    answer = await client.http.post(f"{AT}/postReservation", data=FORM | fields)
    assert answer.status_code == 200
    return answer.json()


async def listed(client: SimulatorClient, **query: Any) -> list[str]:
    answer = await client.http.get(f"{AT}/getReservations", params=query)
    return [reservation["reservationID"] for reservation in answer.json()["data"]]


async def test_it_sets_the_price_and_refuses_taken_nights() -> None:
    async with simulated() as client:
        made = await book(client)
        assert (made["success"], made["status"], made["grandTotal"]) == (True, "confirmed", 330)
        refused = await book(client, startDate="2027-03-03", endDate="2027-03-05")
        assert not refused["success"]
        assert "not available" in refused["message"]
        assert (await book(client, startDate="2027-03-04", endDate="2027-03-05"))["success"]


async def test_a_cancelled_booking_is_listed_and_its_nights_are_free() -> None:
    async with simulated() as client:
        made = (await book(client))["reservationID"]
        for _ in range(2):
            form = {"reservationID": made, "status": "canceled"}
            assert (await client.http.put(f"{AT}/putReservation", data=form)).json()["data"]["status"] == "canceled"
        assert await listed(client, sourceReservationId="R1", status="canceled") == [made]
        assert (await book(client))["success"]
        assert await client.count() == 2


async def test_references_are_those_of_third_partys_sources() -> None:
    async with simulated() as client:
        await book(client, sourceID="s-1")
        assert await listed(client, sourceReservationId="R1") == []
        made = (await book(client, **{"rooms[0][roomTypeID]": "10"}))["reservationID"]
        assert await listed(client, sourceReservationId="R1") == [made]
        assert await listed(client, pageSize=1, pageNumber=2) == [made]
        assert await listed(client, propertyID="78") == []


@for_each(
    ("fields", "said"),
    [
        ({"propertyID": "unknown"}, "property id"),
        ({"rooms[0][roomTypeID]": "unknown"}, "roomTypeID"),
        ({"guestEmail": "m@refused.example"}, "guestEmail"),
        ({"guestLastName": ""}, "guestLastName"),
        ({"startDate": "tomorrow"}, "not dates"),
        ({"endDate": "2027-03-01"}, "Departure"),
    ],
)
async def test_what_it_refuses(fields: dict[str, str], said: str) -> None:
    async with simulated() as client:
        refused = await book(client, **fields)
        assert not refused["success"]
        assert said in refused["message"]
        assert await client.count() == 0


async def test_either_form_of_credential_lets_in() -> None:
    async with simulated() as client:
        for headers, status in (({"x-api-key": "k"}, 200), ({"x-api-key": "wrong"}, 401)):
            answer = await client.http.get(f"{AT}/getReservations", headers=headers)
            assert answer.status_code == status
        client.http.headers.pop("authorization")
        answer = await client.http.get(f"{AT}/getReservations")
        assert (answer.status_code, answer.json()["error"]) == (401, "access_denied")


async def test_notes_are_shown() -> None:
    async with simulated() as client:
        made = await book(client, **{"customFields[0][fieldName]": "wishes", "customFields[0][fieldValue]": "A cot"})
        form = {"reservationID": made["reservationID"], "reservationNote": "Infants: 1"}
        assert (await client.http.post(f"{AT}/postReservationNote", data=form)).json()["success"]
        assert not (await client.http.post(f"{AT}/postReservationNote", data=form | {"reservationID": "7"})).json()[
            "success"
        ]
        of_one = {"reservationID": made["reservationID"]}
        notes = (await client.http.get(f"{AT}/getReservationNotes", params=of_one)).json()["data"]
        assert [note["reservationNote"] for note in notes] == ["Infants: 1"]
        [custom] = (await client.http.get(f"{AT}/getReservation", params=of_one)).json()["data"]["customFields"]
        assert (custom["shortcode"], custom["customFieldValue"]) == ("wishes", "A cot")
