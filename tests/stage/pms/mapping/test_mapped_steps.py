"""What a mapped PMS is asked in several steps: pages of a list, a second request that confirms, a look afterwards."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from forwarder.pms.port import CANCELLED_IN_PMS, LOOKS_ALIKE
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.open_pms import pms_that, response
from tests.support.simulator.server import booking

OURS = booking().reference
BASE = "https://pms.test/api"
STATES = {"path": "state", "confirmed": ["Booked"], "cancelled": ["Gone"], "tentative": ["Held"]}
SHOWN: dict[str, Any] = {"reference": "ref", "status": {**STATES, "tentative": []}}
CREATE: dict[str, Any] = {"path": "/b", "body": {"ref": "reference"}}
CANCEL: dict[str, Any] = {"method": "DELETE", "path": "/b/{pmsReservationId}"}
LISTED: dict[str, Any] = {"create": CREATE, "reservation": SHOWN, "find": {"path": "/list", "items": "data"}}
OTHER = {"id": 1, "ref": "rsv_of_somebody", "state": "Booked"}
MINE = {"id": 9, "ref": OURS, "state": "Booked"}
CONFIRMING: dict[str, Any] = {
    "create": CREATE,
    "reservation": {"reference": "ref", "status": STATES},
    "confirm": {
        "method": "PUT",
        "path": "/b/{pmsReservationId}/book",
        "errors": [
            {"status": [409], "becomes": "room_unavailable"},
            {"status": [400], "when": {"e": "again"}, "becomes": "deferred"},
        ],
    },
    "find": {"path": "/list", "items": "data", "query": {"ref": "reference"}},
    "cancel": CANCEL,
}


class Asked:
    """A PMS that answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: tuple[int, object] | Exception) -> None:
        self.left = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return response(*answer)

    @property
    def queries(self) -> list[dict[str, list[str]]]:
        return [parse_qs(request.url.query.decode()) for request in self.requests]

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.path}" for request in self.requests]


def paged(**pages: Any) -> dict[str, Any]:
    return {**LISTED, "find": {**LISTED["find"], "pages": pages}}


async def find(mapping: Any, pms: Asked) -> Any:
    async with pms_that(pms, base_url=BASE, options={"mapping": mapping}) as opened:
        return await opened.find(booking())


THIRD: dict[str, Any] = {**OTHER, "id": 2}


@for_each(
    ("pages", "answers", "queries"),
    [
        (
            {"query": "page", "first": 0, "count": "pages"},
            [{"data": [OTHER], "pages": 2}, {"data": [THIRD], "pages": 2}],
            [{"page": ["0"]}, {"page": ["1"]}],
        ),
        ({"query": "page"}, [{"data": [OTHER]}, {"data": []}], [{"page": ["1"]}, {"page": ["2"]}]),
        (
            {"by": "offset", "query": "skip", "count": "total"},
            [{"data": [OTHER, THIRD], "total": 3}, {"data": [{**OTHER, "id": 3}], "total": 3}],
            [{"skip": ["0"]}, {"skip": ["2"]}],
        ),
        (
            {"by": "cursor", "query": "after", "next": "next"},
            [{"data": [OTHER], "next": "c/7"}, {"data": [], "next": "c8"}, {"data": [THIRD], "next": None}],
            [{}, {"after": ["c/7"]}, {"after": ["c8"]}],
        ),
        (
            {"by": "lastId", "query": "after", "count": "total"},
            [{"data": [OTHER], "total": 2}, {"data": [THIRD], "total": 1}],
            [{}, {"after": [str(OTHER["id"])]}],
        ),
        (
            {"query": "page", "firstUnsaid": True, "more": "more"},
            [{"data": [], "more": True}, {"data": [OTHER], "more": False}],
            [{}, {"page": ["2"]}],
        ),
    ],
    ids=["counted pages", "until one is empty", "offset", "cursor", "last id", "as long as there are more"],
)
async def test_every_page_is_read_before_it_is_absent(pages: Any, answers: list[Any], queries: list[Any]) -> None:
    pms = Asked(*((200, answer) for answer in answers * 2))  # read twice: it must not have changed
    assert await find(paged(**pages), pms) == Absent()
    assert pms.queries == queries * 2
    *before, last = answers
    held = {**last, "data": [OTHER, MINE]}
    found = await find(paged(**pages), Asked(*((200, answer) for answer in [*before, held])))
    assert isinstance(found, Confirmed)
    assert found.pms_reservation_id == "9"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([(200, {"data": [{**OTHER, "id": n}], "next": str(n)}) for n in range(20)], "pms_lists_too_much"),
        ([(200, {"data": [{"id": 1, "state": "Booked"}]})], "pms_scope_too_small"),
        ([(200, {"data": [OTHER], "next": "2"}), (500, {})], "pms_failed"),
    ],
)
async def test_a_list_that_is_not_read_to_its_end_says_nothing(answers: list[Any], reason: str) -> None:
    pms = Asked(*answers)
    found = await find(paged(by="cursor", query="p", next="next"), pms)
    assert isinstance(found, Deferred)
    assert found.reason == reason
    assert {request.url.host for request in pms.requests} == {"pms.test"}


@for_each(
    ("pages", "answers"),
    [
        ({"by": "offset", "query": "o", "count": "n"}, [{"data": [OTHER], "n": 3}, {"data": [], "n": 3}]),
        ({"query": "p", "count": "n"}, [{"data": [OTHER], "n": 3}, {"data": [], "n": 3}]),
        ({"by": "lastId", "query": "l", "count": "n"}, [{"data": [], "n": 3}]),
        ({"by": "lastId", "query": "l", "more": "n"}, [{"data": [], "n": True}]),
        *[({"by": "cursor", "query": "c", "next": "n"}, [{"data": [OTHER], "n": n}]) for n in (1.5, {"c": "x"}, True)],
    ],
)
async def test_a_list_that_contradicts_itself_about_its_end_says_nothing(pages: Any, answers: list[Any]) -> None:
    found = await find(paged(**pages), Asked(*((200, answer) for answer in answers * 2)))
    assert isinstance(found, Deferred)
    assert found.reason == "pms_answer_not_understood"


@for_each(
    ("pages", "answers"),
    [
        ({"query": "p", "count": "n"}, [{"data": [OTHER], "n": 2}, {"data": [OTHER], "n": 2}]),
        ({"by": "offset", "query": "o", "count": "n"}, [{"data": [OTHER, THIRD], "n": 4}] * 2),
        ({"query": "p"}, [{"data": [OTHER], "total": 9}, {"data": [], "total": 9}]),
        ({"query": "p"}, [{"data": [OTHER]}, {"data": [], "meta": {"total_items": 2}}]),
        ({"query": "p", "count": "n"}, [{"data": [OTHER], "n": 1, "has_more": True}]),
        ({"by": "cursor", "query": "c", "next": "n"}, [{"data": [OTHER], "n": None, "pagination": {"hasMore": True}}]),
    ],
)
async def test_a_list_that_stands_still_or_ends_too_soon_says_nothing(pages: Any, answers: list[Any]) -> None:
    found = await find(paged(**pages), Asked(*((200, answer) for answer in answers * 2)))
    assert isinstance(found, Deferred)
    assert found.reason == "pms_answer_not_understood"


async def test_a_count_that_is_too_small_ends_nothing() -> None:
    pms = Asked((200, {"data": [OTHER], "n": 0}), (200, {"data": [MINE], "n": 0}))
    assert isinstance(await find(paged(query="p", count="n"), pms), Confirmed)


IN_TEXT: dict[str, Any] = {
    "create": {"path": "/b", "body": {"note": "notes"}, "referenceInNotes": True},
    "reservation": {"reference": "note", "status": {**STATES, "tentative": []}},
    "find": {"path": "/list", "items": "data", "match": "text", "pages": {"query": "p"}},
}


async def test_a_reference_in_a_text_is_found_as_a_whole() -> None:
    pms = Asked((201, {"id": 9, "note": f"Reference: {OURS}\nlate", "state": "Booked"}))
    async with pms_that(pms, base_url=BASE, options={"mapping": IN_TEXT}) as opened:
        made = await opened.create(booking(notes="late"))
    assert isinstance(made, Confirmed)
    assert made.named
    assert pms.requests[0].content.decode().startswith('{"note":"Reference: ' + OURS)
    for note, state, expected in (
        (f"Reference: {OURS}\nlate", "Booked", Confirmed),
        (f"Reference: {OURS}x", "Booked", Absent),
        (f"x{OURS}", "Booked", Absent),
        (None, "Booked", Absent),
    ):
        shown = {"data": [{"id": 9, "note": note, "state": state}]}
        pages = [(200, shown), (200, {"data": []})]
        assert isinstance(await find(IN_TEXT, Asked(*pages * 2)), expected), note
    gone = await find(IN_TEXT, Asked((200, {"data": [{"id": 9, "note": OURS, "state": "Gone"}]})))
    assert isinstance(gone, Deferred)
    assert gone.reason == CANCELLED_IN_PMS


BY_STAY: dict[str, Any] = {
    "create": {"path": "/b", "body": {"from": "arrivalDate"}},
    "reservation": {"arrival": "from", "departure": "to", "email": "mail", "status": {**STATES, "tentative": []}},
    "find": {"path": "/list", "items": "data", "match": "stay", "pages": {"query": "p"}},
}


async def test_a_match_by_stay_never_confirms_and_tells_what_is_not_there() -> None:
    asked = booking()
    days = {"from": asked.arrival.isoformat(), "to": asked.departure.isoformat()}
    email = asked.guest["email"]
    for shown, alike in (
        ({"mail": email.upper()}, True),
        ({"mail": None}, True),
        ({"mail": email, "state": "Gone"}, True),
        ({"mail": "somebody@else.example"}, False),
        ({"mail": email, "from": "2020-01-01"}, False),
    ):
        item = {"id": 9, "state": "Booked", **days, **shown}
        found = await find(BY_STAY, Asked(*[(200, {"data": [item]}), (200, {"data": []})] * 2))
        assert isinstance(found, Deferred if alike else Absent), shown
        if isinstance(found, Deferred):
            assert found.reason == LOOKS_ALIKE
            assert "(9)" in found.detail


@pytest.mark.parametrize(
    ("first", "last", "alike"),
    [
        ("2027-02-28T23:00:00.000Z", "2027-03-03T23:00:00Z", True),
        ("2027-03-01T23:00:00-08:00", "2027-03-05 00:30:00+0100", True),
        ("2027-02-28T23:00:00", "2027-03-03T23:00:00", False),
        ("2027-02-27T23:00:00Z", "2027-03-03T23:00:00Z", False),
    ],
)
async def test_a_moment_with_a_zone_may_be_of_the_next_day_at_the_property(first: str, last: str, alike: bool) -> None:
    item = {"id": 9, "state": "Booked", "mail": booking().guest["email"], "from": first, "to": last}
    found = await find(BY_STAY, Asked(*[(200, {"data": [item]}), (200, {"data": []})] * 2))
    assert isinstance(found, Deferred if alike else Absent)


BY_REFERENCE_OR_GUEST: dict[str, Any] = {
    **LISTED,
    "reservation": {**SHOWN, "arrival": "from", "departure": "to", "email": "mail"},
    "find": {**LISTED["find"], "pages": {"query": "p"}, "errors": [{"when": {"e": "none"}, "becomes": "absent"}]},
}


@pytest.mark.parametrize(
    "last", [(200, {"data": []}), (404, {"e": "none"})], ids=["an empty page", "a page that is not there"]
)
@pytest.mark.parametrize("hidden", [False, True], ids=["without its reference", "of which references are not shown"])
async def test_what_is_unclear_on_a_page_neither_hides_ours_on_a_later_one_nor_is_forgotten(
    last: tuple[int, Any], hidden: bool
) -> None:
    asked = booking()
    alike = {
        "id": 8,
        "from": asked.arrival.isoformat(),
        "to": asked.departure.isoformat(),
        "mail": asked.guest["email"],
    }
    first = (200, {"data": [alike if hidden else {**alike, "ref": None}]})
    found = await find(BY_REFERENCE_OR_GUEST, Asked(first, (200, {"data": [MINE]})))
    assert isinstance(found, Confirmed)
    assert found.pms_reservation_id == "9"
    unclear = await find(BY_REFERENCE_OR_GUEST, Asked(first, last))
    assert isinstance(unclear, Deferred)
    assert unclear.reason == ("pms_scope_too_small" if hidden else LOOKS_ALIKE)


@for_each(
    ("has_email", "mail", "reference", "alike"),
    [
        (True, None, None, True),
        (True, "", "HA-7QX2", False),
        (True, "else@where.example", None, False),
        (False, None, "HA-7QX2", True),
        (False, "else@where.example", "", True),
        (False, None, f"rsv_{'3b' * 16}", False),
    ],
)
async def test_what_shows_too_little_to_tell_whose_it_is_may_be_ours(
    has_email: bool, mail: str | None, reference: str | None, alike: bool
) -> None:
    asked = booking()
    if not has_email:
        guest = {name: value for name, value in asked.guest.items() if name != "email"}
        asked = replace(asked, fields={**asked.fields, "guest": guest})
    days = {"from": asked.arrival.isoformat(), "to": asked.departure.isoformat()}
    item = {"id": 8, "state": "Booked", "ref": reference, "mail": mail, **days}
    pms = Asked(*[(200, {"data": [item]}), (200, {"data": []})] * 2)
    async with pms_that(pms, base_url=BASE, options={"mapping": BY_REFERENCE_OR_GUEST}) as opened:
        assert isinstance(await opened.find(asked), Deferred if alike else Absent)


async def test_the_id_that_a_create_was_answered_with_is_not_ours_where_it_carries_anothers_reference() -> None:
    for reference, expected in ((f"rsv_{'b' * 32}", Absent), (None, Confirmed)):
        shown = (200, {"data": [{"id": 9, "ref": reference, "state": "Booked"}]})
        pms = Asked(*[shown, (200, {"data": []})] * 2)
        async with pms_that(pms, base_url=BASE, options={"mapping": paged(query="p")}) as opened:
            found = await opened.find(replace(booking(), pms_id="9"))
        assert isinstance(found, expected), reference


@pytest.mark.parametrize(
    ("dates", "first", "last", "expected"),
    [
        ({}, "%Y-%m-%dT16:00:00", "%Y-%m-%d", LOOKS_ALIKE),
        ({"dateFormat": "%d.%m.%Y"}, "%d.%m.%Y", "%d.%m.%Y", LOOKS_ALIKE),
        ({}, "%d.%m.%Y", "%d.%m.%Y", "pms_scope_too_small"),
        ({"dateFormat": "%d.%m.%Y"}, "%Y-%m-%d", "%d.%m.%Y", "pms_scope_too_small"),
    ],
)
async def test_nothing_is_concluded_from_days_that_cannot_be_read(
    dates: dict[str, str], first: str, last: str, expected: str
) -> None:
    asked = booking()
    item = {"id": 9, "state": "Booked", "mail": asked.guest["email"]}
    item |= {"from": asked.arrival.strftime(first), "to": asked.departure.strftime(last)}
    mapping = {**BY_STAY, "reservation": {**BY_STAY["reservation"], **dates}}
    found = await find(mapping, Asked((200, {"data": [item]}), (200, {"data": []})))
    assert isinstance(found, Deferred)
    assert found.reason == expected


@pytest.mark.parametrize(("cents", "expected"), [(45035, Confirmed), (45036, InDoubt), ("45035", Confirmed)])
async def test_a_price_in_cents_is_compared_as_an_amount(cents: Any, expected: type) -> None:
    mapping = {
        "create": {"path": "/b", "body": {"ref": "reference"}},
        "reservation": {"price": "cents", "amounts": "minorUnits", "record": {"currency": "currency"}},
    }
    priced = booking(totalPrice=450.35, currency="EUR")
    async with pms_that(
        Asked((201, {"id": 9, "cents": cents, "currency": "EUR"})), options={"mapping": mapping}
    ) as pms:
        assert isinstance(await pms.create(priced), expected)


async def create(pms: Asked, mapping: Any = CONFIRMING) -> Any:
    async with pms_that(pms, base_url=BASE, options={"mapping": mapping}) as opened:
        return await opened.create(booking())


HELD = (201, {"id": 9, "ref": OURS, "state": "Held"})


async def test_what_is_held_is_confirmed_by_a_second_request() -> None:
    pms = Asked(HELD, (204, b""))
    assert await create(pms) == Confirmed("9")
    assert pms.asked == ["POST /api/b", "PUT /api/b/9/book"]
    assert isinstance(await create(Asked((201, MINE))), Confirmed)  # which needs no second one


@for_each(
    "second",
    [
        (500, {}),
        (200, {}),
        (404, {}),
        (429, {}),
        (400, {"e": "again"}),
        httpx.ReadError("lost"),
        httpx.ConnectError("down"),
    ],
)
async def test_once_something_is_made_nothing_is_put_off(second: Any) -> None:
    outcome = await create(Asked(HELD, *[second] * 3))
    assert isinstance(outcome, InDoubt), outcome


async def test_a_no_to_the_second_request_is_one_once_the_first_is_undone() -> None:
    pms = Asked(HELD, (409, {}), (204, b""))
    outcome = await create(pms)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "room_unavailable"
    assert pms.asked[-1] == "DELETE /api/b/9"
    assert isinstance(await create(Asked(HELD, (409, {}), (500, {}))), InDoubt)
    assert isinstance(await create(Asked(HELD, (409, {})), {**CONFIRMING, "cancel": None}), InDoubt)


async def test_what_is_found_held_is_confirmed_then() -> None:
    held = (200, {"data": [{"id": 9, "ref": OURS, "state": "Held"}]})
    assert await find(CONFIRMING, Asked(held, (204, b""))) == Confirmed("9")
    assert isinstance(await find(CONFIRMING, Asked(held, (500, {}))), Deferred)
    assert isinstance(await find(CONFIRMING, Asked(held, (409, {}), (204, b""))), Deferred)


READING: dict[str, Any] = {
    **LISTED,
    "find": None,
    "cancel": {
        **CANCEL,
        "success": {"status": [200]},
        "readBack": {
            "path": "/b/{pmsReservationId}",
            "reservation": "data",
            "errors": [{"status": [404], "when": {"e": "none"}, "becomes": "cancelled"}],
        },
        "errors": [{"when": {"e": "no"}, "becomes": "cancellation_refused"}],
    },
}


@for_each(
    ("said", "shown", "expected"),
    [
        ((200, {}), (200, {"data": {"state": "Gone"}}), Cancelled),
        ((500, {}), (200, {"data": {"state": "Gone"}}), Cancelled),
        ((200, {}), (404, {"e": "none"}), Cancelled),
        ((200, {}), (200, {"data": {"state": "Booked"}}), Deferred),
        ((200, {}), (200, {"data": {"state": "?"}}), Deferred),
        ((200, {}), (404, b""), Deferred),
        ((200, {"e": "no"}), (200, {"data": {"state": "Booked"}}), Rejected),
        ((200, {"e": "no"}), (200, {"data": {"state": "Gone"}}), Cancelled),
    ],
)
async def test_what_is_seen_after_a_cancellation_counts(said: Any, shown: Any, expected: type) -> None:
    async with pms_that(Asked(said, shown), base_url=BASE, options={"mapping": READING}) as opened:
        assert isinstance(await opened.cancel(booking(), "9"), expected)


async def test_what_shows_another_stay_is_not_ours() -> None:
    asked = booking()
    mapping = {
        "create": CREATE,
        "echo": "never",
        "reservation": {"property": "p", "arrival": "from", "email": "mail", "price": "total"},
    }
    ours = {"id": 9, "p": asked.property_id, "from": asked.fields["arrivalDate"], "mail": asked.guest["email"]}
    assert isinstance(await create(Asked((201, ours)), mapping), Confirmed)
    for moment in ("2027-02-28T23:00:00Z", "2027-03-01T16:00:00+02", "2027-02-28 21:30:00 UTC"):
        assert isinstance(await create(Asked((201, {**ours, "from": moment})), mapping), Confirmed), moment
    for other in (
        {"p": "another"},
        {"from": "2020-01-01"},
        {"from": "2027-02-28T23:00"},
        {"mail": "x@y.example"},
        {"total": "0.01"},
    ):
        assert isinstance(await create(Asked((201, {**ours, **other})), mapping), InDoubt), other


async def test_where_the_reference_is_always_echoed_an_answer_without_it_is_in_doubt() -> None:
    mapping = {"create": CREATE, "reservation": {"reference": "ref"}, "echo": "always"}
    assert isinstance(await create(Asked((201, {"id": 9})), mapping), InDoubt)
    assert isinstance(await create(Asked((201, {"id": 9, "ref": OURS})), mapping), Confirmed)
    assert isinstance(await create(Asked((201, {"id": 9, "ref": "rsv_of_somebody"})), mapping), InDoubt)


GUEST_FIRST: dict[str, Any] = {
    "create": {
        "guest": {
            "path": "/guests",
            "body": {"name": "guest.name", "nation": {"field": "guest.address.country", "as": "country"}},
        },
        "path": "/b",
        "body": {"ref": "reference", "guest": "pmsGuestId", "note": "notes"},
    }
}


async def test_a_guest_is_made_first_and_named_by_the_reservation() -> None:
    pms = Asked((201, {"id": 7}), (201, {"id": 9}))
    async with pms_that(pms, base_url=BASE, options={"mapping": GUEST_FIRST}) as opened:
        made = await opened.create(booking(guest={"name": "Ana", "address": {"country": "Atlantis"}}))
    assert isinstance(made, Confirmed)
    assert pms.asked == ["POST /api/guests", "POST /api/b"]
    guest, reservation = (json.loads(request.content) for request in pms.requests)
    assert guest == {"name": "Ana"}
    assert reservation["guest"] == "7"
    assert "Country: Atlantis" in reservation["note"]
    assert "Ana" not in reservation["note"]


@for_each(
    ("answer", "reason"),
    [
        ((500, {}), "pms_failed"),
        ((201, {}), "pms_answer_not_understood"),
        ((401, {}), "pms_unauthorized"),
        ((422, {"message": "The e-mail is not valid"}), "pms_refused_in_words"),
        (httpx.ReadTimeout("late"), "pms_timed_out"),
    ],
)
async def test_without_a_guest_nothing_is_booked_and_nothing_in_doubt(answer: Any, reason: str) -> None:
    pms = Asked(answer)
    async with pms_that(pms, base_url=BASE, options={"mapping": GUEST_FIRST}) as opened:
        outcome = await opened.create(booking())
    assert isinstance(outcome, Deferred)
    assert outcome.reason == reason
    assert len(pms.requests) == 1


async def test_a_search_that_proves_nothing_never_says_absent() -> None:
    mapping = {**LISTED, "find": {**LISTED["find"], "query": {"ref": "reference"}, "emptyProves": False}}
    pms = Asked((200, {"data": []}), (200, {"data": [MINE]}))
    async with pms_that(pms, base_url=BASE, options={"mapping": mapping}) as opened:
        assert not opened.capabilities.proves_absence
        empty = await opened.find(booking())
        assert isinstance(await opened.find(booking()), Confirmed)
    assert isinstance(empty, Deferred)
    assert empty.reason == "pms_search_unproven"
