"""`forwarder workspace …`: the workspaces that own reservations."""

import re
from typing import Annotated, Any, Final

import typer

from forwarder.operate.command import Commands, with_backend
from forwarder.operate.output import AsJson, Failed, WrongUsage, report, say, show_json, show_one, show_rows
from forwarder.process.clock import iso
from forwarder.tenancy.limits import read_limit
from forwarder.tenancy.port import NotKnown, RateLimit, Workspace

_COLUMNS: Final = ("id", "accounts", "keys", "webhooks", "rate", "createdAt")
_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_NO_RATE: Final = "none"
_Id = Annotated[str, typer.Argument(metavar="ID", help="Its identifier.")]
_RATE_HELP: Final = "100/60s allows 100 submissions in 60 seconds by all of its keys together."


def commands() -> Commands:
    """add, list, show, change, remove"""
    return {"add": add, "list": list_workspaces, "show": show, "change": change, "remove": remove}


def add(
    workspace_id: Annotated[str, typer.Argument(metavar="ID", help="Its identifier: the workspaceId header.")],
    rate: Annotated[str | None, typer.Option(metavar="RATE", help=_RATE_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """Add a workspace."""
    limit = None if rate is None else _limit(rate)
    if not _FORM.fullmatch(workspace_id):
        raise WrongUsage(
            f"ID is {workspace_id!r}; it has 1 to 64 letters of a to z, digits, and . _ : or -, and begins with a letter or digit, "
            "because callers send it in a header."
        )
    with_backend(lambda backend: backend.tenancy.add_workspace(workspace_id, limit), creates=True)
    report({"id": workspace_id}, f"Workspace {workspace_id} added.", as_json=as_json)


def list_workspaces(as_json: AsJson = False) -> None:
    """List workspaces, and how many accounts, keys and webhooks each has."""
    found = with_backend(lambda backend: backend.tenancy.workspaces())
    show_rows([_row(each) for each in found], _COLUMNS, as_json=as_json)


def show(workspace_id: _Id, as_json: AsJson = False) -> None:
    """Show one workspace."""
    found = with_backend(lambda backend: backend.tenancy.workspaces(workspace_id))
    if not found:
        raise NotKnown(f"There is no workspace {workspace_id!r}.")
    show_one(_row(found[0]), as_json=as_json)


def change(
    workspace_id: _Id,
    rate: Annotated[
        str, typer.Option(metavar="RATE", help=f"{_RATE_HELP} {_NO_RATE}: only the limits of its keys apply.")
    ],
    as_json: AsJson = False,
) -> None:
    """Change the rate that all keys of a workspace share. Every process applies it within seconds."""
    limit = None if rate == _NO_RATE else _limit(rate)
    with_backend(lambda backend: backend.tenancy.limit_workspace(workspace_id, limit))
    done = "no longer has a rate" if limit is None else f"is limited to {limit}"
    report({"id": workspace_id, "rate": rate}, f"Workspace {workspace_id} {done}.", as_json=as_json)


def _limit(rate: str) -> RateLimit:
    try:
        return read_limit(rate)
    except ValueError as error:
        raise WrongUsage(f"--rate: {error}") from error


def remove(
    workspace_id: _Id,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it. Without it, only say whether that can be done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a workspace that has neither accounts nor webhooks. Its keys end with it."""
    (found,) = with_backend(lambda backend: backend.tenancy.workspaces(workspace_id)) or (None,)
    if found is None:
        raise NotKnown(f"There is no workspace {workspace_id!r}.")
    if yes:
        with_backend(lambda backend: backend.tenancy.remove_workspace(workspace_id))
    elif found.accounts or found.webhooks:
        raise Failed(f"it has {found.accounts} accounts and {found.webhooks} webhooks, and cannot be removed")
    if as_json:
        show_json({"id": workspace_id, "removed": yes, "keys": found.keys})
    elif yes:
        say(f"Workspace {workspace_id} removed, and {found.keys} keys with it.")
    else:
        say(f"Workspace {workspace_id} would be removed, and {found.keys} keys with it; --yes removes.")


def _row(workspace: Workspace) -> dict[str, Any]:
    return {
        "id": workspace.id,
        "accounts": workspace.accounts,
        "keys": workspace.keys,
        "webhooks": workspace.webhooks,
        "rate": None if workspace.limit is None else str(workspace.limit),
        "createdAt": iso(workspace.created_at),
    }
