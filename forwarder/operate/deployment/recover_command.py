"""`forwarder recover`: brings a database that was restored to an earlier state up to date from the topics; or, if the topics were
lost, reports which submissions may be lost with them, and lets the deployment continue."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Final

from typer import Option

from forwarder.assembly.backend import Backend
from forwarder.assembly.parts import recovery_check, topic_check
from forwarder.operate.command import moment_if_given, open_deployment
from forwarder.operate.deployment.recovery import Recovered, Recovery
from forwarder.operate.output import Block, Shown, WrongUsage
from forwarder.oversight.losses import TopicLost
from forwarder.pms.accounts import target_of
from forwarder.pms.port import AccountConnection
from forwarder.pms.registry import registered
from forwarder.process.clock import iso
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import StoreRecovery
from forwarder.tenancy.port import Account
from forwarder.topics.port import Topics

_IN_WORDS: Final = {
    "missing": "submissions were missing, and are there again",
    "behind": "outcomes were missing, and are recorded again",
    "possibly_sent": "submissions have no outcome: possibly sent, so looked up, sent again under their key, or parked",
    "replayed": "dead letters that were put back are pending again, and possibly sent",
    "cancellations": "requested cancellations are recorded",
    "published_again": "outcomes are published again, for webhooks that were queued since",
    "without_request": "outcomes are of submissions that are no longer on the requests topic",
}


async def recover(
    since: Annotated[
        str | None,
        Option(help="The time of the database's snapshot, or earlier: ISO 8601, or an age such as 30m, 2h, 7d."),
    ] = None,
    from_snapshot: Annotated[
        bool, Option("--from-snapshot", help="Start an hour before the newest submission in the database.")
    ] = False,
    topics_lost: Annotated[
        bool,
        Option(
            "--topics-lost", help="The topics were lost or recreated, not the database: continue with them as they are."
        ),
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Count what would be done.")] = False,
) -> Shown:
    """After a restore: bring the database up to date from the topics, or accept topics that were recreated.

    With all workers stopped, or waiting because the database is behind. Restores what was accepted since the snapshot, with the
    published outcomes. Anything else that may have been sent is never sent again blindly. Safe to repeat.
    """
    if [since is not None, from_snapshot, topics_lost].count(True) != 1:
        raise WrongUsage(
            "Say what happened: --since TIME or --from-snapshot (the database was restored), or --topics-lost."
        )
    begin = moment_if_given(since, "--since")
    async with open_deployment() as backend:
        if topics_lost:
            check = topic_check(backend)
            lost = await check.lost()
            if lost is not None and not dry_run:
                await check.accept(backend.audit)
            if lost is None:
                return Shown({"lost": None}, "The topics are complete: nothing to do.")
            done = "Done: workers continue with the topics as they are, and are ready within half a minute."
            return Shown({"lost": asdict(lost)}, [*_lost_in_words(lost), *([] if dry_run else [done])])
        counts = asdict(await recovery(backend, since=begin, dry_run=dry_run))
    text: list[Block] = ["Dry run:" if dry_run else "Done:"]
    text += [f"{counts[name]:8,} {words}" for name, words in _IN_WORDS.items()]
    if not dry_run:
        text.append("Start the workers now; waiting ones continue by themselves.")
    return Shown({**counts, "dry_run": dry_run}, text)


def _lost_in_words(lost: TopicLost) -> Iterator[str]:
    if lost.taken_in_until is not None:
        kept = "now" if lost.kept_from is None else iso(lost.kept_from)
        yield f"{lost.beyond:,} of the newest submissions were beyond the end of the requests topic: it was lost, or recreated."
        yield (
            f"Submissions accepted from shortly before {iso(lost.taken_in_until)} until {kept} that are not in the database are "
            "lost."
        )
    for gap in lost.gaps:
        count = "An unknown number of" if gap.missing is None else f"{gap.missing:,}"
        since = "" if gap.since is None else f" from {iso(gap.since)}"
        until = iso(gap.noted_at if gap.until is None else gap.until)
        known = f"; the database has {len(gap.known):,} of them" if gap.known else ""
        yield f"{count} messages{since} until {until} are missing from {gap.topic}, partition {gap.partition}{known}."
    if any(gap.topic.endswith(Topics().results) for gap in lost.gaps):
        yield "Webhooks have not received the outcomes of that time: GET /api/v1/vrs/reservations?updatedSince=… lists them."
    if lost.unowned:
        yield f"{lost.unowned:,} due submissions belong to removed partitions: a worker moves them within half a minute."
    if lost.beyond or any(not gap.topic.endswith(Topics().results) for gap in lost.gaps):
        yield (
            "Ask callers to send the submissions of that time again under the same Idempotency-Key: known ones are not made twice."
        )


async def recovery(backend: Backend, *, since: datetime | None, dry_run: bool) -> Recovered:
    """Runs a `Recovery`: see `Recovery.run`."""
    kinds = registered().kinds

    def target(account: Account) -> str:
        connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
        try:
            can = kinds[account.kind](connection, backend.clock).capabilities
        except (LookupError, ValueError):  # no such kind here, or not with these options
            return ""
        return target_of(account.kind, account.base_url, None, can).text

    async with backend.log.publisher() as publisher:
        running = Recovery(
            log=backend.log,
            topics=backend.settings.topics,
            publisher=publisher,
            recorder=Recorder(backend.engine),
            store=StoreRecovery(backend.engine),
            directory=backend.directory,
            check=recovery_check(backend, await backend.request_ids(), await backend.signer()),
            target=target,
            audit=backend.audit,
            clock=backend.clock,
        )
        return await running.run(since=since, dry_run=dry_run)
