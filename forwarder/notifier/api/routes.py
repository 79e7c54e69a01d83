"""Managing a workspace's webhooks over HTTP: the routes, authentication, and how refusals become problems."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, get_args

import structlog
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.admission import place_of
from forwarder.http.messages import Response, Routes, client_address, header_map, problem_response
from forwarder.http.paging import PAGE_PARAMETERS
from forwarder.http.query_string import refuse_unknown
from forwarder.notifier.api.actions import ENDPOINT_ID, DeliveryActions, NoDelivery, WebhookActions
from forwarder.notifier.api.requests import DELIVERY_PARAMETERS, invalid
from forwarder.notifier.webhooks import EndpointDisabled, HeadersNeeded, Webhooks
from forwarder.oversight.audit import Actor, acting_as
from forwarder.reservation.checks.card_numbers import find
from forwarder.reservation.problems import requests, service, webhooks
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.access import Access, forbidden
from forwarder.tenancy.api_keys import Scope
from forwarder.tenancy.limits import Allowance, RateLimits, rate_limited, with_allowance
from forwarder.tenancy.port import ApiKey, NotKnown, TenancyUnavailable, TooManyEndpoints, UnknownAccount
from forwarder.webhooks.headers import BadHeaders
from forwarder.webhooks.port import BadTarget

_PATH: Final = "/api/v1/vrs/webhooks"
_ONE: Final = _PATH + "/{id}"
_DELIVERIES: Final = _ONE + "/deliveries"
_DELIVERY: Final = _DELIVERIES + "/{delivery_id}"
_SCOPE: Final[Scope] = "webhooks"
_UNREAD_BODY: Final = frozenset({408, 413})
"""The rest of the body is not read, so the connection cannot be used again."""

_OVERLOADED: Final = service.OVERLOADED.problem("Nothing was changed. Send the same request again in a moment.")
LIVE_KEY_NEEDED: Final = webhooks.LIVE_KEY_NEEDED.problem("Use a live key of the workspace: fwd_live_….")

Refusal = (
    NotKnown
    | NoDelivery
    | EndpointDisabled
    | TooManyEndpoints
    | BadTarget
    | BadHeaders
    | HeadersNeeded
    | UnknownAccount
    | TenancyUnavailable
    | StoreUnavailable
)
"""The exceptions of an action, the same for another workspace's webhook as for one that does not exist."""

_FLOOD: Final = requests.TOO_MANY_BAD_TOKENS.code

_log = structlog.get_logger(__name__)

Action = Callable[[str, Request], Awaitable[Response | Problem]]
"""Handles a request of a workspace. May raise `Refusal`."""


@dataclass(frozen=True, slots=True)
class WebhookApiParts:
    """The ports of the API. `limits` are those of API keys: a call counts like a submission. `retry_after_seconds` is sent to
    callers in an outage."""

    access: Access
    webhooks: Webhooks
    limits: RateLimits
    retry_after_seconds: int = 1


def webhook_routes(parts: WebhookApiParts) -> Routes:
    """The routes of the API; HEAD wherever GET is."""
    endpoints = _Endpoints(parts)
    hooks, deliveries = WebhookActions(parts.webhooks), DeliveryActions(parts.webhooks)
    return [
        Route(_PATH, endpoints.make("add", hooks.add), methods=["POST"]),
        Route(_PATH, endpoints.make("list", hooks.page, PAGE_PARAMETERS)),
        Route(_ONE, endpoints.make("show", hooks.show)),
        Route(_ONE, endpoints.make("change", hooks.change), methods=["PATCH"]),
        Route(_ONE, endpoints.make("remove", hooks.remove), methods=["DELETE"]),
        Route(_ONE + "/test", endpoints.make("test", hooks.test), methods=["POST"]),
        Route(_ONE + "/rotate", endpoints.make("rotate", hooks.rotate), methods=["POST"]),
        Route(_DELIVERIES, endpoints.make("deliveries", deliveries.page, DELIVERY_PARAMETERS)),
        Route(_DELIVERY, endpoints.make("delivery", deliveries.show)),
        Route(_DELIVERY + "/resend", endpoints.make("resend", deliveries.resend), methods=["POST"]),
    ]


class _Endpoints:
    def __init__(self, parts: WebhookApiParts) -> None:
        self._access = parts.access
        self._limits = parts.limits
        self._retry_after_seconds = parts.retry_after_seconds

    def make(
        self, name: str, action: Action, parameters: Collection[str] = ()
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that runs `action` for the caller's workspace. It takes these query `parameters`."""

        async def endpoint(request: Request) -> Response:
            key = await self._authenticate(request)
            allowance: Allowance | None = None
            if not isinstance(key, Problem):
                allowance = self._limits.take(key.id, key.limit, 1, (key.workspace_id, key.shared_limit))
            result: Response | Problem
            if isinstance(key, Problem):
                result = key
            elif (place := place_of(request.scope)) is not None and not place.claim(key.workspace_id):
                result = _OVERLOADED
            elif allowance is not None and not allowance.admitted:
                result = rate_limited(allowance)
            else:
                result = refuse_unknown(request.scope, parameters) or await _call(action, key, request)
            _log_change(name, key, request, result)
            response = self._problem_response(result) if isinstance(result, Problem) else result
            return response if allowance is None else with_allowance(response, allowance)

        return endpoint

    async def _authenticate(self, request: Request) -> ApiKey | Problem:
        address = client_address(request.scope)
        try:
            key = await self._access.workspace_key(header_map(request.scope), address)
        except TenancyUnavailable as error:
            return problem_of(error)
        if isinstance(key, Problem):
            return key
        return LIVE_KEY_NEEDED if key.test else forbidden(key, _SCOPE, address) or key

    def _problem_response(self, problem: Problem) -> Response:
        closing = ((b"connection", b"close"),) if problem.status in _UNREAD_BODY else ()
        return problem_response(problem, *closing, retry_after_seconds=self._retry_after_seconds)


async def _call(action: Action, key: ApiKey, request: Request) -> Response | Problem:
    try:
        with acting_as(Actor.key(key.id, client_address(request.scope))):
            return await action(key.workspace_id, request)
    except get_args(Refusal) as error:
        return problem_of(error)


def _log_change(action: str, key: ApiKey | Problem, request: Request, result: Response | Problem) -> None:
    """Logs only requests that change something, without floods of bad tokens, which are logged once. Reads are in the request
    metrics."""
    if request.method in {"GET", "HEAD"} or (isinstance(key, Problem) and key.code == _FLOOD):
        return
    known = key if isinstance(key, ApiKey) else None
    _log.info(
        "webhook.managed",
        action=action,
        endpoint_id=_endpoint_id(request),
        workspace_id=known and known.workspace_id,
        key_id=known and known.id,
        status=result.status,
        code=result.code if isinstance(result, Problem) else None,
    )


def _endpoint_id(request: Request) -> str | None:
    """Only what has the form of one: a path may hold anything, a card number too."""
    named = request.path_params.get("id", "")
    return named if ENDPOINT_ID.fullmatch(named) and not find(named) else None


def problem_of(error: Refusal) -> Problem:
    """The problem that the caller gets."""
    match error:
        case NotKnown():
            return webhooks.WEBHOOK_NOT_FOUND.problem("This workspace has no webhook of that id.")
        case NoDelivery():
            return webhooks.DELIVERY_NOT_FOUND.problem("This webhook has no delivery of that id.")
        case EndpointDisabled():
            return webhooks.WEBHOOK_DISABLED.problem('Enable it first: PATCH it with {"enabled": true}.')
        case TooManyEndpoints():
            return webhooks.TOO_MANY_WEBHOOKS.problem(str(error))
        case BadTarget():
            return invalid([Fault("/url", error.code, str(error))])
        case BadHeaders():
            return invalid(error.faults)
        case HeadersNeeded():
            return invalid(
                [
                    Fault(
                        "/headers",
                        "required",
                        "is required: it was sealed for the host before; send it again, or {} to remove it",
                    )
                ]
            )
        case UnknownAccount():
            return invalid([Fault("/integrationAccountIds", "invalid_value", str(error))])
        case TenancyUnavailable():
            return service.TENANCY_UNAVAILABLE.problem("Ask again in a moment.")
        case StoreUnavailable():
            return service.STORE_UNAVAILABLE.problem("Ask again in a moment.")
