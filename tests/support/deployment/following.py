"""Commands that go on until they are told to end, and what they print meanwhile."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from tests.support.deployment import warm
from tests.support.deployment.deployment import PATIENCE_SECONDS, Site


@dataclass(frozen=True, slots=True)
class Following:
    """A running command, and what it writes."""

    process: warm.WarmProcess
    out: IO[str]
    err: IO[str]


def begin(site: Site, *arguments: str, command: Sequence[str], **environment: str) -> Following:
    """`forwarder`, with this `command` and these arguments, in the site's settings."""
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    with os.fdopen(its_out, "wb") as to_out, os.fdopen(its_err, "wb") as to_err:
        process = warm.start([*command, *arguments], {**os.environ, **site.settings, **environment}, to_out, to_err)
    return Following(process, os.fdopen(out), os.fdopen(err))


async def ended(running: Following) -> tuple[int, str, str]:
    """Its exit code, and the rest of its standard output and error, once it ended."""
    out = "" if running.out.closed else await _read(running.out.read)
    err = await _read(running.err.read)
    running.out.close()
    running.err.close()
    return await asyncio.to_thread(running.process.wait, PATIENCE_SECONDS), out, err


async def next_line(running: Following) -> str:
    """Its next line on standard output; empty where it writes no more."""
    return await _read(running.out.readline)


async def _read(read: Callable[[], str]) -> str:
    return await asyncio.wait_for(asyncio.to_thread(read), PATIENCE_SECONDS)
