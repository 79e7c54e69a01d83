"""`forwarder purge`: deletes submissions that finished long ago."""

from datetime import date, datetime
from functools import partial
from typing import Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.commands.privacy import purge_of, retention_of
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, WrongUsage, progress, say, show_json
from forwarder.operations.privacy.retention import TooRecent


def purge(
    before: Annotated[
        datetime,
        typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="The first day, in UTC, whose submissions stay."),
    ],
    workspace: Annotated[str | None, typer.Option(help="Only of this workspace.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only count what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete submissions that were finished before a day.

    Confirmed submissions finish when the guest leaves, others with their outcome.
    Deleted ones can no longer be looked up, listed, cancelled or replayed; a booking once confirmed is still not made twice.
    Pending, in-doubt and being-cancelled ones are kept, however old. Workers keep running. Safe to interrupt and to repeat.
    """
    day = before.date()
    try:
        count, deleted = with_backend(partial(_purge, day, workspace, yes))
    except TooRecent as error:
        raise WrongUsage(f"--before {error}") from None
    if as_json:
        show_json(
            {
                "dryRun": not yes,
                "before": day.isoformat(),
                "workspace": workspace,
                "submissions": deleted if yes else count,
            }
        )
    elif yes:
        say(f"{deleted:,} submissions deleted.")
    else:
        say(f"{count:,} submissions would be deleted; --yes deletes." if count else "There is nothing to delete.")


async def _purge(before: date, workspace: str | None, yes: bool, backend: Backend) -> tuple[int, int]:
    submissions = purge_of(backend)
    if workspace is not None:
        await retention_of(backend).policies(workspace)  # raises for an unknown workspace
    count = await submissions.count(before, workspace)
    if not yes or not count:
        return count, 0
    with progress(count, "Deleting") as on_more:
        return count, await submissions.run(before, workspace, on_more)
