"""`forwarder webhook …`: where the results of a workspace are posted. A secret is shown once, when it is made."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.webhooks import webhooks_of
from forwarder.cli.backend import with_backend
from forwarder.cli.manage import webhook_deliveries
from forwarder.cli.manage.webhook_deliveries import EndpointId, OfWorkspace, in_words
from forwarder.cli.output import AsJson, WrongUsage, say, show_json, show_one, show_rows
from forwarder.notifier.api.actions import endpoint_json
from forwarder.notifier.webhooks import DEFAULT_OVERLAP_SECONDS, MAX_OVERLAP_SECONDS, UNCHANGED
from forwarder.tenancy.port import Endpoint

_COLUMNS = ("id", "workspace", "url", "enabled", "disabledReason", "types")
_EVERY = "all"
_Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="TYPE", help="Only events of this type, such as reservation.confirmed.v1; repeatable."
    ),
]
_Description = Annotated[str | None, typer.Option(help="What it is for.")]


def commands() -> typer.Typer:
    """add, list, show, set, test, rotate, disable, enable, remove, deliveries, delivery, resend, recover"""
    group = typer.Typer(help="Webhooks: where a workspace's results are posted.", no_args_is_help=True)
    group.command("add")(add)
    group.command("list")(list_webhooks)
    group.command("show")(show)
    group.command("set")(change)
    group.command("test")(webhook_deliveries.send_test)
    group.command("rotate")(rotate)
    group.command("disable")(disable)
    group.command("enable")(enable)
    group.command("remove")(remove)
    group.command("deliveries")(webhook_deliveries.deliveries)
    group.command("delivery")(webhook_deliveries.delivery)
    group.command("resend")(webhook_deliveries.resend)
    group.command("recover")(webhook_deliveries.recover)
    return group


def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are posted: https, and a public address.")],
    workspace: Annotated[str, typer.Option(help="The workspace whose results are posted.")],
    types: _Types = None,
    description: _Description = None,
    as_json: AsJson = False,
) -> None:
    """Add a webhook and print its secret, which is shown only this once. It receives events from now on."""

    async def run(backend: Backend) -> tuple[Endpoint, str]:
        hooks = await webhooks_of(backend)
        return await hooks.add(workspace, url, types=types or None, description=description or "")

    with in_words():
        endpoint, secret = with_backend(run)
    _show_secret(endpoint, secret, f"Webhook {endpoint.id} added for workspace {workspace}.", as_json=as_json)


def list_webhooks(workspace: OfWorkspace = None, as_json: AsJson = False) -> None:
    """List webhooks, the oldest first."""

    async def run(backend: Backend) -> list[Mapping[str, Any]]:
        return [_row(each) for each in await (await webhooks_of(backend)).endpoints(workspace)]

    rows = with_backend(run)
    if not as_json:
        rows = [{**row, "types": ", ".join(row["types"] or [_EVERY])} for row in rows]
    show_rows(rows, _COLUMNS, as_json=as_json)


def show(endpoint_id: EndpointId, workspace: OfWorkspace = None, as_json: AsJson = False) -> None:
    """Show one webhook, without its secret."""

    async def run(backend: Backend) -> Endpoint:
        return await (await webhooks_of(backend)).get(endpoint_id, workspace_id=workspace)

    show_one(_row(with_backend(run)), as_json=as_json)


def change(
    endpoint_id: EndpointId,
    url: Annotated[str | None, typer.Option(help="Post to this address from now on.")] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Events of this type only; repeatable; all for all."),
    ] = None,
    description: _Description = None,
    workspace: OfWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """Change a webhook's address, or the events that it receives."""
    if url is None and not types and description is None:
        raise WrongUsage("Say what is to change: --url, --type or --description.")
    if types and _EVERY in types and len(types) > 1:
        raise WrongUsage("--type all means every type: give it alone.")
    kinds = UNCHANGED if not types else None if types == [_EVERY] else types

    async def run(backend: Backend) -> Endpoint:
        hooks = await webhooks_of(backend)
        return await hooks.change(endpoint_id, workspace_id=workspace, url=url, types=kinds, description=description)

    with in_words():
        changed = with_backend(run)
    _tell(changed, f"Webhook {endpoint_id} changed.", as_json=as_json)


def rotate(
    endpoint_id: EndpointId,
    overlap: Annotated[
        int, typer.Option(min=0, max=MAX_OVERLAP_SECONDS, help="How many seconds the old secret signs as well.")
    ] = DEFAULT_OVERLAP_SECONDS,
    workspace: OfWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """Replace a webhook's secret and print the new one, which is shown only this once."""

    async def run(backend: Backend) -> tuple[Endpoint, str]:
        hooks = await webhooks_of(backend)
        return await hooks.rotate(endpoint_id, workspace_id=workspace, overlap_seconds=overlap)

    endpoint, secret = with_backend(run)
    until = f" The old one signs too for {overlap:,} s." if overlap else " The old one is out of use."
    _show_secret(endpoint, secret, f"Webhook {endpoint_id} has a new secret.{until}", as_json=as_json)


def disable(endpoint_id: EndpointId, workspace: OfWorkspace = None, as_json: AsJson = False) -> None:
    """Stop sending to a webhook. Events that occur meanwhile are not kept for it."""
    _switch(endpoint_id, workspace, enabled=False, as_json=as_json)


def enable(endpoint_id: EndpointId, workspace: OfWorkspace = None, as_json: AsJson = False) -> None:
    """Send to a webhook again, from now on; `recover` also sends stopped deliveries."""
    _switch(endpoint_id, workspace, enabled=True, as_json=as_json)


def remove(endpoint_id: EndpointId, workspace: OfWorkspace = None, as_json: AsJson = False) -> None:
    """Remove a webhook. Nothing more is sent to it."""

    async def run(backend: Backend) -> None:
        await (await webhooks_of(backend)).remove(endpoint_id, workspace_id=workspace)

    with_backend(run)
    if as_json:
        show_json({"id": endpoint_id, "removed": True})
    else:
        say(f"Webhook {endpoint_id} is removed.")


def _switch(endpoint_id: str, workspace: str | None, *, enabled: bool, as_json: bool) -> None:
    async def run(backend: Backend) -> Endpoint:
        hooks = await webhooks_of(backend)
        switch = partial(hooks.enable if enabled else hooks.disable, endpoint_id)
        return await switch(workspace_id=workspace)

    _tell(with_backend(run), f"Webhook {endpoint_id} is {'enabled' if enabled else 'disabled'}.", as_json=as_json)


def _tell(endpoint: Endpoint, said: str, *, as_json: bool) -> None:
    if as_json:
        show_json(_row(endpoint))
    else:
        say(said)


def _show_secret(endpoint: Endpoint, secret: str, said: str, *, as_json: bool) -> None:
    if as_json:
        show_json({**_row(endpoint), "secret": secret})
    else:
        say(f"{said} Its secret, which is not shown again:\n{secret}")


def _row(endpoint: Endpoint) -> Mapping[str, Any]:
    return {"workspace": endpoint.workspace_id, **endpoint_json(endpoint)}
