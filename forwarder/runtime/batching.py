"""Group commit: what many tasks want done goes down in one batch, and each of them learns what became of its own part."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Collects items and hands them on in batches, one batch at a time, in the order of their coming.

    While one batch is under way the next one gathers: a lone item goes at once, and under load batches grow by themselves.
    `flush` answers with one result for each item. Whatever it raises, every waiter of that batch gets.
    """

    def __init__(self, flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, at_most: int) -> None:
        self._flush = flush
        self._at_most = at_most
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """The result for `item`, once its batch is through. Giving up waiting does not take the item back."""
        return await self._enter(item)

    def post(self, item: T) -> None:
        """As `submit`, for whom the result is all the same."""
        self._enter(item).add_done_callback(_heed)

    def _enter(self, item: T) -> asyncio.Future[R]:
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return answer

    async def drain(self) -> None:
        """Return once everything submitted so far is through."""
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        # One turn of the event loop, so that what became ready together goes together.
        await asyncio.sleep(0)
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._at_most], self._waiting[self._at_most :]
                await self._run_one(batch)
        finally:
            self._runner = None

    async def _run_one(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._flush([item for item, _ in batch])
        except BaseException as error:  # Each waiter must learn of it, a cancellation too.
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)


def _heed(answer: asyncio.Future[R]) -> None:
    """Look at a result nobody waits for, so that asyncio does not report it as overlooked."""
    if not answer.cancelled():
        answer.exception()
