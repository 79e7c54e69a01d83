"""Callers who change their minds: a share of what is accepted is cancelled at once, and again until that is accepted too."""

import asyncio
import itertools

import httpx

from tests.fault.campaign.load import Submission
from tests.fault.campaign.reading import whole
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment

_AGAIN_SECONDS = 0.2


class Cancelling:
    """What a case's callers do `then`. `asked` are the request ids whose cancellation was accepted, by account."""

    def __init__(self, deployment: Deployment, *, one_in: int = 3) -> None:
        self._one_in = one_in
        self._deployment = deployment
        self._numbers = itertools.count()
        self.asked: dict[str, set[str]] = {}
        self.answers: set[int] = set()

    async def __call__(self, submission: Submission) -> None:
        if next(self._numbers) % self._one_in:
            return
        (request_id,) = submission.request_ids
        async with asyncio.timeout(5 * PATIENCE_SECONDS):
            while not await self._accepted(submission.account, request_id):
                await asyncio.sleep(_AGAIN_SECONDS)
        self.asked.setdefault(submission.account, set()).add(request_id)

    @property
    def count(self) -> int:
        """Of those that were accepted."""
        return sum(map(len, self.asked.values()))

    async def all_carried_out(self) -> None:
        """Return when none of them is to be cancelled any more."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._left():
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _accepted(self, account: str, request_id: str) -> bool:
        try:
            answer = await self._deployment.cancel(account, request_id)
        except httpx.TransportError:
            return False
        self.answers.add(answer.status_code)
        return answer.is_success

    async def _left(self) -> bool:
        for account, request_ids in self.asked.items():
            records = await whole(self._deployment, account)
            cancelled = {record["requestId"] for record in records if record["status"] == "CANCELLED"}
            if not request_ids <= cancelled:
                return True
        return False
