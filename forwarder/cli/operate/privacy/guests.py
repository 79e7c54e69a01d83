"""`forwarder guests erase`: removes a guest's data from everything that the forwarder stores."""

from functools import partial
from typing import Annotated, Any, Final

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.commands.privacy import guests_of
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, Failed, WrongUsage, progress, say, show_json, show_rows
from forwarder.operations.privacy.erase import Found, GuestQuery, TopicRemains, is_phone
from forwarder.process.clock import iso
from forwarder.store.submissions.port import ErasureState, GuestRecord

_COLUMNS = ("requestId", "workspace", "account", "status", "deliveries", "standing")
_ADVICE: Final = {
    ErasureState.UNFINISHED: "is not finished: settle it if it is in doubt, cancel it if it is not wanted, or wait for its "
    "outcome; then erase it",
    ErasureState.UNPUBLISHED: "has a result event that is about to be published: erase it in a minute",
}


def commands() -> typer.Typer:
    """erase"""
    group = typer.Typer(help="Guests: erase one from all stored data.", no_args_is_help=True)
    group.callback()(lambda: None)  # typer would omit the name of a single command
    group.command("erase")(erase)
    return group


def erase(
    email: Annotated[str | None, typer.Option(help="The guest's e-mail address.")] = None,
    phone: Annotated[str | None, typer.Option(help="The guest's phone number, as it was submitted.")] = None,
    reservation: Annotated[
        str | None, typer.Option(metavar="REQUEST_ID", help="The requestId of one reservation: rsv_….")
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="Only in this workspace.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Without it, only show what would be erased.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a guest: from submissions, records and webhook deliveries. Without --yes, only show where its data is.

    Erased submissions stay as anonymous ones, still recognised and never booked again. Unfinished ones are refused. Messages on
    topics cannot be changed: the command shows when they expire. Safe to repeat.
    """
    if [email, phone, reservation].count(None) != 2:  # noqa: PLR2004 - one of three is given
        raise WrongUsage("Say which guest by one of --email, --phone and --reservation.")
    if email is not None and "@" not in email:
        raise WrongUsage("--email takes a full address, such as maria@example.com.")
    if phone is not None and not is_phone(phone):
        raise WrongUsage("--phone takes a full number, of at least six digits.")
    query = GuestQuery(email, phone, reservation, workspace)
    found, erased = with_backend(partial(_erase, query, yes))
    waiting = [record for record in found.records if record.standing in _ADVICE]
    if as_json:
        show_json(_as_json(found, erased, dry_run=not yes))
    else:
        _tell(found, erased, dry_run=not yes)
    if yes and waiting:
        raise Failed("; ".join(f"{record.request_id} {_ADVICE[record.standing]}" for record in waiting) + ".")


async def _erase(query: GuestQuery, yes: bool, backend: Backend) -> tuple[Found, frozenset[str]]:
    guests = guests_of(backend)
    seen = 0
    with progress(await guests.last_id(), "Looking for the guest") as on_more:

        def on_page(last: int) -> None:
            nonlocal seen
            on_more(last - seen)
            seen = last

        found = await guests.find(query, on_page)
    return found, frozenset(await guests.erase(query, found)) if yes else frozenset()


def _tell(found: Found, erased: frozenset[str], *, dry_run: bool) -> None:
    if found.records:
        show_rows([_row(record, found, erased) for record in found.records], _COLUMNS, as_json=False)
    if found.parked:
        named = ", ".join(parked.request_id for parked in found.parked)
        say(f"Found in the reason of a cancellation whose submission never arrived: {named}.")
    ready = sum(record.standing is ErasureState.ERASABLE for record in found.records) + len(found.parked)
    if dry_run:
        say(f"{ready} would be erased; --yes erases." if ready else "There is nothing to erase.")
    else:
        say(
            f"{len(erased)} erased. They are still recognised, and not booked again."
            if erased
            else "Nothing was erased."
        )
    if found.remains:
        say("\nMessages on topics cannot be changed, and still contain the data:")
    for remains in found.remains:
        say(f"  {_remains(remains)}")
    say("\nThe PMS, your webhooks' receivers, backups and proxy logs have their own copies.")


def _remains(remains: TopicRemains) -> str:
    letters = "" if not remains.letters else f" {remains.letters} dead letters about this guest are on it."
    if remains.retention is None or remains.gone_by is None:
        return f"{remains.topic}: without end, as its retention is set.{letters}"
    days = remains.retention.total_seconds() / 86_400
    return f"{remains.topic}: {days:g} days for each message, so its present messages are gone by {iso(remains.gone_by)}.{letters}"


def _row(record: GuestRecord, found: Found, erased: frozenset[str]) -> dict[str, Any]:
    standing = ErasureState.ERASED if record.request_id in erased else record.standing
    return {
        "requestId": record.request_id,
        "workspace": record.workspace_id,
        "account": record.account_id,
        "status": record.status.value,
        "deliveries": found.deliveries.get(record.request_id, 0),
        "standing": standing.value,
    }


def _as_json(found: Found, erased: frozenset[str], *, dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "erased": len(erased),
        "submissions": [_row(record, found, erased) for record in found.records],
        "parkedCancellations": [parked.request_id for parked in found.parked],
        "topics": [
            {
                "topic": remains.topic,
                "retentionDays": None if remains.retention is None else remains.retention.total_seconds() / 86_400,
                "goneBy": None if remains.gone_by is None else iso(remains.gone_by),
                "deadLetters": remains.letters,
            }
            for remains in found.remains
        ],
    }
