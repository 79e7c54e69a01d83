"""Rows over which workers end: whatever an exception cannot show, such as memory that runs out or a crash of native code.

A row that was taken over again and again is marked in the store before it is pushed, and the mark is cleared once the push is over.
A mark of another worker says that this one ended, or lost its lease, in the middle of that push. From then on the row is pushed by
itself, one such row at a time, so that others are not suspected with it; after `MAX_DEATHS` it is pushed no more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog

from forwarder.store.submissions.port import Recorder, StoreUnavailable
from forwarder.worker.push_context import LeaseLost

SUSPECT_AFTER: Final = 2
"""Takeovers. Most rows are taken over once at the most, as one of thousands that a worker held."""

MAX_DEATHS: Final = 2

_log = structlog.get_logger(__name__)


class EndsWorkers(Exception):
    """Workers ended in the middle of pushes of this row, last of one that it was alone in."""


class Suspects:
    """Those of one worker, which goes by `worker_id` at the moment."""

    def __init__(self, recorder: Recorder, worker_id: Callable[[], str]) -> None:
        self._recorder = recorder
        self._worker_id = worker_id
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def handling(self, work_id: int) -> AsyncIterator[None]:
        """Push a row within the block. Raises `EndsWorkers`: it is to be pushed no more; `LeaseLost`: the store is away."""
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
