"""An account's rate, as its PMS meets it: several workers keep to it together."""

import asyncio
import time

import pytest

from tests.support.backends import only
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, booking

WORKERS, RATE, SUBMISSIONS = 3, 20.0, 100


@pytest.mark.slow  # `tests/contract/store/test_rate_loans.py` shows it of the store
@only("distributed")
async def test_workers_share_an_accounts_rate(deployment: Deployment) -> None:
    for number in range(2, WORKERS + 1):
        deployment.add("worker", role=f"worker{number}")
    await deployment.start()
    await deployment.add_account("limited")
    await deployment.command("account", "set", "limited", "--rate", str(RATE), "--concurrency", "20")
    began = time.monotonic()
    for first in range(0, SUBMISSIONS, 40):
        answers = await asyncio.gather(
            *(deployment.submit("limited", booking(number)) for number in range(first, first + 40))
        )
        assert {answer.status_code for answer in answers} == {202}
    seen: list[tuple[float, int]] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not seen or seen[-1][1] < SUBMISSIONS:
            made = (await deployment.made())["made"]
            seen.append((time.monotonic() - began, made))
    for seconds, made in seen:
        assert made <= RATE + 1.05 * RATE * seconds + 1
