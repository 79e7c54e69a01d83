"""The kinds that are a mapping and nothing else: whole, founded, and careful with what is not known."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import httpx
import pytest

from forwarder.pms.accounts import traits_of
from forwarder.pms.mapping.adapter import MappedKind, shipped
from forwarder.pms.mapping.model import SOURCES, counted, source_of
from forwarder.pms.mapping.values import CARD_FIELDS
from forwarder.pms.port import BadOptions
from forwarder.pms.registry import KINDS, check_options
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt, Rejected
from forwarder_pms_kit.simulators import SITES
from tests.support.cases import for_each
from tests.support.pms.kinds.open_pms import pms_that, response
from tests.support.simulator.server import booking

NAMES = sorted(kind for kind in KINDS if isinstance(KINDS[kind], MappedKind))
BASES = {"guesty": "https://pms.test/v1", "smoobu": "https://pms.test/api"}
PLAIN = [name for name in NAMES if shipped(name).mapping.code is None]
NUMBERED = {"propertyId": 77, "roomId": 77}


def test_every_file_is_a_kind() -> None:
    there = {
        path.name.removesuffix(".yaml") for path in files("forwarder.pms.kinds").iterdir() if path.name[-5:] == ".yaml"
    }
    assert there == set(NAMES)


@for_each("name", NAMES)
def test_each_is_founded_and_agrees_with_its_traits(name: str) -> None:
    mapping, traits = shipped(name).mapping, traits_of(name)
    assert mapping.evidence
    assert all(statement.where or statement.says for statement in mapping.evidence)
    assert {source_of(mapping.evidence, path) for path in mapping.statements} <= set(SOURCES)
    assert sum(counted(mapping.evidence, mapping.statements).values()) == len(mapping.statements)
    assert traits.rooms == mapping.rooms
    assert traits.cards == "none"
    assert not mapping.create.sent & CARD_FIELDS
    assert mapping.title
    assert mapping.documentation
    assert mapping.base_url
    assert mapping.credential
    check_options(name, SITES[name].options)
    for option in (name for name, one in mapping.options.items() if one.required):
        with pytest.raises(BadOptions, match=option):
            check_options(name, {})


async def ask(name: str, answers: dict[str, tuple[int, object]], what: str = "create", **fields: Any) -> Any:
    """What comes of it where the PMS answers by the method."""

    def answer(request: httpx.Request) -> httpx.Response:
        return response(*answers[request.method])

    site, credential = SITES[name], SITES[name].credential
    base_url = BASES.get(name, "https://pms.test")
    async with pms_that(answer, kind=name, base_url=base_url, credential=credential, options=site.options) as pms:
        return await getattr(pms, what)(booking(**(NUMBERED | fields)))


NO_WORDS: list[tuple[int, object]] = [
    (200, {}),
    (200, {"error": "x"}),
    (201, {"success": False}),
    (200, {"success": True}),
    (400, b"<html>"),
    (500, {}),
    (503, {}),
    (401, {"x": 1}),
    (409, {}),
    (202, None),
]


@for_each("name", PLAIN)
async def test_an_answer_of_unknown_form_never_confirms(name: str) -> None:
    for status, body in NO_WORDS:
        outcome = await ask(name, {"POST": (status, body)})
        assert not isinstance(outcome, Confirmed), (status, body)
        if status in (200, 201, 202, 500) and shipped(name).mapping.create.guest is None:
            assert isinstance(outcome, InDoubt), (status, body)


@for_each("name", PLAIN)
async def test_a_list_that_does_not_show_what_is_looked_for_says_nothing(name: str) -> None:
    mapping = shipped(name).mapping
    assert mapping.find is not None
    whole = {mapping.find.items: [{"id": 1, "_id": "1", "uid": "1", "status": "?", "type": "?"}], "success": True}
    assert isinstance(await ask(name, {"GET": (200, whole)}, "find"), Deferred)
    assert isinstance(await ask(name, {"GET": (200, {})}, "find"), Deferred)
    assert isinstance(await ask(name, {"GET": (404, {})}, "find"), Deferred)
    empty = {mapping.find.items: [], "success": True}
    if mapping.find.empty_proves:
        assert await ask(name, {"GET": (200, empty)}, "find") == Absent()
    else:
        assert isinstance(await ask(name, {"GET": (200, empty)}, "find"), Deferred)


async def test_a_stay_of_the_same_guest_without_a_reference_is_left_to_the_operator() -> None:
    asked = booking(propertyId=77, roomId=77)
    lead = {
        "uid": "u1",
        "externalBookingId": None,
        "status": "BOOKED",
        "checkInLocalDateTime": f"{asked.fields['arrivalDate']}T16:00:00",
        "checkOutLocalDateTime": f"{asked.fields['departureDate']}T10:00:00",
        "guestInformation": {"email": asked.guest["email"]},
    }
    page = {"leads": [lead], "_paging": {}}
    found = await ask("hostfully", {"GET": (200, page)}, "find")
    assert isinstance(found, Deferred)
    assert found.reason == "pms_shows_one_alike"
    others = {"leads": [{**lead, "externalBookingId": "rsv_" + "a" * 32}], "_paging": {}}
    assert await ask("hostfully", {"GET": (200, others)}, "find") == Absent()


async def test_what_guesty_refuses_by_a_401_in_words_is_a_no() -> None:
    said = {"error": {"message": "Listing is not available for these dates"}}
    outcome = await ask("guesty", {"POST": (401, said)})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "room_unavailable"


IN_THEIR_FORM: dict[str, Callable[[str], object]] = {
    "uplisting": lambda text: {"errors": [{"detail": text}]},
    "ownerrez": lambda text: {"messages": [text]},
    "smoobu": lambda text: {"detail": text},
    "hostfully": lambda text: {"apiErrorMessage": text},
    "hospitable": lambda text: {"reason_phrase": text},
    "hostify": lambda text: {"success": False, "error": text},
    "hostaway": lambda text: {"status": "fail", "message": text},
    "cloudbeds": lambda text: {"success": False, "message": text},
}


def in_a_message(text: str) -> object:
    return {"message": text}


WITHOUT_TOKENS = [name for name in NAMES if name != "beds24"]


@for_each("name", WITHOUT_TOKENS)
async def test_words_about_the_server_or_the_account_are_no_refusal(name: str) -> None:
    form = IN_THEIR_FORM.get(name, in_a_message)
    guest = shipped(name).mapping.create.guest is not None
    for status in (200, 400, 401, 409, 422, 500):
        for text in (
            "Service unavailable",
            "The API is temporarily unavailable, try again later",
            "The channel manager is not available",
            "Timed out: the booking may have been created",
            "The availability of your account is disabled",
            "This calendar is not available on your plan",
            "Access denied: the calendar needs another API key",
            "Too many requests to the availability API",
            "An unexpected error occurred",
        ):
            outcome = await ask(name, {"POST": (status, form(text))})
            assert isinstance(outcome, Deferred | InDoubt), (status, text)
            assert isinstance(outcome, InDoubt) or status != 500 or guest, (status, text)
            assert outcome.reason not in ("pms_refused_in_words", "pms_put_off"), (status, text)


@for_each("name", WITHOUT_TOKENS)
async def test_taken_nights_are_a_refusal_although_the_caller_may_try_others(name: str) -> None:
    form = IN_THEIR_FORM.get(name, in_a_message)
    status = 200 if name == "cloudbeds" else 400
    if shipped(name).mapping.create.guest is None:
        outcome = await ask(name, {"POST": (status, form("Not available. Please choose other dates and try again."))})
        assert isinstance(outcome, Rejected)
        assert outcome.problem.code == "room_unavailable"


async def test_lodgify_takes_a_country_as_its_code() -> None:
    sent: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        return response(500, {})

    async with pms_that(answer, kind="lodgify", base_url="https://pms.test", credential="key") as pms:
        await pms.create(
            booking(propertyId=77, roomId=77, guest={"name": "Ana", "address": {"country": "United Kingdom"}})
        )
    assert b'"country_code":"GB"' in sent[0]


async def test_what_is_half_made_stays_made_whatever_its_confirmation_is_answered_with() -> None:
    for status, body in (
        (500, {}),
        (404, {}),
        (500, {"message": "Service unavailable"}),
        (200, {"id": 7, "status": "?"}),
    ):
        answers: dict[str, tuple[int, object]] = {"POST": (201, 7), "PUT": (status, body), "GET": (status, body)}
        outcome = await ask("lodgify", answers)
        assert isinstance(outcome, InDoubt)
        assert (outcome.made, outcome.pms_reservation_id) == (True, "7"), status
