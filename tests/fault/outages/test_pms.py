"""PMSs that fail in many ways, before they booked and after: each reservation is made once. Those that say that they booked,
and did not, are believed: what they do not show is sent no second time."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected
from tools.servers.process_memory import peak_megabytes

AFTER_BOOKING = [
    "hang_after_booking",
    "reset_after_booking",
    "error500_after_booking",
    "garbage_after_booking",
    "drip_after_booking",
    "wrong_types_after_booking",
]
BEFORE = ["hang", "reset", "error500", "down", "throttle", "redirect"]
MODES = [*AFTER_BOOKING, *BEFORE]
UNTRUE = ["garbage", "huge", "drip", "wrong_types"]
"""Of these a 201 arrives, and nothing was made."""
BELIEVED = Expected(statuses=frozenset({"CONFIRMED", "PENDING"}), all_accepted=True)
_SHARE = 0.3
_SECONDS = 1.5
_MOST_MEGABYTES = 300


async def test_pms_that_fail(case: Case) -> None:
    """Every account's PMS fails in its own way, and in another one a moment later. Between them they go through all ways."""
    await _fail(case, MODES)
    await case.verdict(Expected(all_accepted=True))
    assert peak_megabytes(case.deployment.processes["worker"].pid) < _MOST_MEGABYTES


async def test_pms_that_say_that_they_booked(case: Case) -> None:
    """What they say that they made is looked up for as long as they do not show it: it may be there, and is not made again."""
    await _fail(case, UNTRUE)
    evidence = await case.verdict(BELIEVED)
    pending = {request_id for request_id, status in evidence.statuses.items() if status == "PENDING"}
    assert pending
    assert not pending & evidence.made.keys()
    assert peak_megabytes(case.deployment.processes["worker"].pid) < _MOST_MEGABYTES


async def _fail(case: Case, modes: Sequence[str]) -> None:
    async with case.load():
        for turn in range(case.times(short=len(modes) // len(case.accounts), long=40)):
            for place, account in enumerate(case.accounts):
                first = place * len(modes) // len(case.accounts)
                await _order(case, account, modes[(first + turn) % len(modes)])
            await asyncio.sleep(_SECONDS)  # the fault's own length
        await asyncio.gather(*(case.lift_faults(account) for account in case.accounts))


async def _order(case: Case, account: str, mode: str) -> None:
    more: dict[str, Any] = {"retry_after": 1} if mode == "throttle" else {}
    await case.order_faults(account, mode=mode, rate=_SHARE, **more)
