"""From submissions to receipts: what came before under its idempotency key is given its receipt again, the rest is published.
One, or many at once."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from forwarder.ingress.idempotency import Attempt, IdempotencyCache, Receipt
from forwarder.ingress.message import NewSubmission
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import LOG_UNAVAILABLE, OVERLOADED, STORE_UNAVAILABLE
from forwarder.observability.metrics import DEFERRED, PUBLISH_SECONDS
from forwarder.process.loops import TimeSlice, yield_to_loop
from forwarder.reservation.problems.problem import Problem
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.topics.port import LogUnavailable, Message


class SubmissionPublisher:
    """Publishes submissions to the log. No more than `max_in_flight` are not yet acknowledged, in however few requests they
    came."""

    def __init__(self, parts: IngressParts) -> None:
        self._publisher = parts.publisher
        self._requests_topic = parts.requests_topic
        self._idempotency = IdempotencyCache(parts.reader, parts.settings.max_keys_remembered)
        self._max_in_flight = parts.settings.max_in_flight
        self._clock = parts.clock
        self._in_flight = 0

    async def publish(self, submission: NewSubmission) -> Receipt | Problem:
        """Publish it, unless its idempotency key says that this was done before."""
        if not submission.keyed:
            problem = await self._send((submission.message(submission.accepted_at),))
            return problem or Receipt(submission.request_id, submission.accepted_at)
        try:
            found = await self._idempotency.look_up(submission)
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        if not isinstance(found, Attempt):
            return found
        with found:
            problem = await self._send((submission.message(found.accepted_at),))
            return problem or Receipt(submission.request_id, found.acknowledged())

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
            return await self._publish_new(submissions, iter(known))

    async def _publish_new(
        self, submissions: Sequence[NewSubmission], known: Iterator[Receipt | Problem | Attempt]
    ) -> Sequence[Receipt | Problem] | Problem:
        """`known`: what is known of those that have a key, in their order."""
        results: list[Receipt | Problem | Attempt] = []
        messages: dict[str, Message] = {}
        time_slice = TimeSlice()
        for submission in submissions:
            found = next(known) if submission.keyed else Receipt(submission.request_id, submission.accepted_at)
            results.append(found)
            if isinstance(found, Attempt) or not submission.keyed:
                accepted_at = found.accepted_at if isinstance(found, Attempt) else submission.accepted_at
                message = messages.setdefault(submission.request_id, submission.message(accepted_at))
                if time_slice.used_up(len(message.value)):
                    await yield_to_loop()
        problem = await self._send([*messages.values()]) if messages else None
        return problem or [
            Receipt(submission.request_id, each.acknowledged()) if isinstance(each, Attempt) else each
            for submission, each in zip(submissions, results, strict=True)
        ]

    async def _send(self, messages: Sequence[Message]) -> Problem | None:
        if self._in_flight + len(messages) > self._max_in_flight:
            return OVERLOADED
        self._in_flight += len(messages)
        began = self._clock.monotonic()
        try:
            await self._publisher.publish(self._requests_topic, messages)
        except LogUnavailable:
            return LOG_UNAVAILABLE
        finally:
            self._in_flight -= len(messages)
            DEFERRED.observe(PUBLISH_SECONDS, self._clock.monotonic() - began)
        return None
