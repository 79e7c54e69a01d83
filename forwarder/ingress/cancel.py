"""The flow of one cancellation: authenticate → read → find what it is about → publish, unless it is over already → answer.

It is accepted from the moment at which its submission was, whether a worker has taken that in or not: the id itself vouches for it.
A worker that takes in the cancellation first keeps it for the submission.
"""

import re
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from forwarder.http.prefer import Wait, read_wait
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import LOG_UNAVAILABLE, NO_SUBMISSION, OVERLOADED, SUBMISSION_UNREADABLE
from forwarder.ingress.reading import read_valid_cancellation
from forwarder.ingress.request import Call
from forwarder.ingress.terms import read_traceparent
from forwarder.observability.metrics import PUBLISH_SECONDS
from forwarder.reservation.cancellation import (
    CancellationBody,
    CancellationRequest,
    CancellationStatus,
    not_made,
    not_supported,
)
from forwarder.reservation.outcome import Status
from forwarder.reservation.problem import Problem
from forwarder.store.lists.port import Stored
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.access import Caller
from forwarder.topics.cancellations import encode_cancellation
from forwarder.topics.outcomes import OutcomeEvent, OutcomeWaiter
from forwarder.topics.port import LogUnavailable

_REQUEST_ID: Final = re.compile(r"rsv_[a-z2-7]{32}")
_RESERVATION_ID: Final = re.compile(r"[1-9][0-9]{0,17}")
_NO_WAIT: Final = Wait(0)
_NOBODY_WAITS: AbstractAsyncContextManager[None] = nullcontext()
_OVER: Final = frozenset({Status.CANCELLED, Status.REJECTED, Status.FAILED})


@dataclass(frozen=True, slots=True)
class Requested:
    """A cancellation that is safe on the log, or that was asked for before. `settled`: what came of it, where that is known."""

    request_id: str
    status: Status
    wait: Wait
    settled: OutcomeEvent | None = None


class _Ends:
    """Whether an event tells what came of a cancellation that was asked for after `revision`."""

    revision = 0

    def __call__(self, settled: OutcomeEvent) -> bool:
        return settled.revision > self.revision and (settled.status in _OVER or settled.cancellation is not None)


class Cancellations:
    """Takes cancellations in. Expected failures come back as problems; none is raised but `ClientDisconnect`, before anything was
    published."""

    def __init__(self, parts: IngressParts) -> None:
        self._parts = parts
        self._in_flight = 0

    async def request(self, caller: Caller, call: Call) -> Requested | Problem:
        """Make the cancellation of the submission in the path safe, and wait for what comes of it where the caller does."""
        body = await read_valid_cancellation(call, within=self._parts.settings.body_seconds)
        if isinstance(body, Problem):
            return body
        prefer = call.headers.get("prefer")
        wait = _NO_WAIT if prefer is None else read_wait(prefer, _NO_WAIT, self._parts.settings.longest_wait_seconds)
        try:
            request_id = await self._request_id(caller, call.scope["path_params"]["id"])
            if request_id is None:
                return NO_SUBMISSION
            ends = _Ends()
            async with self._expecting(request_id, wait, ends) as expected:
                requested = await self._ask(caller, call, request_id, body, wait, ends)
                if expected is None or isinstance(requested, Problem) or requested.settled is not None:
                    return requested
                left = wait.seconds - (self._parts.clock.monotonic() - call.started)
                settled = await expected.within(left, call.gone)
                return Requested(request_id, requested.status, wait, settled)
        except StoreUnavailable:
            return SUBMISSION_UNREADABLE

    async def _request_id(self, caller: Caller, given: str) -> str | None:
        """The request id that the path names, or that of the reservation whose id it names; None where the account has none."""
        if _RESERVATION_ID.fullmatch(given):
            stored = await self._parts.reader.reservation(caller.account.id, int(given))
            return None if stored is None else stored.request_id
        ours = _REQUEST_ID.fullmatch(given) and self._parts.ids.vouches(caller.account.id, given)
        return given if ours else None

    def _expecting(self, request_id: str, wait: Wait, ends: _Ends) -> AbstractAsyncContextManager[OutcomeWaiter | None]:
        return self._parts.outcomes.expecting(request_id, ends) if wait.seconds else _NOBODY_WAITS

    async def _ask(
        self, caller: Caller, call: Call, request_id: str, body: CancellationBody, wait: Wait, ends: _Ends
    ) -> Requested | Problem:
        """Publish it, unless it was asked for before and that has not come to nothing."""
        stored = await self._parts.reader.submission(caller.account.id, request_id)
        status = Status.PENDING if stored is None else stored.status
        if stored is not None:
            ends.revision = stored.revision
            if stored.status is Status.CANCELLED:
                return Requested(request_id, status, wait, _settled(stored))
            if stored.status in _OVER:
                return not_made(request_id, status)
        if not self._parts.can_cancel(caller.account):
            return not_supported(request_id, caller.account.kind)
        if stored is None or not _asked_for(stored):
            problem = await self._publish(self._message_of(caller, call, request_id, body, stored))
            if problem is not None:
                return problem
        return Requested(request_id, status, wait)

    def _message_of(
        self, caller: Caller, call: Call, request_id: str, body: CancellationBody, stored: Stored | None
    ) -> CancellationRequest:
        # The key of its submission, where that is known, brings it to the worker that has its room. Nothing hangs on it.
        place = request_id if stored is None else stored.property_id
        return CancellationRequest(
            request_id=request_id,
            account_id=caller.account.id,
            key=f"{caller.account.id}:{place}",
            requested_at=self._parts.clock.now(),
            reason=body.reason,
            revision=0 if stored is None else stored.revision,
            traceparent=read_traceparent(call.headers),
        )

    async def _publish(self, request: CancellationRequest) -> Problem | None:
        if self._in_flight >= self._parts.settings.most_in_flight:
            return OVERLOADED
        self._in_flight += 1
        try:
            with PUBLISH_SECONDS.time():
                await self._parts.publisher.publish(self._parts.requests_topic, (encode_cancellation(request),))
        except LogUnavailable:
            return LOG_UNAVAILABLE
        finally:
            self._in_flight -= 1
        return None


def _asked_for(stored: Stored) -> bool:
    return stored.cancellation is not None and stored.cancellation.status is CancellationStatus.REQUESTED


def _settled(stored: Stored) -> OutcomeEvent:
    return OutcomeEvent(stored.status, stored.id, stored.record.encode(), stored.problem, revision=stored.revision)
