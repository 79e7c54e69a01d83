"""Publishes submissions to the log, and waits for its acknowledgement; but not what was published before."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import structlog

from forwarder.ingress.message import NewSubmission
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import LOG_UNAVAILABLE, OVERLOADED, STORE_UNAVAILABLE, too_large_for_log
from forwarder.ingress.publish.duplicates import KeyHint, RecentSubmissions
from forwarder.ingress.publish.idempotency import Attempt, IdempotencyCache, Receipt
from forwarder.observability.metrics import DEFERRED, PUBLISH_SECONDS
from forwarder.process.loops import TimeSlice, yield_to_loop
from forwarder.process.shares import Shares
from forwarder.reservation.problems.problem import Problem
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.topics.port import LogUnavailable, Message, MessageTooLarge

_log = structlog.get_logger(__name__)


class SubmissionPublisher:
    """Publishes submissions to the log. No more than `max_in_flight` are not yet acknowledged, in however few requests they
    came, and of these each workspace has its share."""

    def __init__(self, parts: IngressParts) -> None:
        self._publisher = parts.publisher
        self._signer = parts.signer
        self._requests_topic = parts.requests_topic
        self._idempotency = IdempotencyCache(parts.reader, parts.settings.max_keys_remembered)
        self._recent = RecentSubmissions(parts.reader, parts.settings.max_keys_remembered)
        self.hint = KeyHint()
        self._clock = parts.clock
        self._in_flight = Shares(parts.settings.max_in_flight)

    async def publish(self, submission: NewSubmission) -> Receipt | Problem:
        """Publish it, unless its idempotency key, or what it asks for, says that this was done before."""
        if not submission.keyed:
            return await self._publish_keyless(submission)
        try:
            found = await self._idempotency.look_up(submission)
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        if not isinstance(found, Attempt):
            return found
        with found:
            problem = await self._send_one(submission.workspace_id, submission.message(found.accepted_at))
            return problem or Receipt(submission.request_id, found.acknowledged())

    async def _publish_keyless(self, submission: NewSubmission) -> Receipt | Problem:
        earlier = self._recent.find(submission)
        known = None if earlier is None else await self._recent.decide(submission, earlier)
        if known is not None:
            return known
        problem = await self._send_one(submission.workspace_id, submission.message(submission.accepted_at))
        if problem is not None:
            return problem
        self._recent.remember(submission)
        return Receipt(submission.request_id, submission.accepted_at)

    async def publish_all(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem] | Problem:
        """What `publish` says to each of the account's `submissions`, in their order; or the problem that kept all of them
        from the log. Their keys are looked up by one statement, and what is new is published as one batch, no request id
        twice."""
        try:
            known = await self._idempotency.look_up_all(
                account_id, [submission for submission in submissions if submission.keyed]
            )
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        with ExitStack() as attempts:
            for found in known:
                if isinstance(found, Attempt):
                    attempts.enter_context(found)
            keyless = await self._keyless(account_id, [each for each in submissions if not each.keyed])
            return await self._publish_new(submissions, iter(known), iter(keyless))

    async def _keyless(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem | None]:
        """What is known of those without a key that were sent before, or come twice in this bulk; None of those that are new."""
        found = [(each, earlier) for each in submissions if (earlier := self._recent.find(each)) is not None]
        decided = iter(await self._recent.decide_all(account_id, found)) if found else iter(())
        sent_before = {each.request_id: next(decided) for each, _ in found}
        first: dict[str, Receipt | Problem] = {}
        known: list[Receipt | Problem | None] = []
        for each in submissions:
            receipt = sent_before.get(each.request_id)
            if receipt is None and each.natural is not None:
                receipt = first.get(each.natural.key)
                first.setdefault(each.natural.key, Receipt(each.request_id, each.accepted_at, duplicate=True))
            known.append(receipt)
        return known

    async def _publish_new(
        self,
        submissions: Sequence[NewSubmission],
        known: Iterator[Receipt | Problem | Attempt],
        keyless: Iterator[Receipt | Problem | None],
    ) -> Sequence[Receipt | Problem] | Problem:
        """`known`: what is known of those that have a key, in their order; `keyless`: of those that have none."""
        results: list[Receipt | Problem | Attempt | None] = []
        messages: dict[str, Message] = {}
        time_slice = TimeSlice()
        for submission in submissions:
            found = next(known) if submission.keyed else next(keyless)
            results.append(found)
            if found is None or isinstance(found, Attempt):
                accepted_at = submission.accepted_at if found is None else found.accepted_at
                message = messages.setdefault(submission.request_id, submission.message(accepted_at))
                if time_slice.used_up(len(message.value)):
                    await yield_to_loop()
        refused = await self._send(submissions[0].workspace_id, [*messages.values()]) if messages else {}
        if isinstance(refused, Problem):
            return refused
        problems = {request_id: refused[index] for index, request_id in enumerate(messages) if index in refused}
        return [
            # One that repeats another of this bulk shares its fate.
            problems.get(found.request_id if isinstance(found, Receipt) else submission.request_id)
            or self._receipt(submission, found)
            for submission, found in zip(submissions, results, strict=True)
        ]

    def _receipt(self, submission: NewSubmission, found: Receipt | Problem | Attempt | None) -> Receipt | Problem:
        """Of one of a bulk that is safe now."""
        if found is None:
            self._recent.remember(submission)
            return Receipt(submission.request_id, submission.accepted_at)
        return Receipt(submission.request_id, found.acknowledged()) if isinstance(found, Attempt) else found

    async def _send_one(self, workspace_id: str, message: Message) -> Problem | None:
        refused = await self._send(workspace_id, (message,))
        return refused if isinstance(refused, Problem) else refused.get(0)

    async def _send(self, workspace_id: str, messages: Sequence[Message]) -> Mapping[int, Problem] | Problem:
        """The problem that kept all of `messages` from the log; else those of single ones, by their places."""
        if not self._in_flight.take(workspace_id, len(messages)):
            return OVERLOADED
        began = self._clock.monotonic()
        try:
            await self._publisher.publish(self._requests_topic, [self._signer.signed(each) for each in messages])
        except LogUnavailable:
            return LOG_UNAVAILABLE
        except MessageTooLarge as error:
            _log.error("message.too_large", limit=error.limit, bytes=max(error.sizes.values()), count=len(error.sizes))
            return {index: too_large_for_log(size, error.limit) for index, size in error.sizes.items()}
        finally:
            self._in_flight.give_back(workspace_id, len(messages))
            DEFERRED.observe(PUBLISH_SECONDS, self._clock.monotonic() - began)
        return {}
