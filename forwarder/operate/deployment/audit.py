"""`forwarder audit …`: who did what."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic_core import from_json

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Commands, moment, with_backend
from forwarder.operate.output import AsJson, note, picked, show_rows
from forwarder.process.clock import SystemClock
from forwarder.store.audit import AuditEntry, AuditFilter

_COLUMNS = ("number", "at", "who", "from", "action", "workspace", "target", "result", "reason", "details")
_FIELDS = "number at who=actor kind=actor_kind from=origin action workspace=workspace_id target result reason"


def commands() -> Commands:
    """list"""
    return {"list": list_entries}


def list_entries(
    since: Annotated[str | None, typer.Option(help="Only since then: ISO 8601, or an age such as 30m, 2h, 7d.")] = None,
    who: Annotated[
        str | None,
        typer.Option(help="Only of this actor: an account of the operating system, or the id of an API key."),
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, such as key.revoke, or all of a noun, such as key.")
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="Only of this workspace.")] = None,
    before: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Only entries before this one: the next page.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List operations, newest first: who, from where, what, to what, with what result."""
    after = None if since is None else moment(since, "--since", SystemClock().now())
    wanted = AuditFilter(after, who, action, workspace)

    async def run(backend: Backend) -> tuple[Sequence[AuditEntry], Mapping[str, str | None]]:
        entries = await backend.trail.entries(wanted, before=before, limit=limit + 1)
        keys = await backend.tenancy.keys() if any(each.actor_kind == "key" for each in entries) else ()
        return entries, {each.key.id: each.key.name for each in keys}

    found, names = with_backend(run)
    show_rows([_row(entry, names, as_json=as_json) for entry in found[:limit]], _COLUMNS, as_json=as_json)
    if len(found) > limit:
        note(f"There is more: --before {found[limit - 1].number} shows the next page.")


def _row(entry: AuditEntry, names: Mapping[str, str | None], *, as_json: bool) -> dict[str, Any]:
    """`names`: of API keys, by id."""
    details, name = from_json(entry.details), names.get(entry.actor)
    if as_json:
        return picked(entry, _FIELDS) | {"keyName": name, "details": details}
    who = f"{entry.actor} ({name})" if name else entry.actor
    details = " ".join(f"{name}={value}" for name, value in details.items() if value not in (None, False))
    return picked(entry, _FIELDS) | {"who": who, "details": details}
