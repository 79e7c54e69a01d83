"""Brings a store that was restored to an earlier state up to date from the topics: ingests the submissions accepted since, with
their published outcomes, and marks everything else that may have been sent as possibly sent.

It acts like a worker that ingested everything and died: all the rows it held are possibly sent to their account's target, so the
workers that take them over look them up, send them again under their key, or park them. An interrupted one can be run again."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import structlog

from forwarder.assembly.parts import recovery_check, topic_check
from forwarder.operate.command import moment_if_given, open_deployment
from forwarder.operate.deployment.topic_copy import BATCH, Submitted, TopicCopy, in_batches
from forwarder.operate.output import Block, Failed, Printed, WrongUsage
from forwarder.oversight.audit import OUTAGES, Audit
from forwarder.oversight.losses import TopicLost
from forwarder.oversight.restored import PublishedOutcome, RecoveryCheck
from forwarder.pms.accounts import target_of
from forwarder.pms.port import AccountConnection
from forwarder.pms.registry import registered
from forwarder.process.clock import Clock, iso
from forwarder.process.loops import Blame, Fault, Where, by_halves, cancel_all
from forwarder.reservation.evidence import NOTHING_SENT, read_target
from forwarder.reservation.outcome import CancellationRequest, Confirmed, InDoubt, Status
from forwarder.reservation.parsing import moment
from forwarder.reservation.record import ResultEvent
from forwarder.store.audit import AuditResult
from forwarder.store.submissions.port import Arrival, CancellationArrival, Ended, Heartbeat, Unstorable
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import StoreRecovery
from forwarder.tenancy.port import DEFAULT_DEADLINE_SECONDS, Account, Directory
from forwarder.tenancy.sealing import GONE
from forwarder.topics.codec import trace_of
from forwarder.topics.port import Log, Publisher, Topics, moment_of

_log = structlog.get_logger(__name__)

_MARGIN: Final = timedelta(hours=1)
_ENDLESS: Final = datetime(8999, 1, 1, tzinfo=UTC)


class LeasesInForce(Failed):
    """Workers are running on this store. The message names them."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery, or of its dry run, as `_IN_WORDS` says. The `replayed` are among the `possibly_sent`."""

    since: datetime | None
    missing: int
    behind: int
    possibly_sent: int
    cancellations: int
    published_again: int
    without_request: int
    replayed: int = 0


@dataclass(slots=True, kw_only=True)
class Recovery:
    """One recovery. `target` is that of workers' pushes for an account, as rows store it; empty where pushes carry nothing.
    Raises `LeasesInForce`, `StoreUnavailable`, `TenancyUnavailable`, `LogUnavailable`."""

    log: Log
    topics: Topics
    publisher: Publisher
    recorder: Recorder
    store: StoreRecovery
    directory: Directory
    check: RecoveryCheck
    target: Callable[[Account], str]
    audit: Audit
    clock: Clock
    _worker_id: str = field(default="", init=False)
    _terms: dict[str, tuple[timedelta, str]] = field(default_factory=dict, init=False)

    async def run(self, *, since: datetime | None = None, dry_run: bool = False) -> Recovered:
        """`since`: when the store was like this; by default an hour before its newest row. `dry_run`: only counts."""
        with closing(TopicCopy(self.log, self.topics, self.check)) as copy:
            if dry_run:
                await self._require_no_leases()
                since = await self._begin_at(since)
                await copy.read(since)
                return await self._dry_run(since, copy)
            async with self._alone():
                since = await self._begin_at(since)
                # Keep workers from starting until this recovery finishes, even if this process dies.
                before, now = await self._others(), self.clock.now()
                await self.store.begin(since, now)
                if (at_work := await self._at_work(before)) is not None:
                    await self.store.give_up(now)
                    raise at_work
                await copy.read(since)
                async with self.audit.request("store.recover", since=since and since.isoformat()) as operation:
                    recovered = await self._recover(since, copy)
                    operation.details |= {name: count for name, count in asdict(recovered).items() if name != "since"}
                    await self.audit.note(operation, AuditResult.DONE)
            await self.recorder.take_over((), now=self.clock.now())
            # The store has these outcomes, but perhaps not their deliveries. Consumers drop repeated events by their id.
            for messages in in_batches(copy.known()):
                await self.publisher.publish(self.topics.results, messages)
            await self.store.finish(self.clock.now())
            return recovered

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Holds a lease that other recoveries see; raises if a worker or another recovery is running."""
        self._worker_id = f"recovery-{secrets.token_hex(6)}"
        await self._renew()

        async def keep_renewing() -> None:
            while True:
                await self.clock.sleep(10.0)
                with suppress(*OUTAGES, LeasesInForce):  # the next step finds out
                    await self._renew()

        renewing = asyncio.create_task(keep_renewing())
        try:
            await self._require_no_leases()
            yield
        finally:
            await cancel_all([renewing])
            with suppress(*OUTAGES):
                await self.recorder.end_lease(self._worker_id)

    async def _begin_at(self, since: datetime | None) -> datetime | None:
        """Where to begin. An interrupted recovery wrote the newest row itself, so the next one begins where it began."""
        broken_off = await self.store.unfinished()
        if None in broken_off:
            return None
        if moments := [each for each in (*broken_off, since) if each is not None]:
            return min(moments)
        # By the log's clock, by which the topics are searched: a worker's may have been wrong.
        newest = await self.store.newest()
        return None if newest is None else moment_of(newest) - _MARGIN

    async def _dry_run(self, since: datetime | None, copy: TopicCopy) -> Recovered:
        counts, behind, in_store, replayed = copy.counts(), 0, 0, 0
        for some in in_batches(copy.outcomes()):
            standing = await self.store.standing({outcome.request_id for outcome, _ in some})
            behind += sum(missing or outcome.request_id in standing for outcome, missing in some)
            in_store += len(standing)
        for replays in in_batches(copy.replays()):
            undecided = {each.submission.request_id: each.replay_of or 0 for each in replays if each.outcome is None}
            failed_since = [each.outcome for each in replays if each.outcome and each.outcome.status is Status.FAILED]
            revisions = {each.submission.request_id: each.replay_of for each in replays}
            replayed += len(await self.store.replays_not_made(undecided))
            replayed += sum(each.revision == revisions[each.request_id] for each in failed_since)
        pending = await self.recorder.count_due(now=_ENDLESS)
        return _counted(since, counts, behind, max(pending + counts["undecided"] - in_store, 0) + replayed, replayed)

    async def _require_no_leases(self) -> None:
        """Waits for one lease, because live workers renew theirs, and those that only the snapshot remembers do not."""
        if before := await self._others():
            await self.clock.sleep(max(each.lease_seconds for each in before))
            if (at_work := await self._at_work(before)) is not None:
                raise at_work

    async def _others(self) -> Sequence[Heartbeat]:
        return [each for each in await self.recorder.heartbeats() if each.worker_id != self._worker_id]

    async def _at_work(self, before: Sequence[Heartbeat]) -> LeasesInForce | None:
        """The error that names those who renewed their leases since `before`."""
        alive = sorted(each.worker_id for each in await self._others() if each not in before)
        says = f"Workers, or another recovery, are at work on this store: {', '.join(alive)}"
        return LeasesInForce(f"{says}. Stop them all, then run this again.") if alive else None

    async def _recover(self, since: datetime | None, copy: TopicCopy) -> Recovered:
        recorder, blame, behind, replayed = self.recorder, Blame(Where.RECOVERY, self.clock.sleep), 0, 0
        await recorder.take_over(await self._others(), now=self.clock.now())
        await self._hold_pending()
        counts = copy.counts()
        # What the store has comes first: what it lacks is compared with that, as it was when a worker compared them.
        for decided in in_batches(copy.decided()):
            await self._recognise(decided)
        for requests in in_batches(copy.cancellations(of_missing=False)):
            await self._cancel(requests)
        for outcomes in in_batches(copy.outcomes()):
            await self._renew()
            behind += await self._restore([outcome for outcome, missing in outcomes if not missing])
        for some in copy.to_restore():
            await self._renew()
            if not some[0].missing:
                replayed += await self._replay(some)
                continue
            await by_halves(
                self._ingest,
                some,
                where=Where.RECOVERY,
                set_aside=_left_out,
                outages=OUTAGES,
                refusals=(Unstorable,),
                refused=_left_out,
                blame=blame,
            )
            # Before its outcome: if this process dies in between, the next recovery finds that it lacks the outcome.
            await self._recognise(some)
            behind += await self._restore([each.outcome for each in some if each.outcome is not None])
            await self._cancel([each.cancellation for each in some if each.cancellation is not None])
        # Once more: some were requested again after one that, by its outcome, had failed.
        for requests in in_batches(copy.cancellations()):
            await self._cancel(requests)
        await self._hold_pending()
        return _counted(since, counts, behind, len(await recorder.leased_ids(self._worker_id)), replayed)

    async def _recognise(self, some: Iterable[Submitted]) -> None:
        """From now on later submissions are compared with those of `some` that have an outcome."""
        decided = [each.submission for each in some if each.outcome is not None]
        await self.store.recognise_by({each.request_id: each.natural for each in decided if each.natural})

    async def _replay(self, replays: Sequence[Submitted]) -> int:
        """Makes replayed dead letters without an outcome pending again, and possibly sent. Returns how many."""
        revisions = {each.submission.request_id: each.replay_of or 0 for each in replays}
        lacking = await self.store.replays_not_made(revisions)
        made = [each for each in replays if each.submission.request_id in lacking]
        arrivals = [replace(await self._arrival(each), replay_of=each.replay_of) for each in made]
        await self.recorder.ingest(self._worker_id, arrivals, now=self.clock.now())
        return len(lacking)

    async def _renew(self) -> None:
        if not await self.recorder.renew(self._worker_id, seconds=60.0):
            raise LeasesInForce("This recovery was stopped for so long that its lease ran out. Run it again.")

    async def _hold_pending(self) -> None:
        """Claims every row with work left and marks it as pushing: takeover then counts it as possibly sent."""
        await self._renew()
        recorder, own, partitions = self.recorder, self._worker_id, range(1000)
        for account_id in await recorder.accounts_due(partitions, now=_ENDLESS):
            _, target = await self._terms_of(account_id)
            while True:
                works = await recorder.claim(own, account_id, partitions, now=_ENDLESS, limit=BATCH, target=target)
                await recorder.mark_pushing(self._worker_id, [work.id for work in works])
                if len(works) < BATCH:
                    break
                await self._renew()

    async def _ingest(self, some: Sequence[Submitted]) -> None:
        arrivals = [await self._arrival(each) for each in some]
        works = await self.recorder.ingest(self._worker_id, arrivals, now=self.clock.now())
        await self.recorder.mark_pushing(self._worker_id, [work.id for work in works])

    async def _arrival(self, submitted: Submitted) -> Arrival:
        message, submission = submitted.message, submitted.submission
        # Only keys that a backup should not contain could open its card.
        kept = submission if submission.card is None else replace(submission, card=GONE)
        if submitted.missing and submitted.outcome is not None:
            # With an outcome of its own it duplicates no other: leave its natural key out now, and restore it later.
            kept = replace(kept, natural=None)
        deadline, target = await self._terms_of(submission.account_id)
        at, place, written = self.clock.now() + deadline, message.offset, message.timestamp_ms
        return Arrival(kept, message.partition, at, held=True, offset=place, timestamp_ms=written, target=target)

    async def _cancel(self, requests: Sequence[CancellationRequest]) -> None:
        now, arrivals = self.clock.now(), []
        for each in requests:
            deadline, _ = await self._terms_of(each.account_id)
            arrivals.append(CancellationArrival(each, now + max(deadline, _MARGIN)))
        await self.recorder.request_cancellations(arrivals, now=now)

    async def _restore(self, outcomes: Sequence[PublishedOutcome]) -> int:
        standing = await self.store.standing({each.request_id for each in outcomes}) if outcomes else {}
        rows = [(each, standing[each.request_id][0]) for each in outcomes if each.request_id in standing]
        return await self.store.restore([await self._ended(*each) for each in rows]) if rows else 0

    async def _ended(self, outcome: PublishedOutcome, work_id: int) -> Ended:
        data, message, now = outcome.data, outcome.consumed.message, self.clock.now()
        status, record, in_doubt = outcome.status, data["reservation"], outcome.status is Status.IN_DOUBT
        key, trace = message.key.decode(), trace_of(message.headers)
        event = ResultEvent(outcome.request_id, outcome.revision, status, key, outcome.occurred_at, data, trace)
        (deadline, target), evidence = await self._terms_of(data["integrationAccountId"]), NOTHING_SENT
        cancelled_at = record.get("cancelledAt")
        if in_doubt or status is Status.CONFIRMED:
            # One push, with nothing known of it but the target of the account's pushes.
            came = InDoubt("restored", "") if in_doubt else Confirmed(record.get("pmsReservationId") or "")
            evidence = NOTHING_SENT.after(came, read_target(target), outcome.occurred_at)
        return Ended(
            work_id,
            status,
            (),
            moment(outcome.occurred_at) or now,
            event,
            record.get("pmsReservationId"),
            record.get("problem"),
            look_at=now if in_doubt else None,
            cancelled_at=(moment(cancelled_at) or now) if cancelled_at else None,
            cancel_problem=(data.get("cancellation") or {}).get("problem") if status is Status.CONFIRMED else None,
            cancel_by=now + deadline,
            evidence=evidence,
        )

    async def _terms_of(self, account_id: str) -> tuple[timedelta, str]:
        """How long the account's submissions are tried, and the target of its pushes."""
        if account_id not in self._terms:
            account = await self.directory.account(account_id)
            seconds = DEFAULT_DEADLINE_SECONDS if account is None else account.deadline_seconds
            self._terms[account_id] = timedelta(seconds=seconds), "" if account is None else self.target(account)
        return self._terms[account_id]


def _counted(since: datetime | None, counts: Mapping[str, int], behind: int, sent: int, replayed: int) -> Recovered:
    missing, cancellations, known = counts["missing"], counts["cancellations"], counts["known"]
    return Recovered(since, missing, behind, sent, cancellations, known, counts["outcomes"] - behind, replayed)


async def _left_out(submitted: Submitted, error: Exception | Fault) -> None:
    place, of = submitted.message, submitted.submission.request_id
    _log.error("recovery.left_out", request_id=of, partition=place.partition, offset=place.offset, error=str(error))


# --- the command ---

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
    since: str | None = None, from_snapshot: bool = False, topics_lost: bool = False, dry_run: bool = False
) -> Printed:
    """After a restore: bring the database up to date from the topics, or accept topics that were recreated.

    With all workers stopped, or waiting because the database is behind. Restores what was accepted since the snapshot, with the
    published outcomes. Anything else that may have been sent is never sent again blindly. Safe to repeat.

    since: The time of the database's snapshot, or earlier: ISO 8601, or an age such as 30m, 2h, 7d.
    from_snapshot: Start an hour before the newest submission in the database.
    topics_lost: The topics were lost or recreated, not the database: continue with them as they are.
    dry_run: Count what would be done."""
    if [since is not None, from_snapshot, topics_lost].count(True) != 1:
        restored = "--since TIME or --from-snapshot (the database was restored)"
        raise WrongUsage(f"Say what happened: {restored}, or --topics-lost.")
    begin = moment_if_given(since, "--since")
    async with open_deployment() as backend:
        if topics_lost:
            check = topic_check(backend)
            if (lost := await check.lost()) is None:
                return Printed({"lost": None}, "The topics are complete: nothing to do.")
            text: list[Block] = [*_lost_in_words(lost)]
            if not dry_run:
                await check.accept(backend.audit)
                text.append("Done: workers continue with the topics as they are, and are ready within half a minute.")
            return Printed({"lost": asdict(lost)}, text)
        async with backend.log.publisher() as publisher:
            running = Recovery(
                log=backend.log,
                topics=backend.settings.topics,
                publisher=publisher,
                recorder=Recorder(backend.engine),
                store=StoreRecovery(backend.engine),
                directory=backend.directory,
                check=recovery_check(backend, await backend.request_ids(), await backend.signer()),
                target=partial(_target, backend.clock),
                audit=backend.audit,
                clock=backend.clock,
            )
            counts = asdict(await running.run(since=begin, dry_run=dry_run))
    text = ["Dry run:" if dry_run else "Done:", *(f"{counts[name]:8,} {words}" for name, words in _IN_WORDS.items())]
    if not dry_run:
        text.append("Start the workers now; waiting ones continue by themselves.")
    return Printed({**counts, "dry_run": dry_run}, text)


def _lost_in_words(lost: TopicLost) -> Iterator[str]:
    if lost.taken_in_until is not None:
        kept = "now" if lost.kept_from is None else iso(lost.kept_from)
        yield f"{lost.beyond:,} of the newest submissions were beyond the end of the requests topic: it was lost, or recreated."
        since = f"shortly before {iso(lost.taken_in_until)}"
        yield f"Submissions accepted from {since} until {kept} that are not in the database are lost."
    for gap in lost.gaps:
        count = "An unknown number of" if gap.missing is None else f"{gap.missing:,}"
        since = "" if gap.since is None else f" from {iso(gap.since)}"
        until = iso(gap.noted_at if gap.until is None else gap.until)
        known = f"; the database has {len(gap.known):,} of them" if gap.known else ""
        yield f"{count} messages{since} until {until} are missing from {gap.topic}, partition {gap.partition}{known}."
    results = [gap.topic.endswith(Topics().results) for gap in lost.gaps]
    if any(results):
        yield "Webhooks have not received the outcomes of that time: GET /api/v1/vrs/reservations?updatedSince=… lists them."
    if lost.unowned:
        yield f"{lost.unowned:,} due submissions belong to removed partitions: a worker moves them within half a minute."
    if lost.beyond or not all(results):
        known = "known ones are not made twice"
        yield f"Ask callers to send the submissions of that time again under the same Idempotency-Key: {known}."


def _target(clock: Clock, account: Account) -> str:
    connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
    try:
        can = registered().kinds[account.kind](connection, clock).capabilities
    except (LookupError, ValueError):  # no such kind here, or not with these options
        return ""
    return target_of(account.kind, account.base_url, None, can).text
