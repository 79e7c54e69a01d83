"""The callers of a case: concurrent writers that submit at a pace, some with a key and again until they are heard."""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import httpx

from forwarder.pms.http.connections import PoolLimits
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, booking
from tests.support.pms.httpx_transport import PooledTransport

WRITERS = 24
_ITEMS = 50
_PATIENCE_SECONDS = 5 * PATIENCE_SECONDS
_ONE_IN_KEYED = 3
_ONE_IN_LOOKED_UP = 20
_AGAIN_SECONDS = 0.2
_FIRST_DAY, _DAYS = date(2031, 3, 1), 1_000


@dataclass(slots=True)
class Submission:
    """One reservation as its caller knows it. `room` is nobody else's of the account. Its `body` is kept until it is accepted."""

    account: str
    room: str
    body: Mapping[str, Any]
    key: str | None
    request_ids: set[str] = field(default_factory=set)
    """Those that came with a 2xx: one, or none where no answer of the kind ever came."""

    @property
    def accepted(self) -> bool:
        return bool(self.request_ids)


Then = Callable[[Submission], Awaitable[None]]
"""What a caller does next about a submission that was accepted."""


class Load:
    """Submits at `rate` a second, spread over `accounts`, until `finish` was called and there were `count` at least.

    Once there are `count` it goes on at `rate_afterwards`.

    Every third carries an idempotency key and is sent again until it is accepted; the others are sent once, whatever comes. Of what
    is accepted its caller does `then`. `role` is what it submits to. `bulk_writers`, of all, send bulks of one account each, all
    with keys. While `held_back`, nobody begins a new one.
    """

    def __init__(
        self,
        deployment: Deployment,
        accounts: Mapping[str, str],
        chance: random.Random,
        *,
        count: int,
        rate: float,
        rate_afterwards: float,
        then: Then | None = None,
        role: str = "ingress",
        bulk_writers: int = 0,
        held_back: Callable[[], bool] = lambda: False,
    ) -> None:
        self._deployment = deployment
        self._accounts = list(accounts.items())
        self._random = chance
        self._count = count
        self._then = then
        self._role = role
        self._bulk_writers = bulk_writers
        self._held_back = held_back
        self._intervals = (1.0 / rate, 1.0 / rate_afterwards)
        self._numbers = itertools.count()
        self._finishing = False
        self._next_turn = 0.0
        self._progress = asyncio.Condition()
        self._client = httpx.AsyncClient(
            transport=PooledTransport(PoolLimits(max_connections=2 * WRITERS)), timeout=30.0
        )
        self.submissions: list[Submission] = []
        self.answers: Counter[str] = Counter()
        """How many of each: a status, or `none` where the connection was lost first."""
        self.accepted = 0
        """How many submissions, up to now."""
        self.unknown: list[str] = []
        """Request ids that were accepted and whose status was then said not to exist."""
        self.over = asyncio.Event()
        """Set when the last submission has been answered, or given up."""

    @property
    def sent(self) -> int:
        """How many submissions were answered, or lost their answer, so far."""
        return self.answers.total()

    async def run(self) -> None:
        """Submit until all is done."""
        async with self._client, asyncio.TaskGroup() as writers:
            for number in range(WRITERS):
                writers.create_task(self._write_bulks() if number < self._bulk_writers else self._write())
        self.over.set()

    def finish(self) -> None:
        """Stop as soon as there are enough."""
        self._finishing = True

    async def sent_more(self, count: int) -> None:
        """Return when so many more were sent than when this was called."""
        wanted = self.sent + count
        async with asyncio.timeout(PATIENCE_SECONDS), self._progress:
            await self._progress.wait_for(lambda: self.sent >= wanted)

    async def refused_more(self, count: int) -> None:
        """Return when so many more were answered 503 than when this was called."""
        wanted = self.answers["503"] + count
        async with asyncio.timeout(PATIENCE_SECONDS), self._progress:
            await self._progress.wait_for(lambda: self.answers["503"] >= wanted)

    async def _write(self) -> None:
        while self._goes_on():
            submission = self._new(next(self._numbers))
            self.submissions.append(submission)
            await self._turn()
            await self._submit(submission)
            if submission.accepted and self._then is not None:
                await self._then(submission)
            if submission.accepted and self._random.randrange(_ONE_IN_LOOKED_UP) == 0:
                await self._look_up(submission)

    async def _write_bulks(self) -> None:
        while self._goes_on():
            numbers = [next(self._numbers) for _ in range(_ITEMS)]
            bulk = [self._new(number, numbers[0], keyed=True) for number in numbers]
            self.submissions += bulk
            await self._turn()
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while waiting := [each for each in bulk if not each.accepted]:
                    if not await self._send_bulk(waiting):
                        await asyncio.sleep(_AGAIN_SECONDS)
            if self._then is not None:
                for each in bulk:
                    await self._then(each)

    def _goes_on(self) -> bool:
        return not self._finishing or len(self.submissions) < self._count

    def _new(self, number: int, place: int | None = None, *, keyed: bool = False) -> Submission:
        account, kind = self._accounts[(number if place is None else place) % len(self._accounts)]
        site = {"paymentProviderId": 42} if kind == "website-builder" else {}
        arrival = _FIRST_DAY + timedelta(days=number % _DAYS)
        stay = {"arrivalDate": str(arrival), "departureDate": str(arrival + timedelta(days=4))}
        body = booking(number, **stay, **site)
        keyed = keyed or number % _ONE_IN_KEYED == 0
        return Submission(account, body["roomId"], body, f"order-{number}" if keyed else None)

    async def _turn(self) -> None:
        """The pace, which an outage does not make up for afterwards."""
        now = asyncio.get_running_loop().time()
        self._next_turn = max(self._next_turn + self._intervals[len(self.submissions) > self._count], now)
        await asyncio.sleep(self._next_turn - now)
        while self._held_back():
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _submit(self, submission: Submission) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not await self._send(submission) and submission.key is not None:
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _send(self, submission: Submission) -> bool:
        keyed = {} if submission.key is None else {"Idempotency-Key": f'"{submission.key}"'}
        try:
            answer = await self._client.post(
                self._deployment.url(self._role) + "/api/v1/vrs/reservations/booking-engine",
                content=json.dumps(submission.body),
                headers=self._deployment.headers(submission.account, **keyed),
            )
        except httpx.TransportError:
            await self._note("none")
            return False
        if answer.is_success:
            self._take(submission, answer.json()["data"]["requestId"])
        await self._note(str(answer.status_code))
        return answer.is_success

    async def _send_bulk(self, items: Sequence[Submission]) -> bool:
        """Whether anything was answered."""
        lines = [
            {"operation": "booking-engine", "reservation": each.body, "idempotencyKey": each.key} for each in items
        ]
        try:
            answer = await self._client.post(
                self._deployment.url(self._role) + "/api/v1/vrs/reservations/bulk",
                content="\n".join(map(json.dumps, lines)),
                headers=self._deployment.headers(items[0].account, **{"Content-Type": "application/x-ndjson"}),
            )
        except httpx.TransportError:
            await self._note("none", len(items))
            return False
        if not answer.is_success:
            await self._note(str(answer.status_code), len(items))
            return False
        for item, result in zip(items, answer.json()["data"]["results"], strict=True):
            if "requestId" in result:
                self._take(item, result["requestId"])
            await self._note(str(result["problem"]["status"] if "problem" in result else answer.status_code))
        return True

    def _take(self, submission: Submission, request_id: str) -> None:
        self.accepted += not submission.accepted
        submission.request_ids.add(request_id)
        submission.body = {}

    async def _look_up(self, submission: Submission) -> None:
        (request_id,) = submission.request_ids
        url = f"{self._deployment.url('query')}/api/v1/vrs/submissions/{request_id}"
        try:
            answer = await self._client.get(url, headers=self._deployment.headers(submission.account))
        except httpx.TransportError:
            return
        if answer.status_code == httpx.codes.NOT_FOUND:
            self.unknown.append(request_id)

    async def _note(self, answer: str, times: int = 1) -> None:
        self.answers[answer] += times
        async with self._progress:
            self._progress.notify_all()


def accepted(submissions: Sequence[Submission]) -> set[str]:
    """The request ids that callers were given."""
    return {request_id for submission in submissions for request_id in submission.request_ids}
