"""`forwarder workspace …`: the workspaces that own reservations."""

import re
from typing import Annotated, Any, Final

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Commands, open_deployment
from forwarder.operate.output import Failed, Shown, WrongUsage, fields_of, listed, picked
from forwarder.tenancy.limits import read_limit
from forwarder.tenancy.port import NotKnown, RateLimit, Workspace

_COLUMNS: Final = ("id", "accounts", "keys", "webhooks", "rate", "createdAt")
_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_NO_RATE: Final = "none"
_Id = Annotated[str, typer.Argument(metavar="ID", help="Its identifier.")]
_RATE_HELP: Final = "100/60s allows 100 submissions in 60 seconds by all of its keys together."


async def add(
    workspace_id: Annotated[str, typer.Argument(metavar="ID", help="Its identifier: the workspaceId header.")],
    rate: Annotated[str | None, typer.Option(metavar="RATE", help=_RATE_HELP)] = None,
) -> Shown:
    """Add a workspace."""
    limit = None if rate is None else _limit(rate)
    if not _FORM.fullmatch(workspace_id):
        raise WrongUsage(
            f"ID is {workspace_id!r}; it has 1 to 64 letters of a to z, digits, and . _ : or -, and begins with a letter or digit, "
            "because callers send it in a header."
        )
    async with open_deployment(creates=True) as backend:
        await backend.tenancy.add_workspace(workspace_id, limit)
    return Shown({"id": workspace_id}, f"Workspace {workspace_id} added.")


async def list_workspaces() -> Shown:
    """List workspaces, and how many accounts, keys and webhooks each has."""
    async with open_deployment() as backend:
        return listed([_row(each) for each in await backend.tenancy.workspaces()], _COLUMNS)


async def show(workspace_id: _Id) -> Shown:
    """Show one workspace."""
    async with open_deployment() as backend:
        row = _row(await _known(backend, workspace_id))
    return Shown(row, fields_of(row))


async def change(
    workspace_id: _Id,
    rate: Annotated[
        str, typer.Option(metavar="RATE", help=f"{_RATE_HELP} {_NO_RATE}: only the limits of its keys apply.")
    ],
) -> Shown:
    """Change the rate that all keys of a workspace share. Every process applies it within seconds."""
    limit = None if rate == _NO_RATE else _limit(rate)
    async with open_deployment() as backend:
        await backend.tenancy.limit_workspace(workspace_id, limit)
    done = "no longer has a rate" if limit is None else f"is limited to {limit}"
    return Shown({"id": workspace_id, "rate": rate}, f"Workspace {workspace_id} {done}.")


async def remove(
    workspace_id: _Id,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it. Without it, only say whether that can be done.")
    ] = False,
) -> Shown:
    """Remove a workspace that has neither accounts nor webhooks. Its keys end with it."""
    async with open_deployment() as backend:
        found = await _known(backend, workspace_id)
        if yes:
            await backend.tenancy.remove_workspace(workspace_id)
        elif found.accounts or found.webhooks:
            raise Failed(f"it has {found.accounts} accounts and {found.webhooks} webhooks, and cannot be removed")
    result = {"id": workspace_id, "removed": yes, "keys": found.keys}
    if yes:
        return Shown(result, f"Workspace {workspace_id} removed, and {found.keys} keys with it.")
    return Shown(result, f"Workspace {workspace_id} would be removed, and {found.keys} keys with it; --yes removes.")


async def _known(backend: Backend, workspace_id: str) -> Workspace:
    if found := await backend.tenancy.workspaces(workspace_id):
        return found[0]
    raise NotKnown(f"There is no workspace {workspace_id!r}.")


def _limit(rate: str) -> RateLimit:
    try:
        return read_limit(rate)
    except ValueError as error:
        raise WrongUsage(f"--rate: {error}") from error


def _row(workspace: Workspace) -> dict[str, Any]:
    rate = None if workspace.limit is None else str(workspace.limit)
    return picked(workspace, "id accounts keys webhooks") | {"rate": rate, "createdAt": workspace.created_at}


COMMANDS: Commands = {"add": add, "list": list_workspaces, "show": show, "change": change, "remove": remove}
