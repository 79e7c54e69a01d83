"""Publishes submissions to the log, and waits for its acknowledgement; but not what was published before."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import structlog

from forwarder.ingress.message import NewSubmission
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import LOG_UNAVAILABLE, OVERLOADED, STORE_UNAVAILABLE, too_large_for_log
from forwarder.ingress.publish.duplicates import RecentSubmissions
from forwarder.ingress.publish.idempotency import Attempt, IdempotencyCache, Receipt
from forwarder.observability.metrics import DEFERRED, PUBLISH_SECONDS
from forwarder.process.loops import TimeSlice, yield_to_loop
from forwarder.process.shares import Shares
from forwarder.reservation.problems.problem import Problem
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.topics.port import LogUnavailable, Message, MessageTooLarge

_MAX_HINTED: Final = 10_000
_log = structlog.get_logger(__name__)


class SubmissionPublisher:
    """Publishes submissions to the log. No more than `max_in_flight` are not yet acknowledged, in however few requests they
    came, and of these each workspace has its share."""

    def __init__(self, parts: IngressParts) -> None:
        self._parts = parts
        self._idempotency = IdempotencyCache(parts.reader, parts.clock, parts.settings.max_keys_remembered)
        self.recent = RecentSubmissions(parts.reader, parts.settings.max_keys_remembered)
        self._hinted: set[str] = set()
        self._in_flight = Shares(parts.settings.max_in_flight)

    def key_help_is_due(self, key_id: str) -> bool:
        """Whether to point the caller to the Idempotency-Key: once per API key and process. With more than 10,000 keys, some get
        the hint again."""
        if key_id in self._hinted:
            return False
        if len(self._hinted) >= _MAX_HINTED:
            self._hinted.clear()
        self._hinted.add(key_id)
        return True

    async def publish(self, submission: NewSubmission) -> Receipt | Problem:
        """Publishes it, unless its idempotency key or its content shows that it was published before."""
        if submission.keyed or submission.similar_refused or self.recent.has_like(submission):
            result = await self.publish_all(submission.account_id, (submission,))
            return result if isinstance(result, Problem) else result[0]
        # Most have no key and are new: what `publish_all` does for them.
        refused = await self._send(submission.workspace_id, (submission.message(submission.accepted_at),))
        problem = refused if isinstance(refused, Problem) else refused.get(0)
        if problem is not None:
            return problem
        (similar,) = await self.recent.remember_all(submission.account_id, (submission,))
        return Receipt(submission.request_id, submission.accepted_at, similar_to=similar)

    async def publish_all(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem] | Problem:
        """The result of `publish` for each of the account's `submissions`, in order; or the problem that kept all of them from the
        log. Looks them up with one statement for those with a key and one for the rest, and publishes the new ones as one batch, no
        request id twice."""
        keyless = iter(await self.recent.decide_all(account_id, [each for each in submissions if not each.keyed]))
        try:
            decided = await self._idempotency.look_up_all(account_id, [each for each in submissions if each.keyed])
            with ExitStack() as attempts:
                for one in decided:
                    if isinstance(one, Attempt):
                        attempts.enter_context(one)
                keyed = iter(decided)
                found: list[Receipt | Problem | Attempt | None] = []
                for each in submissions:
                    known = next(keyed) if each.keyed else next(keyless)
                    refuse = known is None and each.similar_refused
                    found.append(await self.recent.refusal(each) if refuse else known)
                return await self._publish_found(account_id, submissions, found)
        except StoreUnavailable:
            return STORE_UNAVAILABLE

    async def _publish_found(
        self,
        account_id: str,
        submissions: Sequence[NewSubmission],
        found: Sequence[Receipt | Problem | Attempt | None],
    ) -> Sequence[Receipt | Problem] | Problem:
        """Publishes those of `submissions` that are new, by what was `found` of each."""
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
            # What the log acknowledged before has its receipt even so.
            receipts = [one.receipt if isinstance(one, Attempt) else one for one in found]
            known = [each for each in receipts if each is not None]
            return known if len(known) == len(found) else refused
        problems = {request_id: refused[index] for index, request_id in enumerate(messages) if index in refused}
        safe = messages.keys() - problems.keys()
        new = {each.request_id: each for each in submissions if each.request_id in safe}
        similar = dict(zip(new, await self.recent.remember_all(account_id, [*new.values()]), strict=True))
        results: list[Receipt | Problem] = []
        for submission, one in zip(submissions, found, strict=True):
            request_id = submission.request_id
            if one is not None and not isinstance(one, Attempt):
                results.append(one)
                continue
            earlier = None if one is None else one.receipt
            if request_id in problems:
                results.append(earlier or problems[request_id])
            else:
                accepted_at = submission.accepted_at if one is None else one.acknowledged()
                results.append(earlier or Receipt(request_id, accepted_at, similar_to=similar[request_id]))
        return results

    async def _send(self, workspace_id: str, messages: Sequence[Message]) -> Mapping[int, Problem] | Problem:
        """The problem that kept all of `messages` from the log; else those of single ones, by their places."""
        if not self._in_flight.take(workspace_id, len(messages)):
            return OVERLOADED
        began = self._parts.clock.monotonic()
        try:
            await self._parts.publisher.publish(
                self._parts.requests_topic, [self._parts.signer.signed(each) for each in messages]
            )
        except LogUnavailable:
            return LOG_UNAVAILABLE
        except MessageTooLarge as error:
            _log.error("message.too_large", limit=error.limit, bytes=max(error.sizes.values()), count=len(error.sizes))
            return {index: too_large_for_log(size, error.limit) for index, size in error.sizes.items()}
        finally:
            self._in_flight.give_back(workspace_id, len(messages))
            DEFERRED.observe(PUBLISH_SECONDS, self._parts.clock.monotonic() - began)
        return {}
