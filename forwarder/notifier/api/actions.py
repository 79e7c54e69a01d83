"""The operations of the webhook API, for the caller's workspace, and the JSON of webhooks and deliveries.

Another workspace's webhooks look as if they did not exist. Only a newly created secret is shown.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from pydantic_core import to_json
from starlette.requests import Request

from forwarder.http.messages import NO_STORE, Response
from forwarder.http.paging import FIRST, LARGEST_ID, Cursors, positive, write_list
from forwarder.notifier.api.requests import NewWebhook, Rotation, WebhookChange, read_page_query, read_request_body
from forwarder.notifier.webhooks import Webhooks
from forwarder.process.clock import iso
from forwarder.reservation.problems.problem import Problem
from forwarder.store.deliveries import DeliveryEntry
from forwarder.store.lists.port import fitting, neighbours
from forwarder.tenancy.port import Endpoint, NotKnown
from forwarder.webhooks.signature import public_key

ENDPOINT_ID: Final = re.compile(r"whk_[A-Za-z0-9_-]{1,64}")


class NoDelivery(LookupError):
    """The webhook is there, and has no such delivery."""


class WebhookActions:
    """Endpoints for webhooks and their deliveries."""

    def __init__(self, hooks: Webhooks) -> None:
        self._hooks = hooks

    async def add(self, workspace_id: str, request: Request) -> Response | Problem:
        """Add a webhook. Its secret is in this response and in no other."""
        body = await read_request_body(request, NewWebhook)
        if isinstance(body, Problem):
            return body
        endpoint, secret = await self._hooks.add(workspace_id, body.url, **body.terms())
        location = f"{request.scope['path']}/{endpoint.id}".encode()
        return _response(_with_secret(endpoint, secret), 201, (b"location", location))

    async def page(self, workspace_id: str, request: Request) -> Response | Problem:
        """List webhooks in the order in which they were added. A cursor is that time, in microseconds since 1970."""
        asked = read_page_query(request)
        if isinstance(asked, Problem):
            return asked
        every = await self._hooks.endpoints(workspace_id)
        before = [_added(each) for each in reversed(every) if _added(each) < asked.cursor]
        onward = [each for each in every if _added(each) >= asked.cursor]
        others = neighbours(before, [_added(each) for each in onward], asked.limit)
        cursors = Cursors(others.previous, asked.cursor, others.next)
        return _page([to_json(endpoint_json(each)).decode() for each in onward[: asked.limit]], cursors, asked.limit)

    async def show(self, workspace_id: str, request: Request) -> Response | Problem:
        """Show one webhook."""
        return _response(endpoint_json(await self._hooks.get(_id(request), workspace_id=workspace_id)))

    async def change(self, workspace_id: str, request: Request) -> Response | Problem:
        """Changes the given fields, then enables or disables the webhook if the body says so."""
        body = await read_request_body(request, WebhookChange)
        if isinstance(body, Problem):
            return body
        changed = await self._hooks.change(_id(request), workspace_id=workspace_id, **body.terms())
        if "enabled" in body.model_fields_set and body.enabled != changed.enabled:
            switch = self._hooks.enable if body.enabled else self._hooks.disable
            changed = await switch(_id(request), workspace_id=workspace_id)
        return _response(endpoint_json(changed))

    async def remove(self, workspace_id: str, request: Request) -> Response | Problem:
        """Remove the webhook, with its pending deliveries and its log."""
        await self._hooks.remove(_id(request), workspace_id=workspace_id)
        return _response({"id": _id(request), "removed": True})

    async def test(self, workspace_id: str, request: Request) -> Response | Problem:
        """Queue a test event for this webhook only; its delivery is in the log."""
        delivery_id = await self._hooks.test(_id(request), workspace_id=workspace_id)
        path = request.scope["path"].removesuffix("/test")
        return _response({"deliveryId": delivery_id}, 202, (b"location", f"{path}/deliveries/{delivery_id}".encode()))

    async def rotate(self, workspace_id: str, request: Request) -> Response | Problem:
        """Replace the secret. The new one is in this response and in no other."""
        body = await read_request_body(request, Rotation, optional=True)
        if isinstance(body, Problem):
            return body
        endpoint, secret = await self._hooks.rotate(
            _id(request), workspace_id=workspace_id, overlap_seconds=body.overlap_seconds
        )
        return _response(_with_secret(endpoint, secret))

    async def deliveries(self, workspace_id: str, request: Request) -> Response | Problem:
        """List deliveries, newest first. A cursor is the first id, counted downwards, that is not on the page; 1 for none."""
        asked = read_page_query(request, of_status=True)
        if isinstance(asked, Problem):
            return asked
        read = partial(
            self._hooks.deliveries,
            _id(request),
            workspace_id=workspace_id,
            status=asked.status,
            limit=asked.limit + 1,
        )
        before = None if asked.cursor == FIRST else asked.cursor
        onward = await read(before=before)
        newer = () if before is None else await read(after=before - 1)
        items = [to_json(delivery_json(each)).decode() for each in onward[: asked.limit]]
        shown = fitting(len(each.encode()) for each in items)
        newer_ids, ids = ([each.id + 1 for each in entries] for entries in (reversed(newer), onward))
        others = neighbours(newer_ids, ids, asked.limit, shown=shown)
        cursors = Cursors(others.previous, asked.cursor, others.next)
        return _page(items[:shown], cursors, asked.limit)

    async def delivery(self, workspace_id: str, request: Request) -> Response | Problem:
        """Show one delivery."""
        return _response(delivery_json(await self._of_delivery(self._hooks.delivery, workspace_id, request)))

    async def resend(self, workspace_id: str, request: Request) -> Response | Problem:
        """Makes the delivery due now, regardless of its status."""
        return _response(delivery_json(await self._of_delivery(self._hooks.resend, workspace_id, request)), 202)

    async def _of_delivery(
        self, act: Callable[..., Awaitable[DeliveryEntry]], workspace_id: str, request: Request
    ) -> DeliveryEntry:
        """The result of `act` for the delivery in the path. Raises `NoDelivery` if the webhook has none with that id."""
        endpoint_id, delivery_id = _id(request), positive(request.path_params["delivery_id"], LARGEST_ID)
        try:
            return await act(endpoint_id, delivery_id or 0, workspace_id=workspace_id)
        except NotKnown as error:
            await self._hooks.get(endpoint_id, workspace_id=workspace_id)  # raises if there is not even the webhook
            raise NoDelivery from error


def _with_secret(endpoint: Endpoint, secret: str) -> dict[str, Any]:
    return {**endpoint_json(endpoint), "secret": secret, "publicKey": public_key(secret)}


def endpoint_json(endpoint: Endpoint) -> dict[str, Any]:
    """A webhook, without its secrets."""
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "types": endpoint.types,
        "integrationAccountIds": endpoint.account_ids,
        "propertyIds": endpoint.property_ids,
        "description": endpoint.description,
        "headerNames": endpoint.header_names or (),
        "asymmetricSignature": endpoint.asymmetric,
        "enabled": endpoint.enabled,
        "disabledReason": endpoint.disabled_reason,
        "disabledAt": _moment(endpoint.disabled_at),
        "createdAt": iso(endpoint.created_at),
        "previousSecretUntil": _moment(endpoint.previous_until),
    }


def delivery_json(entry: DeliveryEntry) -> dict[str, Any]:
    """An entry of the delivery log."""
    return {
        "id": entry.id,
        "eventId": entry.event_id,
        "type": entry.type,
        "status": entry.status.value,
        "createdAt": iso(entry.created_at),
        "dueAt": _moment(entry.due_at),
        "endedAt": _moment(entry.ended_at),
        "tries": entry.tries,
        "attempts": [
            {
                "startedAt": attempt.at,
                "durationMs": attempt.ms,
                "status": attempt.status,
                "failure": attempt.failure,
                "detail": attempt.detail,
            }
            for attempt in entry.attempts
        ],
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)


def _id(request: Request) -> str:
    """The webhook id in the path. Raises `NotKnown` if it has another form, without asking the database."""
    endpoint_id: str = request.path_params["id"]
    if not ENDPOINT_ID.fullmatch(endpoint_id):
        raise NotKnown("no webhook has such an id")
    return endpoint_id


def _added(endpoint: Endpoint) -> int:
    return round(endpoint.created_at.timestamp() * 1_000_000)


def _response(data: Mapping[str, Any], status: int = 200, *headers: tuple[bytes, bytes]) -> Response:
    return Response(status, to_json({"data": data}), (NO_STORE, *headers))


def _page(items: Sequence[str], cursors: Cursors, limit: int) -> Response:
    return Response(200, write_list(items, cursors, limit), (NO_STORE,))
