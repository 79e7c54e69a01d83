"""`forwarder workspace …`: owners of reservations; `forwarder key …`: their API keys, whose tokens are shown only once."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from typer import Argument, Option

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Deployment, OnlyWorkspace, commands, open_deployment, parsed, require_known
from forwarder.operate.output import Failed, Printed, WrongUsage, listed, of_one, picked
from forwarder.tenancy import port
from forwarder.tenancy.access import read_limit

_NO_RATE: Final = "none"
_Id = Annotated[str, Argument(metavar="ID", help="Its identifier.")]
_RATE_HELP: Final = "100/60s allows 100 submissions in 60 seconds by all of its keys together."


async def add(
    workspace_id: Annotated[str, Argument(metavar="ID", help="Its identifier: the workspaceId header.")],
    rate: Annotated[str | None, Option(metavar="RATE", help=_RATE_HELP)] = None,
) -> Printed:
    """Add a workspace."""
    limit = None if rate is None else parsed("--rate", read_limit, rate)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", workspace_id):
        raise WrongUsage(
            f"ID is {workspace_id!r}; it has 1 to 64 letters of a to z, digits, and . _ : or -, and begins with a letter or digit, "
            "because callers send it in a header."
        )
    async with open_deployment(creates=True) as backend:
        await backend.tenancy.add_workspace(workspace_id, limit)
    return Printed({"id": workspace_id}, f"Workspace {workspace_id} added.")


async def list_workspaces(backend: Deployment) -> Printed:
    """List workspaces, and how many accounts, keys and webhooks each has."""
    columns = ("id", "accounts", "keys", "webhooks", "rate", "createdAt")
    return listed([_row(each) for each in await backend.tenancy.workspaces()], columns)


async def show(backend: Deployment, workspace_id: _Id) -> Printed:
    """Show one workspace."""
    return of_one(_row(await _known(backend, workspace_id)))


async def change(
    workspace_id: _Id,
    rate: Annotated[str, Option(metavar="RATE", help=f"{_RATE_HELP} {_NO_RATE}: only the limits of its keys apply.")],
) -> Printed:
    """Change the rate that all keys of a workspace share. Every process applies it within seconds."""
    limit = None if rate == _NO_RATE else parsed("--rate", read_limit, rate)
    async with open_deployment() as backend:
        await backend.tenancy.limit_workspace(workspace_id, limit)
    done = "no longer has a rate" if limit is None else f"is limited to {limit}"
    return Printed({"id": workspace_id, "rate": rate}, f"Workspace {workspace_id} {done}.")


async def remove(backend: Deployment, workspace_id: _Id, yes: bool = False) -> Printed:
    """Remove a workspace that has neither accounts nor webhooks. Its keys end with it.

    yes: Remove it. Without it, only say whether that can be done."""
    found = await _known(backend, workspace_id)
    if yes:
        await backend.tenancy.remove_workspace(workspace_id)
    elif found.accounts or found.webhooks:
        has = f"{found.accounts} accounts and {found.webhooks} webhooks"
        raise Failed(f"workspace {workspace_id} has {has}, and cannot be removed")
    done, after = ("removed", "") if yes else ("would be removed", "; --yes removes")
    result = {"id": workspace_id, "removed": yes, "keys": found.keys}
    return Printed(result, f"Workspace {workspace_id} {done}, and {found.keys} keys with it{after}.")


async def _known(backend: Backend, workspace_id: str) -> port.Workspace:
    if found := await backend.tenancy.workspaces(workspace_id):
        return found[0]
    raise port.NotKnown(f"There is no workspace {workspace_id!r}.")


def _row(workspace: port.Workspace) -> dict[str, Any]:
    rate = None if workspace.limit is None else str(workspace.limit)
    return picked(workspace, "id accounts keys webhooks") | {"rate": rate, "createdAt": workspace.created_at}


COMMANDS = commands(add=add, list=list_workspaces, show=show, change=change, remove=remove)


# --- keys ---

_KeyId = Annotated[str, Argument(metavar="ID", help="The key's identifier: key_….")]
_MAX_NAME = 100
_SCOPE_HELP = (
    f"What it may do: {', '.join(port.SCOPES)}; several with commas, or again. "
    f"[default for a new key: {port.write_scopes(port.DEFAULT_SCOPES).replace(' ', ',')}]"
)


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of a key, as far as given.

    expires: Until when it works: 90d, 2031-12-31, 2031-12-31T12:00:00Z, or never.
    networks: Where it may be used from: addresses or CIDRs, or any.
    rate: 100/60s allows 100 submissions in 60 seconds; default is the deployment's limit.
    name: What it is called, such as its owner; shown here and on the audit trail."""

    scope: Annotated[list[str] | None, Option(metavar="SCOPE", help=_SCOPE_HELP)] = None
    expires: Annotated[str | None, Option(metavar="WHEN")] = None
    networks: Annotated[list[str] | None, Option("--from", metavar="NETWORK")] = None
    rate: Annotated[str | None, Option(metavar="RATE")] = None
    name: Annotated[str | None, Option("--name", metavar="TEXT")] = None

    def given(self) -> port.KeyTerms:
        """Raises `WrongUsage`."""
        terms = port.KeyTerms()
        if self.scope:
            terms["scopes"] = parsed("--scope", port.read_scopes, self.scope)
        if self.expires is not None:
            now = datetime.now(UTC)
            terms["expires_at"] = parsed("--expires", lambda text: port.read_expiry(text, now), self.expires)
        if self.networks:
            terms["networks"] = parsed("--from", port.read_networks, self.networks)
        if self.rate is not None:
            terms["limit"] = None if self.rate == "default" else parsed("--rate", read_limit, self.rate)
        if self.name is not None:
            if len(self.name) > _MAX_NAME or not self.name.isprintable():
                says = f"a name has at most {_MAX_NAME} printable characters; an empty one removes it."
                raise WrongUsage(f"--name: {says}")
            terms["name"] = self.name.strip() or None
        return terms


async def add_key(workspace: str, test: bool = False, *, terms: _Terms) -> Printed:
    """Create a key and print its token, which is shown only this once.

    workspace: The workspace that the key is for.
    test: A test key: it reaches only simulated PMSs."""
    given = terms.given()
    async with open_deployment() as backend:
        key, token = await backend.tenancy.add_key(workspace, test=test, **given)
    what, may = "Test key" if test else "Key", port.write_scopes(key.scopes).replace(" ", ", ")
    sentence = f"{what} {key.id} for workspace {workspace}, for {may}. Its token, which is not shown again:\n{token}"
    return Printed({"id": key.id, "token": token, "test": key.test, **_terms_of(key)}, sentence)


async def list_keys(backend: Deployment, workspace: OnlyWorkspace = None) -> Printed:
    """List keys, including revoked ones, oldest first. Tokens are not stored."""
    found = await backend.tenancy.keys(workspace)
    await require_known(backend, found, workspace=workspace)
    columns = "id name workspace test scopes rate from createdAt expiresAt lastUsedAt revokedAt".split()
    return listed([_key_row(key) for key in found], columns)


async def change_key(key_id: _KeyId, *, terms: _Terms) -> Printed:
    """Change a key's terms; options that are not given stay unchanged. Every process applies them within seconds."""
    if not (given := terms.given()):
        raise WrongUsage("Say what to change: --scope, --expires, --from, --rate or --name.")
    async with open_deployment() as backend:
        known = await backend.tenancy.change_key(key_id, **given)
    return Printed(_key_row(known), f"Key {key_id} is changed; every process sees it within seconds.")


async def revoke(backend: Deployment, key_id: _KeyId) -> Printed:
    """Revoke a key. Every process refuses it within seconds."""
    await backend.tenancy.revoke_key(key_id)
    return Printed({"id": key_id, "revoked": True}, f"Key {key_id} is revoked.")


def _terms_of(key: port.ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": port.write_scopes(key.scopes).split(),
        "rate": None if key.limit is None else str(key.limit),
        "from": [str(network) for network in key.networks],
        "expiresAt": key.expires_at,
    }


def _key_row(known: port.KnownKey) -> dict[str, Any]:
    about = picked(known, "id=key.id workspace=key.workspace_id test=key.test createdAt lastUsedAt=used_at revokedAt")
    return about | _terms_of(known.key)


KEYS = commands(add=add_key, list=list_keys, change=change_key, revoke=revoke)
