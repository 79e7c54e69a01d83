"""`forwarder workspace …`: whose reservations these are."""

from typing import Annotated

import typer

from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, WrongUsage, say, show_json


def commands() -> typer.Typer:
    """add"""
    group = typer.Typer(help="Workspaces: who submits and reads reservations.", no_args_is_help=True)
    group.command("add")(add)
    return group


def add(
    workspace_id: Annotated[str, typer.Argument(metavar="ID", help="Its identifier: the workspaceId header.")],
    as_json: AsJson = False,
) -> None:
    """Add a workspace."""
    if "," in workspace_id:
        raise WrongUsage("ID must be without a comma, which parts the values of a header.")
    with_backend(lambda backend: backend.tenancy.add_workspace(workspace_id))
    if as_json:
        show_json({"id": workspace_id})
    else:
        say(f"Workspace {workspace_id} added.")
