"""Selects the endpoints to post to now, and posts their due deliveries.

An endpoint that hangs delays only its own posts. Even if many hang, half of the places are reserved for the others.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from forwarder.notifier.backoff import Backoff
from forwarder.notifier.policy import Decision
from forwarder.notifier.posting import Poster
from forwarder.notifier.settings import NotifierSettings
from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Where, contained
from forwarder.process.loops import cancel_all, detached
from forwarder.store.deliveries import DueDelivery
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import CannotOpen, TenancyUnavailable

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import Deliveries
    from forwarder.tenancy.sql.endpoints import Endpoints

_log = structlog.get_logger(__name__)


class EndpointDispatcher:
    """Calls `run` for endpoints that have something due, at most once at a time for each."""

    def __init__(
        self, run: Callable[[str], Coroutine[Any, Any, None]], backoff: Backoff, *, max_endpoints: int
    ) -> None:
        self._run = run
        self._backoff = backoff
        self._max_endpoints = max_endpoints
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        self.crowded = False
        """Whether a working endpoint found no place last time. Then runs end after a few posts, so that others get a turn."""

    def start(self, endpoint_ids: Iterable[str]) -> None:
        """Starts runs for these endpoints. Endpoints that are backed off, running already or without a place stay due."""
        wanted = [one for one in endpoint_ids if one not in self._running and not self._backoff.is_waiting(one)]
        random.shuffle(wanted)  # so that it is not always the same ones that find no place
        wanted.sort(key=self._backoff.is_failing)
        self.crowded = False
        for endpoint_id in wanted:
            if not self._has_place(endpoint_id):
                self.crowded = not self._backoff.is_failing(endpoint_id)
                return
            self._start_one(endpoint_id)

    def _has_place(self, endpoint_id: str) -> bool:
        full = len(self._running) >= self._max_endpoints
        return not full and not (
            self._backoff.is_failing(endpoint_id) and len(self._failing) >= self._max_endpoints // 2
        )

    def _start_one(self, endpoint_id: str) -> None:
        if self._backoff.is_failing(endpoint_id):
            self._failing.add(endpoint_id)
        task = detached(self._run(endpoint_id))
        self._running[endpoint_id] = task
        task.add_done_callback(partial(self._end, endpoint_id))

    async def finish(self, seconds: float) -> int:
        """Wait up to `seconds` for the runs to end, then cancel the rest. Returns how many were cancelled."""
        tasks = list(self._running.values())
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=seconds)
        await cancel_all(late)
        return len(late)

    def _end(self, endpoint_id: str, ended: asyncio.Future[None]) -> None:
        del self._running[endpoint_id]
        self._failing.discard(endpoint_id)
        if not ended.cancelled() and (error := ended.exception()) is not None:
            contained(Where.WEBHOOK_ENDPOINT, error, endpoint_id=endpoint_id)


class EndpointRunner:
    """Posts the due deliveries of one endpoint, a few at a time, until nothing is due or the endpoint fails.

    Reads the endpoint again each time, so that a new URL or secret, or disabling it, takes effect with the next post.
    """

    def __init__(
        self,
        queue: "Deliveries",
        endpoints: "Endpoints",
        poster: Poster,
        backoff: Backoff,
        clock: Clock,
        settings: NotifierSettings,
        *,
        may_continue: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._endpoints = endpoints
        self._poster = poster
        self._backoff = backoff
        self._clock = clock
        self._settings = settings
        self._may_continue = may_continue

    async def run(self, endpoint_id: str) -> None:
        """Posts the due deliveries. A claimed delivery that could not be recorded is due again when its claim expires. Does not
        raise: an endpoint whose run fails is paused for a while."""
        try:
            while await self._post_some(endpoint_id) and self._may_continue():
                pass
        except CannotOpen as error:
            self._backoff.record_failure(endpoint_id, retry_after_seconds=self._settings.max_retry_after_seconds)
            _log.error("webhook.secret_not_readable", endpoint_id=endpoint_id, error=str(error))
        except (StoreUnavailable, TenancyUnavailable) as error:
            self._backoff.record_failure(endpoint_id)
            _log.warning("webhook.interrupted", endpoint_id=endpoint_id, error=str(error))
        except FAULTS as error:  # as said
            self._backoff.record_failure(endpoint_id)
            contained(Where.WEBHOOK_ENDPOINT, error, endpoint_id=endpoint_id)

    async def _post_some(self, endpoint_id: str) -> bool:
        """Posts one batch; returns whether to continue."""
        endpoint = await self._endpoints.endpoint(endpoint_id)
        if endpoint is None or not endpoint.enabled:
            await self._queue.stop(endpoint_id, now=self._clock.now())
            return False
        opened = self._poster.opened(endpoint)
        claimed = await self._claim(endpoint_id)
        if not claimed:
            return False
        failing = self._backoff.failing_seconds(endpoint_id)
        posts = (self._poster.post(opened, one, failing_seconds=failing) for one in claimed)
        results = await asyncio.gather(*posts, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error
        decisions = [each for each in results if isinstance(each, Decision)]
        await self._poster.disable_if_dead(endpoint, decisions)
        return self._update_backoff(endpoint_id, decisions)

    async def _claim(self, endpoint_id: str) -> Sequence[DueDelivery]:
        now = self._clock.now()
        until = now + timedelta(seconds=self._settings.claim_seconds)
        count = 1 if self._backoff.is_failing(endpoint_id) else self._settings.in_flight
        return await self._queue.claim(endpoint_id, now=now, until=until, limit=count)

    def _update_backoff(self, endpoint_id: str, decisions: Sequence[Decision]) -> bool:
        """Updates the backoff; returns whether to continue. A single success shows that the endpoint works; refused deliveries wait
        for their own next attempt."""
        retry_after = max(each.retry_after_seconds for each in decisions)
        works = any(each.delivered for each in decisions)
        if works and not retry_after:
            self._backoff.record_success(endpoint_id)
            return True
        self._backoff.record_failure(endpoint_id, retry_after_seconds=retry_after, endpoint_failed=not works)
        return False
