"""BookingSync: access tokens that end, and the refresh tokens that change with each of them."""

import json
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Grant, MemoryGrants
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.pms.httpx_transport import replying
from tests.support.pms.kinds.booking_sync import (
    BASE_URL,
    CLIENT,
    CONNECTION,
    NOW,
    Vendor,
    a_booking,
    answered,
    asked_for,
    create,
)
from tests.support.simulator.server import booking

OAUTH = {"clientId": "app", "clientSecret": "s3cr3t", "refreshToken": "refresh-0"}
ENDED = answered(401, {"error": "Not authorized"})
MADE = answered(201, {"bookings": [a_booking()]})
TOKEN = "https://www.bookingsync.com/oauth/token"


def account(grants: MemoryGrants | None = None, **options: str) -> AccountConnection:
    kept = grants or MemoryGrants()
    return replace(CONNECTION, credential=json.dumps(OAUTH), options=options, grants=kept)


def granted(number: int = 1, **more: object) -> httpx.Response:
    body = {"access_token": f"access-{number}", "refresh_token": f"refresh-{number}", "expires_in": 7200}
    return answered(200, {**body, "token_type": "bearer", "scope": "public", **more})


def bearer_of(request: httpx.Request) -> str:
    return request.headers["Authorization"]


async def test_the_first_token_is_asked_for_as_the_vendor_documents_it() -> None:
    grants = MemoryGrants()
    outcome, requests = await create(booking(), granted(), CLIENT, MADE, connection=account(grants))
    assert isinstance(outcome, Confirmed)
    assert asked_for(requests)[0] == ("POST", TOKEN)
    assert requests[0].headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert "Authorization" not in requests[0].headers
    assert parse_qs(requests[0].content.decode()) == {
        "grant_type": ["refresh_token"],
        "client_id": ["app"],
        "client_secret": ["s3cr3t"],
        "refresh_token": ["refresh-0"],
    }
    assert [bearer_of(request) for request in requests[1:]] == ["Bearer access-1"] * 2
    assert await grants.current("acme") == Grant("access-1", "refresh-1", NOW + timedelta(hours=2), NOW)


async def test_where_and_how_it_is_asked_may_be_set() -> None:
    connection = account(tokenUrl="https://auth.example/token", redirectUri="urn:ietf:wg:oauth:2.0:oob")
    _, requests = await create(booking(), granted(), CLIENT, MADE, connection=connection)
    assert str(requests[0].url) == "https://auth.example/token"
    assert parse_qs(requests[0].content.decode())["redirect_uri"] == ["urn:ietf:wg:oauth:2.0:oob"]


async def test_a_token_that_is_not_taken_is_renewed_once_and_the_request_sent_again() -> None:
    grants = MemoryGrants()
    outcome, requests = await create(booking(), granted(), CLIENT, ENDED, granted(2), MADE, connection=account(grants))
    assert isinstance(outcome, Confirmed)
    assert [bearer_of(request) for request in requests if str(request.url) != TOKEN] == [
        "Bearer access-1",
        "Bearer access-1",
        "Bearer access-2",
    ]
    assert parse_qs(requests[3].content.decode())["refresh_token"] == ["refresh-1"]
    assert requests[4].content == requests[2].content


async def test_a_renewed_token_that_is_not_taken_either_is_the_operators_business() -> None:
    outcome, requests = await create(booking(), granted(), ENDED, granted(2), ENDED, connection=account())
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_unauthorized"
    assert len(requests) == 4


async def test_a_token_is_renewed_before_it_ends() -> None:
    clock, vendor = ManualClock(NOW), Vendor(granted(), CLIENT, MADE, CLIENT, MADE, granted(2), CLIENT, MADE)
    async with open_directory(clock, transport=replying(vendor)) as directory:
        pms = directory.connect(account())
        await pms.create(booking())
        await clock.advance(7200 - 61)
        await pms.create(booking())
        assert len(vendor.requests) == 5
        await clock.advance(2)
        await pms.create(booking())
    assert [str(request.url) == TOKEN for request in vendor.requests] == [True] + [False] * 4 + [True, False, False]


@pytest.mark.parametrize("life", [None, 0, -1, 10**12, "3600s", "2027-01-31T00:00:00Z", [], True])
async def test_a_life_that_makes_no_sense_is_not_relied_on(life: object) -> None:
    grants = MemoryGrants()
    await create(booking(), granted(expires_in=life), CLIENT, MADE, connection=account(grants))
    assert await grants.current("acme") == Grant("access-1", "refresh-1", None, NOW)


async def test_blanks_around_a_token_are_not_kept_with_it() -> None:
    grants = MemoryGrants()
    made = await create(booking(), granted(access_token="access-1\n"), CLIENT, MADE, connection=account(grants))
    assert isinstance(made[0], Confirmed)


@pytest.mark.parametrize("said", [None, "", False, {}])
async def test_a_refresh_token_that_did_not_change_is_used_again(said: object) -> None:
    grants = MemoryGrants()
    await create(booking(), granted(refresh_token=said), CLIENT, MADE, connection=account(grants))
    kept = await grants.current("acme")
    assert kept is not None
    assert kept.refresh_token == "refresh-0"


@for_each(
    ("answer", "reason"),
    [
        (answered(401, {"error": "invalid_grant"}), "pms_unauthorized"),
        (answered(400, {"error": "invalid_grant"}), "pms_unauthorized"),
        (answered(429, b""), "pms_throttled"),
        (answered(503, b""), "pms_unavailable"),
        (answered(500, b""), "pms_failed"),
        (answered(302, b""), "pms_redirected"),
        (answered(404, b""), "pms_refused_request"),
        (answered(200, b"<html>"), "pms_answer_not_understood"),
        (answered(200, {"access_token": 5}), "pms_answer_not_understood"),
        (httpx.ReadTimeout("late"), "pms_timed_out"),
        (httpx.ReadError("reset"), "pms_connection_lost"),
    ],
)
async def test_where_there_is_no_token_nothing_was_booked(
    answer: httpx.Response | httpx.HTTPError, reason: str
) -> None:
    outcome, _ = await create(booking(), answer, connection=account())
    assert isinstance(outcome, Deferred)
    assert outcome.reason == reason
    after_the_client, _ = await create(booking(), granted(), CLIENT, ENDED, answer, connection=account())
    assert isinstance(after_the_client, Deferred)


async def test_the_booking_itself_is_in_doubt_as_ever() -> None:
    outcome, _ = await create(
        booking(), granted(), CLIENT, ENDED, granted(2), httpx.ReadTimeout("late"), connection=account()
    )
    assert isinstance(outcome, InDoubt)


@for_each("credential", ["{", "{}", '{"clientId": "app", "clientSecret": "s"}', json.dumps({**OAUTH, "more": 1}), " {"])
async def test_a_credential_that_is_half_of_one_is_said_so_and_not_shown(credential: str) -> None:
    outcome, requests = await create(booking(), connection=replace(CONNECTION, credential=credential))
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_credential_invalid"
    assert "clientSecret" in outcome.detail
    assert "s3cr3t" not in repr(outcome)
    assert requests == []


async def test_secrets_are_in_nothing_that_can_be_written_down() -> None:
    vendor = Vendor(granted(), ENDED, answered(401, {"error": "invalid_grant"}))
    async with open_directory(ManualClock(NOW), transport=replying(vendor)) as directory:
        pms = directory.connect(account())
        written = [repr(pms), repr(await pms.create(booking())), repr(vars(pms.adapter))]  # type: ignore[attr-defined]
    assert not [line for line in written for secret in ("s3cr3t", "refresh-0", "access-1") if secret in line]


async def test_the_base_url_says_where_the_server_is() -> None:
    assert BASE_URL.endswith("/api/v3")
    connection = replace(account(), base_url=f"{BASE_URL}/")
    _, requests = await create(booking(), granted(), CLIENT, MADE, connection=connection)
    assert str(requests[0].url) == TOKEN
