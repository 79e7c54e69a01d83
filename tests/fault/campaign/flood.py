"""A crowd that submits all at once, each caller on a connection of its own: more than the service can take."""

import asyncio
import json
from collections.abc import Callable, Mapping

import httpx

from forwarder.pms.http.connections import PoolLimits
from tests.fault.campaign.load import Load, Submission
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, booking
from tests.support.pms.httpx_transport import PooledTransport

_ROOMS_BEYOND = 1_000_000
"""A load's own rooms end far below."""
_LONG_TEXT = "宿" * 6_500
"""Three of them are nearly as long as a body may be, and longer in memory than most texts of their length in bytes."""


class Flood:
    """Its callers stand in the books of `load`, and their rooms are numbered after those of `earlier` floods of the case."""

    def __init__(self, deployment: Deployment, load: Load, accounts: Mapping[str, str], *, earlier: int = 0) -> None:
        self._deployment = deployment
        self._load = load
        self._accounts = list(accounts.items())
        self._first = _ROOMS_BEYOND + earlier
        self._progress = asyncio.Condition()
        self.accepted = 0
        self.refusals: list[httpx.Response] = []

    @property
    def answered(self) -> int:
        """How many were accepted or refused so far."""
        return self.accepted + len(self.refusals)

    async def rise(self, count: int, *, one_in_keyed: int = 0) -> None:
        """Submit `count` big reservations at once, some of them with a key; return when all were answered, which each must be."""
        submissions = [self._new(number, one_in_keyed) for number in range(count)]
        bodies = [json.dumps(submission.body, ensure_ascii=False).encode() for submission in submissions]
        self._load.submissions.extend(submissions)
        transport = PooledTransport(
            PoolLimits(max_connections=count, pool_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS)
        )
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE_SECONDS) as client:
            await asyncio.gather(*map(self._submit, [client] * count, submissions, bodies))

    async def until(self, enough: Callable[["Flood"], bool]) -> None:
        """Return once `enough` were answered, as it tells."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._progress:
            await self._progress.wait_for(lambda: enough(self))

    def _new(self, number: int, one_in_keyed: int) -> Submission:
        account, kind = self._accounts[number % len(self._accounts)]
        site = {"paymentProviderId": 42} if kind == "website-builder" else {}
        texts = dict.fromkeys(("notes", "comments", "paymentProviderKey"), _LONG_TEXT)
        body = booking(self._first + number, **site, **texts)
        keyed = one_in_keyed and number % one_in_keyed == 0
        return Submission(account, body["roomId"], body, f"flood-{body['roomId']}" if keyed else None)

    async def _submit(self, client: httpx.AsyncClient, submission: Submission, body: bytes) -> None:
        keyed = {} if submission.key is None else {"Idempotency-Key": f'"{submission.key}"'}
        answer = await client.post(
            self._deployment.url("ingress") + "/api/v1/vrs/reservations/booking-engine",
            content=body,
            headers=self._deployment.headers(submission.account, **keyed),
        )
        self._load.answers[str(answer.status_code)] += 1
        if answer.is_success:
            submission.request_ids.add(answer.json()["data"]["requestId"])
            self.accepted += 1
        else:
            self.refusals.append(answer)
        async with self._progress:
            self._progress.notify_all()
