"""Detects a store that lacks what the topics contain, as after a restore to an earlier state. Workers on such a store would push
again what was pushed since, and would never push what was accepted since."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from forwarder.reservation.outcome import CancellationRequest, Status
from forwarder.reservation.parsing import moment, whole_number
from forwarder.reservation.record import RESULT_TYPES
from forwarder.reservation.submission import Submission
from forwarder.topics import codec
from forwarder.topics.codec import MessageSigner
from forwarder.topics.port import ConsumedMessage, Log, Topics, read_last, read_to_end

if TYPE_CHECKING:
    from forwarder.store.submissions.repairs import StoreRecovery

LOOKED_AT: Final = 50  # how many of each partition's last messages to check: a restored store lacks the newest


@dataclass(frozen=True, slots=True)
class PublishedOutcome:
    """A result event on the topic, for a request id that this deployment issued."""

    request_id: str
    revision: int
    status: Status
    occurred_at: str
    consumed: ConsumedMessage
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecoveryCheck:
    """Checks one deployment. `group`: the workers'. `known`: which of some request ids were ingested, under any of their names.
    `purged_before`: submissions that finished before then may be purged; None: none are. Raises the errors of log and store."""

    log: Log
    topics: Topics
    group: str
    known: Callable[[Collection[str]], Awaitable[Collection[str]]]
    store: "StoreRecovery"
    vouches: Callable[[str, str], bool]
    purged_before: Callable[[], Awaitable[datetime | None]]
    signer: MessageSigner

    async def lacking(self, looked_at: int = LOOKED_AT) -> Mapping[str, int]:
        """How many submissions, cancellations, replays and outcomes of each partition's last messages the store lacks, if any."""
        newest = await read_last(self.log, self.topics.requests, looked_at, before=await self.committed())
        unknown = await self.unknown(self.submissions(newest))
        set_aside: set[tuple[int, int] | None] = set()
        if unknown:  # messages become dead letters, too, because the store could not hold them
            async for batch in read_to_end(self.log, self.topics.dead_letters):
                set_aside |= {codec.unread_place(each.message) for each in batch}
        cancelled = [request for each in newest if (request := self.cancellation(each)) is not None]
        replays = self.replays(newest)
        outcomes = self.outcomes(await read_last(self.log, self.topics.results, looked_at))
        counts = {
            "submissions": len(unknown.keys() - set_aside),
            "cancellations": await self.store.cancellations_not_noted(cancelled),
            "replays": len(await self.store.replays_not_made({each: replays[each][1] for each in replays})),
            "outcomes": len(await self.behind(outcomes)),
        }
        return {what: count for what, count in counts.items() if count}

    async def committed(self) -> Mapping[int, int]:
        async with self.log.admin() as admin:
            return await admin.committed(self.topics.requests, group=self.group)

    def submissions(self, messages: Sequence[ConsumedMessage]) -> Mapping[tuple[int, int], Submission]:
        """The submissions in these messages that workers would ingest, by partition and offset."""
        found = {}
        for each in messages:
            if not codec.is_cancellation(each.message) and self.signer.verifies(each.message):
                with suppress(codec.Undecodable):
                    found[each.partition, each.offset] = codec.decode_submission(each.message)
        return found

    def replays(self, messages: Sequence[ConsumedMessage]) -> Mapping[str, tuple[ConsumedMessage, int]]:
        """The replayed dead letters among them, the last of each request id, with the revision of the failure."""
        found, submitted = {}, self.submissions(messages)
        for each in messages:
            submission = submitted.get((each.partition, each.offset))
            if submission and (revision := codec.replay_revision(each.message, submission)) is not None:
                found[submission.request_id] = each, revision
        return found

    def cancellation(self, consumed: ConsumedMessage) -> CancellationRequest | None:
        """The cancellation that this message requests; None if it is no valid cancellation request."""
        if codec.is_cancellation(consumed.message) and self.signer.verifies(consumed.message):
            with suppress(codec.Undecodable):
                return codec.decode_cancellation(consumed.message)
        return None

    async def unknown(self, submissions: Mapping[tuple[int, int], Submission]) -> Mapping[tuple[int, int], Submission]:
        known = await self.known({each.request_id for each in submissions.values()}) if submissions else ()
        unknown = {place: each for place, each in submissions.items() if each.request_id not in known}
        purged = await self.purged_before() if unknown else None
        return {place: each for place, each in unknown.items() if purged is None or each.accepted_at >= purged}

    def outcomes(self, messages: Sequence[ConsumedMessage]) -> Sequence[PublishedOutcome]:
        found = []
        for consumed in messages:
            headers = consumed.message.headers
            request_id, _, revision = (codec.header(headers, "ce_id") or "").rpartition(".")
            number, occurred_at = whole_number(revision, codec.REVISION_DIGITS), codec.header(headers, "ce_time")
            if codec.header(headers, "ce_type") not in RESULT_TYPES or number is None or occurred_at is None:
                continue
            try:
                data = codec.decode_data(consumed.message)
                consumed.message.key.decode()
                status = Status(str(data.get("status")))
            except ValueError:  # also `Undecodable`
                continue
            account_id = data.get("integrationAccountId")
            objects = data.get("reservation"), data.get("cancellation") or {}
            if not all(isinstance(each, dict) for each in objects):
                continue
            if isinstance(account_id, str) and self.vouches(account_id, request_id):
                found.append(PublishedOutcome(request_id, number, status, occurred_at, consumed, data))
        return found

    async def behind(self, outcomes: Sequence[PublishedOutcome]) -> Sequence[PublishedOutcome]:
        known = await self.store.standing({each.request_id for each in outcomes}) if outcomes else {}
        behind = [each for each in outcomes if known.get(each.request_id, (0, -1))[1] < each.revision]
        purged = await self.purged_before() if behind else None
        newest = datetime.max.replace(tzinfo=UTC)  # an outcome without a time counts as such
        kept = [purged is None or (moment(each.occurred_at) or newest) >= purged for each in behind]
        return [each for each, recent in zip(behind, kept, strict=True) if recent or each.request_id in known]
