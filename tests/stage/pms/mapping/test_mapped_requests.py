"""A mapped PMS on the wire: what is sent."""

import json
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from forwarder.pms.fields import code_of
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Deferred, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE, LODGIFY_LIKE
from tests.support.pms.kinds.open_pms import pms_that
from tests.support.simulator.server import CARD, booking

LEAST: dict[str, Any] = {"create": {"path": "/bookings"}}


async def sent(mapping: Any, asked: Booking | None = None, *, operation: str = "create") -> list[httpx.Request]:
    """The requests that the operation makes of a PMS that answers nothing of use."""
    requests: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(500)

    async with pms_that(note, options={"mapping": mapping}) as pms:
        match operation:
            case "create":
                await pms.create(asked or booking())
            case "find":
                await pms.find(asked or booking())
            case _:
                await pms.cancel(asked or booking(), "R/5")
    return requests


async def body(fields: dict[str, Any], asked: Booking | None = None, **create: Any) -> Any:
    [request] = await sent({"create": {"path": "/b", "body": fields, **create}}, asked)
    return json.loads(request.content)


async def test_a_body_is_put_together_by_its_map() -> None:
    [request] = await sent(LODGIFY_LIKE, booking(roomId="77", card=CARD))
    assert request.method == "POST"
    assert str(request.url) == "https://pms.test/api/v1/reservation/booking"
    assert request.headers["x-apikey"] == "key-7"
    assert request.headers["x-version"] == "2"
    assert request.headers["accept"] == "application/json"
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert json.loads(request.content) == {
        "property_id": 5001,
        "arrival": "01/03/2027",
        "departure": "2027-03-04",
        "guest": {"name": "Maria Gonzalez", "email": "maria@example.com"},
        "rooms": [{"room_type_id": 77, "people": 3, "nights": 3}],
        "total": "450.35",
        "total_cents": 45035,
        "total_number": 450.35,
        "currency_code": "EUR",
        "source_text": booking().reference,
        "bookability": "InstantBooking",
        "instant": True,
        "card": {"number": "4111 1111 1111 1111"},
    }
    assert b'"total_number":450.35' in request.content


async def test_a_form_is_put_together_by_its_map() -> None:
    [request] = await sent(CLOUDBEDS_LIKE, booking(guest={"email": "m@example.com"}))
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert dict(parse_qsl(request.content.decode())) == {
        "propertyID": "5001",
        "sourceID": "ss-7-1",
        "thirdPartyIdentifier": booking().reference,
        "startDate": "2027-03-01",
        "endDate": "2027-03-04",
        "guestFirstName": "Guest",
        "guestLastName": "Guest",
        "guestEmail": "m@example.com",
        "rooms[0][roomTypeID]": "5001",
        "rooms[0][quantity]": "1",
        "adults[0][quantity]": "3",
        "paymentMethod": "cash",
    }


async def test_what_the_booking_does_not_have_is_left_out() -> None:
    code, transaction = "promotionCode", "transactionId"
    fields = {"a": code, "b": {"field": [code, "currency"]}, "c": {"field": code, "default": "none"}}
    assert await body({**fields, "d.e": transaction}) == {"b": "EUR", "c": "none"}
    assert await body(fields, booking(currency="")) == {"c": "none"}


@for_each(
    ("price", "number", "text", "cents"),
    [
        (0.1, 0.1, "0.1", 10),
        (450.35, 450.35, "450.35", 45035),
        (999999999.99, 999999999.99, "999999999.99", 99999999999),
        (1000000, 1000000, "1000000", 100000000),
        (1e-2, 0.01, "0.01", 1),
    ],
)
async def test_amounts_are_exact(price: float, number: float, text: str, cents: int) -> None:
    fields = {
        "number": {"field": "totalPrice", "as": "number"},
        "text": {"field": "totalPrice", "as": "text"},
        "cents": {"field": "totalPrice", "as": "minorUnits"},
    }
    assert await body(fields, booking(totalPrice=price)) == {"number": number, "text": text, "cents": cents}


async def test_minor_units_are_those_of_the_currency() -> None:
    fields = {"units": {"field": "totalPrice", "as": "minorUnits"}}
    assert await body(fields, booking(totalPrice=1200, currency="JPY")) == {"units": 1200}
    assert await body(fields, booking(totalPrice=1.234, currency="KWD")) == {"units": 1234}


@pytest.mark.parametrize(
    ("field", "form", "values", "code"),
    [
        ("propertyId", "integer", ("A7", "00123", "7.5", "1e3", "NaN"), "property_not_found"),
        ("roomId", "number", ("A7", "١٢", "7 "), "room_not_found"),
        ("totalPrice", "minorUnits", (0.001,), "pms_refused"),
    ],
)
async def test_what_cannot_be_written_so_is_refused_before_anything_is_sent(
    field: str, form: str, values: tuple[Any, ...], code: str
) -> None:
    mapping = {"create": {"path": "/b", "body": {"x": {"field": field, "as": form}}}}
    async with pms_that(options={"mapping": mapping}) as pms:
        for value in values:
            outcome = await pms.create(booking(**{field: value}))
            assert isinstance(outcome, Rejected), value
            assert outcome.problem.code == code
            assert f"The PMS takes {field} as" in outcome.problem.detail


async def test_fields_in_a_path_are_one_segment_each() -> None:
    mapping = {"create": {"path": "/p/{propertyId}/rooms/{roomId}:book", "query": {"d": "arrivalDate", "n": "nights"}}}
    [request] = await sent(mapping, booking(propertyId="a/b ä", roomId=7))
    assert request.url.raw_path == b"/api/p/a%2Fb%20%C3%A4/rooms/7:book?d=2027-03-01&n=3"
    assert not request.content
    assert "content-type" not in request.headers


async def test_a_path_that_no_value_fits_is_not_asked_for() -> None:
    for value in ("..", "."):
        assert not await sent({"create": {"path": "/p/{propertyId}"}}, booking(propertyId=value))
    assert not await sent({"create": {"path": "/p/{comments}"}})


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({}, "authorization", "Bearer key-7"),
        ({"form": "bearer"}, "authorization", "Bearer key-7"),
        ({"form": "header", "name": "X-Key"}, "x-key", "key-7"),
    ],
)
async def test_the_credential_goes_where_the_mapping_says(auth: dict[str, str], header: str, value: str) -> None:
    [request] = await sent({**LEAST, "auth": auth})
    assert request.headers[header] == value
    assert "key-7" not in str(request.url)


async def test_a_user_and_password() -> None:
    for credential, header in (("user:pässword", "Basic dXNlcjpww6Rzc3dvcmQ="), ("key-7", None)):
        requests: list[httpx.Request] = []

        def note(request: httpx.Request, kept: list[httpx.Request] = requests) -> httpx.Response:
            kept.append(request)
            return httpx.Response(500)

        options = {"mapping": {**LEAST, "auth": {"form": "basic"}}}
        async with pms_that(note, options=options, credential=credential) as pms:
            outcome = await pms.create(booking())
        if header is None:
            assert isinstance(outcome, Deferred)
            assert outcome.reason == "pms_credential_invalid"
            assert not requests
        else:
            assert requests[0].headers["authorization"] == header


async def test_a_key_makes_a_create_safe_to_repeat() -> None:
    [request] = await sent({"create": {"path": "/b", "keyHeader": "X-Request-Key"}})
    assert request.headers["x-request-key"] == booking().reference


async def test_a_lookup_and_a_cancellation() -> None:
    [found] = await sent(CLOUDBEDS_LIKE, operation="find")
    assert found.method == "GET"
    assert str(found.url) == (
        f"https://pms.test/api/getReservations?propertyID=5001&sourceReservationId={booking().reference}"
    )
    [paged] = await sent(LODGIFY_LIKE, operation="find")
    assert dict(paged.url.params) == {"property": "5001", "page": "1"}
    [cancelled] = await sent(LODGIFY_LIKE, operation="cancel")
    assert cancelled.method == "DELETE"
    assert cancelled.url.raw_path == b"/api/v1/reservation/R%2F5"
    [put] = await sent(CLOUDBEDS_LIKE, operation="cancel")
    assert put.method == "PUT"
    assert dict(parse_qsl(put.content.decode())) == {"reservationID": "R/5", "status": "canceled"}


MAPPED = {"at": "propertyId", "from": "arrivalDate", "to": "departureDate", "who": "guest.name", "p": "totalPrice"}


async def test_what_is_mapped_nowhere_goes_below_the_notes() -> None:
    asked = booking(
        numberOfInfants=1, promotionCode="SUMMER", morChannel="PMS", comments="Twins", guest={"name": "Ana"}
    )
    sent = await body({**MAPPED, "remark": "comments", "money": "currency"}, asked)
    assert sent["remark"].split("\n") == [
        "Twins",
        "Late arrival",
        "Children: 1",
        "Infants: 1",
        "Payment taken by: the property management system (PMS)",
        "Guests: 3",
        "Promotion code: SUMMER",
    ]


async def test_what_gives_way_to_another_field_goes_below_the_notes() -> None:
    fields = {
        **MAPPED,
        "notes": {"field": ["notes", "comments"]},
        "heads": {"field": ["numberOfAdults", "numberOfGuests"]},
    }
    asked = booking(numberOfAdults=2, numberOfChildren=None, currency=None, comments="Twins", guest={"name": "Ana"})
    assert (await body(fields, asked))["notes"] == "Late arrival\nTwins\nGuests: 3"


async def test_notes_that_nobody_wrote_are_made_for_it() -> None:
    fields = {**MAPPED, "notes": {"field": "notes", "as": "text"}}
    asked = booking(notes=None, numberOfChildren=None, currency=None, guest={"name": "Ana"})
    assert (await body(fields, asked))["notes"] == "Guests: 3"


async def test_a_mapping_may_leave_fields_out_of_the_notes() -> None:
    asked = booking(paymentProviderKey="tok_7", currency=None, numberOfChildren=None, guest={"name": "Ana"})
    create = {"leftOut": ["paymentProviderKey", "numberOfGuests"]}
    assert (await body({**MAPPED, "notes": "notes"}, asked, **create))["notes"] == "Late arrival"


async def test_a_mapping_without_notes_sends_what_it_names() -> None:
    assert await body({"who": "guest.name"}) == {"who": "Maria Gonzalez"}


async def test_a_value_may_be_joined_cut_chosen_and_sent_only_with_another() -> None:
    fields = {
        "street": {"join": ["guest.address.line1", "guest.address.line2"]},
        "hour": {"field": "arrivalEstimatedTime", "as": "hour"},
        "until": {"field": "departureEstimatedTime", "as": "clockTime"},
        "name": {"field": "guest.name", "maxLength": 10},
        "mail": {"field": "guest.email", "maxLength": 10, "ifLonger": "notes"},
        "nation": {"field": "guest.address.country", "as": "country"},
        "country": {"field": "guest.address.country", "without": "nation"},
        "coupon": {"field": "promotionCode", "needs": "rate"},
        "rate": {"field": "paymentProviderKey"},
        "notes": "notes",
    }
    address = {"line1": "A 1", "line2": "B", "country": "United Kingdom"}
    guest = {"name": "Maximiliana Gonzalez", "email": "maximiliana@pms.example", "address": address}
    times: dict[str, Any] = {"arrivalEstimatedTime": "15:30", "departureEstimatedTime": "9:05"}
    sent = await body(fields, booking(guest=guest, promotionCode="SUMMER", **times))
    assert {name: sent.get(name) for name in fields if name != "notes"} == {
        "street": "A 1, B",
        "hour": 15,
        "until": "09:05:00",
        "name": "Maximi […]",
        "mail": None,
        "nation": "GB",
        "country": None,
        "coupon": None,
        "rate": None,
    }
    lines = sent["notes"].split("\n")
    assert {"Estimated arrival: 15:30", "Guest's e-mail: maximiliana@pms.example", "Promotion code: SUMMER"} <= set(
        lines
    )
    assert not [line for line in lines if "Country" in line or "Address" in line or "departure" in line]
    elsewhere = await body(fields, booking(guest={"name": "Ana", "address": {"country": "Atlantis"}}))
    assert elsewhere["country"] == "Atlantis"


@pytest.mark.parametrize(
    ("country", "sent", "noted"),
    [("ES", "Spanien", False), ("Spain", "Spanien", False), ("FR", "Ausland", True), ("Atlantis", "Ausland", True)],
)
async def test_a_value_is_looked_up_in_a_table_of_the_mapping(country: str, sent: str, *, noted: bool) -> None:
    source = {"field": "guest.address.country", "as": "country", "values": {"ES": "Spanien"}, "default": "Ausland"}
    asked = booking(guest={"name": "Ana", "address": {"country": country}})
    made = await body({"nation": source, "notes": "notes"}, asked)
    assert made["nation"] == sent
    assert (country in made["notes"].split("country: ")[-1]) is noted


@for_each(
    ("given", "code"),
    [
        ("ES", "ES"),
        ("UK", "GB"),
        ("EL", "GR"),
        ("España", "ES"),
        ("the netherlands", "NL"),
        ("U.S.A.", "US"),
        ("Côte d'Ivoire", "CI"),
        ("DEU", "DE"),
        ("somewhere", None),
    ],
)
def test_a_country_is_known_by_its_usual_names(given: str, code: str | None) -> None:
    assert code_of(given) == code


async def test_a_name_that_is_sent_in_full_and_by_its_parts_is_not_in_the_notes() -> None:
    fields = {"name": "guest.name", "first": "guest.first", "last": "guest.last", "notes": "notes"}
    guest = {"name": "Dr. Maria Gonzalez", "firstName": "Maria", "lastName": "Gonzalez"}
    sent = await body(fields, booking(guest=guest))
    assert (sent["name"], sent["first"], sent["last"]) == ("Dr. Maria Gonzalez", "Maria", "Gonzalez")
    assert not [line for line in sent["notes"].split("\n") if "name" in line]
