"""One endpoint's lane: claims what is due for it, a few at a time, and posts that, until nothing is due or it fails.

The endpoint is read anew for each few, so that a new address or secret, or a disabled endpoint, counts from the next post on.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from forwarder.notifier.backoff import Backoff
from forwarder.notifier.policy import Decision
from forwarder.notifier.posting import Posting
from forwarder.notifier.settings import NotifierSettings
from forwarder.process.clock import Clock
from forwarder.process.waiting import break_off
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.webhooks.port import DeliveryQueue, DueDelivery
from forwarder.tenancy.port import CannotOpen, TenancyUnavailable
from forwarder.tenancy.webhooks import EndpointReader

_log = structlog.get_logger(__name__)


class EndpointQueue:
    """Runs lanes, one at a time for each endpoint."""

    def __init__(
        self,
        queue: DeliveryQueue,
        endpoints: EndpointReader,
        posting: Posting,
        rests: Backoff,
        clock: Clock,
        settings: NotifierSettings,
        *,
        may_go_on: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._endpoints = endpoints
        self._posting = posting
        self._rests = rests
        self._clock = clock
        self._settings = settings
        self._may_go_on = may_go_on

    async def run(self, endpoint_id: str) -> None:
        """Post what is due for the endpoint. What was claimed and could not be recorded is due again when its claim runs out."""
        try:
            while await self._post_some(endpoint_id) and self._may_go_on():
                pass
        except CannotOpen as error:
            self._rests.note_failure(endpoint_id, asked_seconds=self._settings.max_retry_after_seconds)
            _log.error("webhook.secret_not_readable", endpoint_id=endpoint_id, error=str(error))
        except (StoreUnavailable, TenancyUnavailable) as error:
            self._rests.note_failure(endpoint_id)
            _log.warning("webhook.interrupted", endpoint_id=endpoint_id, error=str(error))

    async def _post_some(self, endpoint_id: str) -> bool:
        """Whether to go on."""
        endpoint = await self._endpoints.endpoint(endpoint_id)
        if endpoint is None or not endpoint.enabled:
            await self._queue.stop(endpoint_id, now=self._clock.now())
            return False
        signing = self._posting.secrets_of(endpoint)
        claimed = await self._claim(endpoint_id)
        if not claimed:
            return False
        failing = self._rests.failing_for(endpoint_id)
        posts = (self._posting.post(endpoint, signing, one, failing_seconds=failing) for one in claimed)
        ended = await asyncio.gather(*posts, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error
        judged = [each for each in ended if isinstance(each, Decision)]
        await self._posting.judge(endpoint, judged)
        return self._learn(endpoint_id, judged)

    async def _claim(self, endpoint_id: str) -> Sequence[DueDelivery]:
        now = self._clock.now()
        until = now + timedelta(seconds=self._settings.claim_seconds)
        at_most = 1 if self._rests.failing(endpoint_id) else self._settings.in_flight
        return await self._queue.claim(endpoint_id, now=now, until=until, at_most=at_most)

    def _learn(self, endpoint_id: str, judged: Sequence[Decision]) -> bool:
        """One that was delivered shows that the endpoint works: what it refused waits for its own next try."""
        asked = max(each.wait_seconds for each in judged)
        works = any(each.delivered for each in judged)
        if works and not asked:
            self._rests.note_success(endpoint_id)
            return True
        self._rests.note_failure(endpoint_id, asked_seconds=asked, failed=not works)
        return False


_log = structlog.get_logger(__name__)


class EndpointDispatcher:
    """Starts lanes and keeps them apart."""

    def __init__(self, run: Callable[[str], Coroutine[Any, Any, None]], rests: Backoff, *, at_most: int) -> None:
        self._run = run
        self._rests = rests
        self._at_most = at_most
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        self._broken: asyncio.Future[None] | None = None
        self.crowded = False
        """Whether somebody found no place when last looked: then a lane ends after a few posts, so that others have a turn."""

    def start(self, endpoint_ids: Iterable[str]) -> None:
        """Start the lanes of those endpoints, but for those that rest, have one, or find no place: they are due still."""
        wanted = [one for one in endpoint_ids if one not in self._under_way and not self._rests.resting(one)]
        random.shuffle(wanted)  # whoever finds no place is not the last in the row the next time too
        wanted.sort(key=self._rests.failing)
        self.crowded = False
        for endpoint_id in wanted:
            if not self._place_for(endpoint_id):
                self.crowded = not self._rests.failing(endpoint_id)
                return
            self._start_one(endpoint_id)

    def _place_for(self, endpoint_id: str) -> bool:
        full = len(self._under_way) >= self._at_most
        return not full and not (self._rests.failing(endpoint_id) and len(self._failing) >= self._at_most // 2)

    def _start_one(self, endpoint_id: str) -> None:
        if self._rests.failing(endpoint_id):
            self._failing.add(endpoint_id)
        task = asyncio.create_task(self._run(endpoint_id))
        self._under_way[endpoint_id] = task
        task.add_done_callback(partial(self._end, endpoint_id))

    async def watch(self) -> None:
        """Never returns; raises what a lane raised, which is a bug."""
        self._broken = asyncio.get_running_loop().create_future()
        await self._broken

    async def finish(self, seconds: float) -> int:
        """Wait for the lanes under way, at most so long, then break off; how many were broken off."""
        tasks = list(self._under_way.values())
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=seconds)
        await break_off(late)
        return len(late)

    def _end(self, endpoint_id: str, ended: asyncio.Future[None]) -> None:
        del self._under_way[endpoint_id]
        self._failing.discard(endpoint_id)
        error = None if ended.cancelled() else ended.exception()
        if error is None:
            return
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)
        else:
            _log.error("webhook.lane_broke", endpoint_id=endpoint_id, error=type(error).__name__)
