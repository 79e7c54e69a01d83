"""A key's limit as its caller meets it: several ingress processes on one port keep it together."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import httpx
import pytest

from tests.support.backends import slow_on
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment

PROCESSES, QUOTA = 2, 40


async def calls(url: str, headers: Mapping[str, str], count: int) -> Counter[int]:
    """The statuses of so many calls at once, each on a connection of its own, so that all processes are asked. Their bodies are not
    valid, which costs as much as if they were: those that are let through are answered 422."""
    async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0), timeout=30) as client:
        posts = (client.post(f"{url}/api/v1/vrs/reservations", headers=headers, content=b"{}") for _ in range(count))
        return Counter(answer.status_code for answer in await asyncio.gather(*posts))


@pytest.mark.slow  # `tests/contract/tenancy/test_key_usage.py` shows it of four processes
@slow_on("embedded")
async def test_processes_on_one_port_share_a_keys_limit(deployment: Deployment) -> None:
    deployment.add("ingress", "--processes", str(PROCESSES), role="several")
    await deployment.start()
    key = await deployment.command("key", "add", "--workspace", "demo", "--rate", f"{QUOTA}/36000s")
    headers = {**deployment.headers("generic"), "Authorization": f"Bearer {key['token']}"}
    let_through = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (statuses := await calls(deployment.url("several"), headers, 100))[422]:
            let_through += statuses[422]
    assert set(statuses) == {429}
    assert QUOTA <= let_through <= PROCESSES * QUOTA
