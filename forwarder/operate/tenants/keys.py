"""`forwarder key …`: API keys, each of one workspace. A token is shown once; only its hash is kept."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from forwarder.operate.command import Commands, open_deployment
from forwarder.operate.output import Shown, WrongUsage, listed, picked
from forwarder.tenancy.api_keys import (
    DEFAULT_SCOPES,
    SCOPES,
    read_expiry,
    read_networks,
    read_scopes,
    write_networks,
    write_scopes,
)
from forwarder.tenancy.limits import read_limit
from forwarder.tenancy.port import ApiKey, KeyTerms, KnownKey

_COLUMNS = "id name workspace test scopes rate from createdAt expiresAt lastUsedAt revokedAt".split()
_DEFAULT = "default"

T = TypeVar("T")
Given = TypeVar("Given")

_Id = Annotated[str, typer.Argument(metavar="ID", help="The key's identifier: key_….")]
_Scope = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCOPE",
        help=f"What it may do: {', '.join(SCOPES)}; several with commas, or again. "
        f"[default for a new key: {write_scopes(DEFAULT_SCOPES).replace(' ', ',')}]",
    ),
]
_Expires = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Until when it works: 90d, 2031-12-31, 2031-12-31T12:00:00Z, or never."),
]
_From = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="NETWORK", help="Where it may be used from: addresses or CIDRs, or any."),
]
_Rate = Annotated[
    str | None,
    typer.Option(
        metavar="RATE", help="100/60s allows 100 submissions in 60 seconds; default is the deployment's limit."
    ),
]
_Name = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="TEXT", help="What it is called, such as its owner; shown here and on the audit trail."
    ),
]
_MAX_NAME = 100


async def add(
    workspace: Annotated[str, typer.Option(help="The workspace that the key is for.")],
    test: Annotated[bool, typer.Option("--test", help="A test key: it reaches only simulated PMSs.")] = False,
    scope: _Scope = None,
    expires: _Expires = None,
    networks: _From = None,
    rate: _Rate = None,
    name: _Name = None,
) -> Shown:
    """Create a key and print its token, which is shown only this once."""
    terms = _terms(scope, expires, networks, rate, name)
    async with open_deployment() as backend:
        key, token = await backend.tenancy.add_key(workspace, test=test, **terms)
    kind, may = "Test key" if test else "Key", write_scopes(key.scopes).replace(" ", ", ")
    return Shown(
        {"id": key.id, "token": token, "test": key.test, **_terms_of(key)},
        f"{kind} {key.id} for workspace {workspace}, for {may}. Its token, which is not shown again:\n{token}",
    )


async def list_keys(
    workspace: Annotated[str | None, typer.Option(help="Only this workspace's.")] = None,
) -> Shown:
    """List keys, including revoked ones, oldest first. Tokens are not stored."""
    async with open_deployment() as backend:
        return listed([_row(key) for key in await backend.tenancy.keys(workspace)], _COLUMNS)


async def change(
    key_id: _Id,
    scope: _Scope = None,
    expires: _Expires = None,
    networks: _From = None,
    rate: _Rate = None,
    name: _Name = None,
) -> Shown:
    """Change a key's terms; options that are not given stay unchanged. Every process applies them within seconds."""
    terms = _terms(scope, expires, networks, rate, name)
    if not terms:
        raise WrongUsage("Say what to change: --scope, --expires, --from, --rate or --name.")
    async with open_deployment() as backend:
        known = await backend.tenancy.change_key(key_id, **terms)
    return Shown(_row(known), f"Key {key_id} is changed; every process sees it within seconds.")


async def revoke(key_id: _Id) -> Shown:
    """Revoke a key. Every process refuses it within seconds."""
    async with open_deployment() as backend:
        await backend.tenancy.revoke_key(key_id)
    return Shown({"id": key_id, "revoked": True}, f"Key {key_id} is revoked.")


def _terms(
    scope: Sequence[str] | None,
    expires: str | None,
    networks: Sequence[str] | None,
    rate: str | None,
    name: str | None,
) -> KeyTerms:
    """The terms that were given. Raises `WrongUsage`."""
    terms = KeyTerms()
    if scope:
        terms["scopes"] = _read("--scope", read_scopes, scope)
    if expires is not None:
        terms["expires_at"] = _read("--expires", lambda text: read_expiry(text, datetime.now(UTC)), expires)
    if networks:
        terms["networks"] = _read("--from", read_networks, networks)
    if rate is not None:
        terms["limit"] = None if rate == _DEFAULT else _read("--rate", read_limit, rate)
    if name is not None:
        terms["name"] = _read("--name", _read_name, name)
    return terms


def _read(option: str, read: Callable[[Given], T], given: Given) -> T:
    try:
        return read(given)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from error


def _read_name(text: str) -> str | None:
    if len(text) > _MAX_NAME or not text.isprintable():
        raise ValueError(f"a name has at most {_MAX_NAME} printable characters; an empty one removes it.")
    return text.strip() or None


def _terms_of(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": write_scopes(key.scopes).split(),
        "rate": None if key.limit is None else str(key.limit),
        "from": write_networks(key.networks).split(),
        "expiresAt": key.expires_at,
    }


def _row(known: KnownKey) -> dict[str, Any]:
    about = picked(known, "id=key.id workspace=key.workspace_id test=key.test createdAt lastUsedAt=used_at revokedAt")
    return about | _terms_of(known.key)


COMMANDS: Commands = {"add": add, "list": list_keys, "change": change, "revoke": revoke}
