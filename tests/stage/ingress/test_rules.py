"""The rules of an integration at the door: refused at once with the value at fault named, unless it was accepted before."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import structlog

from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, refused

TRY = {"dryRun": "true"}
WHOLE = BOOKING_ENGINE | {"roomId": BOOKING_ENGINE["propertyId"]}
PAID_BY_CARD = WHOLE | {"morChannel": "PMS", "cardDetails": CARD}
WEBSITE = "paymentProviderId"
NUMBER, MONTH, YEAR = "/cardDetails/cardNumber", "/cardDetails/expiryMonth", "/cardDetails/expiryYear"


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with contract_stages() as built:
        yield built


def _is(house: Stages, kind: str) -> None:
    """Make the caller's account one of this kind."""
    accounts = house.directory.accounts
    house.directory.accounts = {**accounts, "alpha-1": replace(accounts["alpha-1"], kind=kind)}


def _card(**fields: Any) -> dict[str, Any]:
    return PAID_BY_CARD | {"cardDetails": CARD | fields}


REFUSED: list[tuple[str, str, dict[str, Any], str, list[str]]] = [
    ("booking-sync", BOOKING_ENGINE_PATH, changed(PAID_BY_CARD, "cardDetails", ABSENT), "card_required", ["/cardDetails"]),
    ("booking-sync", BOOKING_ENGINE_PATH, PAID_BY_CARD | {"cardDetails": None}, "card_required", ["/cardDetails"]),
    ("booking-sync", BOOKING_ENGINE_PATH, PAID_BY_CARD | {"cardDetails": {}}, "card_required", [NUMBER]),
    ("booking-sync", BOOKING_ENGINE_PATH, _card(cardNumber="  "), "card_required", [NUMBER]),
    ("booking-sync", BOOKING_ENGINE_PATH, _card(cardNumber="notacard"), "card_invalid", [NUMBER]),
    ("booking-sync", BOOKING_ENGINE_PATH, _card(cardNumber="4111"), "card_invalid", [NUMBER]),
    ("booking-sync", BOOKING_ENGINE_PATH, _card(cardNumber="4111 1111 1111 1112"), "card_invalid", [NUMBER]),
    ("booking-sync", BOOKING_ENGINE_PATH, _card(expiryMonth="13", expiryYear="1999"), "card_invalid", [MONTH, YEAR]),
    ("booking-sync", BOOKING_ENGINE_PATH, _card(expiryMonth="11", expiryYear="26"), "card_invalid", [MONTH]),
    ("booking-sync", BOOKING_ENGINE_PATH, BOOKING_ENGINE, "no_rooms", ["/roomId"]),
    ("booking-sync", GENERAL_PATH, GENERAL, "no_rooms", ["/roomId"]),
    ("hostaway", GENERAL_PATH, GENERAL, "no_rooms", ["/roomId"]),
    ("website-builder", BOOKING_ENGINE_PATH, changed(WHOLE, WEBSITE, ABSENT), "website_id_required", ["/paymentProviderId"]),
    ("website-builder", GENERAL_PATH, GENERAL | {WEBSITE: " "}, "website_id_required", ["/paymentProviderId"]),
    ("website-builder", GENERAL_PATH, GENERAL | {WEBSITE: ".."}, "website_id_required", ["/paymentProviderId"]),
    ("generic", BOOKING_ENGINE_PATH, _card(cardNumber="4111"), "card_invalid", [NUMBER]),
]  # fmt: skip


@for_each(("kind", "path", "body", "code", "pointers"), REFUSED)
async def test_a_rule_is_refused_at_once_by_its_pointer(
    house: Stages, kind: str, path: str, body: dict[str, Any], code: str, pointers: list[str]
) -> None:
    """The same singly, in a bulk and in a dry run; whether the caller waits or not."""
    _is(house, kind)
    await house.clock.advance(1)  # the case before is remembered until then
    operation = "general" if path == GENERAL_PATH else "booking-engine"
    answer = await house.client.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert [fault["pointer"] for fault in answer.json()["errors"]] == pointers
    bulk = await house.client.post(BULK_PATH, json=[{"operation": operation, "reservation": body}])
    assert refused(bulk.json()["data"]["results"][0]["problem"]) == answer.json()
    tried = await house.client.post(path, json=body, params=TRY)
    assert [refused(problem) for problem in tried.json()["data"]["refusals"]] == [answer.json()]
    assert not house.log.attempts


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("booking-sync", PAID_BY_CARD),
        ("booking-sync", _card(expiryMonth="1", expiryYear="27", cvv="")),
        ("booking-sync", PAID_BY_CARD | {"cardDetails": {"cardNumber": "4111-1111-1111-1111"}}),
        ("booking-sync", WHOLE | {"cardDetails": {"cardNumber": "goes nowhere"}}),
        ("hostaway", WHOLE | {"morChannel": "PMS"}),
        ("cloudbeds", BOOKING_ENGINE | {"cardDetails": {"cardNumber": "goes nowhere"}}),
        (
            "generic",
            BOOKING_ENGINE | {"cardDetails": {"cardNumber": "", "expiryMonth": "", "expiryYear": "", "cvv": ""}},
        ),
        ("website-builder", BOOKING_ENGINE),
    ],
)
async def test_what_no_rule_refuses(house: Stages, kind: str, body: dict[str, Any]) -> None:
    _is(house, kind)
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=body)
    assert answer.status_code == 202, answer.text


async def test_one_refused_item_concerns_no_other(house: Stages) -> None:
    _is(house, "booking-sync")
    good = {"operation": "booking-engine", "reservation": PAID_BY_CARD}
    items = [good, {**good, "reservation": _card(cardNumber="4111")}, {**good, "idempotencyKey": "third"}]
    data = (await house.client.post(BULK_PATH, json=items)).json()["data"]
    assert [result["success"] for result in data["results"]] == [True, False, True]
    assert len(house.requests) == 2


async def test_what_was_accepted_is_not_refused_when_it_is_sent_again(house: Stages) -> None:
    """By a rule that came later, or because the card expired since: the caller has to hear that it was made."""
    _is(house, "booking-sync")
    keyed = {"Idempotency-Key": "order-1"}
    body = _card(expiryMonth="1", expiryYear="2027")
    item = {"operation": "booking-engine", "reservation": body, "idempotencyKey": "order-1"}
    first = await house.client.post(BOOKING_ENGINE_PATH, json=body, headers=keyed)
    await house.clock.advance(timedelta(days=60).total_seconds())
    before_intake = await house.client.post(BOOKING_ENGINE_PATH, json=body, headers=keyed)
    house.ingest(house.requests[0])
    after_intake = await house.client.post(BOOKING_ENGINE_PATH, json=body, headers=keyed)
    bulk = await house.client.post(BULK_PATH, json=[item])
    assert before_intake.json() == after_intake.json() == first.json()
    assert bulk.json()["data"]["results"][0]["requestId"] == first.json()["data"]["requestId"]
    other = await house.client.post(BOOKING_ENGINE_PATH, json=body | {"notes": "other"}, headers=keyed)
    assert other.json()["code"] == "idempotency_key_reused"
    new = await house.client.post(BOOKING_ENGINE_PATH, json=body, headers={"Idempotency-Key": "order-2"})
    assert (new.status_code, new.json()["code"]) == (422, "card_invalid")
    assert len(house.requests) == 1


async def test_a_key_stays_free_where_a_rule_refuses(house: Stages) -> None:
    _is(house, "booking-sync")
    keyed = {"Idempotency-Key": "order-1"}
    for _ in range(2):
        refused = await house.client.post(BOOKING_ENGINE_PATH, json=_card(cardNumber="4111"), headers=keyed)
        assert refused.json()["code"] == "card_invalid"
    assert (await house.client.post(BOOKING_ENGINE_PATH, json=PAID_BY_CARD, headers=keyed)).status_code == 202


async def test_nothing_of_a_refused_card_is_told_or_logged(house: Stages) -> None:
    _is(house, "booking-sync")
    body = _card(cardNumber="4929 3813 3266 4299", expiryMonth="77", expiryYear="2044", cvv="731")
    with structlog.testing.capture_logs() as logged:
        single = await house.client.post(BOOKING_ENGINE_PATH, json=body)
        bulk = await house.client.post(BULK_PATH, json=[{"operation": "booking-engine", "reservation": body}])
    assert single.json()["code"] == "card_invalid"
    [entry] = [entry for entry in logged if entry["event"] == "submission.refused"]
    assert entry["faults"] == [(NUMBER, "wrong_check_digit"), (MONTH, "invalid_value")]
    told = f"{single.text}{single.headers}{bulk.text}{logged}"
    assert not [secret for secret in ("4929", "4299", "77", "2044", "731", "ANA R HOLDER") if secret in told]
