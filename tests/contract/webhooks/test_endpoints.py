"""Endpoints of webhooks, on every backend: whose they are, what they take, and how their secrets change."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import open_engine
from forwarder.tenancy.port import (
    MAX_ENDPOINTS,
    MAX_PREVIOUS_SECRETS,
    Account,
    Disabled,
    Endpoint,
    NotKnown,
    PreviousSecret,
    TenancyUnavailable,
    TooManyEndpoints,
    UnknownAccount,
)
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.endpoints import Endpoints
from tests.support.store.stored import NOBODY_LISTENS
from tests.support.worker.works import NOW

FIRST = Endpoint(
    "whk_1",
    "ws-1",
    "https://a.example/hook",
    None,
    "the first",
    True,
    None,
    None,
    "c2VhbGVk",
    NOW,
)
SECOND = replace(FIRST, id="whk_2", types=("reservation.failed.v1",), created_at=NOW + timedelta(milliseconds=1))


@pytest.fixture
async def endpoints(engine: AsyncEngine) -> Endpoints:
    """With the workspaces "ws-1" and "ws-2", and an account of each."""
    tenancy = TenancyAdmin(engine)
    for workspace, account_id in (("ws-1", "acc"), ("ws-2", "acc-2")):
        await tenancy.add_workspace(workspace)
        await tenancy.put_account(Account(account_id, workspace, "generic", "https://pms.example", ""))
    return Endpoints(engine)


async def test_an_endpoint_is_kept_as_it_is(endpoints: Endpoints) -> None:
    await endpoints.add(SECOND)
    await endpoints.add(FIRST)
    assert await endpoints.endpoint("whk_1") == FIRST
    assert await endpoints.of("ws-1") == [FIRST, SECOND]
    assert await endpoints.of(None) == [FIRST, SECOND]
    assert await endpoints.of("ws-2") == []
    assert await endpoints.endpoint("whk_3") is None
    assert await endpoints.endpoint("whk_\0") is None


def test_an_endpoint_takes_what_it_asked_for() -> None:
    source = {"account_id": "acc", "property_id": "1001"}
    assert FIRST.takes(kind="reservation.confirmed.v1", **source)
    assert SECOND.takes(kind="reservation.failed.v1", **source)
    assert not SECOND.takes(kind="reservation.confirmed.v1", **source)


async def test_an_endpoint_is_of_a_workspace_that_there_is(endpoints: Endpoints) -> None:
    with pytest.raises(NotKnown, match="ws-9"):
        await endpoints.add(replace(FIRST, workspace_id="ws-9"))


async def test_a_workspace_has_so_many_at_most(endpoints: Endpoints) -> None:
    for number in range(MAX_ENDPOINTS):
        await endpoints.add(replace(FIRST, id=f"whk_{number}"))
    with pytest.raises(TooManyEndpoints, match=str(MAX_ENDPOINTS)):
        await endpoints.add(replace(FIRST, id="whk_more"))
    await endpoints.add(replace(FIRST, id="whk_more", workspace_id="ws-2"))


async def test_a_disabled_endpoint_is_sent_nothing_until_it_is_enabled(endpoints: Endpoints) -> None:
    await endpoints.add(FIRST)
    await endpoints.add(replace(FIRST, id="whk_other", workspace_id="ws-2"))
    assert await endpoints.enabled_of({"ws-1"}) == [FIRST]
    assert not await endpoints.disable("whk_1", Disabled.GONE, now=NOW, url="https://of-before.example/")
    assert await endpoints.disable("whk_1", Disabled.GONE, now=NOW, url=FIRST.url)
    assert await endpoints.any_enabled()
    assert await endpoints.remove("whk_other")
    assert not await endpoints.any_enabled()
    assert not await endpoints.disable("whk_1", Disabled.FAILING, now=NOW)
    assert await endpoints.enabled_of({"ws-1"}) == []
    assert await endpoints.enabled_of(()) == ()
    assert await endpoints.endpoint("whk_1") == replace(FIRST, enabled=False, disabled_reason="gone", disabled_at=NOW)
    assert await endpoints.enable("whk_1") == FIRST
    assert await endpoints.enabled_of({"ws-1", "ws-3"}) == [FIRST]


async def test_an_endpoint_can_be_changed(endpoints: Endpoints) -> None:
    await endpoints.add(FIRST)
    kinds = ("reservation.confirmed.v1", "reservation.failed.v1")
    wanted = replace(
        FIRST,
        url="https://b.example",
        types=kinds,
        account_ids=("acc",),
        property_ids=("A7", "1001"),
        description="",
        header_names=("X-Key",),
        headers="c2VhbGVk",
        asymmetric=True,
    )
    assert await endpoints.change(FIRST, replace(wanted, secret="stays", enabled=False)) == wanted
    assert await endpoints.endpoint("whk_1") == wanted
    assert await endpoints.change(FIRST, replace(FIRST, description="by one who saw it before")) is None
    assert await endpoints.endpoint("whk_1") == wanted
    assert await endpoints.change(wanted, FIRST) == FIRST


async def test_an_endpoint_selects_accounts_of_its_workspace(endpoints: Endpoints) -> None:
    for account_id in ("acc-2", "none"):
        with pytest.raises(UnknownAccount, match=account_id):
            await endpoints.add(replace(FIRST, account_ids=("acc", account_id)))
    await endpoints.add(replace(FIRST, account_ids=("acc",)))
    with pytest.raises(UnknownAccount, match="acc-2"):
        await endpoints.change(FIRST, replace(FIRST, account_ids=("acc-2",)))


async def test_a_rotated_secret_leaves_the_one_of_before_for_a_while(endpoints: Endpoints) -> None:
    await endpoints.add(FIRST)
    until = NOW + timedelta(days=1)
    rotated = await endpoints.rotate("whk_1", "bmV3", previous_until=until)
    assert rotated == replace(FIRST, secret="bmV3", previous=(PreviousSecret("c2VhbGVk", until),))
    at_once = await endpoints.rotate("whk_1", "bmV3ZXI=", previous_until=None)
    assert at_once == await endpoints.endpoint("whk_1") == replace(FIRST, secret="bmV3ZXI=")


async def test_a_second_rotation_leaves_the_earlier_secrets_their_time(endpoints: Endpoints) -> None:
    """The one replaced last, however short its time, and of those before it the longest."""
    await endpoints.add(FIRST)
    await endpoints.add(SECOND)
    for hour in range(2 * MAX_PREVIOUS_SECRETS):
        await endpoints.rotate("whk_1", f"secret-{hour}", previous_until=NOW + timedelta(hours=hour))
    rotated = await endpoints.rotate("whk_1", "newest", previous_until=NOW + timedelta(seconds=1))
    hours = range(2 * MAX_PREVIOUS_SECRETS - 1, MAX_PREVIOUS_SECRETS, -1)
    longest = [PreviousSecret(f"secret-{hour - 1}", NOW + timedelta(hours=hour)) for hour in hours]
    replaced = PreviousSecret(f"secret-{2 * MAX_PREVIOUS_SECRETS - 1}", NOW + timedelta(seconds=1))
    assert rotated == replace(FIRST, secret="newest", previous=(*longest, replaced))
    assert rotated.previous_until == longest[0].until
    assert await endpoints.of("ws-1") == [rotated, SECOND]
    assert await endpoints.change(FIRST, FIRST) == rotated
    assert await endpoints.rotate("whk_1", "safe", previous_until=None) == replace(FIRST, secret="safe")
    again = await endpoints.rotate("whk_1", "later", previous_until=NOW)
    assert again == replace(FIRST, secret="later", previous=(PreviousSecret("safe", NOW),))


async def test_a_process_of_the_release_before_may_end_all_secrets_and_remove_an_endpoint(
    endpoints: Endpoints, engine: AsyncEngine
) -> None:
    """It knows one previous secret, in the endpoint's row."""
    await endpoints.add(FIRST)
    rotations = [
        await endpoints.rotate("whk_1", f"secret-{hour}", previous_until=NOW + timedelta(hours=hour))
        for hour in (1, 2, 3)
    ]
    assert [each and len(each.previous) for each in rotations] == [1, 2, 3]
    async with engine.begin() as connection:
        (row,) = await connection.execute(text("SELECT secret, previous_secret FROM webhook_endpoints"))
        assert tuple(row) == ("secret-3", "secret-2")
        ended = "UPDATE webhook_endpoints SET secret = 'safe', previous_secret = NULL, previous_until = NULL"
        await connection.execute(text(ended))
    assert await endpoints.endpoint("whk_1") == replace(FIRST, secret="safe")
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM webhook_endpoints"))
    assert await endpoints.of(None) == []


async def test_what_is_removed_is_not_there(endpoints: Endpoints) -> None:
    await endpoints.add(FIRST)
    assert await endpoints.remove("whk_1")
    assert not await endpoints.remove("whk_1")
    assert not await endpoints.disable("whk_1", Disabled.GONE, now=NOW)
    for missing in (
        await endpoints.endpoint("whk_1"),
        await endpoints.enable("whk_1"),
        await endpoints.rotate("whk_1", "bmV3", previous_until=None),
        await endpoints.change(FIRST, FIRST),
    ):
        assert missing is None


async def test_a_database_that_is_away_is_an_outage() -> None:
    away = open_engine(NOBODY_LISTENS)
    try:
        with pytest.raises(TenancyUnavailable):
            await Endpoints(away).of(None)
    finally:
        await away.dispose()
