"""`forwarder recover`: brings a database that was restored to an earlier state up with what the topics tell."""

from dataclasses import asdict
from typing import Annotated, Final

import typer

from forwarder.assembly.commands.recovery import recovery
from forwarder.cli.backend import with_backend
from forwarder.cli.options import moment
from forwarder.cli.output import AsJson, WrongUsage, say, show_json
from forwarder.operations.recovery.recover import Recovered
from forwarder.process.clock import SystemClock, iso

_IN_WORDS: Final = {
    "missing": "submissions were missing, and are there again",
    "behind": "outcomes were missing, and are recorded again",
    "possibly_sent": "submissions have no outcome: possibly sent, so looked up, sent again under their key, or parked",
    "cancellations": "requested cancellations are noted",
    "published_again": "outcomes are published again, for webhooks that were queued since",
    "without_request": "outcomes are of submissions that are not on the requests topic any more",
}


def recover(
    since: Annotated[
        str | None,
        typer.Option(
            help="When the database was like this: ISO 8601, or an age such as 30m, 2h, 7d. Earlier does no harm."
        ),
    ] = None,
    from_snapshot: Annotated[
        bool, typer.Option("--from-snapshot", help="From an hour before the newest submission of the database on.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """After a restore: bring the database up with what the topics tell.

    With all workers stopped, or waiting because the database is behind. What was taken in since the snapshot is there again, with
    the outcomes that were published. What else may have been sent is never sent blindly. Safe to repeat.
    """
    if (since is None) != from_snapshot:
        raise WrongUsage("Say since when: --since TIME, or --from-snapshot.")
    begin = None if since is None else moment(since, "--since", SystemClock().now())
    recovered = with_backend(lambda backend: recovery(backend, since=begin, dry_run=dry_run))
    if as_json:
        show_json({**asdict(recovered), "since": recovered.since and iso(recovered.since), "dry_run": dry_run})
        return
    _tell(recovered, dry_run=dry_run)


def _tell(recovered: Recovered, *, dry_run: bool) -> None:
    say("It would be so:" if dry_run else "Done:")
    counts = asdict(recovered)
    for name, words in _IN_WORDS.items():
        say(f"{counts[name]:8,} {words}")
    if not dry_run:
        say("Start the workers now; those that waited go on by themselves.")
