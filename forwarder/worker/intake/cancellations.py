"""Ingesting cancellations: each is noted durably on its submission before its offset is committed.

Rows that wait in an account queue are given back then, so that none is sent in ignorance of its cancellation. What is under way is
left to finish.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from forwarder.observability import metrics
from forwarder.process.containment import Where
from forwarder.process.loops import keep_trying
from forwarder.reservation.cancellation import CancellationRequest
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.work import CancellationArrival
from forwarder.tenancy.port import DEFAULT_DEADLINE_SECONDS, Account, TenancyUnavailable
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.parts import WorkerParts

_log = structlog.get_logger(__name__)


class CancellationIntake:
    """Ingests cancellations, through outages of the store."""

    def __init__(self, parts: WorkerParts, dispatcher: Dispatcher, lease: Lease) -> None:
        self._recorder = parts.recorder
        self._directory = parts.directory
        self._dispatcher = dispatcher
        self._lease = lease
        self._clock = parts.clock

    async def ingest(self, requests: Sequence[CancellationRequest]) -> None:
        """Return once each is durable. Raises `Unstorable`: then none is."""

        async def step() -> None:
            accounts = await self._accounts(requests)
            now = self._clock.now()
            arrivals = [_arrival(request, accounts.get(request.account_id), now) for request in requests]
            self._dispatcher.being_cancelled = {request.request_id for request in requests}
            try:
                noted = await self._recorder.request_cancellations(arrivals, now=now)
                await self._give_back(noted)
            finally:
                self._dispatcher.being_cancelled = ()
            self._look_at_once(accounts.values())

        if requests:
            outages = (StoreUnavailable, TenancyUnavailable)
            await keep_trying(step, name=Where.CANCELLATIONS, clock=self._clock, outages=outages)
            metrics.TAKEN_IN.labels("cancellation").inc(len(requests))
            for request in requests:
                _log.info("cancellation.ingested", request_id=request.request_id, account_id=request.account_id)

    async def _give_back(self, request_ids: Collection[str]) -> None:
        """Give back the rows that wait in a queue and do not show their cancellation."""
        await self._lease.give_back_queued(
            lambda: self._dispatcher.withdraw(
                lambda work: work.cancellation is None and work.submission.request_id in request_ids
            )
        )

    async def _accounts(self, requests: Sequence[CancellationRequest]) -> Mapping[str, Account]:
        ids = {request.account_id for request in requests}
        found = [await self._directory.account(account_id) for account_id in ids]
        return {account.id: account for account in found if account is not None}

    def _look_at_once(self, accounts: Iterable[Account]) -> None:
        """What can be cancelled now is not left waiting for the next sweep."""
        for account in accounts:
            self._dispatcher.note_more(account)
        self._dispatcher.refill_wanted.set()


def _arrival(request: CancellationRequest, account: Account | None, now: datetime) -> CancellationArrival:
    seconds = DEFAULT_DEADLINE_SECONDS if account is None else account.deadline_seconds
    return CancellationArrival(request, now + timedelta(seconds=seconds))
