"""The Python client of the stages in memory, in their time."""

import httpx

from reservation_forwarder_client import AsyncForwarderClient, RetryPolicy
from tests.support.stages.http_stages import Stages

NEVER_AGAIN = RetryPolicy(total_seconds=0)


def client_of(house: Stages, transport: httpx.AsyncBaseTransport | None = None) -> AsyncForwarderClient:
    """A client of the account `alpha-1` that makes nothing again; over `transport`, where that is given."""
    return AsyncForwarderClient(
        "http://forwarder.test",
        token="token-alpha",
        workspace="alpha",
        account="alpha-1",
        transport=transport or httpx.ASGITransport(house.app),
        retry_policy=NEVER_AGAIN,
        clock=house.clock,
    )
