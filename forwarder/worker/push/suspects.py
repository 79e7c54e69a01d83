"""Rows that may kill workers in ways that no exception shows, such as exhausted memory or a crash of native code.

A row that was taken over repeatedly is marked in the store before it is pushed, and the mark is cleared once the push is over. A
mark of another worker shows that it died, or lost its lease, in the middle of that push. From then on the row is pushed alone, one
such row at a time, so that others are not suspected with it; after `MAX_DEATHS` it is no longer pushed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog

from forwarder.store.submissions.port import StoreUnavailable
from forwarder.worker.push_context import LeaseLost

if TYPE_CHECKING:
    from forwarder.store.submissions.recorder import Recorder

SUSPECT_AFTER: Final = 2
"""Takeovers. Most rows are taken over once at the most, as one of thousands that a worker held."""

MAX_DEATHS: Final = 2

_log = structlog.get_logger(__name__)


class EndsWorkers(Exception):
    """Workers died in the middle of pushes of this row, the last time while it was pushed alone."""


class Suspects:
    """The suspects of one worker; `worker_id` returns its current id."""

    def __init__(self, recorder: "Recorder", worker_id: Callable[[], str]) -> None:
        self._recorder = recorder
        self._worker_id = worker_id
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def handling(self, work_id: int) -> AsyncIterator[None]:
        """Push the row within the block. Raises `EndsWorkers` if it must not be pushed again, `LeaseLost` if the store is
        unavailable."""
        try:
            deaths = await self._recorder.suspect(self._worker_id(), work_id)
        except StoreUnavailable as error:
            raise LeaseLost from error
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._clear, work_id)
            if deaths >= MAX_DEATHS:
                raise EndsWorkers(f"{deaths} workers ended while they pushed it")
            if deaths:
                _log.warning("push.suspected", reservation_id=work_id, deaths=deaths)
                await stack.enter_async_context(self._alone)
            yield

    async def _clear(self, work_id: int) -> None:
        try:
            await self._recorder.clear_suspects([work_id])
        except StoreUnavailable as error:
            _log.warning("push.still_suspected", reservation_id=work_id, error=str(error))
