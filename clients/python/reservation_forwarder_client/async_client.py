"""The client of who uses asyncio."""

import copy
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Final, Self, Unpack

import httpx

from reservation_forwarder_client.bodies import BookingEngineReservation, GeneralReservation
from reservation_forwarder_client.bulk import MAX_ITEMS, Item, bulks
from reservation_forwarder_client.connections import (
    CONNECTIONS,
    AsyncClock,
    AsyncConnection,
    AsyncMachineClock,
    default_headers,
)
from reservation_forwarder_client.listing import MAX_PAGE, Filters, Page
from reservation_forwarder_client.operations import BOOKING_ENGINE, RESERVATIONS, Operations
from reservation_forwarder_client.problems import Problem
from reservation_forwarder_client.records import Reservation
from reservation_forwarder_client.requests import RetryPolicy
from reservation_forwarder_client.submissions import DryRun, Submission
from reservation_forwarder_client.webhooks.management import AsyncWebhooks
from reservation_forwarder_client.webhooks.operations import WebhookOperations


class AsyncForwarderClient:
    """One integration account of a workspace, as its API key may use it. Use it as an async context manager, which closes its
    connections. Any number of calls may be under way at once. `base_url`: where the service is, without `/api`; all of its
    stages, as a proxy puts them together.

    Calls that are safe to repeat are retried under `retry_policy`, after no answer or 429, 502, 503 or 504. They raise the errors
    shown in `problems`. `timeout_seconds`: how long one try may take, in addition to the time for which it lets the service wait.
    `transport` is httpx's seam: for a proxy, a certificate of your own, or a test without a network.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str,
        workspace: str,
        account: str,
        timeout_seconds: float = 30.0,
        retry_policy: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: AsyncClock | None = None,
    ) -> None:
        headers = default_headers(token, workspace)
        http = httpx.AsyncClient(base_url=base_url, headers=headers, transport=transport, limits=CONNECTIONS)
        clock = clock or AsyncMachineClock()
        self._connection = AsyncConnection(http, timeout_seconds, clock)
        retry_policy = retry_policy or RetryPolicy()
        self._operations = Operations(account, retry_policy, clock)
        self.webhooks: Final = AsyncWebhooks(self._connection, WebhookOperations(retry_policy, clock))
        """The workspace's webhooks."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, those of `for_account` with them."""
        await self._connection.http.aclose()

    def for_account(self, account: str) -> Self:
        """The same client for another integration account of the workspace, over the same connections."""
        other = copy.copy(self)
        other._operations = self._operations.for_account(account)  # noqa: SLF001 - of its own class
        return other

    async def submit(
        self,
        reservation: BookingEngineReservation,
        *,
        idempotency_key: str | None = None,
        wait: int | None = None,
        deadline: int | None = None,
    ) -> Submission:
        """Submit a booking engine's reservation, by the names of the contract; days and decimals may be Python's own.

        The submission is safe, and usually `PENDING`. `wait`: up to so many seconds for its outcome, which may be REJECTED: that is
        an answer, not an error; 0 and None do not wait.
        `deadline`: the seconds for which it is worth forwarding. `idempotency_key`: every call with the
        same key is the same submission; without one, the client makes a key that only the tries of this call share.
        Raises `Refused` if it was not accepted, and `Unavailable`, with the key, if that is unknown.
        """
        return await self._connection.run(
            self._operations.submit(BOOKING_ENGINE, reservation, idempotency_key, wait, deadline)
        )

    async def submit_general(
        self,
        reservation: GeneralReservation,
        *,
        idempotency_key: str | None = None,
        wait: int | None = None,
        deadline: int | None = None,
    ) -> Submission:
        """Submit a reservation of which little need be known. As `submit`, but without `wait` it waits for a while; 0 does not."""
        return await self._connection.run(
            self._operations.submit(RESERVATIONS, reservation, idempotency_key, wait, deadline)
        )

    async def submit_many(
        self, items: Iterable[Item], *, bulk_size: int = MAX_ITEMS
    ) -> AsyncIterator[Submission | Problem]:
        """Submit `items` in bulks, and yield for each, in their order, whether it was accepted, as soon as its bulk is answered.

        A refused item does not affect the others. Does not wait for outcomes. Raises `Unavailable` if a bulk gets no answer, and
        `Refused` if it is refused as a whole: results already yielded are final; the error's `items` are the others taken from
        `items`, under their keys, to be submitted again. `with_keys` makes the keys before anything is sent.
        """
        for bulk in bulks(items, bulk_size):
            for result in await self._connection.run(self._operations.bulk(bulk)):
                yield result

    async def dry_run(self, reservation: BookingEngineReservation) -> DryRun:
        """What would come of `reservation`; nothing is made of it. Raises `Refused` where it is not as the contract has it."""
        return await self._connection.run(self._operations.dry_run(BOOKING_ENGINE, reservation))

    async def dry_run_general(self, reservation: GeneralReservation) -> DryRun:
        """As `dry_run`, for what `submit_general` takes."""
        return await self._connection.run(self._operations.dry_run(RESERVATIONS, reservation))

    async def cancel(self, identifier: str | int, reason: str | None = None, *, wait: int | None = None) -> Submission:
        """Ask for the cancellation of a submission, by its `request_id` or its reservation's `id`; asking again changes nothing.

        Up to `wait` seconds for what comes of it. Raises `Refused` where nothing was made, or the PMS said no.
        """
        return await self._connection.run(self._operations.cancel(identifier, reason, wait))

    async def submission(self, request_id: str) -> Submission:
        """The state of a submission, with every attempt. Raises `NotFound` (`submission_not_found`)."""
        return await self._connection.run(self._operations.submission(request_id))

    async def wait(self, request_id: str, *, timeout_seconds: float = 60.0) -> Submission:
        """The submission once it has an outcome. Raises `OutcomeTimeout`, with its current state, after `timeout_seconds`.

        Asks the service to answer when the outcome comes. If it answers sooner, asks again after growing pauses.
        An outage on the way may take longer, as the retry policy allows.
        """
        return await self._connection.run(self._operations.wait(request_id, timeout_seconds))

    async def reservation(self, reservation_id: int) -> Reservation:
        """One reservation, in any status. Raises `NotFound` (`reservation_not_found`)."""
        return await self._connection.run(self._operations.reservation(reservation_id))

    async def pages(
        self, *, page_size: int = MAX_PAGE, cursor: str = "", **filters: Unpack[Filters]
    ) -> AsyncIterator[Page]:
        """The account's reservations, a page at a time, from `cursor` on: a page's `cursors.next`, kept from before.

        Each reservation that was there when the first page was read comes exactly once.
        """
        while True:
            page = await self._connection.run(self._operations.page(page_size, cursor, filters))
            yield page
            cursor = page.cursors.next
            if not cursor:
                return

    async def reservations(
        self, *, page_size: int = MAX_PAGE, **filters: Unpack[Filters]
    ) -> AsyncIterator[Reservation]:
        """The account's reservations, oldest first unless `order` says otherwise, page after page as you iterate. Includes
        rejected and failed ones only if `status` names them."""
        async for page in self.pages(page_size=page_size, **filters):
            for reservation in page.reservations:
                yield reservation
