"""Management of a workspace's webhooks. `AsyncWebhooks` documents each operation; `Webhooks` is the same without `async`."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TypeVar, Unpack

from reservation_forwarder_client.connections import AsyncConnection, Connection
from reservation_forwarder_client.listing import MAX_PAGE
from reservation_forwarder_client.requests import Steps
from reservation_forwarder_client.webhooks.operations import Listed, WebhookOperations
from reservation_forwarder_client.webhooks.records import (
    NewWebhook,
    Webhook,
    WebhookChange,
    WebhookDelivery,
    WebhookWithSecret,
)

_Item = TypeVar("_Item")
_PageAt = Callable[[str], Steps[Listed[_Item]]]
"""The page of a list that begins at a cursor."""


class AsyncWebhooks:
    """The webhooks of a client's workspace, which its API key may manage with the scope `webhooks`: a live key, no test key.

    Raises `NotFound` where the workspace has no such webhook or delivery. `add`, `rotate` and `test` are not made again by the
    client after no answer, since they would act twice: they raise `Unavailable`, and what took effect shows in `list`, `get` and
    `deliveries`.
    """

    def __init__(self, connection: AsyncConnection, operations: WebhookOperations) -> None:
        self._connection = connection
        self._operations = operations

    async def add(self, url: str, **more: Unpack[NewWebhook]) -> WebhookWithSecret:
        """Have results posted to `url`: `https`, and an address of the public internet. The secret is in this answer and in no
        other. Raises `Refused` for an address that may not be posted to, and `Conflict` where there are too many."""
        return await self._connection.run(self._operations.add(url, more))

    async def list(self, *, page_size: int = MAX_PAGE) -> AsyncIterator[Webhook]:
        """Every webhook, in the order in which they were added."""
        async for webhook in self._every(partial(self._operations.page, page_size)):
            yield webhook

    async def get(self, webhook_id: str) -> Webhook:
        """One webhook."""
        return await self._connection.run(self._operations.get(webhook_id))

    async def change(self, webhook_id: str, **change: Unpack[WebhookChange]) -> Webhook:
        """Change what is named. `enabled=False` disables it, and ends what waits to be delivered."""
        return await self._connection.run(self._operations.change(webhook_id, change))

    async def remove(self, webhook_id: str) -> None:
        """Remove it, with its waiting deliveries and its log. If the answer is lost, the client asks again, and may then raise
        `NotFound` because the webhook is gone."""
        await self._connection.run(self._operations.remove(webhook_id))

    async def rotate(self, webhook_id: str, *, overlap_seconds: int | None = None) -> WebhookWithSecret:
        """Replace the secret; the new one is in this answer and in no other. For `overlap_seconds` (a day) deliveries are signed
        with the old one too."""
        return await self._connection.run(self._operations.rotate(webhook_id, overlap_seconds))

    async def test(self, webhook_id: str) -> int:
        """Post a `webhook.test.v1` to this webhook alone; the id of its delivery. Raises `Conflict` where it is disabled."""
        return await self._connection.run(self._operations.test(webhook_id))

    async def deliveries(
        self, webhook_id: str, *, status: str | None = None, page_size: int = MAX_PAGE
    ) -> AsyncIterator[WebhookDelivery]:
        """Its deliveries, the newest first; those of `status` alone, where that is given."""
        async for delivery in self._every(partial(self._operations.deliveries, webhook_id, status, page_size)):
            yield delivery

    async def delivery(self, webhook_id: str, delivery_id: int) -> WebhookDelivery:
        """One delivery, with its last attempts."""
        return await self._connection.run(self._operations.delivery(webhook_id, delivery_id))

    async def resend(self, webhook_id: str, delivery_id: int) -> WebhookDelivery:
        """Deliver it once more, now, even if it succeeded. Raises `Conflict` where the webhook is disabled."""
        return await self._connection.run(self._operations.resend(webhook_id, delivery_id))

    async def _every(self, page_at: _PageAt[_Item]) -> AsyncIterator[_Item]:
        cursor = ""
        while True:
            page = await self._connection.run(page_at(cursor))
            for item in page.items:
                yield item
            cursor = page.next
            if not cursor:
                return


class Webhooks:
    """`AsyncWebhooks` without `async`."""

    def __init__(self, connection: Connection, operations: WebhookOperations) -> None:
        self._connection = connection
        self._operations = operations

    def add(self, url: str, **more: Unpack[NewWebhook]) -> WebhookWithSecret:
        """Have results posted to `url`. The secret is in this answer and in no other."""
        return self._connection.run(self._operations.add(url, more))

    def list(self, *, page_size: int = MAX_PAGE) -> Iterator[Webhook]:
        """Every webhook, in the order in which they were added."""
        return self._every(partial(self._operations.page, page_size))

    def get(self, webhook_id: str) -> Webhook:
        """One webhook."""
        return self._connection.run(self._operations.get(webhook_id))

    def change(self, webhook_id: str, **change: Unpack[WebhookChange]) -> Webhook:
        """Change what is named."""
        return self._connection.run(self._operations.change(webhook_id, change))

    def remove(self, webhook_id: str) -> None:
        """Remove it, with what waits to be delivered and its log."""
        self._connection.run(self._operations.remove(webhook_id))

    def rotate(self, webhook_id: str, *, overlap_seconds: int | None = None) -> WebhookWithSecret:
        """Replace the secret; the new one is in this answer and in no other."""
        return self._connection.run(self._operations.rotate(webhook_id, overlap_seconds))

    def test(self, webhook_id: str) -> int:
        """Post a `webhook.test.v1` to this webhook alone; the id of its delivery."""
        return self._connection.run(self._operations.test(webhook_id))

    def deliveries(
        self, webhook_id: str, *, status: str | None = None, page_size: int = MAX_PAGE
    ) -> Iterator[WebhookDelivery]:
        """Its deliveries, the newest first."""
        return self._every(partial(self._operations.deliveries, webhook_id, status, page_size))

    def delivery(self, webhook_id: str, delivery_id: int) -> WebhookDelivery:
        """One delivery, with its last attempts."""
        return self._connection.run(self._operations.delivery(webhook_id, delivery_id))

    def resend(self, webhook_id: str, delivery_id: int) -> WebhookDelivery:
        """Deliver it once more, now, even if it succeeded."""
        return self._connection.run(self._operations.resend(webhook_id, delivery_id))

    def _every(self, page_at: _PageAt[_Item]) -> Iterator[_Item]:
        cursor = ""
        while True:
            page = self._connection.run(page_at(cursor))
            yield from page.items
            cursor = page.next
            if not cursor:
                return
