"""PMSs that fail in every way that the simulator knows, before they booked and after: each reservation is made once."""

import asyncio
from typing import Any

from tests.support.campaign.case import Case
from tests.support.campaign.judge import Expected
from tools.servers.process_memory import peak_megabytes

AFTER_BOOKING = [
    "hang_after_booking",
    "reset_after_booking",
    "error500_after_booking",
    "garbage_after_booking",
    "drip_after_booking",
    "wrong_types_after_booking",
]
BEFORE = ["hang", "reset", "error500", "garbage", "huge", "down", "throttle", "redirect", "drip", "wrong_types"]
MODES = [*AFTER_BOOKING, *BEFORE]
_SHARE = 0.3
_SECONDS = 1.5
_MOST_MEGABYTES = 300


async def test_pms_that_fail(case: Case) -> None:
    """Every account's PMS fails in its own way, and in another one a moment later. Between them they go through all ways."""
    async with case.load():
        for turn in range(case.times(short=len(MODES) // len(case.accounts), long=40)):
            for place, account in enumerate(case.accounts):
                first = place * len(MODES) // len(case.accounts)
                await _order(case, account, MODES[(first + turn) % len(MODES)])
            await asyncio.sleep(_SECONDS)  # the fault's own length
        await asyncio.gather(*(case.lift_faults(account) for account in case.accounts))
    await case.verdict(Expected(all_accepted=True))
    assert peak_megabytes(case.deployment.processes["worker"].pid) < _MOST_MEGABYTES


async def _order(case: Case, account: str, mode: str) -> None:
    more: dict[str, Any] = {"retry_after": 1} if mode == "throttle" else {}
    await case.order_faults(account, mode=mode, rate=_SHARE, **more)
