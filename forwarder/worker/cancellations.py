"""Ingesting cancellations: each is noted durably on its submission before its offset is committed.

Rows that wait in an account queue are given back then, and so are those under way that were not sent yet, so that none is sent in
ignorance of its cancellation. The ingress publishes a cancellation to the partition of its submission, whose worker holds the row.
Where it could not (an id derived from an idempotency key that no worker had ingested, a release before 0.2, a topic that was given
more partitions), the worker that ingests it notes it and passes it on to that partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from forwarder.observability import metrics
from forwarder.process.containment import Where
from forwarder.process.loops import keep_trying
from forwarder.reservation.cancellation import CancellationRequest
from forwarder.store.submissions.port import CancellationArrival, NotedOn, StoreUnavailable
from forwarder.tenancy.port import DEFAULT_DEADLINE_SECONDS, Account, TenancyUnavailable
from forwarder.topics.codec import header
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.parts import WorkerParts

_log = structlog.get_logger(__name__)


_PASSED_ON: Final = "passed-on"
"""The header of a cancellation that a worker passed on to the partition of its submission."""


class CancellationIntake:
    """Ingests cancellations, through outages of the store."""

    def __init__(self, parts: WorkerParts, dispatcher: Dispatcher, lease: Lease) -> None:
        self._recorder = parts.recorder
        self._publisher = parts.publisher
        self._topic = parts.topics.requests
        self._directory = parts.directory
        self._dispatcher = dispatcher
        self._lease = lease
        self._clock = parts.clock

    async def ingest(self, received: Sequence[tuple[ConsumedMessage, CancellationRequest]]) -> None:
        """Return once each is durable, and with the worker that holds its row. Raises `Unstorable`: then none is."""
        requests = [request for _, request in received]

        async def step() -> None:
            accounts = await self._accounts(requests)
            now = self._clock.now()
            arrivals = [_arrival(request, accounts.get(request.account_id), now) for request in requests]
            self._dispatcher.being_cancelled = {request.request_id for request in requests}
            try:
                noted = await self._recorder.request_cancellations(arrivals, now=now)
                await self._stop(noted)
            finally:
                self._dispatcher.being_cancelled = ()
            await self._pass_on(received, noted)
            self._look_at_once(accounts.values())

        if requests:
            outages = (StoreUnavailable, TenancyUnavailable, LogUnavailable)
            await keep_trying(step, name=Where.CANCELLATIONS, clock=self._clock, outages=outages)
            metrics.TAKEN_IN.labels("cancellation").inc(len(requests))
            for request in requests:
                _log.info("cancellation.ingested", request_id=request.request_id, account_id=request.account_id)

    async def _stop(self, noted: Mapping[str, NotedOn]) -> None:
        """Give back the rows that wait in a queue and do not show their cancellation, and let those under way go no further."""
        held = [on.request_id for on in noted.values() if on.held_by == self._lease.worker_id]
        self._dispatcher.note_cancelled(held)
        await self._lease.give_back_queued(
            lambda: self._dispatcher.withdraw(
                lambda work: work.cancellation is None and work.submission.request_id in noted
            )
        )

    async def _pass_on(
        self, received: Sequence[tuple[ConsumedMessage, CancellationRequest]], noted: Mapping[str, NotedOn]
    ) -> None:
        """To the partitions of rows that other workers hold; once, wherever that leads."""
        passed_on: list[Message] = []
        for consumed, request in received:
            on, message = noted.get(request.request_id), consumed.message
            elsewhere = on is not None and on.held_by not in {None, self._lease.worker_id}
            if on is not None and elsewhere and on.partition != consumed.partition and not _was_passed_on(message):
                headers = (*message.headers, (_PASSED_ON, b"1"))
                passed_on.append(replace(message, headers=headers, partition=on.partition))
        if passed_on:
            await self._publisher.publish(self._topic, passed_on)
            _log.info("cancellations.passed_on", count=len(passed_on))

    async def _accounts(self, requests: Sequence[CancellationRequest]) -> Mapping[str, Account]:
        ids = {request.account_id for request in requests}
        found = [await self._directory.account(account_id) for account_id in ids]
        return {account.id: account for account in found if account is not None}

    def _look_at_once(self, accounts: Iterable[Account]) -> None:
        """Makes the dispatcher look at once, so that a due cancellation does not wait for the next sweep."""
        for account in accounts:
            self._dispatcher.note_more(account)
        self._dispatcher.refill_wanted.set()


def _was_passed_on(message: Message) -> bool:
    return header(message.headers, _PASSED_ON) is not None


def _arrival(request: CancellationRequest, account: Account | None, now: datetime) -> CancellationArrival:
    seconds = DEFAULT_DEADLINE_SECONDS if account is None else account.deadline_seconds
    return CancellationArrival(request, now + timedelta(seconds=seconds))
