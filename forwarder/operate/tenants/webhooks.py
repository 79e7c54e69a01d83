"""`forwarder webhook …`: where the results of a workspace are posted, and the deliveries there. A secret is shown only once."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, cast

from typer import Argument, Option

from forwarder.assembly.parts import webhooks_of
from forwarder.notifier import webhooks
from forwarder.notifier.api import delivery_json, endpoint_json
from forwarder.operate.command import commands, moment, open_deployment, require_known, text_from
from forwarder.operate.output import Failed, Printed, Table, WrongUsage, fields_of, more_than, of_one
from forwarder.store.deliveries import DeliveryStatus
from forwarder.tenancy.port import Endpoint, TooManyEndpoints, UnknownAccount
from forwarder.webhooks.port import BadHeaders, BadTarget, public_key

_SELECTED: Final = ("types", "integrationAccountIds", "propertyIds")
_EVERY: Final = "all"

_Id = Annotated[str, Argument(metavar="ID", help="The webhook's identifier: whk_….")]
_OfWorkspace = Annotated[str | None, Option("--workspace", help="Only if it is this workspace's.")]
_DeliveryId = Annotated[int, Argument(metavar="DELIVERY", help="The delivery's number in `webhook deliveries`.")]


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the owner of a webhook sets, as far as given.

    types: Only events of this type, such as reservation.confirmed.v1; repeatable; all for all.
    accounts: Only events of this integration account; repeatable; all for all.
    properties: Only events of this property; repeatable; all for all.
    headers_file: File with headers to send with each delivery, one a line, `Name: value`; - is standard input.
    asymmetric: Also sign with v1a (Ed25519), which the webhook's public key verifies."""

    types: Annotated[list[str] | None, Option("--type", metavar="TYPE")] = None
    accounts: Annotated[list[str] | None, Option("--account", metavar="ID")] = None
    properties: Annotated[list[str] | None, Option("--property", metavar="ID")] = None
    headers_file: Path | None = None
    asymmetric: Annotated[bool | None, Option("--v1a/--no-v1a")] = None
    description: Annotated[str | None, Option(help="What it is for.")] = None

    def given(self) -> webhooks.WebhookTerms:
        """Raises `WrongUsage`."""
        headers = None if self.headers_file is None else _headers_from(self.headers_file)
        given = {"description": self.description, "asymmetric": self.asymmetric, "headers": headers}
        terms: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        for name, option, values in (
            ("types", "--type", self.types),
            ("account_ids", "--account", self.accounts),
            ("property_ids", "--property", self.properties),
        ):
            if values and _EVERY in values and values != [_EVERY]:
                raise WrongUsage(f"{option} {_EVERY} means all: give it alone.")
            if values:
                terms[name] = None if values == [_EVERY] else values
        return cast("webhooks.WebhookTerms", terms)


@asynccontextmanager
async def _open_webhooks() -> AsyncIterator[webhooks.Webhooks]:
    """Raises `WrongUsage` if another command line would work, `Failed` if none would."""
    try:
        async with open_deployment() as backend:
            yield await webhooks_of(backend)
    except (BadHeaders, BadTarget, webhooks.HeadersNeeded, webhooks.UnknownType) as error:
        raise WrongUsage(str(error)) from error
    except UnknownAccount as error:
        raise WrongUsage(f"--account {error}.") from error
    except (webhooks.EndpointDisabled, TooManyEndpoints) as error:
        raise Failed(str(error)) from error


_Hooks = Annotated[webhooks.Webhooks, _open_webhooks]


def _row(endpoint: Endpoint) -> Mapping[str, Any]:
    return {"workspace": endpoint.workspace_id, **endpoint_json(endpoint)}


async def add(
    url: Annotated[str, Argument(metavar="URL", help="Where events are posted: https, and a public address.")],
    workspace: Annotated[str, Option(help="The workspace whose results are posted.")],
    *,
    terms: _Terms,
) -> Printed:
    """Add a webhook and print its secret, which is shown only this once. It receives events from now on."""
    given = terms.given()
    async with _open_webhooks() as hooks:
        endpoint, secret = await hooks.add(workspace, url, **given)
    return _with_secret(endpoint, secret, f"Webhook {endpoint.id} added for workspace {workspace}.")


async def list_webhooks(workspace: _OfWorkspace = None) -> Printed:
    """List webhooks, the oldest first."""
    async with open_deployment() as backend:
        rows = [_row(each) for each in await (await webhooks_of(backend)).endpoints(workspace)]
        await require_known(backend, rows, workspace=workspace)
    columns = ("id", "workspace", "url", "enabled", "disabledReason", *_SELECTED)
    return Printed(rows, Table([*map(_shown, rows)], columns))


def _shown(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**row, **{name: row[name] or _EVERY for name in _SELECTED}}


async def show(hooks: _Hooks, endpoint_id: _Id, workspace: _OfWorkspace = None) -> Printed:
    """Show one webhook, without its secret."""
    row = _row(await hooks.get(endpoint_id, workspace_id=workspace))
    return Printed(row, fields_of(_shown(row)))


async def change(
    endpoint_id: _Id, url: str | None = None, *, terms: _Terms, no_headers: bool = False, workspace: _OfWorkspace = None
) -> Printed:
    """Change a webhook's address, the events that it receives, or its headers, which replace all earlier ones.

    url: Post to this address from now on.
    no_headers: Remove all headers of yours."""
    given = terms.given()
    if no_headers:
        if terms.headers_file:
            raise WrongUsage("Give either --headers-file or --no-headers.")
        given["headers"] = {}
    if url is not None:
        given["url"] = url
    if not given:
        options = "--url, --type, --account, --property, --headers-file, --no-headers, --v1a or --description"
        raise WrongUsage(f"Say what to change: {options}.")
    async with _open_webhooks() as hooks:
        changed = await hooks.change(endpoint_id, workspace_id=workspace, **given)
    return Printed(_row(changed), f"Webhook {endpoint_id} changed.")


def _headers_from(file: Path) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(text_from(file).splitlines(), start=1):
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            raise WrongUsage(f"Line {number} of {file} is not a header, such as X-Api-Key: value.")
        if name in headers:
            raise WrongUsage(f"Line {number} of {file} repeats the header {name}.")
        if line.strip():
            headers[name] = value.strip()
    return headers


async def rotate(
    hooks: _Hooks,
    endpoint_id: _Id,
    overlap: Annotated[int, Option(min=0, max=webhooks.MAX_OVERLAP_SECONDS)] = webhooks.DEFAULT_OVERLAP_SECONDS,
    workspace: _OfWorkspace = None,
) -> Printed:
    """Replace a webhook's secret and print the new one, which is shown only this once.

    overlap: How many seconds the old secret signs as well."""
    endpoint, secret = await hooks.rotate(endpoint_id, workspace_id=workspace, overlap_seconds=overlap)
    until = f" The old one signs too for {overlap:,} s." if overlap else " The old one is out of use."
    return _with_secret(endpoint, secret, f"Webhook {endpoint_id} has a new secret.{until}")


def _with_secret(endpoint: Endpoint, secret: str, sentence: str) -> Printed:
    key = public_key(secret)
    keys = f"The public key of its v1a signatures:\n{key}\nIts secret, which is not shown again:\n{secret}"
    return Printed({**_row(endpoint), "secret": secret, "publicKey": key}, f"{sentence} {keys}")


async def disable(hooks: _Hooks, endpoint_id: _Id, workspace: _OfWorkspace = None) -> Printed:
    """Stop sending to a webhook. Events that occur meanwhile are not kept for it."""
    changed = await hooks.disable(endpoint_id, workspace_id=workspace)
    return Printed(_row(changed), f"Webhook {endpoint_id} is disabled.")


async def enable(hooks: _Hooks, endpoint_id: _Id, workspace: _OfWorkspace = None) -> Printed:
    """Send to a webhook again, from now on; `recover` also sends stopped deliveries."""
    changed = await hooks.enable(endpoint_id, workspace_id=workspace)
    return Printed(_row(changed), f"Webhook {endpoint_id} is enabled.")


async def remove(hooks: _Hooks, endpoint_id: _Id, workspace: _OfWorkspace = None) -> Printed:
    """Remove a webhook. Nothing more is sent to it."""
    await hooks.remove(endpoint_id, workspace_id=workspace)
    return Printed({"id": endpoint_id, "removed": True}, f"Webhook {endpoint_id} is removed.")


async def send_test(hooks: _Hooks, endpoint_id: _Id, workspace: _OfWorkspace = None) -> Printed:
    """Send an event of type webhook.test.v1 to one webhook, even if it does not subscribe to that type."""
    number = await hooks.test(endpoint_id, workspace_id=workspace)
    sentence = f"On its way; `forwarder webhook delivery {endpoint_id} {number}` shows the result."
    return Printed({"id": endpoint_id, "deliveryId": number}, sentence)


async def deliveries(
    endpoint_id: _Id,
    status: Annotated[str | None, Option(help="Only those with this status, such as FAILED.")] = None,
    limit: Annotated[int, Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    tried: bool = False,
    workspace: _OfWorkspace = None,
) -> Printed:
    """List a webhook's deliveries of the last 30 days, newest first; every try with --json.

    tried: Only those that were posted at least once: what its endpoint answers."""
    if status is not None and status.upper() not in DeliveryStatus.__members__:
        raise WrongUsage(f"There is no status {status!r}; there are: {', '.join(DeliveryStatus)}.")
    wanted = None if status is None else DeliveryStatus(status.upper())
    async with _open_webhooks() as hooks:
        # One more than is shown, to know whether there is one.
        found = await hooks.deliveries(endpoint_id, workspace_id=workspace, status=wanted, limit=limit + 1, tried=tried)
    rows = [delivery_json(each) for each in found[:limit]]
    # How the last try ended, in one word.
    ended = [row["attempts"][-1] if row["attempts"] else {"status": ""} for row in rows]
    shown = [{**row, "last": str(e["status"] or e.get("failure", ""))} for row, e in zip(rows, ended, strict=True)]
    columns = ("id", "createdAt", "type", "status", "tries", "dueAt", "last")
    return Printed(rows, Table(shown, columns), more_than(limit) if len(found) > limit else ())


async def delivery(
    hooks: _Hooks, endpoint_id: _Id, delivery_id: _DeliveryId, workspace: _OfWorkspace = None
) -> Printed:
    """Show one delivery: its event, its status, every try."""
    return of_one(delivery_json(await hooks.delivery(endpoint_id, delivery_id, workspace_id=workspace)))


async def resend(hooks: _Hooks, endpoint_id: _Id, delivery_id: _DeliveryId, workspace: _OfWorkspace = None) -> Printed:
    """Send a delivery again, soon and under the same webhook-id, even if it succeeded."""
    entry = await hooks.resend(endpoint_id, delivery_id, workspace_id=workspace)
    return Printed(delivery_json(entry), f"Delivery {delivery_id} is sent again.")


async def recover(endpoint_id: _Id, since: str, workspace: _OfWorkspace = None) -> Printed:
    """Send all undelivered events again: those that failed, and those that were stopped.

    since: Deliveries queued since then: ISO 8601, or an age such as 30m, 2h, 7d."""
    after = moment(since, "--since")
    async with _open_webhooks() as hooks:
        count = await hooks.recover(endpoint_id, workspace_id=workspace, since=after)
    sentence = f"{count} sent again." if count else "There is nothing to send again."
    return Printed({"id": endpoint_id, "since": after, "putBack": count}, sentence)


COMMANDS = {
    **commands(add=add, list=list_webhooks, show=show, set=change, test=send_test, rotate=rotate, disable=disable),
    **commands(enable=enable, remove=remove, deliveries=deliveries, delivery=delivery, resend=resend, recover=recover),
}
