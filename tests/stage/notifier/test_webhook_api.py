"""Adding, changing, testing and removing webhooks over HTTP. Every answer is held against the contract."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from forwarder.notifier.api_requests import MAX_URL
from forwarder.reservation.checks.faults import MAX_FAULTS
from forwarder.reservation.record import RESULT_TYPES
from forwarder.store.lists.port import MAX_PAGE_BYTES
from forwarder.tenancy.port import MAX_ENDPOINTS
from forwarder.tenancy.sealing import of_webhook_secret
from forwarder.webhooks import addresses
from forwarder.webhooks.port import public_key
from tests.support.cases import for_each
from tests.support.stages.http_stages import OTHER_WORKSPACE, Stages
from tests.support.stages.webhook_stages import PATH, URL, added, faults, listed, webhook_stages

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with webhook_stages() as built:
        yield built


async def test_a_webhook_is_added_and_its_secret_shown_this_once(house: Stages) -> None:
    answer = await house.client.post(PATH, json={"url": URL, "types": [RESULT_TYPES[1]], "description": "Ours"})
    assert answer.status_code == 201
    made = answer.json()["data"]
    secret = made.pop("secret")
    assert made.pop("publicKey") == public_key(secret)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    assert answer.headers["location"] == f"{PATH}/{made['id']}"
    assert answer.headers["cache-control"] == "no-store"
    shown = await house.client.get(answer.headers["location"])
    assert shown.json() == {"data": made}
    assert made == {
        "id": made["id"],
        "url": URL,
        "types": [RESULT_TYPES[1]],
        "integrationAccountIds": None,
        "propertyIds": None,
        "description": "Ours",
        "headerNames": [],
        "asymmetricSignature": False,
        "enabled": True,
        "disabledReason": None,
        "disabledAt": None,
        "createdAt": "2027-01-01T00:00:00.000Z",
        "previousSecretUntil": None,
    }
    assert secret not in shown.text + (await house.client.get(PATH)).text
    assert house.unsealer.open_text(house.endpoints.kept[made["id"]].secret, of_webhook_secret(made["id"])) == secret


async def test_types_are_all_unless_named_and_each_counts_once(house: Stages) -> None:
    assert (await added(house))["types"] is None
    assert (await added(house, types=None))["types"] is None
    assert (await added(house, types=[RESULT_TYPES[2], RESULT_TYPES[0], RESULT_TYPES[2]]))["types"] == [
        RESULT_TYPES[2],
        RESULT_TYPES[0],
    ]


@for_each(
    ("body", "expected"),
    [
        ({}, {"/url": "required"}),
        ({"url": 7}, {"/url": "wrong_type"}),
        ({"url": None}, {"/url": "wrong_type"}),
        ({"url": "hooks.example"}, {"/url": "not_a_url"}),
        ({"url": "https://a\u0000b.example"}, {"/url": "not_a_url"}),
        ({"url": "http://hooks.example"}, {"/url": "https_needed"}),
        ({"url": "https://inner.example"}, {"/url": "address_not_public"}),
        ({"url": "https://me:pass@hooks.example"}, {"/url": "credentials_in_url"}),
        ({"url": "https://a.example/" + "x" * MAX_URL}, {"/url": "too_long"}),
        ({"url": URL, "types": []}, {"/types": "invalid_value"}),
        ({"url": URL, "types": "all"}, {"/types": "wrong_type"}),
        ({"url": URL, "types": [RESULT_TYPES[0], "reservation.lost.v1"]}, {"/types/1": "invalid_value"}),
        ({"url": URL, "types": [7]}, {"/types/0": "wrong_type"}),
        ({"url": URL, "description": "x" * 501}, {"/description": "too_long"}),
        ({"url": URL, "description": "of 4111 1111 1111 1111"}, {"/description": "card_number"}),
        ({"url": URL, "description": "a\u0000b"}, {"/description": "invalid_value"}),
        ({"url": URL, "type": RESULT_TYPES[0]}, {"/type": "unknown_field"}),
        ({"url": URL, "integrationAccountIds": []}, {"/integrationAccountIds": "invalid_value"}),
        ({"url": URL, "integrationAccountIds": ["beta-1"]}, {"/integrationAccountIds": "invalid_value"}),
        ({"url": URL, "propertyIds": [True]}, {"/propertyIds/0": "wrong_type"}),
        ({"url": URL, "propertyIds": "1001"}, {"/propertyIds": "wrong_type"}),
        ({"url": URL, "asymmetricSignature": "yes"}, {"/asymmetricSignature": "wrong_type"}),
        ({"url": URL, "headers": ["X-A: b"]}, {"/headers": "wrong_type"}),
        ({"url": URL, "headers": {"X-A": 7}}, {"/headers/X-A": "wrong_type"}),
        (
            {"url": URL, "headers": {"X A": "b", "a/b": "c"}},
            {"/headers/X A": "invalid_value", "/headers/a~1b": "invalid_value"},
        ),
        (
            {"url": URL, "headers": {"X-A": "a\nb", "X-B": "", "X-C": "é"}},
            dict.fromkeys(["/headers/X-A", "/headers/X-B", "/headers/X-C"], "invalid_value"),
        ),
        ({"url": URL, "headers": {"X-A": "x" * 2001}}, {"/headers/X-A": "too_long"}),
        (
            {"url": URL, "headers": {"X-A": "1", "x-a": "2"}},
            dict.fromkeys(["/headers/X-A", "/headers/x-a"], "invalid_value"),
        ),
        ({"url": URL, "headers": {f"X-{n}": "1" for n in range(11)}}, {"/headers/X-10": "invalid_value"}),
        *(
            ({"url": URL, "headers": {name: "x"}}, {f"/headers/{name}": "reserved"})
            for name in (
                *(
                    "Content-Type",
                    "content-length",
                    "Host",
                    "webhook-id",
                    "Webhook-Anything",
                    "Connection",
                    "Keep-Alive",
                ),
                *("TE", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authorization", "Expect", "User-Agent"),
                *("traceparent", "tracestate", "Accept-Encoding"),
            )
        ),
        ({"url": 7, "description": 8}, {"/url": "wrong_type", "/description": "wrong_type"}),
    ],
)
async def test_what_is_wrong_with_a_body_is_named(house: Stages, body: Any, expected: dict[str, str]) -> None:
    answer = await house.client.post(PATH, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
    assert faults(answer) == expected
    assert (await listed(house))["data"] == []


@pytest.mark.parametrize("more", [{"4111111111111111": 1}, {"headers": {"4111111111111111": 1}}, {"x" * 50_000: 1}])
async def test_a_name_at_fault_is_cut_and_a_card_number_in_it_masked(house: Stages, more: Any) -> None:
    answer = await house.client.post(PATH, json={"url": URL, **more})
    assert answer.status_code == 422
    assert len(answer.content) < 1_000
    assert "4111111111111111" not in answer.text


@pytest.mark.parametrize(
    "more", [{"types": ["x"] * 10_000}, {"types": [1] * 20_000}, {f"x{number}": 1 for number in range(6_000)}]
)
async def test_of_thousands_of_faults_the_first_are_named(house: Stages, more: Any) -> None:
    answer = await house.client.post(PATH, json={"url": URL, **more})
    assert (answer.status_code, len(faults(answer))) == (422, MAX_FAULTS)


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", JSON, 400, "malformed_json"),
        (b'{"url": "https://h.example", "url": "https://h.example"}', JSON, 400, "malformed_json"),
        (b'{"url": NaN}', JSON, 400, "malformed_json"),
        (b'{"url": "\xff"}', JSON, 400, "malformed_json"),
        (b"[" * 30_000 + b"]" * 30_000, JSON, 400, "malformed_json"),
        (b"[]", JSON, 422, "validation_failed"),
        (b" " * 70_000, JSON, 413, "body_too_large"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        (b"{}", {**JSON, "Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        (b"", {}, 415, "unsupported_media_type"),
    ],
)
async def test_a_body_is_read_as_strictly_as_a_reservation(
    house: Stages, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await house.client.post(PATH, content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_workspace_has_only_so_many(house: Stages) -> None:
    for _ in range(MAX_ENDPOINTS):
        await added(house)
    answer = await house.client.post(PATH, json={"url": URL})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_webhooks")
    other = await house.client.post(PATH, json={"url": URL}, headers=OTHER_WORKSPACE)
    assert other.status_code == 201


async def test_the_list_is_paged_in_the_order_of_adding(house: Stages) -> None:
    ids = []
    for _ in range(5):
        ids.append((await added(house))["id"])
        await house.clock.advance(1)
    seen, query, cursors = [], "?limit=2", []
    while True:
        page = await listed(house, query)
        assert page["meta"]["limit"] == 2
        seen += [each["id"] for each in page["data"]]
        cursors.append(page["meta"]["cursors"])
        if not cursors[-1]["next"]:
            break
        query = f"?limit=2&cursor={cursors[-1]['next']}"
    assert seen == ids
    assert [each["current"] for each in cursors] == ["1", cursors[0]["next"], cursors[1]["next"]]
    assert [each["previous"] for each in cursors] == ["", "1", cursors[0]["next"]]
    assert (await listed(house))["meta"] == {"limit": 10, "cursors": {"previous": "", "current": "1", "next": ""}}


@pytest.mark.parametrize(("more", "count"), [({}, 5), ({"propertyIds": [f"{n:0128}" for n in range(450)]}, 40)])
async def test_webhooks_of_one_moment_are_each_on_one_page_of_a_mebibyte(
    house: Stages, more: dict[str, Any], count: int
) -> None:
    ids, seen, query = {(await added(house, **more))["id"] for _ in range(count)}, [], f"?limit={count - 2}"
    for _ in range(count):
        answer = await house.client.get(f"{PATH}{query}")
        assert len(answer.content) < MAX_PAGE_BYTES + 1000
        seen += [each["id"] for each in answer.json()["data"]]
        if not (cursor := answer.json()["meta"]["cursors"]["next"]):
            break
        query = f"?limit={count - 2}&cursor={cursor}"
    assert sorted(seen) == sorted(ids)


async def test_a_page_is_asked_for_as_everywhere(house: Stages) -> None:
    hook = (await added(house))["id"]
    for path in (PATH, f"{PATH}/{hook}/deliveries"):
        answer = await house.client.get(f"{path}?limit=0&cursor=x")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")
        assert faults(answer) == {"/limit": "out_of_range", "/cursor": "out_of_range"}
        page = (await house.client.get(f"{path}?limit=201&cursor=")).json()
        assert (page["meta"]["limit"], page["meta"]["cursors"]["current"]) == (200, "1")
    answer = await house.client.get(f"{PATH}/{hook}/deliveries?status=LOST")
    assert faults(answer) == {"/status": "invalid_value"}
    answer = await house.client.get(f"{PATH}/{hook}/deliveries?status=FAILED&status=PENDING")
    assert faults(answer) == {"/status": "contradictory"}


async def test_what_is_said_is_changed_and_the_rest_stays(house: Stages) -> None:
    made = await added(house, types=[RESULT_TYPES[0]], description="Ours")
    one = f"{PATH}/{made['id']}"
    secret = made.pop("secret")
    assert made.pop("publicKey") == public_key(secret)
    assert (await house.client.patch(one, json={})).json()["data"] == made
    moved = (await house.client.patch(one, json={"url": "https://b.example"})).json()["data"]
    assert moved == {**made, "url": "https://b.example"}
    every = (await house.client.patch(one, json={"types": None, "description": ""})).json()["data"]
    assert every == {**moved, "types": None, "description": ""}
    wrongs: list[dict[str, Any]] = [
        {"url": None},
        {"enabled": 1},
        {"types": []},
        {"secret": "whsec_mine"},
        {"url": "http://b.example"},
    ]
    for wrong in wrongs:
        answer = await house.client.patch(one, json=wrong)
        assert (answer.status_code, list(faults(answer))) == (422, [f"/{next(iter(wrong))}"])
    assert (await house.client.get(one)).json()["data"] == every
    assert house.unsealer.open_text(house.endpoints.kept[made["id"]].secret, of_webhook_secret(made["id"])) == secret


async def test_a_misspelt_field_gets_a_hint(house: Stages) -> None:
    answer = await house.client.post(PATH, json={"url": URL, "header": {}, "propertyIDs": [1], "x": 1})
    assert [fault["detail"].partition("; ")[2] for fault in answer.json()["errors"]] == [
        "did you mean headers?",
        "did you mean propertyIds?",
        "",
    ]


async def test_a_webhook_selects_events_and_its_headers_are_never_shown(house: Stages) -> None:
    body = {
        "integrationAccountIds": ["alpha-1", "alpha-1"],
        "propertyIds": ["A7", 1001, "1001"],
        "headers": {"X-Key": "opensesame"},
        "asymmetricSignature": True,
    }
    made = await added(house, **body)
    shown = {
        "integrationAccountIds": ["alpha-1"],
        "propertyIds": ["A7", "1001"],
        "headerNames": ["X-Key"],
        "asymmetricSignature": True,
    }
    assert shown.items() <= made.items()
    one = f"{PATH}/{made['id']}"
    refused = await house.client.patch(one, json={"url": "https://b.example"})
    assert faults(refused) == {"/headers": "required"}
    changes: list[dict[str, Any]] = [
        {"propertyIds": None},
        {"url": "https://b.example", "headers": {"X-New": "opensesame"}},
    ]
    answers = [await house.client.patch(one, json=change) for change in changes]
    answers.append(await house.client.patch(one, json={"headers": {}, "asymmetricSignature": False}))
    assert [each.status_code for each in answers] == [200] * 3
    kept = house.endpoints.kept[made["id"]]
    assert (kept.account_ids, kept.property_ids, kept.headers) == (("alpha-1",), None, None)
    answers += [await house.client.get(one), await house.client.get(PATH)]
    assert all("opensesame" not in each.text for each in answers)


async def test_disabled_nothing_is_sent_to_it_until_it_is_enabled(house: Stages) -> None:
    hook = await added(house)
    one = f"{PATH}/{hook['id']}"
    tested = await house.client.post(f"{one}/test")
    assert tested.status_code == 202
    disabled = (await house.client.patch(one, json={"enabled": False})).json()["data"]
    assert (disabled["enabled"], disabled["disabledReason"]) == (False, "by_hand")
    assert disabled["disabledAt"] == "2027-01-01T00:00:00.000Z"
    assert (await house.client.get(tested.headers["location"])).json()["data"]["status"] == "STOPPED"
    for path in (f"{one}/test", f"{tested.headers['location']}/resend"):
        refused = await house.client.post(path)
        assert (refused.status_code, refused.json()["code"]) == (409, "webhook_disabled")
    again = (await house.client.patch(one, json={"enabled": True})).json()["data"]
    assert (again["enabled"], again["disabledReason"], again["disabledAt"]) == (True, None, None)
    assert (await house.client.post(f"{one}/test")).status_code == 202


async def test_each_request_that_changes_something_is_one_entry(house: Stages) -> None:
    hook = (await added(house))["id"]
    for body in ({"enabled": False}, {"enabled": True}, {"description": "Ours"}, {}):
        assert (await house.client.patch(f"{PATH}/{hook}", json=body)).status_code == 200
    assert [each.action for each in house.trail.kept] == [
        "webhook.add",
        "webhook.disable",
        "webhook.enable",
        "webhook.change",
    ]


async def test_a_test_is_a_delivery_of_its_own(house: Stages) -> None:
    hook = await added(house, types=[RESULT_TYPES[0]])
    answer = await house.client.post(f"{PATH}/{hook['id']}/test")
    number = answer.json()["data"]["deliveryId"]
    assert answer.headers["location"] == f"{PATH}/{hook['id']}/deliveries/{number}"
    delivery = (await house.client.get(answer.headers["location"])).json()["data"]
    assert (delivery["type"], delivery["status"], delivery["tries"]) == ("webhook.test.v1", "PENDING", 0)
    assert delivery["dueAt"] == "2027-01-01T00:00:00.000Z"


async def test_a_secret_is_replaced_and_the_old_one_signs_for_a_while(house: Stages) -> None:
    hook = await added(house)
    one = f"{PATH}/{hook['id']}/rotate"
    rotated = (await house.client.post(one)).json()["data"]
    assert rotated["secret"] != hook["secret"]
    assert rotated["previousSecretUntil"] == "2027-01-02T00:00:00.000Z"
    kept = house.endpoints.kept[hook["id"]]
    (previous,) = kept.previous
    assert house.unsealer.open_text(previous.secret, of_webhook_secret(kept.id)) == hook["secret"]
    at_once = (await house.client.post(one, json={"overlapSeconds": 0})).json()["data"]
    assert (at_once["previousSecretUntil"], house.endpoints.kept[hook["id"]].previous) == (None, ())
    hour = (await house.client.post(one, json={"overlapSeconds": 3600.0})).json()["data"]
    assert hour["previousSecretUntil"] == "2027-01-01T01:00:00.000Z"
    for seconds, code in ((-1, "too_small"), (604_801, "too_large"), ("60", "wrong_type"), (True, "wrong_type")):
        answer = await house.client.post(one, json={"overlapSeconds": seconds})
        assert faults(answer) == {"/overlapSeconds": code}


def test_an_address_is_as_long_as_the_seam_takes_it() -> None:
    assert addresses.MAX_URL == MAX_URL
