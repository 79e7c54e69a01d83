"""The blocking client. `AsyncForwarderClient` documents each operation: both take the same steps."""

import copy
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self, Unpack

import httpx

from reservation_forwarder_client.bodies import BookingEngineReservation, GeneralReservation
from reservation_forwarder_client.bulk import MAX_ITEMS, Item, bulks
from reservation_forwarder_client.connections import CONNECTIONS, Clock, Connection, MachineClock, default_headers
from reservation_forwarder_client.listing import MAX_PAGE, Filters, Page
from reservation_forwarder_client.operations import BOOKING_ENGINE, RESERVATIONS, Operations
from reservation_forwarder_client.problems import Problem
from reservation_forwarder_client.records import Reservation
from reservation_forwarder_client.requests import RetryPolicy
from reservation_forwarder_client.submissions import DryRun, Submission
from reservation_forwarder_client.webhooks.management import Webhooks
from reservation_forwarder_client.webhooks.operations import WebhookOperations


class ForwarderClient:
    """`AsyncForwarderClient` without `async`: each call blocks its thread. Any number of threads may use it at once."""

    def __init__(
        self,
        base_url: str,
        *,
        token: str,
        workspace: str,
        account: str,
        timeout_seconds: float = 30.0,
        retry_policy: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        headers = default_headers(token, workspace)
        http = httpx.Client(base_url=base_url, headers=headers, transport=transport, limits=CONNECTIONS)
        clock = clock or MachineClock()
        self._connection = Connection(http, timeout_seconds, clock)
        retry_policy = retry_policy or RetryPolicy()
        self._operations = Operations(account, retry_policy, clock)
        self.webhooks: Final = Webhooks(self._connection, WebhookOperations(retry_policy, clock))
        """The workspace's webhooks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, those of `for_account` with them."""
        self._connection.http.close()

    def for_account(self, account: str) -> Self:
        """The same client for another integration account of the workspace, over the same connections."""
        other = copy.copy(self)
        other._operations = self._operations.for_account(account)  # noqa: SLF001 - of its own class
        return other

    def submit(
        self,
        reservation: BookingEngineReservation,
        *,
        idempotency_key: str | None = None,
        wait: int | None = None,
        deadline: int | None = None,
    ) -> Submission:
        """Submit a booking engine's reservation."""
        return self._connection.run(
            self._operations.submit(BOOKING_ENGINE, reservation, idempotency_key, wait, deadline)
        )

    def submit_general(
        self,
        reservation: GeneralReservation,
        *,
        idempotency_key: str | None = None,
        wait: int | None = None,
        deadline: int | None = None,
    ) -> Submission:
        """Submit a reservation by the general operation."""
        return self._connection.run(self._operations.submit(RESERVATIONS, reservation, idempotency_key, wait, deadline))

    def submit_many(self, items: Iterable[Item], *, bulk_size: int = MAX_ITEMS) -> Iterator[Submission | Problem]:
        """Submit `items` in bulks, and yield for each whether it was accepted. An error has the `items` without a result."""
        for bulk in bulks(items, bulk_size):
            yield from self._connection.run(self._operations.bulk(bulk))

    def dry_run(self, reservation: BookingEngineReservation) -> DryRun:
        """What would come of `reservation`; nothing is made of it."""
        return self._connection.run(self._operations.dry_run(BOOKING_ENGINE, reservation))

    def dry_run_general(self, reservation: GeneralReservation) -> DryRun:
        """What would come of `reservation`; nothing is made of it."""
        return self._connection.run(self._operations.dry_run(RESERVATIONS, reservation))

    def cancel(self, identifier: str | int, reason: str | None = None, *, wait: int | None = None) -> Submission:
        """Ask for the cancellation of a submission."""
        return self._connection.run(self._operations.cancel(identifier, reason, wait))

    def submission(self, request_id: str) -> Submission:
        """The state of a submission, with every attempt."""
        return self._connection.run(self._operations.submission(request_id))

    def wait(self, request_id: str, *, timeout_seconds: float = 60.0) -> Submission:
        """The submission once it has an outcome. Raises `OutcomeTimeout`."""
        return self._connection.run(self._operations.wait(request_id, timeout_seconds))

    def reservation(self, reservation_id: int) -> Reservation:
        """One reservation, in any status."""
        return self._connection.run(self._operations.reservation(reservation_id))

    def pages(self, *, page_size: int = MAX_PAGE, cursor: str = "", **filters: Unpack[Filters]) -> Iterator[Page]:
        """The account's reservations, a page at a time, from `cursor` on."""
        while True:
            page = self._connection.run(self._operations.page(page_size, cursor, filters))
            yield page
            cursor = page.cursors.next
            if not cursor:
                return

    def reservations(self, *, page_size: int = MAX_PAGE, **filters: Unpack[Filters]) -> Iterator[Reservation]:
        """The account's reservations, page after page as they are asked for."""
        for page in self.pages(page_size=page_size, **filters):
            yield from page.reservations
