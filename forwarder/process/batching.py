"""Group commit: what many tasks want done goes down in one batch, and each of them learns what became of its own part."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

CROWD: Final = 3
"""Items in one batch: with fewer than that there is little to share."""

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Collects items and passes them on in batches, one batch at a time, in the order of their coming.

    While one batch is under way the next one gathers: a lone item goes at once, and under load batches grow by themselves; after a
    crowd the next batch gathers for `pause_seconds` more, since what a batch costs hardly goes by its size.
    `flush` returns one result for each item. Whatever it raises, every waiter of that batch gets.
    """

    def __init__(
        self, flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, max_items: int, pause_seconds: float = 0.0
    ) -> None:
        self._flush = flush
        self._max_items = max_items
        self._pause_seconds = pause_seconds
        self._not_before = 0.0
        self._waiting: list[tuple[T, asyncio.Future[R] | None]] = []
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """The result for `item`, once its batch is through. Giving up waiting does not take the item back."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._enter(item, future)
        return await future

    def post(self, item: T) -> None:
        """As `submit`, for whom the result is all the same."""
        self._enter(item, None)

    def _enter(self, item: T, future: asyncio.Future[R] | None) -> None:
        self._waiting.append((item, future))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())

    async def drain(self) -> None:
        """Return once everything submitted so far is through. Nothing pauses any more."""
        self._pause_seconds = self._not_before = 0.0
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while True:
                # One iteration of the event loop at least, so that what became ready together goes together.
                await asyncio.sleep(max(self._not_before - clock(), 0.0))
                batch, self._waiting = self._waiting[: self._max_items], self._waiting[self._max_items :]
                await self._run_one(batch)
                if len(batch) >= CROWD:
                    self._not_before = clock() + self._pause_seconds
                if not self._waiting:
                    return
        finally:
            self._runner = None

    async def _run_one(self, batch: list[tuple[T, asyncio.Future[R] | None]]) -> None:
        try:
            results = await self._flush([item for item, _ in batch])
        except BaseException as error:  # Each waiter must learn of it, a cancellation too.
            for _, future in batch:
                if future is not None and not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), result in zip(batch, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)
