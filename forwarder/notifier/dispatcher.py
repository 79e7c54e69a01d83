"""Selects the endpoints to post to now, and posts their due deliveries; a failing endpoint is paused for a while and then tried
with a single post, until one succeeds.

An endpoint that hangs delays only its own posts. Even if many hang, half of the places are reserved for the others. How long an
endpoint has been failing is known to this process alone.
"""

import asyncio
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from forwarder.notifier.parts import NotifierParts, NotifierSettings
from forwarder.notifier.posting import Decision, Poster
from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Where, contained
from forwarder.process.loops import cancel_all, detached
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import CannotOpen, TenancyUnavailable

_UNBROKEN_SECONDS: Final = 3600.0
"""Failed posts that are no further apart than this count as one unbroken failure of the endpoint: longer than any backoff, and the
wait for a place after it."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _EndpointBackoff:
    """`failing_since`: when the first of an unbroken series of posts failed. `failed_at`, `failed_wall`: when the last one did, by
    the monotonic clock and by the wall clock."""

    failures: int = 0
    until: float = -math.inf
    failing_since: float = math.inf
    failed_at: float = -math.inf
    failed_wall: float = -math.inf


class Backoff:
    """The state of the endpoints whose last post failed."""

    def __init__(self, clock: Clock, settings: NotifierSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._failing: dict[str, _EndpointBackoff] = {}

    def is_failing(self, endpoint_id: str) -> bool:
        return endpoint_id in self._failing

    def is_waiting(self, endpoint_id: str) -> bool:
        state = self._failing.get(endpoint_id)
        return state is not None and self._clock.monotonic() < state.until

    def failing_seconds(self, endpoint_id: str) -> float:
        """How long every post of this process to it has failed. Times without posts, because of an outage on our side, do not
        count."""
        now, state = self._clock.monotonic(), self._failing.get(endpoint_id)
        if state is None:
            return 0.0
        # By the wall clock too: if it jumped, the time between two attempts is uncertain.
        since_last = max(now - state.failed_at, self._clock.now().timestamp() - state.failed_wall)
        return max(now - state.failing_since, 0.0) if since_last <= _UNBROKEN_SECONDS else 0.0

    def record_success(self, endpoint_id: str) -> None:
        self._failing.pop(endpoint_id, None)

    def record_failure(
        self, endpoint_id: str, *, retry_after_seconds: float = 0.0, endpoint_failed: bool = False
    ) -> None:
        """Leave it alone: for 1 s, twice as long each time, or as long as it asked for.

        `endpoint_failed`: every post to it failed; otherwise the fault was ours, or it accepted some.
        """
        state = self._failing.setdefault(endpoint_id, _EndpointBackoff())
        if endpoint_failed:
            if not self.failing_seconds(endpoint_id):
                state.failing_since = self._clock.monotonic()
            state.failed_at, state.failed_wall = self._clock.monotonic(), self._clock.now().timestamp()
        else:
            state.failing_since = math.inf
        state.failures += 1
        exponential = min(2.0 ** min(state.failures - 1, 16), self._settings.max_backoff_seconds)
        asked_for = min(retry_after_seconds, self._settings.max_retry_after_seconds)
        state.until = self._clock.monotonic() + max(exponential, asked_for)


class EndpointDispatcher:
    """Posts to the endpoints that have something due, at most once at a time for each. `stopping` ends runs after their posts."""

    def __init__(self, parts: NotifierParts, poster: Poster) -> None:
        self._parts = parts
        self._poster = poster
        self.backoff = Backoff(parts.clock, parts.settings)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        self.stopping = False
        self._crowded = False
        """Whether a working endpoint found no place last time. Then runs end after a few posts, so that others get a turn."""

    def start(self, endpoint_ids: Iterable[str]) -> None:
        """Starts runs for these endpoints. Endpoints that are backed off, running already or without a place stay due."""
        wanted = [one for one in endpoint_ids if one not in self._running and not self.backoff.is_waiting(one)]
        random.shuffle(wanted)  # so that it is not always the same ones that find no place
        wanted.sort(key=self.backoff.is_failing)
        self._crowded, places = False, self._parts.settings.max_endpoints
        for endpoint_id in wanted:
            failing = self.backoff.is_failing(endpoint_id)
            if len(self._running) >= places or (failing and len(self._failing) >= places // 2):
                self._crowded = not failing
                return
            if failing:
                self._failing.add(endpoint_id)
            task = self._running[endpoint_id] = detached(self.run(endpoint_id))
            task.add_done_callback(partial(self._end, endpoint_id))

    def _end(self, endpoint_id: str, ended: asyncio.Future[None]) -> None:
        del self._running[endpoint_id]
        self._failing.discard(endpoint_id)
        if not ended.cancelled() and (error := ended.exception()) is not None:
            contained(Where.WEBHOOK_ENDPOINT, error, endpoint_id=endpoint_id)

    async def finish(self, seconds: float) -> int:
        """Wait up to `seconds` for the runs to end, then cancel the rest. Returns how many were cancelled."""
        tasks = list(self._running.values())
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=seconds)
        await cancel_all(late)
        return len(late)

    async def run(self, endpoint_id: str) -> None:
        """Posts the due deliveries, a few at a time, until nothing is due or the endpoint fails. A claimed delivery that could not
        be recorded is due again when its claim expires. Does not raise: an endpoint whose run fails is paused for a while."""
        try:
            while await self._post_some(endpoint_id) and not (self.stopping or self._crowded):
                pass
        except CannotOpen as error:
            seconds = self._parts.settings.max_retry_after_seconds
            self.backoff.record_failure(endpoint_id, retry_after_seconds=seconds)
            _log.error("webhook.secret_not_readable", endpoint_id=endpoint_id, error=str(error))
        except (StoreUnavailable, TenancyUnavailable) as error:
            self.backoff.record_failure(endpoint_id)
            _log.warning("webhook.interrupted", endpoint_id=endpoint_id, error=str(error))
        except FAULTS as error:  # as said
            self.backoff.record_failure(endpoint_id)
            contained(Where.WEBHOOK_ENDPOINT, error, endpoint_id=endpoint_id)

    async def _post_some(self, endpoint_id: str) -> bool:
        """Posts one batch; returns whether to continue. Reads the endpoint again each time, so that a new URL or secret, or
        disabling it, takes effect with the next post."""
        queue, settings, now = self._parts.queue, self._parts.settings, self._parts.clock.now()
        endpoint = await self._parts.endpoints.endpoint(endpoint_id)
        if endpoint is None or not endpoint.enabled:
            await queue.stop(endpoint_id, now=now)
            return False
        opened, now = self._poster.opened(endpoint), self._parts.clock.now()
        count = 1 if self.backoff.is_failing(endpoint_id) else settings.in_flight
        until = now + timedelta(seconds=settings.claim_seconds)
        claimed = await queue.claim(endpoint_id, now=now, until=until, limit=count)
        if not claimed:
            return False
        failing = self.backoff.failing_seconds(endpoint_id)
        posts = (self._poster.post(opened, one, failing_seconds=failing) for one in claimed)
        results = await asyncio.gather(*posts, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error
        decisions = [each for each in results if isinstance(each, Decision)]
        await self._poster.disable_if_dead(endpoint, decisions)
        # A single success shows that the endpoint works; refused deliveries wait for their own next attempt.
        retry_after = max(each.retry_after_seconds for each in decisions)
        works = any(each.delivered for each in decisions)
        if works and not retry_after:
            self.backoff.record_success(endpoint_id)
            return True
        self.backoff.record_failure(endpoint_id, retry_after_seconds=retry_after, endpoint_failed=not works)
        return False
