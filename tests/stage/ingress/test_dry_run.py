"""Dry runs: what would be sent and which rules would refuse it; nothing published, no key used, no card shown."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from forwarder.pms.accounts import traits_of
from forwarder.pms.port import AccountConnection
from forwarder.pms.registry import KINDS
from forwarder.pms.rehearsal import dry_run
from forwarder.reservation.booking import Booking, apply_rules
from forwarder.reservation.outcome import Status
from forwarder.topics.codec import decode_submission
from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, stages

HOUSE = {"roomId": BOOKING_ENGINE["propertyId"]}
CHARGING = {"securePayments": {"gatewayId": "7", "gatewayName": "stripe"}}
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
    request = {
        "method": "POST",
        "path": "/reservations",
        "mediaType": "application/json",
        "body": {"roomId": body["propertyId"]} | body | {"reference": "the-request-id"},
    }
    assert await _tried(house, body, path) == {
        "dryRun": True,
        "accountKind": "generic",
        "accountPaused": False,
        "wouldSend": {"requests": [request], "assumed": []},
        "refusals": [],
        "warnings": [],
    }


async def test_the_requests_are_those_of_the_kind(house: Stages) -> None:
    _is(house, "booking-sync")
    body = GENERAL | {"numberOfInfants": 1, "roomId": GENERAL["propertyId"], "comments": None}
    sent = (await _tried(house, body, GENERAL_PATH))["wouldSend"]
    assert [f"{request['method']} {request['path']}" for request in sent["requests"]] == [
        "POST /clients",
        f"POST /rentals/{GENERAL['propertyId']}/bookings",
    ]
    [comment] = sent["requests"][1]["body"]["bookings"][0]["comments"]
    assert "Infants: 1" in comment["content"].split("\n")
    assert sent["assumed"] == ["client_id: 0 stands for the id that BookingSync gives to the guest."]


async def test_it_is_what_a_worker_sends() -> None:
    body = changed(BOOKING_ENGINE, "paymentProviderId", " 77 ") | {"unknown": 1}
    async with stages() as house:
        _is(house, "website-builder")
        [tried] = (await _tried(house, body))["wouldSend"]["requests"]
        await house.client.post(BOOKING_ENGINE_PATH, json=body)
        submission = decode_submission(house.requests[0])
        booking = apply_rules(traits_of("website-builder"), submission, None, house.clock.now())
        assert isinstance(booking, Booking)
        account = house.directory.accounts["alpha-1"]
        connection = AccountConnection("a", "website-builder", account.base_url, "a-credential")
        [sent] = (await dry_run(KINDS["website-builder"](connection, house.clock), booking)).requests
    assert tried["path"] == "/websites/77/reservations"
    assert sent.url.endswith(tried["path"])
    assert json.loads(sent.content) == tried["body"] | {"reference": booking.reference}


@pytest.mark.parametrize(
    ("kind", "fields", "settings", "code", "said"),
    [
        ("beds24", {"roomId": "A7"}, {}, "room_not_found", "The PMS takes roomId as a whole number"),
        ("cloudbeds", {}, {"options": {"sourceId": "7"}}, "delivery_failed", "sourceId"),
        ("fax", {}, {}, "delivery_failed", "There is no PMS kind 'fax'"),
        ("generic", {}, {"base_url": ""}, "delivery_failed", "base URL"),
    ],
)
async def test_what_the_accounts_settings_keep_from_the_pms_is_refused(
    house: Stages, kind: str, fields: dict[str, Any], settings: dict[str, Any], code: str, said: str
) -> None:
    _is(house, kind, **settings)
    data = await _tried(house, GENERAL | fields, GENERAL_PATH)
    [problem] = data["refusals"]
    assert (problem["code"], data["wouldSend"]) == (code, None)
    assert said in problem["detail"]
    assert "requestId" not in problem


@for_each(
    ("kind", "options", "fields", "warned"),
    [
        ("beds24", {}, {"roomId": 7, "cardDetails": CARD}, [("card_not_sent", "/cardDetails")]),
        ("booking-sync", {}, {"morChannel": "PMS", "cardDetails": CARD}, [("card_not_sent", "/cardDetails")]),
        ("booking-sync", CHARGING, {"morChannel": "PMS", "cardDetails": CARD}, []),
        ("booking-sync", CHARGING, {"morChannel": "SELF", "cardDetails": CARD}, [("card_not_sent", "/cardDetails")]),
        ("generic", {}, {"cardDetails": CARD}, []),
        ("beds24", {}, {"roomId": 7}, []),
        (
            "generic",
            {"mapping": {"create": {"path": "/b", "body": {"at": "propertyId", "all": "guest.name"}}}},
            {},
            "everything else",
        ),
    ],
)
async def test_what_reaches_no_pms_is_a_warning_there_and_in_the_receipt(
    kind: str, options: dict[str, Any], fields: dict[str, Any], warned: Any
) -> None:
    body = {**BOOKING_ENGINE, "propertyId": 7, "roomId": 7, **fields}
    async with stages() as house:
        _is(house, kind, options=options)
        tried = (await _tried(house, body))["warnings"]
        accepted = (await house.client.post(BOOKING_ENGINE_PATH, json=body)).json()
        item = {"operation": "booking-engine", "reservation": body}
        [kept] = (await house.client.post(BULK_PATH, json=[item])).json()["data"]["results"]
    assert accepted["success"]
    assert accepted.get("warnings", []) == tried == kept.get("warnings", [])
    assert ("warnings" in accepted) == bool(tried)
    told = [(warning["code"], warning["pointer"]) for warning in tried]
    if isinstance(warned, list):
        assert told == warned
    else:
        assert ("field_not_sent", "/guest/email") in told
        assert not {"/propertyId", "/guest/name", "/status"} & {pointer for _, pointer in told}
    assert all(warning["detail"].endswith(".") for warning in tried)
    assert not [secret for secret in SECRETS if secret in str(accepted)]


@pytest.mark.parametrize(("status", "expected"), [(Status.CONFIRMED, 201), (Status.REJECTED, 409)])
async def test_one_who_waits_is_warned_beside_the_record(status: Status, expected: int) -> None:
    mapping = {"create": {"path": "/b", "body": {"at": "propertyId"}}}
    async with stages() as house:
        _is(house, "generic", options={"mapping": mapping})
        waiting = asyncio.create_task(house.client.post(GENERAL_PATH, json=GENERAL))
        await house.settle(await house.requested(), status)
        answer = await waiting
    assert answer.status_code == expected
    pointers = [warning["pointer"] for warning in answer.json().get("warnings", [])]
    assert ("/arrivalDate" in pointers) == (expected == 201)


async def test_a_change_of_the_account_is_heard() -> None:
    body = {**BOOKING_ENGINE, "propertyId": 7, "roomId": 7, "cardDetails": CARD, "morChannel": "PMS"}
    async with stages() as house:
        _is(house, "booking-sync")
        before = (await house.client.post(BOOKING_ENGINE_PATH, json=body)).json()
        assert [warning["code"] for warning in before["warnings"]] == ["card_not_sent"]
        _is(house, "booking-sync", options=CHARGING)
        await house.clock.advance(1)
        another = body | {"guest": body["guest"] | {"firstName": "Eva"}}
        assert "warnings" not in (await house.client.post(BOOKING_ENGINE_PATH, json=another)).json()


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
    [request] = single.json()["data"]["wouldSend"]["requests"]
    assert request["body"]["cardDetails"]["cardNumber"] == "411111******1111"
    assert {value for name, value in request["body"]["cardDetails"].items() if name != "cardNumber"} == {"***"}
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


@for_each("path", [BOOKING_ENGINE_PATH, GENERAL_PATH, BULK_PATH])
@for_each(
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


@pytest.mark.parametrize("query", ["dryRun=false", "dryRun=false&dryRun=false", "&"])
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
    places = ("index", "line", "idempotencyKey")
    first, second, third, fourth = (
        {name: said for name, said in result.items() if name not in places} for result in data["results"]
    )
    assert first == await _tried(house, house_of_one, GENERAL_PATH)
    assert second["problem"]["code"] == "invalid_item"
    assert third == await _tried(house, BOOKING_ENGINE | {"morChannel": "PMS"})
    assert fourth["wouldSend"]["requests"][-1]["body"]["bookings"][0]["notes"] == "x"
