"""Managing a workspace's webhooks over HTTP: the routes, authentication, the operations for the caller's workspace, how refusals
become problems, and the JSON of webhooks and deliveries.

Another workspace's webhooks look as if they did not exist. Only a newly created secret is shown."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, get_args

import structlog
from pydantic_core import to_json
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.messages import NO_STORE, Response, Routes, client_address, header_map, place_of, problem_response
from forwarder.http.parameters import FIRST, LARGEST_ID, PAGE_PARAMETERS, positive, refuse_unknown, write_list
from forwarder.notifier import api_requests
from forwarder.notifier.api_requests import PageQuery
from forwarder.notifier.webhooks import EndpointDisabled, HeadersNeeded, Webhooks
from forwarder.oversight.audit import Actor, acting_as
from forwarder.process.clock import iso
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.card_numbers import find
from forwarder.reservation.problems import FieldFault, Problem
from forwarder.store.deliveries import DeliveryEntry
from forwarder.store.lists.port import fitting, neighbours, sides
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy import port
from forwarder.tenancy.access import Access, RateLimits, forbidden, rate_limited, with_allowance
from forwarder.tenancy.port import ApiKey, Endpoint, NotKnown, TenancyUnavailable
from forwarder.webhooks.port import BadHeaders, BadTarget, public_key

ENDPOINT_ID: Final = re.compile(r"whk_[A-Za-z0-9_-]{1,64}")


class NoDelivery(LookupError):
    """The webhook is there, and has no such delivery."""


_OfEndpoint = NotKnown | NoDelivery | EndpointDisabled | port.TooManyEndpoints | BadTarget | BadHeaders | HeadersNeeded
Refusal = _OfEndpoint | port.UnknownAccount | TenancyUnavailable | StoreUnavailable
"""The exceptions of an action, the same for another workspace's webhook as for one that does not exist."""

_log = structlog.get_logger(__name__)

Action = Callable[[str, Request], Awaitable[Response | Problem]]
"""Handles a request of a workspace. May raise `Refusal`."""


@dataclass(frozen=True, slots=True)
class WebhookApi:
    """Endpoints for webhooks and their deliveries. `limits` are those of API keys: a call counts like a submission."""

    access: Access
    webhooks: Webhooks
    limits: RateLimits

    def routes(self) -> Routes:
        """HEAD wherever GET is."""
        every = "/api/v1/vrs/webhooks"
        one = every + "/{id}"
        deliveries = one + "/deliveries"
        delivery = deliveries + "/{delivery_id}"
        return [
            self._route(every, "add", self.add, "POST"),
            self._route(every, "list", self.page, query=PAGE_PARAMETERS),
            self._route(one, "show", self.show),
            self._route(one, "change", self.change, "PATCH"),
            self._route(one, "remove", self.remove, "DELETE"),
            self._route(one + "/test", "test", self.test, "POST"),
            self._route(one + "/rotate", "rotate", self.rotate, "POST"),
            self._route(deliveries, "deliveries", self.deliveries, query=PAGE_PARAMETERS | {"status"}),
            self._route(delivery, "delivery", self.delivery),
            self._route(delivery + "/resend", "resend", self.resend, "POST"),
        ]

    def _route(self, path: str, name: str, action: Action, method: str = "GET", query: Collection[str] = ()) -> Route:
        async def endpoint(request: Request) -> Response:
            address, allowance = client_address(request.scope), None
            try:
                key = await self.access.workspace_key(header_map(request.scope), address)
                if isinstance(key, ApiKey):
                    needed = catalogue.LIVE_KEY_NEEDED.problem("Use a live key of the workspace: fwd_live_….")
                    key = needed if key.test else forbidden(key, "webhooks", address) or key
            except TenancyUnavailable as error:
                key = _problem_of(error)
            result: Response | Problem
            if isinstance(key, Problem):
                result = key
            else:
                allowance = self.limits.take(key.id, key.limit, 1, (key.workspace_id, key.shared_limit))
                if (place := place_of(request.scope)) is not None and not place.claim(key.workspace_id):
                    result = catalogue.OVERLOADED.problem(
                        "Nothing was changed. Send the same request again in a moment."
                    )
                elif allowance is not None and not allowance.admitted:
                    result = rate_limited(allowance)
                else:
                    try:
                        with acting_as(Actor("key", key.id, address)):
                            result = refuse_unknown(request.scope, query) or await action(key.workspace_id, request)
                    except get_args(Refusal) as error:
                        result = _problem_of(error)
            _log_change(name, key, request, result)
            if isinstance(result, Problem):
                # The rest of such a body is not read, so the connection cannot be used again.
                closing = ((b"connection", b"close"),) if result.status in {408, 413} else ()
                result = problem_response(result, *closing, retry_after_seconds=1)
            return result if allowance is None else with_allowance(result, allowance)

        return Route(path, endpoint, methods=[method])

    async def add(self, workspace_id: str, request: Request) -> Response | Problem:
        """Add a webhook. Its secret is in this response and in no other."""
        body = await api_requests.read_request_body(request, api_requests.NewWebhook)
        if isinstance(body, Problem):
            return body
        endpoint, secret = await self.webhooks.add(workspace_id, body.url, **body.terms())
        location = f"{request.scope['path']}/{endpoint.id}".encode()
        return _response(_with_secret(endpoint, secret), 201, (b"location", location))

    async def page(self, workspace_id: str, request: Request) -> Response | Problem:
        """List webhooks in the order in which they were added. A cursor is that time, in microseconds since 1970."""
        asked = api_requests.read_page_query(request)
        if isinstance(asked, Problem):
            return asked
        every, added = await self.webhooks.endpoints(workspace_id), [0]
        for each in every:  # those of one moment are a microsecond apart
            added.append(max(round(each.created_at.timestamp() * 1_000_000), added[-1] + 1))
        before, onward = sides(added[1:], asked.cursor)
        return _page([endpoint_json(each) for each in every[len(before) :]], before, onward, asked)

    async def show(self, workspace_id: str, request: Request) -> Response | Problem:
        return _response(endpoint_json(await self.webhooks.get(_id(request), workspace_id=workspace_id)))

    async def change(self, workspace_id: str, request: Request) -> Response | Problem:
        body = await api_requests.read_request_body(request, api_requests.WebhookChange)
        if isinstance(body, Problem):
            return body
        act = partial(self.webhooks.change, **terms) if (terms := body.terms()) else self.webhooks.get
        changed = await act(_id(request), workspace_id=workspace_id)
        if "enabled" in body.model_fields_set and body.enabled != changed.enabled:
            switch = self.webhooks.enable if body.enabled else self.webhooks.disable
            changed = await switch(_id(request), workspace_id=workspace_id)
        return _response(endpoint_json(changed))

    async def remove(self, workspace_id: str, request: Request) -> Response | Problem:
        await self.webhooks.remove(_id(request), workspace_id=workspace_id)
        return _response({"id": _id(request), "removed": True})

    async def test(self, workspace_id: str, request: Request) -> Response | Problem:
        delivery_id = await self.webhooks.test(_id(request), workspace_id=workspace_id)
        path = request.scope["path"].removesuffix("/test")
        return _response({"deliveryId": delivery_id}, 202, (b"location", f"{path}/deliveries/{delivery_id}".encode()))

    async def rotate(self, workspace_id: str, request: Request) -> Response | Problem:
        """Replace the secret. The new one is in this response and in no other."""
        body = await api_requests.read_request_body(request, api_requests.Rotation, optional=True)
        if isinstance(body, Problem):
            return body
        hook, overlap = _id(request), body.overlap_seconds
        endpoint, secret = await self.webhooks.rotate(hook, workspace_id=workspace_id, overlap_seconds=overlap)
        return _response(_with_secret(endpoint, secret))

    async def deliveries(self, workspace_id: str, request: Request) -> Response | Problem:
        """List deliveries, newest first. A cursor is the first id, counted downwards, that is not on the page; 1 for none."""
        asked = api_requests.read_page_query(request, of_status=True)
        if isinstance(asked, Problem):
            return asked
        log = partial(self.webhooks.deliveries, _id(request), workspace_id=workspace_id, status=asked.status)
        before = None if asked.cursor == FIRST else asked.cursor
        onward = await log(before=before, limit=asked.limit + 1)
        newer = () if before is None else await log(after=before - 1, limit=asked.limit + 1)
        newer_ids, ids = ([each.id + 1 for each in entries] for entries in (reversed(newer), onward))
        return _page([delivery_json(each) for each in onward], newer_ids, ids, asked)

    async def delivery(self, workspace_id: str, request: Request) -> Response | Problem:
        return _response(delivery_json(await self._of_delivery(self.webhooks.delivery, workspace_id, request)))

    async def resend(self, workspace_id: str, request: Request) -> Response | Problem:
        return _response(delivery_json(await self._of_delivery(self.webhooks.resend, workspace_id, request)), 202)

    async def _of_delivery(
        self, act: Callable[..., Awaitable[DeliveryEntry]], workspace_id: str, request: Request
    ) -> DeliveryEntry:
        """The result of `act` for the delivery in the path. Raises `NoDelivery` if the webhook has none with that id."""
        endpoint_id, delivery_id = _id(request), positive(request.path_params["delivery_id"], LARGEST_ID)
        try:
            return await act(endpoint_id, delivery_id or 0, workspace_id=workspace_id)
        except NotKnown as error:
            await self.webhooks.get(endpoint_id, workspace_id=workspace_id)  # raises if there is not even the webhook
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
        "headerNames": list(endpoint.header_names or ()),
        "asymmetricSignature": endpoint.asymmetric,
        "enabled": endpoint.enabled,
        "disabledReason": endpoint.disabled_reason,
        "disabledAt": _moment(endpoint.disabled_at),
        "createdAt": iso(endpoint.created_at),
        "previousSecretUntil": _moment(endpoint.previous_until),
    }


def delivery_json(entry: DeliveryEntry) -> dict[str, Any]:
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
            {"startedAt": each.at, "durationMs": each.ms}
            | {"status": each.status, "failure": each.failure, "detail": each.detail}
            for each in entry.attempts
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


def _response(data: Mapping[str, Any], status: int = 200, *headers: tuple[bytes, bytes]) -> Response:
    return Response(status, to_json({"data": data}), (NO_STORE, *headers))


def _page(
    items: Sequence[Mapping[str, Any]], before: Sequence[int], onward: Sequence[int], asked: PageQuery
) -> Response:
    """As many of `items` as fit. `before`, `onward`: the cursors before the page and from it onward, nearest first."""
    texts = [to_json(each).decode() for each in items[: asked.limit]]
    shown = fitting(len(each.encode()) for each in texts)
    others = neighbours(before, onward, asked.limit, shown=shown)
    cursors = {"previous": others.previous, "current": asked.cursor, "next": others.next}
    return Response(200, write_list(texts[:shown], asked.limit, **cursors), (NO_STORE,))


def _log_change(action: str, key: ApiKey | Problem, request: Request, result: Response | Problem) -> None:
    """Logs changes, without floods of bad tokens, which are logged once."""
    flood = isinstance(key, Problem) and key.code == catalogue.TOO_MANY_BAD_TOKENS.code
    if flood or request.method in {"GET", "HEAD"}:
        return
    known = key if isinstance(key, ApiKey) else None
    # Only what has the form of one: a path may hold anything, a card number too.
    endpoint_id = request.path_params.get("id", "")
    _log.info(
        "webhook.managed",
        action=action,
        endpoint_id=endpoint_id if ENDPOINT_ID.fullmatch(endpoint_id) and not find(endpoint_id) else None,
        workspace_id=known and known.workspace_id,
        key_id=known and known.id,
        status=result.status,
        code=result.code if isinstance(result, Problem) else None,
    )


def _problem_of(error: Refusal) -> Problem:
    match error:
        case NotKnown():
            return catalogue.WEBHOOK_NOT_FOUND.problem("This workspace has no webhook of that id.")
        case NoDelivery():
            return catalogue.DELIVERY_NOT_FOUND.problem("This webhook has no delivery of that id.")
        case EndpointDisabled():
            return catalogue.WEBHOOK_DISABLED.problem('Enable it first: PATCH it with {"enabled": true}.')
        case port.TooManyEndpoints():
            return catalogue.TOO_MANY_WEBHOOKS.problem(str(error))
        case BadTarget():
            return api_requests.invalid([FieldFault("/url", error.code, str(error))])
        case BadHeaders():
            return api_requests.invalid(error.faults)
        case HeadersNeeded():
            needed = "is required: it was sealed for the host before; send it again, or {} to remove it"
            return api_requests.invalid([FieldFault("/headers", "required", needed)])
        case port.UnknownAccount():
            return api_requests.invalid([FieldFault("/integrationAccountIds", "invalid_value", str(error))])
        case TenancyUnavailable():
            return catalogue.TENANCY_UNAVAILABLE.problem("Ask again in a moment.")
        case StoreUnavailable():
            return catalogue.STORE_UNAVAILABLE.problem("Ask again in a moment.")
