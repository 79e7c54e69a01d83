"""Publishes submissions to the log, and waits for its acknowledgement; but not what was published before."""

from collections.abc import Mapping, Sequence
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
        self._idempotency = IdempotencyCache(parts.reader, parts.clock, parts.settings.max_keys_remembered)
        self.recent = RecentSubmissions(parts.reader, parts.settings.max_keys_remembered)
        self.hint = KeyHint()
        self._clock = parts.clock
        self._in_flight = Shares(parts.settings.max_in_flight)

    async def publish(self, submission: NewSubmission) -> Receipt | Problem:
        """Publishes it, unless its idempotency key or its content shows that it was published before."""
        try:
            if not submission.keyed:
                known: Receipt | Problem | None
                (known,) = await self.recent.decide_all(submission.account_id, (submission,))
                if known is None and submission.similar_refused:
                    known = await self.recent.refusal(submission)
                return known or await self._publish_one(submission, None)
            attempt = await self._idempotency.look_up(submission)
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        if not isinstance(attempt, Attempt):
            return attempt
        with attempt:
            result = await self._publish_one(submission, attempt)
            return attempt.receipt or result

    async def publish_all(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem] | Problem:
        """The result of `publish` for each of the account's `submissions`, in order; or the problem that kept all of them from the
        log. Looks them up with one statement for those with a key and one for the rest, and publishes the new ones as one batch, no
        request id twice."""
        keyed = [each for each in submissions if each.keyed]
        try:
            known = iter(await self._idempotency.look_up_all(account_id, keyed))
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        keyless = iter(await self.recent.decide_all(account_id, [each for each in submissions if not each.keyed]))
        with ExitStack() as attempts:
            found: list[Receipt | Problem | Attempt | None] = []
            for each in submissions:
                decided = next(known) if each.keyed else next(keyless)
                try:
                    refuse = decided is None and each.similar_refused
                    found.append(await self.recent.refusal(each) if refuse else decided)
                except StoreUnavailable:
                    return STORE_UNAVAILABLE
            for one in found:
                if isinstance(one, Attempt):
                    attempts.enter_context(one)
            messages: dict[str, Message] = {}
            time_slice = TimeSlice()
            for submission, one in zip(submissions, found, strict=True):
                if one is None or isinstance(one, Attempt):
                    accepted_at = submission.accepted_at if one is None else one.accepted_at
                    message = messages.setdefault(submission.request_id, submission.message(accepted_at))
                    if time_slice.used_up(len(message.value)):
                        await yield_to_loop()
            refused = await self._send(submissions[0].workspace_id, [*messages.values()]) if messages else {}
            if isinstance(refused, Problem):
                return refused
            problems = {request_id: refused[index] for index, request_id in enumerate(messages) if index in refused}
            safe = messages.keys() - problems.keys()
            new = {each.request_id: each for each in submissions if each.request_id in safe}
            similar = dict(zip(new, await self.recent.remember_all(account_id, [*new.values()]), strict=True))
            return [
                problems.get(submission.request_id) or self._receipt(submission, one, similar)
                for submission, one in zip(submissions, found, strict=True)
            ]

    def _receipt(
        self,
        submission: NewSubmission,
        found: Receipt | Problem | Attempt | None,
        similar: Mapping[str, Sequence[str]],
    ) -> Receipt | Problem:
        """The result for a submission of a bulk, once its batch is acknowledged."""
        if found is not None and not isinstance(found, Attempt):
            return found
        accepted_at = submission.accepted_at if found is None else found.acknowledged()
        own = Receipt(submission.request_id, accepted_at, similar_to=similar[submission.request_id])
        return own if found is None else found.receipt or own

    async def _publish_one(self, submission: NewSubmission, attempt: Attempt | None) -> Receipt | Problem:
        """The receipt names similar submissions. `attempt`: of a keyed submission."""
        message = submission.message(submission.accepted_at if attempt is None else attempt.accepted_at)
        refused = await self._send(submission.workspace_id, (message,))
        problem = refused if isinstance(refused, Problem) else refused.get(0)
        if problem is not None:
            return problem
        accepted_at = submission.accepted_at if attempt is None else attempt.acknowledged()
        (similar,) = await self.recent.remember_all(submission.account_id, (submission,))
        return Receipt(submission.request_id, accepted_at, similar_to=similar)

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
