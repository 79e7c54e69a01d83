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
from forwarder.notifier.api.actions import ENDPOINT_ID, NoDelivery, WebhookActions
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
    hooks = WebhookActions(parts.webhooks)

    def route(path: str, name: str, action: Action, method: str = "GET", parameters: Collection[str] = ()) -> Route:
        return Route(path, _endpoint(parts, name, action, parameters), methods=[method])

    return [
        route(_PATH, "add", hooks.add, "POST"),
        route(_PATH, "list", hooks.page, parameters=PAGE_PARAMETERS),
        route(_ONE, "show", hooks.show),
        route(_ONE, "change", hooks.change, "PATCH"),
        route(_ONE, "remove", hooks.remove, "DELETE"),
        route(_ONE + "/test", "test", hooks.test, "POST"),
        route(_ONE + "/rotate", "rotate", hooks.rotate, "POST"),
        route(_DELIVERIES, "deliveries", hooks.deliveries, parameters=DELIVERY_PARAMETERS),
        route(_DELIVERY, "delivery", hooks.delivery),
        route(_DELIVERY + "/resend", "resend", hooks.resend, "POST"),
    ]


def _endpoint(
    parts: WebhookApiParts, name: str, action: Action, parameters: Collection[str]
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that runs `action` for the caller's workspace. It takes these query `parameters`."""

    async def endpoint(request: Request) -> Response:
        key = await _authenticate(parts.access, request)
        allowance: Allowance | None = None
        result: Response | Problem
        if isinstance(key, Problem):
            result = key
        else:
            allowance = parts.limits.take(key.id, key.limit, 1, (key.workspace_id, key.shared_limit))
            if (place := place_of(request.scope)) is not None and not place.claim(key.workspace_id):
                result = _OVERLOADED
            elif allowance is not None and not allowance.admitted:
                result = rate_limited(allowance)
            else:
                result = refuse_unknown(request.scope, parameters) or await _call(action, key, request)
        _log_change(name, key, request, result)
        if isinstance(result, Problem):
            closing = ((b"connection", b"close"),) if result.status in _UNREAD_BODY else ()
            result = problem_response(result, *closing, retry_after_seconds=parts.retry_after_seconds)
        return result if allowance is None else with_allowance(result, allowance)

    return endpoint


async def _authenticate(access: Access, request: Request) -> ApiKey | Problem:
    address = client_address(request.scope)
    try:
        key = await access.workspace_key(header_map(request.scope), address)
    except TenancyUnavailable as error:
        return problem_of(error)
    if isinstance(key, Problem):
        return key
    return LIVE_KEY_NEEDED if key.test else forbidden(key, _SCOPE, address) or key


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
