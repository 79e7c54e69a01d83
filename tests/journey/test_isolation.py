"""No key opens what is another's: every operation of the contract, by every caller who may not.

The cells are made from the OpenAPI document, so that a new operation is covered by being described. For a path parameter that none
here has, `_Victim` must say what it names.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from forwarder.assembly.backend import Backend as OpenBackend
from forwarder.assembly.backend import open_backend
from forwarder.tenancy.port import ALL_SCOPES, SCOPES, Scope, read_networks
from tests.support.backends import slow_on
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, booking, deploy
from tests.support.deployment.site import settings_of
from tests.support.network.receiver import receiver
from tools.contracts.openapi import openapi

VICTIM, THIEF = "victims-account", "thiefs-account"
NOBODYS_WORKSPACE, NOBODYS_ACCOUNT = "nobodys-workspace", "nobodys-account"
GUEST = "zorah.quintavalle"
_CHANGING = {"date"}
"""Headers that no two responses share."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One of the contract."""

    method: str
    path: str
    scope: Scope
    body: bytes | None

    @property
    def names_account(self) -> bool:
        return "/webhooks" not in self.path


@dataclass(frozen=True, slots=True)
class Cell:
    """One request that must be refused: who makes it, and with what status and code it is refused. `twin`: the same about what does
    not exist, which must be answered to the byte alike."""

    who: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    status: int
    code: str
    twin: tuple[str, Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """What there is to steal."""

    request_id: str
    reservation_id: int
    webhook_id: str
    delivery_id: str

    def named(self, path: str, parameter: str) -> list[tuple[str, str]]:
        """What a path parameter may name: each beside one of its form that does not exist."""
        request = self.request_id, "rsv_" + "a" * 32
        reservation = str(self.reservation_id), "987654321"
        match path.split("/")[4], parameter:
            case "submissions", "request_id":
                return [request]
            case "reservations", "id":
                return [request, reservation] if path.endswith("/cancel") else [reservation]
            case "webhooks", "id":
                return [(self.webhook_id, self.webhook_id[:4] + "0" * len(self.webhook_id[4:]))]
            case "webhooks", "delivery_id":
                return [(self.delivery_id, "987654321" if self.delivery_id.isdigit() else "dlv_" + "0" * 24)]
            case _:
                raise AssertionError(f"{path}: say here what {{{parameter}}} names")


def operations() -> Iterator[Operation]:
    """Those for which an API key is asked."""
    document = openapi()
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            if described.get("security", document["security"]) == []:
                continue
            scope = described["x-required-scope"]
            assert scope in SCOPES, (path, method)
            examples = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples")
            body = json.dumps(next(iter(examples.values()))["value"]).encode() if examples else None
            yield Operation(method.upper(), path, scope, body)
            if method == "get":
                yield Operation("HEAD", path, scope, None)


def paths(operation: Operation, victim: Victim) -> list[tuple[str, str | None]]:
    """Its addresses about the victim's things, each with that of what does not exist."""
    found: list[tuple[str, str | None]] = [(operation.path, None)]
    for parameter in re.findall(r"\{(\w+)\}", operation.path):
        mark = f"{{{parameter}}}"
        found = [
            (path.replace(mark, theirs), (twin or path).replace(mark, nobodys))
            for path, twin in found
            for theirs, nobodys in victim.named(operation.path, parameter)
        ]
    return found


@dataclass(frozen=True, slots=True)
class Keys:
    """Tokens by what they are."""

    thief: str
    revoked: str
    expired: str
    elsewhere: str
    test: str
    without: Mapping[Scope, str]


@pytest.fixture
async def running(site: Site) -> AsyncIterator[Deployment]:
    more = {"FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"} if site.backend == "distributed" else {}
    more |= {"FORWARDER_BAD_TOKENS_PER_MINUTE": "100000"}
    async with deploy(replace(site, settings={**site.settings, **more})) as deployed:
        if site.backend == "distributed":
            deployed.add("notifier")
            await deployed.start()
        await deployed.add_account(VICTIM)
        yield deployed


@slow_on("distributed")
async def test_no_key_opens_what_is_anothers(running: Deployment) -> None:
    async with receiver() as customer:
        victim = await _moved_in(running, customer.url)
        async with open_backend(settings_of(running.site)) as backend:
            keys = await _keys(backend)
        before = await _belongings(running, victim)
        made = (await running.made())["made"]
        secrets = [GUEST, victim.request_id, customer.url, *re.findall(r'"secret":"(\w+)"', before)]
        cells = [cell for operation in operations() for cell in _cells(operation, victim, keys, running)]
        leaks = [fault for cell in cells for fault in await _faults(running, cell, secrets)]
        if await _belongings(running, victim) != before:
            leaks.append("what the victim has was changed")
        if (await running.made())["made"] != made:
            leaks.append("a PMS was asked for something")
        print(f"isolation: {len(cells)} cells, {len(leaks)} leaks")
        assert leaks == []
        assert len(cells) > 200


def _cells(operation: Operation, victim: Victim, keys: Keys, running: Deployment) -> Iterator[Cell]:
    ours = {"Authorization": f"Bearer {running.token}", "workspaceId": "demo", "integrationAccountId": VICTIM}
    thiefs = {"Authorization": f"Bearer {keys.thief}", "workspaceId": "thief", "integrationAccountId": THIEF}
    for path, twin in paths(operation, victim):

        def cell(
            who: str,
            headers: Mapping[str, str],
            status: int,
            code: str,
            of_nothing: tuple[str, Mapping[str, str]] | None = None,
            path: str = path,
        ) -> Cell:
            return Cell(who, operation.method, path, headers, operation.body, status, code, of_nothing)

        def by(token: str, **changed: str) -> Mapping[str, str]:
            return {**ours, "Authorization": f"Bearer {token}", **changed}

        if twin is not None:
            yield cell("who names another's thing", thiefs, 404, "", (twin, thiefs))
        elsewhere = {**thiefs, "workspaceId": "demo", "integrationAccountId": VICTIM}
        nowhere = {**elsewhere, "workspaceId": NOBODYS_WORKSPACE}
        yield cell("who names another workspace", elsewhere, 403, "wrong_workspace", (path, nowhere))
        if operation.names_account:
            account = {**thiefs, "integrationAccountId": VICTIM}
            nobodys = {**thiefs, "integrationAccountId": NOBODYS_ACCOUNT}
            yield cell("who names another's account", account, 404, "account_not_found", (path, nobodys))
        yield cell("a revoked key", by(keys.revoked), 401, "unauthenticated", (path, by("fwd_live_x")))
        yield cell("an expired key", by(keys.expired), 401, "key_expired")
        yield cell("a key without the scope", by(keys.without[operation.scope]), 403, "insufficient_scope")
        yield cell("a key of other addresses", by(keys.elsewhere), 403, "address_not_allowed")
        nobody = {name: value for name, value in ours.items() if name != "Authorization"}
        yield cell("nobody", nobody, 401, "unauthenticated")
        yield from _by_test_key(operation, cell("a test key", by(keys.test), 0, ""), twin, running)


def _by_test_key(operation: Operation, cell: Cell, twin: str | None, running: Deployment) -> Iterator[Cell]:
    """A test key acts in the shadow of the account: what is live is not there. Where nothing is simulated, it is refused."""
    if not operation.names_account:
        yield replace(cell, status=403, code="live_key_needed")
    elif operation.method == "POST" and running.site.backend == "distributed":
        yield replace(cell, status=403, code="test_mode_unavailable")
    elif twin is not None:
        yield replace(cell, status=404, twin=(twin, cell.headers))


async def _faults(running: Deployment, cell: Cell, secrets: list[str]) -> list[str]:
    """What the response gives away."""
    response = await _sent(running, cell.method, cell.path, cell.headers, cell.body)
    what = f"{cell.who}: {cell.method} {cell.path} → {response.status_code} {response.text}"
    faults = [] if response.status_code == cell.status else [what]
    if cell.method != "HEAD" and cell.code and response.json().get("code") != cell.code:
        faults.append(what)
    faults += [f"{what} tells {secret}" for secret in secrets if secret in response.text]
    if cell.twin is not None:
        path, headers = cell.twin
        nothing = await _sent(running, cell.method, path, headers, cell.body)
        if _seen(response) != _seen(nothing):
            faults.append(f"{what}, but of what does not exist {nothing.status_code} {nothing.text}")
    return faults


async def _sent(
    running: Deployment, method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> httpx.Response:
    role = "notifier" if "/webhooks" in path else "ingress" if method == "POST" else "query"
    sent = {**headers, "Request-Id": "one-name-for-all", **({"Content-Type": "application/json"} if body else {})}
    return await running.client.request(method, running.url(role) + path, headers=sent, content=body)


def _seen(response: httpx.Response) -> object:
    headers = sorted((name, value) for name, value in response.headers.items() if name not in _CHANGING)
    return response.status_code, headers, response.content


async def _moved_in(running: Deployment, url: str) -> Victim:
    """A reservation that was made, and a webhook that was told of it."""
    headers = running.headers(VICTIM)
    hooks = running.url("notifier") + "/api/v1/vrs/webhooks"
    hook = (await running.client.post(hooks, json={"url": url}, headers=headers)).json()["data"]["id"]
    request = booking(1)
    request["guest"]["email"] = f"{GUEST}@example.com"
    accepted = await running.submit(VICTIM, request, Prefer="wait=30")
    assert accepted.status_code == 201, accepted.text
    record = accepted.json()["data"]
    deliveries: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not any(each["status"] == "DELIVERED" for each in deliveries):
            page = await running.client.get(f"{hooks}/{hook}/deliveries", headers=headers)
            deliveries = page.json()["data"]
    return Victim(record["requestId"], record["id"], hook, str(deliveries[0]["id"]))


async def _belongings(running: Deployment, victim: Victim) -> str:
    """All that the victim's own key sees."""
    headers = running.headers(VICTIM)
    hook = f"/api/v1/vrs/webhooks/{victim.webhook_id}"
    paths = ("/api/v1/vrs/webhooks", hook + "/deliveries", f"/api/v1/vrs/submissions/{victim.request_id}")
    seen = [(await _sent(running, "GET", path, headers, None)).text for path in paths]
    return "\n".join([*seen, json.dumps(await running.records(VICTIM))])


async def _keys(backend: OpenBackend) -> Keys:
    """Another workspace with all that it takes, and the victim's keys that do not open anything, or not everything."""
    tenancy = backend.tenancy
    await tenancy.add_workspace("thief")
    (victims,) = [each for each in await tenancy.accounts("demo") if each.id == VICTIM]
    await tenancy.put_account(replace(victims, id=THIEF, workspace_id="thief"))
    _, thief = await tenancy.add_key("thief", scopes=ALL_SCOPES)
    key, revoked = await tenancy.add_key("demo", scopes=ALL_SCOPES)
    await tenancy.revoke_key(key.id)
    past = datetime.now(UTC) - timedelta(seconds=1)
    _, expired = await tenancy.add_key("demo", scopes=ALL_SCOPES, expires_at=past)
    networks = read_networks(["203.0.113.0/24"])
    _, elsewhere = await tenancy.add_key("demo", scopes=ALL_SCOPES, networks=networks)
    _, test = await tenancy.add_key("demo", test=True, scopes=ALL_SCOPES)
    without = {scope: (await tenancy.add_key("demo", scopes=ALL_SCOPES - {scope}))[1] for scope in SCOPES}
    return Keys(thief, revoked, expired, elsewhere, test, without)
