"""`forwarder audit …`: who did what."""

from typing import Annotated, Any

from pydantic_core import from_json
from typer import Option

from forwarder.operate.command import commands, moment_if_given, open_deployment, require_known
from forwarder.operate.output import Printed, Table, picked
from forwarder.store.audit import AuditEntry, AuditFilter


def details_of(entry: AuditEntry) -> str:
    """The entry's details in one line, such as `kind: generic, changed: deadline_seconds 60 → 90`."""
    details = from_json(entry.details).items()
    return ", ".join(f"{name}: {_text(value)}" for name, value in details if value not in (None, False))


def _text(value: Any) -> str:
    match value:
        case {"from": old, "to": new}:
            return f"{_text(old)} → {_text(new)}"
        case dict():
            return ", ".join(f"{name} {_text(each)}" for name, each in value.items()) or "nothing"
        case list():
            return " ".join(map(_text, value)) or "none"
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
    return str(value)


async def list_entries(
    since: Annotated[str | None, Option(help="Only since then: ISO 8601, or an age such as 30m, 2h, 7d.")] = None,
    who: str | None = None,
    action: str | None = None,
    workspace: Annotated[str | None, Option(help="Only of this workspace.")] = None,
    before: Annotated[int | None, Option(min=1, max=2**63 - 1, metavar="NUMBER")] = None,
    limit: Annotated[int, Option(min=1, max=10_000, help="How many, newest first.")] = 50,
) -> Printed:
    """List operations, newest first: who, from where, what, to what, with what result.

    who: Only of this actor: an account of the operating system, or the id of an API key.
    action: Only this action, such as key.revoke, or all of a noun, such as key.
    before: Only entries before this one: the next page."""
    wanted = AuditFilter(moment_if_given(since, "--since"), who, action, workspace)
    async with open_deployment() as backend:
        found = await backend.trail.entries(wanted, before=before, limit=limit + 1)
        await require_known(backend, found, workspace=workspace)
        keys = await backend.tenancy.keys() if any(each.actor_kind == "key" for each in found) else ()
    names = {each.key.id: each.key.name for each in keys}
    fields = "number at who=actor kind=actor_kind from=origin action workspace=workspace_id target result reason"
    columns = ("number", "at", "who", "from", "action", "workspace", "target", "result", "reason", "details")
    rows, shown = [], []
    for entry in found[:limit]:
        about, name = picked(entry, fields), names.get(entry.actor)
        rows.append(about | {"keyName": name, "details": from_json(entry.details)})
        named = f"{entry.actor} ({name})" if name else entry.actor
        shown.append(about | {"who": named, "details": details_of(entry)})
    more = [f"There is more: --before {found[limit - 1].number} shows the next page."] if len(found) > limit else []
    return Printed(rows, Table(shown, columns), more)


COMMANDS = commands(list=list_entries)
