"""`forwarder audit …`: who did what, and whether the trail was tampered with."""

import re
from functools import partial
from typing import Annotated, Any

import typer
from pydantic_core import from_json

from forwarder.assembly.backend import Backend
from forwarder.cli.backend import with_backend
from forwarder.cli.options import moment
from forwarder.cli.output import AsJson, Failed, WrongUsage, note, say, show_json, show_rows
from forwarder.operations.audit import Verification, verify_trail
from forwarder.process.clock import SystemClock, iso
from forwarder.store.audit import AuditEntry, AuditFilter, AuditHead

_COLUMNS = ("number", "at", "who", "from", "action", "workspace", "target", "result", "reason", "details")
_HEAD = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


def commands() -> typer.Typer:
    """list, verify"""
    group = typer.Typer(help="The audit trail: who did what, and whether it was tampered with.", no_args_is_help=True)
    group.command("list")(list_entries)
    group.command("verify")(verify)
    return group


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
    found = with_backend(lambda backend: backend.trail.entries(wanted, before=before, limit=limit + 1))
    show_rows([_row(entry, as_json=as_json) for entry in found[:limit]], _COLUMNS, as_json=as_json)
    if len(found) > limit:
        note(f"There is more: --before {found[limit - 1].number} shows the next page.")


def verify(
    head: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="A head that an earlier verification printed, and that you kept."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the hash chain: find entries that were changed, removed or inserted. Keep the head that it prints elsewhere.

    Anyone with write access to the database can rewrite the trail from some entry on, hashes included; only a head that you kept
    elsewhere reveals that: pass it as --head.
    """
    noted = None if head is None else _noted(head)
    result = with_backend(partial(_verify, noted))
    if as_json:
        show_json(_verification(result))
    elif result.tampering is None:
        say(
            f"Entries 1 to {result.head.number} are as they were appended." if result.head.number else "No entries yet."
        )
        say(f"Head, to be kept elsewhere:  {result.head}")
    if result.tampering is not None:
        raise Failed(
            f"the audit trail was tampered with: entry {result.tampering.entry} {result.tampering.fault}; "
            f"{result.tampering.detail}. Entries before it are as they were appended."
        )


async def _verify(noted: AuditHead | None, backend: Backend) -> Verification:
    return await verify_trail(backend.trail, noted)


def _noted(text: str) -> AuditHead:
    written = _HEAD.fullmatch(text.strip())
    if written is None:
        raise WrongUsage(
            "--head is a number, a colon and 64 hexadecimal digits, as `forwarder audit verify` prints it."
        )
    return AuditHead(int(written[1]), written[2])


def _verification(result: Verification) -> dict[str, Any]:
    fault = result.tampering
    return {
        "intact": fault is None,
        "head": str(result.head) if fault is None else None,
        "entry": None if fault is None else fault.entry,
        "fault": None if fault is None else fault.fault,
        "detail": None if fault is None else fault.detail,
    }


def _row(entry: AuditEntry, *, as_json: bool) -> dict[str, Any]:
    details = from_json(entry.details)
    if not as_json:
        details = " ".join(f"{name}={value}" for name, value in details.items() if value not in (None, False))
    return {
        "number": entry.number,
        "at": iso(entry.at),
        "who": entry.actor,
        "kind": entry.actor_kind,
        "from": entry.origin,
        "action": entry.action,
        "workspace": entry.workspace_id,
        "target": entry.target,
        "result": entry.result,
        "reason": entry.reason,
        "details": details,
        "hash": entry.hash,
    }
