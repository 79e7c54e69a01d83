"""What a running process says of itself at /metrics."""

import httpx

from tests.support.deployment.deployment import Deployment


async def measured(deployment: Deployment, role: str, metric: str) -> float:
    """One metric of a role's process, by its name with its labels as they are shown; 0.0 where it is not there yet."""
    shown = await deployment.client.get(f"{deployment.url(role)}/metrics")
    assert shown.status_code == httpx.codes.OK, shown.text
    values = [line.rpartition(" ") for line in shown.text.splitlines()]
    return next((float(value) for name, _, value in values if name == metric), 0.0)
