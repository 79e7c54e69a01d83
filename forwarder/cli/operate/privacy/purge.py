"""`forwarder purge`: deletes submissions that were finished long ago."""

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

    Confirmed ones are finished when the guest leaves, others with their outcome.
    Nobody can look them up, list, cancel or replay them any more. Those that were confirmed are still not booked again. What is
    pending, in doubt or being cancelled is kept, however old. Workers go on meanwhile. Safe to break off and to repeat.
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
        await retention_of(backend).policies(workspace)  # a name that none has is told
    count = await submissions.count(before, workspace)
    if not yes or not count:
        return count, 0
    with progress(count, "Deleting") as on_more:
        return count, await submissions.run(before, workspace, on_more)
