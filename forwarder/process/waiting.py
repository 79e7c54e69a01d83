"""Waiting for whichever comes first, and for the end of what is broken off."""

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Return when the first is done; the others are cancelled, and have ended. What any of them raised is passed over."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await break_off(tasks)


async def break_off(tasks: Collection["asyncio.Future[Any]"]) -> None:
    """Cancel them, and return when all have ended. What any of them raised is passed over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
