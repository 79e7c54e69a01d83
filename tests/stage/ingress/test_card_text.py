"""Card numbers in the texts of a request: refused at the door with their pointers, or masked before anything is made of them."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from forwarder.ingress.message import IngressSettings
from tests.support.cards import MASKED, NUMBER, SPELLINGS
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE, CARD, GENERAL, changed
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, stages

TEXTS = (
    *(
        "notes",
        "comments",
        "arrivalEstimatedTime",
        "departureEstimatedTime",
        "guest.name",
        "guest.firstName",
        "guest.lastName",
    ),
    *("guest.phone", "guest.address.line1", "guest.address.line2", "guest.address.postalCode", "guest.address.city"),
    "guest.address.state",
)
IDENTIFIERS = ("propertyId", "roomId", "paymentProviderId", "paymentProviderKey", "transactionId", "promotionCode")
KEY = {"Idempotency-Key": '"order-42"'}


@pytest.fixture
async def refusing() -> AsyncIterator[Stages]:
    async with stages(IngressSettings(wait_seconds=0, card_numbers_in_text="refuse")) as built:
        yield built


@pytest.fixture
async def masking() -> AsyncIterator[Stages]:
    async with stages(IngressSettings(wait_seconds=0)) as built:
        yield built


def _pointer(path: str) -> str:
    return "/" + path.replace(".", "/")


def _assert_refused(problem: Any, *faults: tuple[str, str]) -> None:
    assert problem["code"] == "card_number_in_text"
    assert [(fault["pointer"], fault["code"]) for fault in problem["errors"]] == [*faults]
    assert NUMBER not in str(problem)


@for_each("path", [*TEXTS, *IDENTIFIERS])
async def test_a_number_in_any_text_is_refused_with_its_pointer(refusing: Stages, path: str) -> None:
    with structlog.testing.capture_logs() as logged:
        answer = await refusing.client.post(BOOKING_ENGINE_PATH, json=changed(BOOKING_ENGINE, path, NUMBER))
    assert answer.status_code == 422
    _assert_refused(answer.json(), (_pointer(path), "card_number"))
    assert not refusing.requests
    assert NUMBER not in str(logged)


@pytest.mark.parametrize("query", ["", "?dryRun=true"])
async def test_every_way_in_is_closed(refusing: Stages, query: str) -> None:
    body = GENERAL | {"notes": f"card {NUMBER}, cvv 987", "comments": "cvc: 987"}
    faults = [("/notes", "card_number"), ("/notes", "security_code"), ("/comments", "security_code")]
    _assert_refused((await refusing.client.post(GENERAL_PATH + query, json=body)).json(), *faults)
    item = {"operation": "general", "reservation": body}
    bulk = (await refusing.client.post(BULK_PATH + query, json=[item])).json()
    _assert_refused(bulk["data"]["results"][0]["problem"], *faults)
    cancelled = await refusing.client.post(
        f"/api/v1/vrs/reservations/{'rsv_' + 'a' * 32}/cancel", json={"reason": f"refund {NUMBER}"}
    )
    _assert_refused(cancelled.json(), ("/reason", "card_number"))
    assert not refusing.requests


@for_each("spelt", SPELLINGS.values(), ids=SPELLINGS)
async def test_no_spelling_gets_through(refusing: Stages, spelt: str) -> None:
    answer = await refusing.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"notes": f"Charge {spelt}"})
    assert answer.json()["code"] == "card_number_in_text"


@pytest.mark.parametrize(
    "phone", ["+4915112345678", 4915112345678, "0049 (0) 151 12345678", "+1 415 555 2671 ext 4111"]
)
async def test_what_can_be_a_phone_number_is_one(refusing: Stages, phone: str | int) -> None:
    answer = await refusing.client.post(BOOKING_ENGINE_PATH, json=changed(BOOKING_ENGINE, "guest.phone", phone))
    assert answer.status_code == 202
    assert refusing.published()["reservation"]["guest"]["phone"] == phone


async def test_a_number_that_is_no_text_is_looked_at_too(refusing: Stages) -> None:
    answer = await refusing.client.post(BOOKING_ENGINE_PATH, json=changed(BOOKING_ENGINE, "guest.phone", int(NUMBER)))
    _assert_refused(answer.json(), ("/guest/phone", "card_number"))


@pytest.mark.parametrize("path", TEXTS)
async def test_a_masking_forwarder_takes_it_without_the_number(masking: Stages, path: str) -> None:
    body = changed(BOOKING_ENGINE | {"cardDetails": CARD}, path, f"x {NUMBER} cvv 987")
    answer = await masking.client.post(BOOKING_ENGINE_PATH, json=body)
    assert answer.status_code == 202
    shown = {"cardDetails": {"cardNumber": MASKED}}
    assert masking.published()["reservation"] == changed(body | shown, path, f"x {MASKED} cvv ***")
    assert masking.published()["card"] is not None
    assert [(each["code"], each["pointer"]) for each in answer.json()["warnings"]] == 2 * [
        ("card_number_masked", _pointer(path))
    ]
    assert NUMBER not in answer.text


@pytest.mark.parametrize("path", IDENTIFIERS)
async def test_an_identifier_that_looks_like_a_card_number_is_taken_as_it_is(masking: Stages, path: str) -> None:
    answer = await masking.client.post(BOOKING_ENGINE_PATH, json=changed(BOOKING_ENGINE, path, NUMBER))
    assert answer.status_code == 202
    assert masking.published()["reservation"] == changed(BOOKING_ENGINE, path, NUMBER)
    assert "warnings" not in answer.json()


@for_each("written", [NUMBER, f"ref {NUMBER}", f"{NUMBER[:4]}-{NUMBER[4:]}"])
@for_each("path", IDENTIFIERS)
@for_each("card", [NUMBER, " ".join(re.findall("....", NUMBER))])
async def test_an_identifier_that_holds_the_card_of_its_request_is_refused(
    masking: Stages, path: str, written: str, card: str
) -> None:
    body = changed(BOOKING_ENGINE | {"cardDetails": CARD | {"cardNumber": card}}, path, written)
    answer = await masking.client.post(BOOKING_ENGINE_PATH, json=body)
    _assert_refused(answer.json(), (_pointer(path), "card_number"))
    assert not masking.requests


async def test_the_reason_of_a_cancellation_is_masked_with_a_warning(masking: Stages) -> None:
    request_id = (await masking.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)).json()["data"]["requestId"]
    cancelled = await masking.client.post(
        f"/api/v1/vrs/reservations/{request_id}/cancel", json={"reason": f"refund {NUMBER}"}
    )
    assert cancelled.status_code == 202
    assert [each["pointer"] for each in cancelled.json()["warnings"]] == ["/reason"]
    assert masking.requests[-1].value.count(MASKED.encode()) == 1
    assert NUMBER.encode() not in masking.requests[-1].value


@pytest.mark.parametrize("query", ["", "?dryRun=true"])
async def test_a_bulk_and_a_dry_run_warn_of_what_they_masked(masking: Stages, query: str) -> None:
    item = {"operation": "general", "reservation": GENERAL | {"notes": f"card {NUMBER}"}}
    bulk = (await masking.client.post(BULK_PATH + query, json=[item])).json()["data"]["results"][0]
    assert [each["pointer"] for each in bulk["warnings"]] == ["/notes"]


async def test_what_was_accepted_masked_is_the_same_when_it_is_sent_again(masking: Stages) -> None:
    body = BOOKING_ENGINE | {"notes": f"card {NUMBER}"}
    first = await masking.client.post(BOOKING_ENGINE_PATH, json=body, headers=KEY)
    again = await masking.client.post(BOOKING_ENGINE_PATH, json=body, headers=KEY)
    assert first.json()["data"]["requestId"] == again.json()["data"]["requestId"]
    assert len(masking.requests) == 1


async def test_an_account_may_have_identifiers_that_look_like_cards(refusing: Stages) -> None:
    accounts = refusing.directory.accounts
    skipping = replace(accounts["alpha-1"], skipped_checks=("card-like-ids",))
    refusing.directory.accounts = {**accounts, "alpha-1": skipping}
    body = BOOKING_ENGINE | {"propertyId": NUMBER, "roomId": NUMBER, "transactionId": NUMBER}
    assert (await refusing.client.post(BOOKING_ENGINE_PATH, json=body)).status_code == 202
    _assert_refused(
        (await refusing.client.post(BOOKING_ENGINE_PATH, json=body | {"notes": NUMBER})).json(),
        ("/notes", "card_number"),
    )


async def test_two_cards_that_look_the_same_masked_are_two_under_one_key(refusing: Stages) -> None:
    async def post(number: str) -> int:
        body = BOOKING_ENGINE | {"cardDetails": CARD | {"cardNumber": number}}
        return (await refusing.client.post(BOOKING_ENGINE_PATH, json=body, headers=KEY)).status_code

    # The same first six and last four, and both pass Luhn's check.
    assert [await post("4111111111111111"), await post("4111 1111-1111 1111")] == [202, 202]
    assert await post("4111110000091111") == 422
