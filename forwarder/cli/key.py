"""`forwarder key …`: API keys, each of one workspace. A token is shown once; only its hash is kept."""

from typing import Annotated

import typer

from forwarder.cli.output import AsJson, say, show_json
from forwarder.cli.running import with_backend


def commands() -> typer.Typer:
    """add, revoke"""
    group = typer.Typer(help="API keys of a workspace.", no_args_is_help=True)
    group.command("add")(add)
    group.command("revoke")(revoke)
    return group


def add(
    workspace: Annotated[str, typer.Option(help="The workspace that the key is for.")], as_json: AsJson = False
) -> None:
    """Make a key and print its token: this once, for it is kept nowhere."""
    key, token = with_backend(lambda backend: backend.registry.add_key(workspace))
    if as_json:
        show_json({"id": key.id, "token": token})
    else:
        say(f"Key {key.id} for workspace {workspace}. Its token, which is not shown again:\n{token}")


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's identifier: key_….")], as_json: AsJson = False
) -> None:
    """Put a key out of force; within seconds no process accepts it any more."""
    with_backend(lambda backend: backend.registry.revoke_key(key_id))
    if as_json:
        show_json({"id": key_id, "revoked": True})
    else:
        say(f"Key {key_id} is revoked.")
