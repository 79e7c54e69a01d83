"""Who is let in: the three headers of section 5, case by case, and what each refusal gives away."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
import structlog
from starlette.datastructures import Headers

from forwarder.reservation.problems import Problem
from forwarder.tenancy.access import Access, BadTokens, Caller, forbidden
from forwarder.tenancy.port import Account, ApiKey, TenancyUnavailable, read_networks
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock

OURS = Account("acc-1", "ws-1", "generic", "https://pms.example.com", "sealed")
THEIRS = Account("acc-2", "ws-2", "generic", "https://other.example.com", "sealed")
RIGHT = {"Authorization": "Bearer good-token", "workspaceId": "ws-1", "integrationAccountId": "acc-1"}


@dataclass
class KnownDirectory:
    """Implements `Directory` with one key and two workspaces' accounts."""

    away: bool = False

    async def key(self, token: str) -> ApiKey | None:
        if self.away:
            raise TenancyUnavailable("away")
        return ApiKey("key_1", "ws-1") if token == "good-token" else None

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return {account.id: account for account in (OURS, THEIRS)}.get(account_id)


async def authenticate(headers: Headers, directory: KnownDirectory | None = None) -> Caller | Problem:
    return await Access(directory or KnownDirectory(), ManualClock()).caller(dict(headers.raw), "192.0.2.1")


async def answer(**changes: str | None) -> Caller | Problem:
    headers = {name: value for name, value in (RIGHT | changes).items() if value is not None}
    return await authenticate(Headers(headers))


async def refusal(**changes: str | None) -> Problem:
    refused = await answer(**changes)
    assert isinstance(refused, Problem)
    return refused


async def test_the_right_headers_make_a_caller() -> None:
    assert await answer() == Caller("ws-1", OURS, "key_1")


@pytest.mark.parametrize("convert", [str.lower, str.upper, str.title])
async def test_header_names_are_read_in_any_case(convert: type[str]) -> None:
    headers = Headers({convert(name): value for name, value in RIGHT.items()})
    assert await authenticate(headers) == Caller("ws-1", OURS, "key_1")


@pytest.mark.parametrize("authorization", ["bearer good-token", "BEARER good-token", "  Bearer   good-token "])
async def test_the_scheme_is_read_in_any_case(authorization: str) -> None:
    assert isinstance(await answer(Authorization=authorization), Caller)


@for_each(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "good-token",
        "Basic good-token",
        "Bearer good token",
        "Bearer wrong-token",
        "Bearergood-token",
    ],
)
async def test_without_a_token_in_force_nobody_is_let_in(authorization: str | None) -> None:
    refused = await refusal(Authorization=authorization)
    assert (refused.status, refused.code) == (401, "unauthenticated")
    assert "Authorization: Bearer" in refused.detail


@pytest.mark.parametrize("authorization", [None, "", "Bearer wrong-token"])
async def test_without_a_token_what_else_is_missing_is_said_at_once(authorization: str | None) -> None:
    bare = await refusal(Authorization=authorization, workspaceId=None, integrationAccountId="")
    assert (bare.status, bare.code) == (401, "unauthenticated")
    assert all(name in bare.detail for name in RIGHT)
    assert "integrationAccountId" not in (await refusal(Authorization=authorization)).detail


async def test_all_missing_headers_are_named_at_once() -> None:
    refused = await refusal(workspaceId="", integrationAccountId=None)
    assert (refused.status, refused.code) == (400, "missing_header")
    assert "workspaceId" in refused.detail
    assert "integrationAccountId" in refused.detail


@pytest.mark.parametrize("name", RIGHT)
async def test_the_same_header_twice_is_one(name: str) -> None:
    assert await answer(**{name: f"{RIGHT[name]}, {RIGHT[name]}"}) == Caller("ws-1", OURS, "key_1")


@pytest.mark.parametrize(
    "changes",
    [
        {"Authorization": "Bearer good-token, Bearer secret-9"},
        {"workspaceId": "ws-1,secret-9"},
        {"workspaceId": "secret-9, ws-1", "integrationAccountId": "acc-1, secret-9"},
        {"integrationAccountId": "acc-1,"},
    ],
)
async def test_different_values_of_one_header_are_the_fault(changes: Mapping[str, str]) -> None:
    refused = await refusal(**changes)
    assert (refused.status, refused.code) == (400, "conflicting_headers")
    assert {name for name in RIGHT if name in refused.detail} == set(changes)
    assert "secret-9" not in refused.detail


@for_each("name", ["workspaceId", "integrationAccountId"])
@for_each("value", [None, "", "  "])
async def test_a_missing_header_is_named(name: str, value: str | None) -> None:
    refused = await refusal(**{name: value})
    assert (refused.status, refused.code) == (400, "missing_header")
    assert name in refused.detail


async def test_another_workspace_is_refused_alike_whether_or_not_there_is_one() -> None:
    refused = await refusal(workspaceId="ws-2")
    assert (refused.status, refused.code) == (403, "wrong_workspace")
    assert refused == await refusal(workspaceId="no-such-workspace")


async def test_another_workspaces_account_is_refused_as_one_that_is_not_there() -> None:
    refused = await refusal(integrationAccountId="acc-2")
    assert (refused.status, refused.code) == (404, "account_not_found")
    assert refused == await refusal(integrationAccountId="no-such-account")


@pytest.mark.parametrize(
    "changes",
    [
        {"Authorization": "Bearer secret-9"},
        {"workspaceId": "secret-9"},
        {"integrationAccountId": "secret-9"},
    ],
)
async def test_no_refusal_quotes_what_was_sent(changes: Mapping[str, str]) -> None:
    assert "secret-9" not in str((await refusal(**changes)).as_json())


async def test_an_outage_is_not_taken_for_a_wrong_key() -> None:
    with pytest.raises(TenancyUnavailable):
        await authenticate(Headers(RIGHT), KnownDirectory(away=True))


# --- what a key may do ------------------------------------------------------------------------------------------------


KEY = ApiKey("key_1", "ws-1", scopes=frozenset({"read"}), networks=read_networks(["203.0.113.0/24", "2001:db8::/32"]))


def test_a_key_opens_what_it_has_the_scope_for_from_where_it_may() -> None:
    assert forbidden(KEY, "read", "203.0.113.9") is None
    assert forbidden(KEY, "read", "::ffff:203.0.113.9") is None
    assert forbidden(KEY, "read", "2001:db8::1") is None
    assert forbidden(replace(KEY, networks=()), "read", "") is None


@for_each("address", ["203.0.114.1", "2001:db9::1", "", "unknown", "203.0.113.9, 203.0.113.9"])
def test_from_anywhere_else_it_opens_nothing(address: str) -> None:
    refused = forbidden(KEY, "read", address)
    assert refused is not None
    assert (refused.status, refused.code) == (403, "address_not_allowed")
    assert address in refused.detail


def test_the_scope_that_it_lacks_is_named() -> None:
    refused = forbidden(KEY, "cancel", "203.0.113.9")
    assert refused is not None
    assert (refused.status, refused.code, refused.extra) == (403, "insufficient_scope", {"scope": "cancel"})
    assert "cancel" in refused.detail


async def test_an_expired_key_is_told_so_to_its_holder_alone() -> None:
    clock = ManualClock()
    access = Access(Expiring(clock.now() + timedelta(seconds=60)), clock)
    assert isinstance(await access.caller(dict(Headers(RIGHT).raw), ""), Caller)
    await clock.advance(60)
    expired = await access.caller(dict(Headers(RIGHT).raw), "")
    assert isinstance(expired, Problem)
    assert (expired.status, expired.code) == (401, "key_expired")
    guessed = await access.caller(dict(Headers(RIGHT | {"Authorization": "Bearer good-tokem"}).raw), "")
    assert isinstance(guessed, Problem)
    assert (guessed.code, "expired" in guessed.detail) == ("unauthenticated", False)


async def test_a_caller_is_remembered_for_a_second_by_all_that_names_it() -> None:
    clock = ManualClock()
    access, fields = Access(KnownDirectory(), clock), dict(Headers(RIGHT).raw)
    assert access.recent(fields) is None
    caller = await access.caller(fields, "")
    assert access.recent(fields) is access.recent(fields | {b"other": b"field"}) is caller
    for name, value in fields.items():
        assert access.recent(fields | {name: value + b"x"}) is None
        assert access.recent({other: fields[other] for other in fields if other != name}) is None
    await clock.advance(1)
    assert access.recent(fields) is None


async def test_the_holder_of_a_key_that_expires_is_not_remembered() -> None:
    clock = ManualClock()
    access, fields = Access(Expiring(clock.now() + timedelta(seconds=60)), clock), dict(Headers(RIGHT).raw)
    assert isinstance(await access.caller(fields, ""), Caller)
    assert access.recent(fields) is None


@dataclass
class Expiring(KnownDirectory):
    """With a key that expires."""

    def __init__(self, expires_at: datetime) -> None:
        self.expires_at = expires_at

    async def key(self, token: str) -> ApiKey | None:
        key = await super().key(token)
        return key and replace(key, expires_at=self.expires_at)


# --- who tries tokens -------------------------------------------------------------------------------------------------


async def test_who_tries_tokens_is_told_to_stop_and_who_has_one_is_let_in_beside() -> None:
    clock = ManualClock()
    access = Access(KnownDirectory(), clock, BadTokens(clock, 60))
    tried = Counter[int]()
    with structlog.testing.capture_logs() as logged:
        for number in range(3_141):
            refused = await access.caller(
                dict(Headers(RIGHT | {"Authorization": f"Bearer {number}"}).raw), "198.51.100.7"
            )
            assert isinstance(refused, Problem)
            tried[refused.status] += 1
            assert (refused.retry_after is None) == (refused.status == 401)
            if number % 100 == 0:
                assert isinstance(await access.caller(dict(Headers(RIGHT).raw), "198.51.100.7"), Caller)
    assert tried == {401: 60, 429: 3_081}
    assert [(line["event"], line["address"]) for line in logged] == [("tokens.throttled", "198.51.100.7")]
    other = await access.caller(dict(Headers(RIGHT | {"Authorization": "Bearer x"}).raw), "198.51.100.8")
    assert isinstance(other, Problem)
    assert other.status == 401
