"""The flow of one submission: authenticate → read the terms → validate → identify and seal → publish → answer."""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace

from forwarder.ingress.call import Call
from forwarder.ingress.draft import Draft, Drafts
from forwarder.ingress.earlier import Earlier
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import LOG_UNAVAILABLE, OVERLOADED, STORE_UNAVAILABLE, TENANCY_UNAVAILABLE
from forwarder.ingress.reading import read_valid
from forwarder.ingress.receipt import Receipt
from forwarder.ingress.terms import Wait, read_terms, read_wait
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import Operation
from forwarder.runtime.metrics import PUBLISH_SECONDS
from forwarder.store.port import StoreUnavailable
from forwarder.tenancy.access import Caller, authenticate
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.outcomes import Expected
from forwarder.topics.port import LogUnavailable

_NOBODY_WAITS: AbstractAsyncContextManager[None] = nullcontext()


@dataclass(frozen=True, slots=True)
class Accepted:
    """A submission that is safe on the log, what its caller is told of it, and how long it waited at the most."""

    draft: Draft
    receipt: Receipt
    wait: Wait


class Acceptance:
    """Takes submissions in, for both operations. Expected failures come back as problems; none is raised but `ClientDisconnect`,
    before anything was published."""

    def __init__(self, parts: IngressParts) -> None:
        self._parts = parts
        self._drafts = Drafts(parts.ids, parts.sealer)
        self._earlier = Earlier(parts.reader, parts.settings.most_keys_remembered)
        self._in_flight = 0
        self._default_wait: dict[Operation, Wait] = {
            "booking-engine": Wait(0),
            "general": Wait(parts.settings.wait_seconds),
        }

    async def authenticate(self, call: Call) -> Caller | Problem:
        """Who calls, and for which integration account."""
        try:
            return await authenticate(self._parts.directory, call.headers)
        except TenancyUnavailable:
            return TENANCY_UNAVAILABLE

    async def accept(self, caller: Caller, operation: Operation, call: Call) -> Accepted | Problem:
        """Make the submission safe, and wait for its outcome where the caller does."""
        draft = await self._draft(caller, operation, call)
        if isinstance(draft, Problem):
            return draft
        wait = self._wait(operation, call)
        async with self._expecting(draft, wait) as expected:
            receipt = await self._submit(draft)
            if isinstance(receipt, Problem):
                return receipt
            if expected is not None and receipt.settled is None:
                left = wait.seconds - (self._parts.clock.monotonic() - call.started)
                receipt = replace(receipt, settled=await expected.within(left, call.gone))
        return Accepted(draft, receipt, wait)

    async def _draft(self, caller: Caller, operation: Operation, call: Call) -> Draft | Problem:
        terms = read_terms(call)
        if isinstance(terms, Problem):
            return terms
        request = await read_valid(operation, call, within=self._parts.settings.body_seconds)
        if isinstance(request, Problem):
            return request
        return self._drafts.make(caller, operation, request, terms, now=self._parts.clock.now())

    def _wait(self, operation: Operation, call: Call) -> Wait:
        default, prefer = self._default_wait[operation], call.headers.get("prefer")
        return default if prefer is None else read_wait(prefer, default, self._parts.settings.longest_wait_seconds)

    def _expecting(self, draft: Draft, wait: Wait) -> AbstractAsyncContextManager[Expected | None]:
        return self._parts.outcomes.expecting(draft.request_id) if wait.seconds else _NOBODY_WAITS

    async def _submit(self, draft: Draft) -> Receipt | Problem:
        """Publish it, unless its idempotency key says that this was done before."""
        if not draft.keyed:
            return await self._publish(draft, draft.accepted_at)
        try:
            earlier = await self._earlier.look_up(draft)
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        if not isinstance(earlier, str):
            return earlier
        receipt = await self._publish(draft, earlier)
        if isinstance(receipt, Receipt):
            self._earlier.acknowledged(draft)
        return receipt

    async def _publish(self, draft: Draft, accepted_at: str) -> Receipt | Problem:
        if self._in_flight >= self._parts.settings.most_in_flight:
            return OVERLOADED
        self._in_flight += 1
        try:
            with PUBLISH_SECONDS.time():
                await self._parts.publisher.publish(self._parts.requests_topic, (draft.message(accepted_at),))
        except LogUnavailable:
            return LOG_UNAVAILABLE
        finally:
            self._in_flight -= 1
        return Receipt(draft.request_id, accepted_at)
