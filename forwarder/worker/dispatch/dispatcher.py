"""All lanes of one worker, and the bound on what it holds in memory. What does not fit stays in the store, due."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from forwarder.observability import metrics
from forwarder.process.clock import Clock
from forwarder.process.waiting import break_off
from forwarder.store.submissions.work import UNKNOWN_SAFEGUARDS, Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.account_queue import AccountQueue, Deliver
from forwarder.worker.dispatch.batching import CreateBatching
from forwarder.worker.dispatch.memory_budget import MemoryBudget
from forwarder.worker.dispatch.throttle import Throttles


class Dispatcher:
    """Opens a lane for each account that has work. `hungry` is set when a lane runs low while the store has more for it."""

    def __init__(
        self,
        clock: Clock,
        deliver: Deliver,
        *,
        held_at_most: int,
        gates: Throttles | None = None,
        batches: CreateBatching | None = None,
        safeguards: Callable[[Account], str | None] = lambda _: UNKNOWN_SAFEGUARDS,
    ) -> None:
        self.safeguards = safeguards
        """What pushes in an account's lane carry, as rows are leased with it."""
        self._gates = gates or Throttles(clock)
        self._clock = clock
        self._deliver = deliver
        self._batches = batches
        self._lanes: dict[str, AccountQueue] = {}
        self._held = MemoryBudget(rows=held_at_most)
        self._stopped = False
        self._emptied: asyncio.Future[None] | None = None
        self.hungry = asyncio.Event()
        self.partitions: frozenset[int] | None = None
        """Those whose rows may be held here: rows of one room are always with one worker. None while nobody has said so."""
        self.being_cancelled: Collection[str] = ()
        """The request ids of those whose cancellations are just being noted in the store: what comes from there may not say so."""

    @property
    def held(self) -> int:
        """Rows that this worker holds: waiting, being pushed, or being recorded."""
        return len(self._held)

    def room_for(self, account: Account) -> int:
        """How many more rows of the account may be held: an even share, so that no account crowds out another. While its PMS is
        being left alone, as many as can be in flight: the rest waits in the store."""
        if account.paused or self._stopped:
            return 0
        lane = self._lanes.get(account.id)
        others = len(self._lanes) - (lane is not None)
        share = max(self._held.at_most // (others + 1), 1)
        if self._gates.of(account).shut:
            share = min(share, account.concurrency)
        waiting = 0 if lane is None else lane.waiting
        return max(min(share - waiting, self._held.at_most - self.held), 0)

    def offer(self, account: Account, works: Sequence[Work]) -> Sequence[int]:
        """Hold these rows and deliver each in its turn; the ids of those that were not taken on: their partition was lost
        meanwhile, their cancellation came meanwhile, or a delivery of theirs under a lease that was lost is not over yet."""
        lane = self._lane(account)
        refused = []
        for work in works:
            ours = self.partitions is None or work.partition in self.partitions
            cancelled = work.cancellation is None and work.submission.request_id in self.being_cancelled
            if ours and not cancelled and self._held.take(work):
                lane.offer(work)
            else:
                refused.append(work.id)
        metrics.HELD.set(self.held)
        return refused

    def note_more(self, account: Account, *, more: bool = True) -> None:
        """Remember whether the account has due rows in the store beyond those that are held."""
        self._lane(account).more_in_store = more

    def configure(self, account: Account) -> list[int]:
        """Go on under the account's settings of now; the ids of rows given up because it was paused."""
        lane = self._lanes.get(account.id)
        if lane is None:
            return []
        lane.configure(account)
        return self._give_up(lane, lambda _: True) if account.paused else []

    def held_ids(self) -> Collection[int]:
        """The ids of the rows that are held."""
        return self._held.ids()

    def accounts(self) -> Sequence[str]:
        """The accounts that have a lane now."""
        return list(self._lanes)

    def running_low(self) -> Sequence[str]:
        """The accounts whose lanes have room while the store has more for them."""
        return [lane.account.id for lane in self._lanes.values() if _running_low(lane)]

    def withdraw(self, unwanted: Callable[[Work], bool]) -> list[int]:
        """Give up the rows that have not started and that `unwanted` tells; their ids."""
        return [work_id for lane in self._lanes.values() for work_id in self._give_up(lane, unwanted)]

    async def stop(self, grace_seconds: float) -> tuple[Collection[int], int]:
        """Start nothing more, and wait up to `grace_seconds` for what was started: the ids of those that never were, and how many
        were not through by then, and so were broken off. Those are left to the lease: in doubt."""
        self._stopped = True
        for lane in self._lanes.values():
            lane.stop()
        unstarted = self.withdraw(lambda _: True)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._all_left()
        except TimeoutError:
            late = self.held
            await break_off([task for lane in self._lanes.values() for task in lane.tasks])
            return unstarted, late
        return unstarted, 0

    async def _all_left(self) -> None:
        if self.held:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def _lane(self, account: Account) -> AccountQueue:
        lane = self._lanes.get(account.id)
        if lane is None:
            lane = self._lanes[account.id] = AccountQueue(
                account, self._gates.of(account), self._clock, self._deliver, self._left, self._batches
            )
        return lane

    def _give_up(self, lane: AccountQueue, unwanted: Callable[[Work], bool]) -> list[int]:
        given_up = [work.id for work in lane.withdraw(unwanted)]
        for work_id in given_up:
            self._held.drop(work_id)
        if given_up:
            lane.more_in_store = True
        return given_up

    def close_if_idle(self, account_id: str) -> None:
        """The store has nothing due for the account: its lane closes, unless it still holds rows."""
        lane = self._lanes.get(account_id)
        if lane is not None:
            lane.more_in_store = False
            if lane.idle:
                del self._lanes[account_id]

    def _left(self, lane: AccountQueue, work: Work) -> None:
        self._held.drop(work.id)
        metrics.HELD.set(self.held)
        if _running_low(lane):
            self.hungry.set()
        if self._emptied is not None and not self.held and not self._emptied.done():
            self._emptied.set_result(None)


def _running_low(lane: AccountQueue) -> bool:
    return lane.more_in_store and lane.waiting < lane.account.concurrency
