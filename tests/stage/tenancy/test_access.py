"""Who is let in: the three headers of section 5, case by case, and what each refusal gives away."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from starlette.datastructures import Headers

from forwarder.reservation.problems.problem import Problem
from forwarder.tenancy.access import Caller, authenticate
from forwarder.tenancy.port import Account, ApiKey, TenancyUnavailable

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

    async def account(self, account_id: str) -> Account | None:
        return {account.id: account for account in (OURS, THEIRS)}.get(account_id)


async def answer(**changes: str | None) -> Caller | Problem:
    headers = {name: value for name, value in (RIGHT | changes).items() if value is not None}
    return await authenticate(KnownDirectory(), Headers(headers))


async def refusal(**changes: str | None) -> Problem:
    refused = await answer(**changes)
    assert isinstance(refused, Problem)
    return refused


async def test_the_right_headers_make_a_caller() -> None:
    assert await answer() == Caller("ws-1", OURS, "key_1")


@pytest.mark.parametrize("convert", [str.lower, str.upper, str.title])
async def test_header_names_are_read_in_any_case(convert: type[str]) -> None:
    headers = Headers({convert(name): value for name, value in RIGHT.items()})
    assert await authenticate(KnownDirectory(), headers) == Caller("ws-1", OURS, "key_1")


@pytest.mark.parametrize("authorization", ["bearer good-token", "BEARER good-token", "  Bearer   good-token "])
async def test_the_scheme_is_read_in_any_case(authorization: str) -> None:
    assert isinstance(await answer(Authorization=authorization), Caller)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("name", ["workspaceId", "integrationAccountId"])
@pytest.mark.parametrize("value", [None, "", "  "])
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
        await authenticate(KnownDirectory(away=True), Headers(RIGHT))
