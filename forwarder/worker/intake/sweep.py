"""The sweep: rows that are due and held by nobody are claimed into account queues; what a dead worker held is freed."""

from collections.abc import Callable, Collection, Iterable

from forwarder.observability import metrics
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease, LeaseWatch
from forwarder.worker.parts import WorkerParts

_CLAIM = 500


class Sweep:
    """Looks into the store every `sweep_seconds`, and at once for a queue that runs low. `in_memory`: the rows this worker has."""

    def __init__(
        self, parts: WorkerParts, dispatcher: Dispatcher, lease: Lease, in_memory: Callable[[], Collection[int]]
    ) -> None:
        self._recorder = parts.recorder
        self._directory = parts.directory
        self._dispatcher = dispatcher
        self._lease = lease
        self._clock = parts.clock
        self._interval_seconds = parts.settings.sweep_seconds
        self._in_memory = in_memory
        self._watch = LeaseWatch(parts.clock)
        self._looked_for_strays = parts.clock.monotonic()

    @property
    def partitions(self) -> frozenset[int]:
        """Those whose rows are this worker's to push."""
        return self._dispatcher.partitions or frozenset()

    async def all_accounts(self) -> None:
        """Free what dead workers held, fill every account's queue with due rows, then wait. Raises `StoreUnavailable`."""
        if self._lease.held():
            await self._lease.give_back_unpushed()
            await self._abandon_strays()
            heartbeats = await self._recorder.heartbeats()
            await self._recorder.take_over(self._watch.stopped(heartbeats), now=self._clock.now())
            due = await self._recorder.accounts_due(self.partitions, now=self._clock.now()) if self.partitions else ()
            await self._fill({*due, *self._dispatcher.accounts()})
        backlog = await self._recorder.backlog(now=self._clock.now())
        metrics.DUE.set(backlog.due)
        oldest = backlog.oldest_due_at
        metrics.OLDEST_DUE_SECONDS.set(0 if oldest is None else (self._clock.now() - oldest).total_seconds())
        await self._clock.sleep(self._interval_seconds)

    async def _abandon_strays(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked_for_strays >= self._lease.interval_seconds:
            await self._lease.abandon_strays(self._in_memory)
            self._looked_for_strays = now

    async def queues_running_low(self) -> None:
        """Wait until a queue runs low while the store has more for it, and fill it. Raises `StoreUnavailable`."""
        await self._dispatcher.refill_wanted.wait()
        self._dispatcher.refill_wanted.clear()
        await self._fill(self._dispatcher.running_low())

    async def _fill(self, account_ids: Iterable[str]) -> None:
        for account_id in account_ids:
            account = await self._directory.account(account_id)
            if account is not None:
                await self._fill_one(account)

    async def _fill_one(self, account: Account) -> None:
        given_up = self._dispatcher.configure(account)
        if given_up:
            await self._lease.give_back(given_up)
        room = self._dispatcher.room_for(account)
        if room == 0 or not self.partitions or not self._lease.held():
            return
        limit = min(room, _CLAIM)
        now, partitions, safeguards = self._clock.now(), self.partitions, self._dispatcher.safeguards(account)
        works = await self._lease.claim(
            lambda worker_id: self._recorder.claim(
                worker_id, account.id, partitions, now=now, limit=limit, safeguards=safeguards
            )
        )
        if works:
            for work_id in self._dispatcher.offer(account, works):
                self._lease.note_unpushed(work_id)
            self._dispatcher.note_more(account, more=len(works) == limit)
        else:
            self._dispatcher.close_if_idle(account.id)
