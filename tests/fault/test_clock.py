"""Wall clocks that jump an hour, on and back: they make things due early or late, and never twice."""

from pathlib import Path

import pytest

from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected
from tests.fault.jumping_clock import jump, launcher

_HOUR = 3600


@pytest.mark.slow  # the state machine sets clocks back too
async def test_wall_clocks_that_jump(case: Case, tmp_path: Path) -> None:
    """Of two workers one's clock jumps: neither may take the other for dead. Both leases run out many times meanwhile, by that
    clock."""
    clock = tmp_path / "clock"
    jump(clock, 0)
    second = case.deployment.add("worker", role="second worker", launcher=launcher(clock))
    await case.wait(second.start)
    holders = await case.service.leases(2)
    async with case.load():
        for _ in range(case.times(short=1, long=10)):
            for seconds in (_HOUR, 0, -_HOUR, 0):
                await case.made_more(case.some(50, 200))
                case.injected("wall clock jumped an hour")
                jump(clock, seconds)
    await case.verdict(Expected(all_accepted=True))
    assert holders <= await case.service.holders(), "a lease was ended by a wall clock"
