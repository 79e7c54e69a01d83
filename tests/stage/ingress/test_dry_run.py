"""Dry runs: what would be sent and which rules would refuse it; nothing published, no key used, no card shown."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from forwarder.pms.traits import traits_of
from forwarder.reservation.booking import Booking, apply_rules
from forwarder.topics.codec import decode_submission
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, stages

HOUSE = {"roomId": BOOKING_ENGINE["propertyId"]}
TRY = {"dryRun": "true"}
SECRETS = ("4111 1111 1111 1111", "4111111111111111", "987", "ANA R HOLDER", "2031")


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with contract_stages() as built:
        yield built
        assert not built.log.attempts
        assert not built.reader.reads


def _is(house: Stages, kind: str, **fields: Any) -> None:
    """Make the caller's account one of this kind."""
    accounts = house.directory.accounts
    house.directory.accounts = {**accounts, "alpha-1": replace(accounts["alpha-1"], kind=kind, **fields)}


async def _tried(house: Stages, body: dict[str, Any], path: str = BOOKING_ENGINE_PATH) -> dict[str, Any]:
    answer = await house.client.post(path, params=TRY, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    data: dict[str, Any] = answer.json()["data"]
    return data


@pytest.mark.parametrize(("path", "body"), [(BOOKING_ENGINE_PATH, BOOKING_ENGINE), (GENERAL_PATH, GENERAL)])
async def test_what_would_be_sent(house: Stages, path: str, body: dict[str, Any]) -> None:
    assert await _tried(house, body, path) == {
        "dryRun": True,
        "accountKind": "generic",
        "accountPaused": False,
        "wouldSend": {"reservation": body, "cardDetails": None, "websiteId": None},
        "refusals": [],
    }


async def test_the_rules_are_applied(house: Stages) -> None:
    _is(house, "website-builder")
    sent = (await _tried(house, changed(GENERAL, "roomId", ABSENT), GENERAL_PATH))["wouldSend"]
    assert sent == {"reservation": GENERAL | {"roomId": "00123"}, "cardDetails": None, "websiteId": "77"}


async def test_it_is_the_booking_that_a_worker_makes() -> None:
    body = changed(BOOKING_ENGINE, "paymentProviderId", " 77 ") | {"unknown": 1}
    async with stages() as house:
        _is(house, "website-builder")
        sent = (await _tried(house, body))["wouldSend"]
        await house.client.post(BOOKING_ENGINE_PATH, json=body)
        submission = decode_submission(house.requests[0])
        booking = apply_rules(traits_of("website-builder"), submission, None, house.clock.now())
    assert isinstance(booking, Booking)
    assert (sent["reservation"], sent["websiteId"]) == (booking.fields, booking.website_id)


@pytest.mark.parametrize(
    ("kind", "fields", "codes"),
    [
        ("booking-sync", HOUSE | {"morChannel": "PMS"}, ["card_required"]),
        ("booking-sync", HOUSE | {"morChannel": "PMS", "cardDetails": {"cvv": "987"}}, ["card_required"]),
        ("booking-sync", HOUSE | {"morChannel": "PMS", "cardDetails": CARD}, []),
        ("booking-sync", HOUSE | {"morChannel": "PMS", "cardDetails": CARD | {"cardNumber": "4111"}}, ["card_invalid"]),
        ("booking-sync", {"morChannel": "PMS"}, ["card_required", "no_rooms"]),
        ("website-builder", {"paymentProviderId": " "}, ["website_id_required"]),
        ("website-builder", {"morChannel": "PMS"}, []),
        ("generic", {"morChannel": "PMS", "paymentProviderId": None}, []),
    ],
)
async def test_what_the_rules_refuse(house: Stages, kind: str, fields: dict[str, Any], codes: list[str]) -> None:
    _is(house, kind)
    data = await _tried(house, BOOKING_ENGINE | fields)
    assert [problem["code"] for problem in data["refusals"]] == codes
    assert (data["wouldSend"] is None) == bool(codes)
    assert not any("requestId" in problem for problem in data["refusals"])


async def test_a_paused_account_is_told(house: Stages) -> None:
    _is(house, "generic", paused=True)
    assert (await _tried(house, BOOKING_ENGINE))["accountPaused"] is True


async def test_of_a_card_its_masked_number_shows_and_nothing_else(house: Stages) -> None:
    body = BOOKING_ENGINE | {"cardDetails": CARD}
    items = [{"operation": "booking-engine", "reservation": body}]
    with structlog.testing.capture_logs() as logged:
        single = await house.client.post(BOOKING_ENGINE_PATH, params=TRY, json=body)
        bulk = await house.client.post(BULK_PATH, params=TRY, json=items)
    assert single.json()["data"]["wouldSend"]["cardDetails"] == {"cardNumber": "411111******1111"}
    assert [entry["event"] for entry in logged if entry["log_level"] == "info"] == ["submission.tried", "bulk.answered"]
    assert not [secret for secret in SECRETS if secret in f"{single.text}{single.headers}{bulk.text}{logged}"]


async def test_a_key_stays_free() -> None:
    keyed = {"Idempotency-Key": "order-42", "Prefer": "respond-async"}
    async with stages() as house:
        tried = await house.client.post(GENERAL_PATH, params=TRY, json=GENERAL | {"notes": "other"}, headers=keyed)
        assert tried.status_code == 200
        assert (await house.client.post(GENERAL_PATH, json=GENERAL, headers=keyed)).status_code == 202
        again = await house.client.post(GENERAL_PATH, params=TRY, json=GENERAL | {"notes": "third"}, headers=keyed)
        assert again.status_code == 200
        assert len(house.requests) == 1


async def test_what_is_invalid_is_refused_as_ever(house: Stages) -> None:
    for path in (BOOKING_ENGINE_PATH, GENERAL_PATH):
        answer = await house.client.post(path, params=TRY, json={"guest": {}})
        assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
    answer = await house.client.post(GENERAL_PATH, params=TRY, json=GENERAL, headers={"Idempotency-Key": '"'})
    assert answer.json()["code"] == "invalid_idempotency_key"
    answer = await house.client.post(GENERAL_PATH, params=TRY, json=GENERAL, headers={"Authorization": ""})
    assert answer.status_code == 401


@pytest.mark.parametrize("path", [BOOKING_ENGINE_PATH, GENERAL_PATH, BULK_PATH])
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("dryRun=", "invalid_value"),
        ("dryRun=1", "invalid_value"),
        ("dryRun=True", "invalid_value"),
        ("dryRun", "invalid_value"),
        ("dryRun=true&dryRun=false", "contradictory"),
    ],
)
async def test_a_dry_run_is_asked_for_by_true_or_not_at_all(house: Stages, path: str, query: str, code: str) -> None:
    answer = await house.client.post(f"{path}?{query}", json=GENERAL)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")
    assert [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]] == [("/dryRun", code)]


@pytest.mark.parametrize("query", ["dryRun=false", "dryRun=false&dryRun=false", "other=true", "dryrun=true", "&"])
async def test_anything_else_is_no_dry_run(query: str) -> None:
    async with stages() as house:
        answer = await house.client.post(f"{BOOKING_ENGINE_PATH}?{query}", json=BOOKING_ENGINE)
        assert answer.status_code == 202
        assert len(house.requests) == 1


@pytest.mark.parametrize("lines", [False, True])
async def test_a_bulk_is_tried_item_by_item(house: Stages, *, lines: bool) -> None:
    _is(house, "booking-sync")
    house_of_one = changed(GENERAL, "roomId", ABSENT)
    small = {"operation": "general", "reservation": house_of_one, "idempotencyKey": "one"}
    refused = {"operation": "booking-engine", "reservation": BOOKING_ENGINE | {"morChannel": "PMS"}}
    items = [small, {"operation": "general"}, refused, small | {"reservation": house_of_one | {"notes": "x"}}]
    content = "\n".join(map(json.dumps, items)) if lines else json.dumps(items)
    media_type = {"Content-Type": "application/x-ndjson" if lines else "application/json"}
    data = (await house.client.post(BULK_PATH, params=TRY, content=content, headers=media_type)).json()["data"]
    assert (data["accepted"], data["refused"]) == (0, 1)
    assert [result.pop("success") for result in data["results"]] == [True, False, False, True]
    first, second, third, fourth = data["results"]
    assert first == await _tried(house, house_of_one, GENERAL_PATH)
    assert second["problem"]["code"] == "invalid_item"
    assert third == await _tried(house, BOOKING_ENGINE | {"morChannel": "PMS"})
    assert fourth["wouldSend"]["reservation"]["notes"] == "x"
