"""An account whose tokens end and change: the operator gives the first refresh token, and never hears of it again."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.backends import slow_on
from tests.support.deployment.deployment import Deployment, booking

ACCOUNT = "rotating"
CREDENTIAL = {"clientId": "app", "clientSecret": "s3cr3t-of-the-app", "refreshToken": "first-refresh-token"}


@pytest.mark.slow  # `tests/contract/pms/test_booking_sync.py` shows it of several processes
@slow_on("embedded")
async def test_a_worker_renews_its_tokens_and_the_next_one_goes_on(deployment: Deployment, tmp_path: Path) -> None:
    at = f"{deployment.url('simulate')}/{ACCOUNT}/booking-sync"
    file = tmp_path / "credential.json"
    file.write_text(json.dumps(CREDENTIAL))
    await deployment.command(
        *("account", "add", "--workspace", "demo", "--kind", "booking-sync", "--id", ACCOUNT),
        *("--base-url", f"{at}/api/v3", "--credential-file", str(file)),
    )
    await book_all(deployment, range(10))
    await end_token(deployment, at, "sim-access-1")
    await book_all(deployment, range(10, 20))
    role = "worker" if "worker" in deployment.processes else "up"
    deployment.processes[role].kill()
    await end_token(deployment, at, "sim-access-2")
    await deployment.start()
    await book_all(deployment, range(20, 30))
    assert (await deployment.made())["by_account"] == {ACCOUNT: 30}
    assert [await lets_in(deployment, at, f"sim-access-{number}") for number in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        False,
    ]
    for log in deployment.site.directory.glob("*.log"):
        text = log.read_text()
        assert not [
            secret
            for secret in ("s3cr3t-of-the-app", "first-refresh-token", "sim-access", "sim-refresh")
            if secret in text
        ]


async def book_all(deployment: Deployment, numbers: range) -> None:
    answers = await asyncio.gather(*(deployment.submit(ACCOUNT, booking(number)) for number in numbers))
    settled = await asyncio.gather(
        *(deployment.settled(ACCOUNT, answer.json()["data"]["requestId"]) for answer in answers)
    )
    assert {data["status"] for data in settled} == {"CONFIRMED"}


async def end_token(deployment: Deployment, at: str, token: str) -> None:
    """The vendor takes it no longer, before its time."""
    assert (await deployment.client.post(f"{at}/oauth/revoke", data={"token": token})).status_code == 200


async def lets_in(deployment: Deployment, at: str, token: str) -> bool:
    """Whether that access token is in force."""
    answer = await deployment.client.get(f"{at}/api/v3/bookings", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code == 200
