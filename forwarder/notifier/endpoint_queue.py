"""One endpoint's lane: claims what is due for it, a few at a time, and posts that, until nothing is due or it fails.

The endpoint is read anew for each few, so that a new address or secret, or a disabled endpoint, counts from the next post on.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from forwarder.notifier.backoff import Backoff
from forwarder.notifier.policy import Decision
from forwarder.notifier.posting import Posting
from forwarder.notifier.settings import NotifierSettings
from forwarder.process.clock import Clock
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
        return await self._queue.claim(endpoint_id, now=now, until=until, limit=at_most)

    def _learn(self, endpoint_id: str, judged: Sequence[Decision]) -> bool:
        """One that was delivered shows that the endpoint works: what it refused waits for its own next try."""
        asked = max(each.wait_seconds for each in judged)
        works = any(each.delivered for each in judged)
        if works and not asked:
            self._rests.note_success(endpoint_id)
            return True
        self._rests.note_failure(endpoint_id, asked_seconds=asked, failed=not works)
        return False
