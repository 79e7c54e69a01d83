"""`forwarder key …`: API keys, each of one workspace. A token is shown once; only its hash is kept."""

from typing import Annotated, Any

import typer

from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, WrongUsage, say, show_json, show_rows
from forwarder.process.clock import iso
from forwarder.tenancy.limits import read_limit
from forwarder.tenancy.port import KnownKey, RateLimit

_COLUMNS = ("id", "workspace", "test", "rate", "createdAt", "revokedAt")
_DEFAULT = "default"
_Id = Annotated[str, typer.Argument(metavar="ID", help="The key's identifier: key_….")]


def commands() -> typer.Typer:
    """add, list, set-rate, revoke"""
    group = typer.Typer(help="API keys of a workspace.", no_args_is_help=True)
    group.command("add")(add)
    group.command("list")(list_keys)
    group.command("set-rate")(set_rate)
    group.command("revoke")(revoke)
    return group


def add(
    workspace: Annotated[str, typer.Option(help="The workspace that the key is for.")],
    test: Annotated[bool, typer.Option("--test", help="A test key: it reaches only simulated PMSs.")] = False,
    rate: Annotated[
        str, typer.Option(metavar="RATE", help="Its rate limit: 100/60s allows 100 submissions in 60 seconds.")
    ] = _DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its token, which is shown only this once."""
    limit = _limit(rate)
    key, token = with_backend(lambda backend: backend.tenancy.add_key(workspace, test=test, limit=limit))
    if as_json:
        show_json({"id": key.id, "token": token, "test": key.test, "rate": _rate(limit)})
    else:
        kind = "Test key" if test else "Key"
        say(f"{kind} {key.id} for workspace {workspace}. Its token, which is not shown again:\n{token}")


def list_keys(
    workspace: Annotated[str | None, typer.Option(help="Only this workspace's.")] = None, as_json: AsJson = False
) -> None:
    """List keys, including revoked ones, oldest first. Tokens are not stored."""
    keys = with_backend(lambda backend: backend.tenancy.keys(workspace))
    show_rows([_row(key) for key in keys], _COLUMNS, as_json=as_json)


def set_rate(
    key_id: _Id,
    rate: Annotated[
        str,
        typer.Argument(
            metavar="RATE", help="100/60s allows 100 submissions in 60 seconds; default is the deployment's limit."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Set a key's rate limit. Every process applies it within seconds."""
    limit = _limit(rate)
    with_backend(lambda backend: backend.tenancy.set_limit(key_id, limit))
    if as_json:
        show_json({"id": key_id, "rate": _rate(limit)})
    else:
        say(f"Key {key_id} has the rate {rate}; ingress processes see it within seconds.")


def revoke(key_id: _Id, as_json: AsJson = False) -> None:
    """Revoke a key. Every process refuses it within seconds."""
    with_backend(lambda backend: backend.tenancy.revoke_key(key_id))
    if as_json:
        show_json({"id": key_id, "revoked": True})
    else:
        say(f"Key {key_id} is revoked.")


def _limit(rate: str) -> RateLimit | None:
    """None for the deployment's default."""
    if rate == _DEFAULT:
        return None
    try:
        return read_limit(rate)
    except ValueError as error:
        raise WrongUsage(str(error)) from error


def _rate(limit: RateLimit | None) -> str | None:
    return None if limit is None else str(limit)


def _row(known: KnownKey) -> dict[str, Any]:
    return {
        "id": known.key.id,
        "workspace": known.key.workspace_id,
        "test": known.key.test,
        "rate": _rate(known.key.limit),
        "createdAt": iso(known.created_at),
        "revokedAt": None if known.revoked_at is None else iso(known.revoked_at),
    }
