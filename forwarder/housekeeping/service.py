"""Housekeeping as a whole: its loops. Nothing of a deployment waits for it, and any number of processes may run."""

import asyncio

from forwarder.housekeeping.backlog import BacklogMetrics
from forwarder.housekeeping.retention import RetentionSweeper
from forwarder.process.clock import Clock
from forwarder.process.containment import Where
from forwarder.process.loops import cancel_all, forever
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.port import LogUnavailable


async def keep_house(backlog: BacklogMetrics, sweeper: RetentionSweeper, clock: Clock, stop: asyncio.Event) -> None:
    """Reports the backlog and removes data whose time is over, until `stop`; through outages and faults."""
    steps = {
        Where.STANDING: backlog.read_backlog,
        Where.STANDING_LAG: backlog.read_lag,
        Where.RETENTION: sweeper.keep_sweeping,
    }
    outages = (StoreUnavailable, TenancyUnavailable, LogUnavailable)
    loops = [
        asyncio.create_task(forever(step, name=name, clock=clock, outages=outages), name=name)
        for name, step in steps.items()
    ]
    try:
        await stop.wait()
    finally:
        await cancel_all(loops)
        backlog.clear()
