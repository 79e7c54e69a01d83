"""The delivery log of a webhook over HTTP; and to whom anything is shown. Every answer is held against the contract."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from forwarder.store.deliveries import DeliveryAttempt
from forwarder.tenancy.port import ApiKey, RateLimit
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, HEADERS, OTHER_WORKSPACE, Stages
from tests.support.stages.webhook_stages import PATH, URL, added, deliveries, listed, webhook_stages


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with webhook_stages() as built:
        yield built


async def test_deliveries_are_paged_the_newest_first(house: Stages) -> None:
    hook = (await added(house))["id"]
    await deliveries(house, hook, 7, failed=2)
    path = f"{PATH}/{hook}/deliveries"
    pages = []
    query = "?limit=3"
    while True:
        page = (await house.client.get(path + query)).json()
        pages.append(page)
        if not page["meta"]["cursors"]["next"]:
            break
        query = f"?limit=3&cursor={page['meta']['cursors']['next']}"
    assert [[each["id"] for each in page["data"]] for page in pages] == [[7, 6, 5], [4, 3, 2], [1]]
    assert [page["meta"]["cursors"] for page in pages] == [
        {"previous": "", "current": "1", "next": "5"},
        {"previous": "1", "current": "5", "next": "2"},
        {"previous": "5", "current": "2", "next": ""},
    ]
    failed = (await house.client.get(path + "?status=FAILED&limit=1")).json()
    assert ([each["id"] for each in failed["data"]], failed["meta"]["cursors"]["next"]) == ([2], "2")
    rest = (await house.client.get(path + "?status=FAILED&limit=1&cursor=2")).json()
    assert ([each["id"] for each in rest["data"]], rest["meta"]["cursors"]["next"]) == ([1], "")


async def test_a_delivery_tells_every_try_and_is_sent_again(house: Stages) -> None:
    hook = (await added(house))["id"]
    await deliveries(house, hook, 1, failed=1)
    one = f"{PATH}/{hook}/deliveries/1"
    shown = (await house.client.get(one)).json()["data"]
    assert (shown["status"], shown["eventId"], shown["dueAt"]) == ("FAILED", "rsv_x.1", None)
    assert shown["attempts"] == [
        {
            "startedAt": "2027-01-01T00:00:00.000Z",
            "durationMs": 12,
            "status": 503,
            "failure": None,
            "detail": "Service Unavailable",
        }
    ]
    again = await house.client.post(f"{one}/resend")
    assert (again.status_code, again.json()["data"]["status"]) == (202, "PENDING")
    assert (await house.client.get(one)).json()["data"]["eventId"] == "rsv_x.1"


async def test_removed_it_is_gone(house: Stages) -> None:
    hook = (await added(house))["id"]
    assert (await house.client.delete(f"{PATH}/{hook}")).json() == {"data": {"id": hook, "removed": True}}
    assert (await listed(house))["data"] == []
    assert (await house.client.delete(f"{PATH}/{hook}")).json()["code"] == "webhook_not_found"


CALLS = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/test"),
    ("POST", "/rotate"),
    ("GET", "/deliveries"),
    ("GET", "/deliveries/1"),
    ("POST", "/deliveries/1/resend"),
]


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_what_is_anothers_is_as_if_it_were_not_there(house: Stages, method: str, path: str) -> None:
    theirs = (await house.client.post(PATH, json={"url": URL}, headers=OTHER_WORKSPACE)).json()["data"]["id"]
    await deliveries(house, theirs, 1)
    body: dict[str, Any] | None = {} if method == "PATCH" else None
    answers = [
        await house.client.request(method, f"{PATH}/{hook}{path}", json=body)
        for hook in (theirs, "whk_0123456789", "x", "whk_%00", "whk_" + "a" * 5000)
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert {answer.json()["code"] for answer in answers} == {"webhook_not_found"}
    assert len({answer.text for answer in answers}) == 1
    assert (await listed(house))["data"] == []
    assert (await house.client.get(f"{PATH}/{theirs}", headers=OTHER_WORKSPACE)).json()["data"]["enabled"]


@pytest.mark.parametrize("number", ["2", "0", "-1", "x", "1.0", "9" * 40, "%00"])
async def test_a_delivery_that_is_not_there(house: Stages, number: str) -> None:
    hook, neighbour = (await added(house))["id"], (await added(house))["id"]
    await deliveries(house, neighbour, 2)
    for method, path in (("GET", number), ("POST", f"{number}/resend")):
        answer = await house.client.request(method, f"{PATH}/{hook}/deliveries/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "webhook_delivery_not_found")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": ""}, 401, "unauthenticated"),
        ({"Authorization": "Bearer nobody"}, 401, "unauthenticated"),
        ({"workspaceId": ""}, 400, "missing_header"),
        ({"workspaceId": "beta"}, 403, "wrong_workspace"),
        ({"Authorization": "Bearer token-test"}, 403, "live_key_needed"),
    ],
)
async def test_who_may_not_is_told_so_before_anything_is_read(
    house: Stages, headers: dict[str, str], status: int, code: str
) -> None:
    house.directory.keys = {**house.directory.keys, "token-test": ApiKey("key-test", "alpha", test=True)}
    for method, path in (("POST", ""), ("GET", ""), *((method, f"/whk_1{path}") for method, path in CALLS)):
        answer = await house.client.request(method, PATH + path, headers=headers, content=b"{")
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_an_account_may_be_named_and_is_passed_over(house: Stages) -> None:
    for account in (HEADERS["integrationAccountId"], "of-nobody"):
        assert (await house.client.get(PATH, headers={"integrationAccountId": account})).status_code == 200


@pytest.mark.parametrize(
    ("away", "code"),
    [("directory", "tenancy_unavailable"), ("deliveries", "store_unavailable")],
)
async def test_an_outage_is_answered_as_one(house: Stages, away: str, code: str) -> None:
    hook = (await added(house))["id"]
    getattr(house, away).away = True
    answer = await house.client.get(f"{PATH}/{hook}/deliveries")
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, code, "1")


async def test_head_is_answered_wherever_get_is(house: Stages) -> None:
    hook = (await added(house))["id"]
    await deliveries(house, hook, 1)
    for path in (PATH, f"{PATH}/{hook}", f"{PATH}/{hook}/deliveries", f"{PATH}/{hook}/deliveries/1"):
        assert (await house.client.head(path)).status_code == 200


@pytest.mark.parametrize("named", ["4242424242424242", "whk_4242424242424242", "%1b%5d0;owned%07%0aforged%e2%80%ae"])
async def test_what_is_no_webhook_s_id_is_not_logged(house: Stages, named: str) -> None:
    with structlog.testing.capture_logs() as logged:
        await house.client.delete(f"{PATH}/{named}")
    (line,) = [each for each in logged if each["event"] == "webhook.managed"]
    assert line["endpoint_id"] is None
    assert "4242424242424242" not in str(logged)
    assert "owned" not in str(logged)


async def test_calls_count_against_the_limit_of_their_key(house: Stages) -> None:
    """As submissions do, and with them."""
    keys = dict(house.directory.keys)
    keys["token-alpha"] = replace(keys["token-alpha"], limit=RateLimit(3, 60))
    house.directory.keys = keys
    answers = [await house.client.get(PATH) for _ in range(2)]
    assert [answer.headers["ratelimit"] for answer in answers] == ['"default";r=2;t=20', '"default";r=1;t=20']
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=HEADERS)
    assert (answer.status_code, answer.headers["ratelimit"]) == (202, '"default";r=0;t=20')
    refused = await house.client.post(PATH, json={"url": URL})
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "rate_limited", "20")
    await house.clock.advance(20)
    assert (await house.client.get(PATH)).json()["data"] == []


async def test_a_workspace_that_has_its_share_under_way_leaves_another_its_own(house: Stages) -> None:
    admission = house.admission
    places = [place for _ in range(admission.requests.total) if (place := admission.enter("alpha"))]
    refused = await house.client.get(PATH)
    assert (refused.status_code, refused.json()["code"], "retry-after" in refused.headers) == (503, "overloaded", True)
    assert (await house.client.get(PATH, headers=OTHER_WORKSPACE)).status_code == 200
    for place in places:
        place.end()
    assert (await house.client.get(PATH)).status_code == 200


async def test_a_page_of_deliveries_with_long_details_ends_early(house: Stages) -> None:
    hook = (await added(house))["id"]
    await deliveries(house, hook, 6)
    for each in house.deliveries.of(hook):
        house.deliveries.change(
            each.id, attempts=(DeliveryAttempt("2027-01-01T00:00:00.000Z", 1, detail="d" * 400_000),)
        )
    pages, query = [], "?limit=200"
    while query:
        page = (await house.client.get(f"{PATH}/{hook}/deliveries{query}")).json()
        pages.append([each["id"] for each in page["data"]])
        assert page["meta"]["limit"] == 200
        cursor = page["meta"]["cursors"]["next"]
        query = f"?limit=200&cursor={cursor}" if cursor else ""
    assert pages == [[6, 5], [4, 3], [2, 1]]
