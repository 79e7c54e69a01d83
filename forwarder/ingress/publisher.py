"""From drafts to receipts: what came before under its idempotency key is told so, the rest is published. One, or many at once."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from forwarder.ingress.idempotency import Attempt, Earlier
from forwarder.ingress.message import Draft
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import LOG_UNAVAILABLE, OVERLOADED, STORE_UNAVAILABLE
from forwarder.ingress.receipt import Receipt
from forwarder.ingress.yielding import Turns, others_first
from forwarder.observability.metrics import PUBLISH_SECONDS
from forwarder.observability.observations import OBSERVATIONS
from forwarder.reservation.problem import Problem
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.topics.port import LogUnavailable, Message


class Handover:
    """Hands submissions to the log. No more than `most_in_flight` are not yet acknowledged, in however few calls they came."""

    def __init__(self, parts: IngressParts) -> None:
        self._publisher = parts.publisher
        self._requests_topic = parts.requests_topic
        self._earlier = Earlier(parts.reader, parts.settings.most_keys_remembered)
        self._most_in_flight = parts.settings.most_in_flight
        self._clock = parts.clock
        self._in_flight = 0

    async def one(self, draft: Draft) -> Receipt | Problem:
        """Publish it, unless its idempotency key says that this was done before."""
        if not draft.keyed:
            problem = await self._publish((draft.message(draft.accepted_at),))
            return problem or Receipt(draft.request_id, draft.accepted_at)
        try:
            earlier = await self._earlier.look_up(draft)
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        if not isinstance(earlier, Attempt):
            return earlier
        with earlier:
            problem = await self._publish((draft.message(earlier.accepted_at),))
            return problem or Receipt(draft.request_id, earlier.acknowledged())

    async def many(self, account_id: str, drafts: Sequence[Draft]) -> Sequence[Receipt | Problem] | Problem:
        """What `one` says to each of the account's `drafts`, in their order; or the problem that kept all of them from the log.
        Their keys are looked up by one statement, and what is new is published as one batch, no request id twice."""
        try:
            told = await self._earlier.look_up_all(account_id, [draft for draft in drafts if draft.keyed])
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        with ExitStack() as attempts:
            for earlier in told:
                if isinstance(earlier, Attempt):
                    attempts.enter_context(earlier)
            return await self._publish_new(drafts, iter(told))

    async def _publish_new(
        self, drafts: Sequence[Draft], told: Iterator[Receipt | Problem | Attempt]
    ) -> Sequence[Receipt | Problem] | Problem:
        """`told`: what is known of those that have a key, in their order."""
        results: list[Receipt | Problem | Attempt] = []
        messages: dict[str, Message] = {}
        turns = Turns()
        for draft in drafts:
            earlier = next(told) if draft.keyed else Receipt(draft.request_id, draft.accepted_at)
            results.append(earlier)
            if isinstance(earlier, Attempt) or not draft.keyed:
                accepted_at = earlier.accepted_at if isinstance(earlier, Attempt) else draft.accepted_at
                message = messages.setdefault(draft.request_id, draft.message(accepted_at))
                if turns.over(len(message.value)):
                    await others_first()
        problem = await self._publish([*messages.values()]) if messages else None
        return problem or [
            Receipt(draft.request_id, each.acknowledged()) if isinstance(each, Attempt) else each
            for draft, each in zip(drafts, results, strict=True)
        ]

    async def _publish(self, messages: Sequence[Message]) -> Problem | None:
        if self._in_flight + len(messages) > self._most_in_flight:
            return OVERLOADED
        self._in_flight += len(messages)
        began = self._clock.monotonic()
        try:
            await self._publisher.publish(self._requests_topic, messages)
        except LogUnavailable:
            return LOG_UNAVAILABLE
        finally:
            self._in_flight -= len(messages)
            OBSERVATIONS.note(PUBLISH_SECONDS, self._clock.monotonic() - began)
        return None
