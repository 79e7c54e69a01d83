"""Bulks: each item as the single operation would have it, all of them published as one batch."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
import structlog

from forwarder.http.messages import Admission
from forwarder.ingress.message import IngressSettings
from forwarder.reservation.checks.fields import MAX_ITEM_BYTES, MAX_ITEMS
from forwarder.reservation.outcome import Status
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.topics.codec import decode_submission, header
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE, CARD, GENERAL, changed
from tests.support.stages.contract_stages import CONTRACT, contract_stages
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    BULK_PATH,
    GENERAL_PATH,
    HEADERS,
    OTHER_ACCOUNT,
    Stages,
    stages,
)

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
ENGINE: dict[str, Any] = {"operation": "booking-engine", "reservation": BOOKING_ENGINE}
SMALL: dict[str, Any] = {"operation": "general", "reservation": GENERAL}
RECEIPT = ("requestId", "status", "acceptedAt", "statusUrl")
TWICE = json.dumps(SMALL)[:-1].encode() + b',"operation":"general"}'


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with contract_stages() as built:
        yield built


def _place(index: int, key: str) -> dict[str, Any]:
    return {"index": index, "idempotencyKey": key}


def _keyed(key: str, **fields: Any) -> dict[str, Any]:
    return {"operation": "general", "reservation": GENERAL | fields, "idempotencyKey": key}


async def _send(
    house: Stages, items: Sequence[Any], *, lines: bool = False, headers: dict[str, str] | None = None
) -> httpx.Response:
    if lines:
        content = "\n".join(json.dumps(item) for item in items)
        return await house.client.post(BULK_PATH, content=content, headers={**NDJSON, **(headers or {})})
    return await house.client.post(BULK_PATH, json=items, headers=headers)


async def _results(house: Stages, items: Sequence[Any], **how: Any) -> list[dict[str, Any]]:
    answer = await _send(house, items, **how)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["data"]["results"]
    assert len(results) == len(items)
    return results


def _engines(count: int) -> list[dict[str, Any]]:
    """Items of so many booking engines' reservations, each in a transaction of its own."""
    return [
        {**ENGINE, "reservation": changed(BOOKING_ENGINE, "transactionId", f"tx-of-item-{number}")}
        for number in range(count)
    ]


def _codes(results: Sequence[dict[str, Any]]) -> list[str | None]:
    return [result["problem"]["code"] if "problem" in result else None for result in results]


async def _code(house: Stages, items: Sequence[Any] | None = None, **how: Any) -> str:
    """The problem that concerns all of them."""
    answer = await (house.client.post(BULK_PATH, **how) if items is None else _send(house, items, **how))
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert not house.requests
    code: str = answer.json()["code"]
    return code


@pytest.mark.parametrize("lines", [False, True])
async def test_every_item_is_a_submission(house: Stages, *, lines: bool) -> None:
    answer = await _send(house, [ENGINE, SMALL, *_engines(1)], lines=lines)
    assert answer.status_code == 200
    assert answer.json()["success"] is True
    data = answer.json()["data"]
    assert (data["accepted"], data["refused"]) == (3, 0)
    ids = [result["requestId"] for result in data["results"]]
    assert data["results"][1] == {
        "index": 1,
        **({"line": 2} if lines else {}),
        "success": True,
        "requestId": ids[1],
        "status": "PENDING",
        "acceptedAt": "2027-01-01T00:00:00.000Z",
        "statusUrl": f"http://forwarder.test/api/v1/vrs/submissions/{ids[1]}",
    }
    submissions = [decode_submission(message) for message in house.requests]
    assert [each.request_id for each in submissions] == ids
    assert [each.operation for each in submissions] == ["booking-engine", "general", "booking-engine"]
    assert [each.reservation for each in submissions] == [BOOKING_ENGINE, GENERAL, _engines(1)[0]["reservation"]]
    assert (await house.client.get(data["results"][2]["statusUrl"])).json()["data"]["status"] == "PENDING"


async def test_all_of_them_are_one_batch_that_is_acknowledged_before_the_answer(house: Stages) -> None:
    house.log.acknowledging.clear()
    sent = asyncio.create_task(_send(house, _engines(20)))
    await house.log.attempted(1)
    assert not sent.done()
    house.log.acknowledging.set()
    assert (await sent).json()["data"]["accepted"] == 20
    assert (house.log.attempts, len(house.requests), house.reader.reads) == (1, 20, 0)


async def test_what_is_published_of_an_item_is_what_its_operation_publishes(house: Stages) -> None:
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    keyed = {"Idempotency-Key": "order-42", "Forward-Deadline": "300"}
    await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers={**trace, **keyed})
    async with stages() as other:
        await _results(other, [{**ENGINE, "idempotencyKey": "order-42", "deadlineSeconds": 300}], headers=trace)
        assert other.requests == house.requests


async def test_one_bad_item_harms_no_other(house: Stages) -> None:
    wrong = {"operation": "general", "reservation": GENERAL | {"guest": {"email": "nobody"}, "currency": 1}}
    results = await _results(house, [SMALL, wrong, {"operation": "none"}, 5, SMALL])
    assert _codes(results) == [None, "validation_failed", "invalid_item", "invalid_item", None]
    assert len(house.requests) == 2


async def test_an_item_is_refused_in_the_words_of_its_operation(house: Stages) -> None:
    body = {**BOOKING_ENGINE, "guest": {**BOOKING_ENGINE["guest"], "email": "nobody"}, "departureDate": "2027-01-01"}
    single = (await house.client.post(BOOKING_ENGINE_PATH, json=body)).json()
    [result] = await _results(house, [{**ENGINE, "reservation": body}])
    assert result == {
        "index": 0,
        "success": False,
        "problem": {name: said for name, said in single.items() if name not in {"success", "httpRequestId"}},
    }
    assert {fault["pointer"] for fault in single["errors"]} == {"/guest/email", "/departureDate"}


@for_each(
    ("item", "faults"),
    [
        (5, {"": "wrong_type"}),
        ([], {"": "wrong_type"}),
        ({}, {"/operation": "required"}),
        ({"reservation": GENERAL}, {"/operation": "required"}),
        ({"operation": "cancel", "reservation": GENERAL}, {"/operation": "invalid_value"}),
        ({"operation": "general"}, {"/reservation": "required"}),
        ({"operation": "general", "reservation": []}, {"/reservation": "wrong_type"}),
        (SMALL | {"idempotency-key": "x"}, {"/idempotency-key": "unknown_field"}),
        (SMALL | {"idempotencyKey": ""}, {"/idempotencyKey": "invalid_value"}),
        (SMALL | {"idempotencyKey": "é"}, {"/idempotencyKey": "invalid_value"}),
        (SMALL | {"idempotencyKey": "x" * 256}, {"/idempotencyKey": "too_long"}),
        (SMALL | {"idempotencyKey": 7}, {"/idempotencyKey": "wrong_type"}),
        (SMALL | {"deadlineSeconds": 0}, {"/deadlineSeconds": "too_small"}),
        (SMALL | {"deadlineSeconds": 604_801}, {"/deadlineSeconds": "too_large"}),
        (SMALL | {"deadlineSeconds": "60"}, {"/deadlineSeconds": "wrong_type"}),
        (
            {
                "operation": "general",
                "reservation": GENERAL | {"departureDate": "2027-01-01", "currency": "EU"},
                "x": 1,
            },
            {"/x": "unknown_field", "/reservation/currency": "invalid_value"}
            | {"/reservation/departureDate": "departure_not_after_arrival"},
        ),
    ],
)
async def test_what_is_wrong_with_an_item_itself(house: Stages, item: Any, faults: dict[str, str]) -> None:
    [result] = await _results(house, [item])
    assert result["problem"]["code"] == "invalid_item"
    assert {fault["pointer"]: fault["code"] for fault in result["problem"]["errors"]} == faults
    assert not house.requests


async def test_a_line_that_is_not_json_is_that_lines_problem(house: Stages) -> None:
    good = json.dumps(SMALL).encode()
    lines = [good, b"{", b'{"operation":"\xff"}', b'{"operation":NaN}', TWICE, b"[" * 1000, b"\r", b" \t", good + b"\r"]
    answer = await house.client.post(BULK_PATH, content=b"\n\n".join(lines) + b"\n", headers=NDJSON)
    results = answer.json()["data"]["results"]
    assert _codes(results) == [None, *["malformed_json"] * 5, None]
    assert [(each["index"], each["line"]) for each in results] == [*((at, 2 * at + 1) for at in range(6)), (6, 17)]
    assert results[1]["problem"]["detail"].startswith("The line 3 is not one JSON document")
    assert len(house.requests) == 2


@pytest.mark.parametrize("dry_run", ["", "?dryRun=true"])
async def test_a_result_names_its_item(house: Stages, dry_run: str) -> None:
    card = "4111111111111111"
    items = [_keyed("order-1"), SMALL, {**_keyed("order-2"), "x": 1}, 5, {**_keyed(card), card: 1}, _keyed(card)]
    answer = await house.client.post(BULK_PATH + dry_run, json=items)
    results = answer.json()["data"]["results"]
    assert [(each["index"], each.get("idempotencyKey")) for each in results] == [
        *((0, "order-1"), (1, None), (2, "order-2"), (3, None), (4, None), (5, None))
    ]
    assert card not in answer.text


async def test_lines_that_are_sent_as_an_array_are_told_their_media_type(house: Stages) -> None:
    line = json.dumps(SMALL).encode()
    answer = await house.client.post(BULK_PATH, content=line + b"\n \r\n" + line, headers=JSON)
    assert answer.status_code == 415
    assert "application/x-ndjson" in answer.json()["detail"]
    assert await _code(house, content=json.dumps(SMALL, indent=1).encode(), headers=JSON) == "validation_failed"


@for_each("bad", [b"{", b'{"operation":NaN}', b"", b'{"operation":"\xff"}', TWICE, b"{} {}"])
@for_each("place", [0, 2])
async def test_an_array_that_is_not_json_is_refused_as_a_whole(house: Stages, bad: bytes, place: int) -> None:
    items = [json.dumps(SMALL).encode()] * 2
    items.insert(place, bad)
    assert await _code(house, content=b"[" + b",".join(items) + b"]", headers=JSON) == "malformed_json"


@for_each(
    ("body", "code"),
    [
        (b"[", "malformed_json"),
        (b"[1", "malformed_json"),
        (b"[]]", "malformed_json"),
        (b"[] []", "malformed_json"),
        (b"[}", "malformed_json"),
        (b'["', "malformed_json"),
        (b"[" * 100_000, "malformed_json"),
        (b"", "validation_failed"),
        (b"{}", "validation_failed"),
        (json.dumps(SMALL).encode(), "validation_failed"),
        (b"[]", "invalid_bulk_size"),
        (b" [ \r\n]\t", "invalid_bulk_size"),
    ],
)
async def test_a_body_that_is_no_array_of_items(house: Stages, body: bytes, code: str) -> None:
    assert await _code(house, content=body, headers=JSON) == code


async def test_ndjson_without_a_line_is_no_bulk(house: Stages) -> None:
    assert await _code(house, content=b"\n \r\n", headers=NDJSON) == "invalid_bulk_size"


@pytest.mark.parametrize("lines", [False, True])
async def test_a_thousand_items_are_taken_and_one_more_is_not(house: Stages, *, lines: bool) -> None:
    assert await _code(house, [{}] * (MAX_ITEMS + 1), lines=lines) == "invalid_bulk_size"
    items: list[Any] = [*[SMALL] * (MAX_ITEMS - 1), {}]
    assert (await _send(house, items, lines=lines)).json()["data"]["accepted"] == MAX_ITEMS - 1
    assert len(house.requests) == MAX_ITEMS - 1


@pytest.mark.parametrize(
    ("media_type", "taken"),
    [
        ("application/x-ndjson; charset=utf-8", True),
        ("APPLICATION/X-NDJSON", True),
        ("application/jsonl", False),
        ("text/plain", False),
        ("application/x-ndjson; charset=latin-1", False),
    ],
)
async def test_how_a_body_may_be_declared(house: Stages, media_type: str, *, taken: bool) -> None:
    answer = await house.client.post(BULK_PATH, content=json.dumps(SMALL), headers={"Content-Type": media_type})
    assert answer.status_code == (200 if taken else 415)


async def test_an_item_that_is_too_long_is_its_own_problem(house: Stages) -> None:
    long = {"operation": "general", "reservation": GENERAL | {"unknown": "x" * MAX_ITEM_BYTES}}
    assert _codes(await _results(house, [SMALL, long, SMALL])) == [None, "body_too_large", None]
    assert _codes(await _results(house, [SMALL, long, SMALL], lines=True)) == [None, "body_too_large", None]


async def test_what_one_body_may_be_an_item_may_be(house: Stages) -> None:
    longest = json.dumps(GENERAL | {"unknown": ""})
    longest = longest.replace('"unknown": ""', f'"unknown": "{"x" * (MAX_BODY_BYTES - len(longest))}"')
    assert len(longest) == MAX_BODY_BYTES
    body = '[{"operation":"general","deadlineSeconds":60,"idempotencyKey":"order-42","reservation":' + longest + "}]"
    answer = await house.client.post(BULK_PATH, content=body, headers=JSON)
    assert answer.json()["data"]["accepted"] == 1


async def test_a_body_beyond_all_bounds_is_not_read() -> None:
    async with stages(admission=Admission(max_body_bytes=MAX_BODY_BYTES * 3 // 2)) as house:
        answer = await house.client.post(BULK_PATH, content=b"x" * (MAX_BODY_BYTES + 1), headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert str(MAX_BODY_BYTES) in answer.json()["detail"]
        assert answer.headers["connection"] == "close"
        CONTRACT.check(answer)
        assert (await _send(house, [SMALL])).json()["data"]["accepted"] == 1


async def test_the_response_of_a_bulk_has_room_before_anything_is_accepted() -> None:
    """Many bulks whose responses nobody reads are refused while that can still be said."""
    room = 256 * 1024
    async with stages(admission=Admission(max_response_bytes=3 * room)) as house:
        unread = [house.admission.enter("alpha") for _ in range(2)]
        assert all(place and place.hold_response(room, refusable=True) for place in unread)
        refused = await _send(house, [SMALL])
        assert (refused.status_code, refused.json()["code"], len(house.requests)) == (503, "overloaded", 0)
        for place in unread:
            assert place is not None
            place.end()
        assert (await _send(house, [SMALL])).status_code == 200
        assert house.admission.responses.held("alpha") == 0


_FAULTY = {"operation": "booking-engine", "reservation": {name: [] for name in BOOKING_ENGINE}}
_UNKNOWN = SMALL | {"reservation": GENERAL | {f"unknown{number}": 1 for number in range(100)}}


@for_each("tail", [[], [SMALL]], ids=["refused", "some accepted"])
@for_each("item", [_FAULTY, _UNKNOWN], ids=["faults", "warnings"])
@for_each("query", ["", "?dryRun=true"], ids=["submitted", "dry run"])
async def test_what_is_held_for_a_response_is_as_much_as_it_has(
    item: dict[str, Any], tail: list[dict[str, Any]], query: str
) -> None:
    """So that unread responses of one workspace leave the others' share alone, however little their bulks had."""
    async with stages(admission=Admission(max_response_bytes=100_000)) as house:
        path, content = BULK_PATH + query, json.dumps([*[item] * 100, *tail])
        refused = await house.client.post(path, content=content, headers=JSON)
        assert (refused.status_code, refused.json()["code"], len(house.requests)) == (503, "overloaded", 0)
    async with stages(admission=Admission(max_response_bytes=10_000_000)) as house:
        told = await house.client.post(path, content=content, headers=JSON)
        assert (told.status_code, len(told.content) > 100_000) == (200, True)
        assert house.admission.responses.held("alpha") == 0


async def test_each_item_counts_among_those_handed_to_the_log() -> None:
    async with stages(IngressSettings(max_in_flight=15, retry_after_seconds=7)) as house:
        house.log.acknowledging.clear()
        under_way = asyncio.create_task(_send(house, [SMALL] * 6))
        await house.log.attempted(1)
        refused = await _send(house, [SMALL] * 5)
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"] == "7"
        more = asyncio.create_task(_send(house, [SMALL] * 4))
        await house.log.attempted(2)
        house.log.acknowledging.set()
        assert [answer.status_code for answer in await asyncio.gather(under_way, more)] == [200, 200]


async def test_without_the_log_nothing_is_accepted_and_with_keys_it_is_safe_to_send_again(house: Stages) -> None:
    items = [_keyed("one"), _keyed("two"), {}]
    house.log.away = True
    answer = await _send(house, items)
    assert (answer.status_code, answer.json()["code"]) == (503, "log_unavailable")
    house.log.away = False
    first = await _results(house, items)
    again = await _results(house, items)
    assert [result.pop("idempotentReplayed", None) for result in again] == [True, True, None]
    assert first == again
    assert len(house.requests) == 2


async def test_without_the_store_no_bulk_with_a_key_is_accepted(house: Stages) -> None:
    house.reader.away = True
    assert await _code(house, [SMALL, _keyed("one")]) == "store_unavailable"
    assert (await _send(house, [SMALL])).status_code == 200


async def test_a_key_sent_singly_and_in_bulk_is_the_same_submission(house: Stages) -> None:
    single = {"Idempotency-Key": '"order 1"', "Prefer": "respond-async"}
    before = (await house.client.post(GENERAL_PATH, json=GENERAL, headers=single)).json()["data"]
    results = await _results(house, [_keyed("order 1"), _keyed("order 2"), _keyed("order 1", notes="other")])
    receipt = {name: before[name] for name in RECEIPT}
    assert results[0] == {"success": True, **_place(0, "order 1"), "idempotentReplayed": True} | receipt
    assert _codes(results) == [None, None, "idempotency_key_reused"]
    assert results[2]["problem"]["requestId"] == before["requestId"]
    after = await house.client.post(GENERAL_PATH, json=GENERAL, headers=single | {"Idempotency-Key": "order 2"})
    of_it = {name: after.json()["data"][name] for name in RECEIPT} | {"success": True}
    assert of_it | _place(1, "order 2") == results[1]
    assert len(house.requests) == 2


async def test_the_same_key_twice_in_one_bulk(house: Stages) -> None:
    items = [_keyed("one"), _keyed("two"), _keyed("one"), _keyed("one", notes="other"), _keyed("two")]
    results = await _results(house, items)
    assert _codes(results) == [None, None, None, "idempotency_key_reused", None]
    assert [result.pop("index") for result in results] == [*range(5)]
    assert [result.pop("idempotentReplayed", None) for result in results] == [None, None, True, None, True]
    assert results[0] == results[2] != results[1] == results[4]
    assert results[3]["problem"]["requestId"] == results[0]["requestId"]
    assert len(house.requests) == 2


async def test_a_key_never_crosses_accounts(house: Stages) -> None:
    [ours], [theirs] = (
        await _results(house, [_keyed("one")]),
        await _results(house, [_keyed("one", notes="x")], headers=OTHER_ACCOUNT),
    )
    assert ours["requestId"] != theirs["requestId"]


async def test_what_was_taken_in_before_is_told_as_it_stands_by_one_look(house: Stages) -> None:
    items = [_keyed("one"), _keyed("two"), _keyed("three")]
    await _results(house, items)
    await house.settle(house.requests[0], Status.CONFIRMED, pms_reservation_id="P1")
    house.ingest(house.requests[1])
    reads = house.reader.reads
    results = await _results(house, [*items, _keyed("two", notes="other"), _keyed("four"), SMALL])
    assert house.reader.reads == reads + 1
    assert [result.get("status") for result in results] == ["CONFIRMED", *["PENDING"] * 2, None, *["PENDING"] * 2]
    assert _codes(results)[3] == "idempotency_key_reused"
    assert len(house.requests) == 3 + 2


async def test_a_bulk_of_nothing_new_publishes_nothing(house: Stages) -> None:
    items = [_keyed("one"), _keyed("two")]
    first = await _results(house, items)
    attempts = house.log.attempts
    assert await _results(house, items) == [result | {"idempotentReplayed": True} for result in first]
    assert house.log.attempts == attempts


@pytest.mark.parametrize("key", ["order-1", '"order-1"', "é"])
async def test_the_header_for_one_key_is_refused(house: Stages, key: str) -> None:
    headers = {name.encode(): value.encode("latin-1") for name, value in {**HEADERS, "Idempotency-Key": key}.items()}
    answer = await house.client.post(BULK_PATH, json=[SMALL], headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")
    assert "idempotencyKey" in answer.json()["detail"]
    assert not house.requests


async def test_the_deadline_of_all_counts_where_an_item_has_none(house: Stages) -> None:
    await _results(house, [SMALL, SMALL | {"deadlineSeconds": 60}], headers={"Forward-Deadline": "300"})
    assert [decode_submission(message).deadline_seconds for message in house.requests] == [300, 60]
    answer = await _send(house, [SMALL], headers={"Forward-Deadline": "soon"})
    assert answer.json()["code"] == "invalid_forward_deadline"


async def test_nobody_waits_and_the_trace_is_carried(house: Stages) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = await _send(house, [SMALL], headers={"Prefer": "wait=60", "traceparent": trace})
    assert answer.status_code == 200
    assert "preference-applied" not in answer.headers
    assert header(house.requests[0].headers, "traceparent") == trace


async def test_cards_are_sealed_and_nothing_of_them_shows(house: Stages) -> None:
    with_card = BOOKING_ENGINE | {"cardDetails": CARD}
    card = {"operation": "booking-engine", "reservation": with_card}
    refused = {"operation": "booking-engine", "reservation": with_card | {"currency": 1}}
    with structlog.testing.capture_logs() as logged:
        answer = await _send(house, [card, refused, {**refused, "operation": "general", "x": 1}])
    assert answer.json()["data"]["accepted"] == 1
    submission = decode_submission(house.requests[0])
    assert submission.card is not None
    assert house.sealing_key.opened(submission).cvv == CARD["cvv"]
    assert submission.reservation["cardDetails"] == {"cardNumber": "411111******1111"}
    shown = f"{house.requests}{answer.text}{logged}".replace(submission.card.sealed, "")
    assert not [
        secret for secret in (CARD["cardNumber"], "4111111111111111", '987"', "ANA R HOLDER") if secret in shown
    ]


async def test_one_wide_event_tells_of_a_bulk(house: Stages) -> None:
    with structlog.testing.capture_logs() as logged:
        await _send(house, [_keyed("one"), SMALL, {}, {}, _keyed("one", notes="x")])
    [event] = [entry for entry in logged if entry["log_level"] == "info"]
    assert event["event"] == "bulk.answered"
    assert (event["account_id"], event["items"], event["accepted"], event["keyed"]) == ("alpha-1", 5, 2, 1)
    assert event["refused"] == {"invalid_item": 2, "idempotency_key_reused": 1}


async def test_others_have_their_turn_while_a_bulk_is_read(house: Stages) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while not sent.done():
            turns += 1
            await asyncio.sleep(0)

    house.log.acknowledging.clear()  # so that all turns are of reading
    sent = asyncio.create_task(_send(house, _engines(500)))
    waiting = asyncio.create_task(other())
    await house.log.attempted(1)
    of_reading = turns
    house.log.acknowledging.set()
    assert (await sent).json()["data"]["accepted"] == 500
    await waiting
    assert of_reading > 50


@pytest.mark.parametrize("headers", [{"Authorization": ""}, {"workspaceId": "beta"}, {"integrationAccountId": "x"}])
async def test_who_calls_is_asked_first(house: Stages, headers: dict[str, str]) -> None:
    answer = await _send(house, [SMALL], headers=headers)
    assert answer.status_code in {401, 403, 404}
    assert not house.requests


async def test_an_item_that_is_too_large_for_the_topic_is_refused_alone(house: Stages) -> None:
    """And so are those that repeat it."""
    small, large = _keyed("a", comments="x"), _keyed("b", comments="x" * 5_000)
    repeated = {**ENGINE, "reservation": changed(BOOKING_ENGINE, "notes", "x" * 5_000)}
    house.log.max_bytes = 4_000
    results = await _results(house, [small, large, repeated, repeated, _keyed("c", comments="y")])
    refused = ["body_too_large"] * 3
    assert [each.get("problem", {}).get("code") for each in results] == [None, *refused, None]
    house.log.max_bytes = 100_000
    assert not any("problem" in each for each in await _results(house, [small, large, repeated]))
