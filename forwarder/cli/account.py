"""`forwarder account …`: integration accounts, each one PMS as one workspace uses it."""

import secrets
from typing import Annotated, Any

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.published import pms_kinds
from forwarder.cli.output import AsJson, WrongUsage, say, show_json, show_rows
from forwarder.cli.running import with_backend
from forwarder.tenancy.port import Account

_COLUMNS = ("id", "workspace", "kind", "baseUrl", "concurrency", "ratePerSecond", "deadlineSeconds", "paused")
_Id = Annotated[str, typer.Argument(metavar="ID", help="The account's identifier.")]


def commands() -> typer.Typer:
    """add, list, pause, resume"""
    group = typer.Typer(help="Integration accounts: which PMS, and how it may be used.", no_args_is_help=True)
    group.command("add")(add)
    group.command("list")(list_accounts)
    group.command("pause")(pause)
    group.command("resume")(resume)
    return group


def add(
    workspace: Annotated[str, typer.Option(help="The workspace it belongs to.")],
    kind: Annotated[str, typer.Option(help="The kind of PMS: generic, website-builder, booking-sync.")],
    base_url: Annotated[str, typer.Option(help="Where the PMS's API is.")],
    credential: Annotated[str, typer.Option(help="What it lets us in with; kept sealed.")] = "",
    concurrency: Annotated[int, typer.Option(min=1, help="Most pushes in flight.")] = 64,
    rate: Annotated[
        float | None, typer.Option(help="Most requests a second; the kind's published limit if left out.")
    ] = None,
    deadline: Annotated[int, typer.Option(min=1, help="For how many seconds a submission is tried.")] = 24 * 60 * 60,
    account_id: Annotated[
        str | None, typer.Option("--id", help="Its identifier: the integrationAccountId header.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an integration account."""
    if kind not in pms_kinds():
        raise WrongUsage(f"There is no PMS kind {kind!r}; there are: {', '.join(pms_kinds())}.")
    if not base_url.startswith(("http://", "https://")):
        raise WrongUsage(f"--base-url must begin with http:// or https://; it is {base_url!r}.")
    if rate is not None and rate <= 0:
        raise WrongUsage("--rate must be more than 0; leave it out for the kind's published limit.")
    new_id = account_id or f"acc_{secrets.token_hex(6)}"

    async def put(backend: Backend) -> None:
        sealed = (await backend.sealer()).seal_text(credential)
        await backend.registry.put_account(
            Account(new_id, workspace, kind, base_url.rstrip("/"), sealed, concurrency, rate, deadline)
        )

    with_backend(put)
    if as_json:
        show_json({"id": new_id})
    else:
        say(f"Account {new_id} added.")


def list_accounts(
    workspace: Annotated[str | None, typer.Option(help="Only this workspace's.")] = None, as_json: AsJson = False
) -> None:
    """List integration accounts. Credentials are not shown."""
    accounts = with_backend(lambda backend: backend.registry.accounts(workspace))
    show_rows([_row(account) for account in accounts], _COLUMNS, as_json=as_json)


def pause(account_id: _Id, as_json: AsJson = False) -> None:
    """Push nothing more to the account's PMS: submissions are taken in and wait."""
    _set_paused(account_id, paused=True, as_json=as_json)


def resume(account_id: _Id, as_json: AsJson = False) -> None:
    """Push again what waits."""
    _set_paused(account_id, paused=False, as_json=as_json)


def _set_paused(account_id: str, *, paused: bool, as_json: bool) -> None:
    with_backend(lambda backend: backend.registry.pause(account_id, paused=paused))
    if as_json:
        show_json({"id": account_id, "paused": paused})
    else:
        say(f"Account {account_id} is {'paused' if paused else 'resumed'}; workers see it within seconds.")


def _row(account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "workspace": account.workspace_id,
        "kind": account.kind,
        "baseUrl": account.base_url,
        "concurrency": account.concurrency,
        "ratePerSecond": account.rate_per_second,
        "deadlineSeconds": account.deadline_seconds,
        "paused": account.paused,
    }
