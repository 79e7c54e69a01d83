"""From a call that manages webhooks to what it asks for, or to the problem that refuses it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from forwarder.http.paging import invalid_query, read_cursor, read_limit
from forwarder.http.request import JSON, BodyFault, HttpRequest
from forwarder.notifier.api.bodies import Body, read_body
from forwarder.reservation.problem import Fault, Problem
from forwarder.reservation.problems import requests
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.reservation.validation import MalformedJson
from forwarder.store.webhooks.port import DeliveryStatus

_BODY_SECONDS: Final = 10.0
_NOTHING_DONE: Final = "Nothing was changed"

_UNSUPPORTED_MEDIA_TYPE: Final = requests.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body must be JSON in UTF-8, not compressed, sent with Content-Type: application/json."
)
_BODY_TOO_LARGE: Final = requests.BODY_TOO_LARGE.problem(f"The body must have at most {MAX_BODY_BYTES} bytes.")
_BODY_TIMED_OUT: Final = requests.BODY_TIMED_OUT.problem(f"{_NOTHING_DONE}.")


@dataclass(frozen=True, slots=True)
class PageQuery:
    """A page of so many items; of deliveries those of one status, where one is given."""

    cursor: int
    limit: int
    status: DeliveryStatus | None = None


async def read_request_body(request: Request, model: type[Body], *, optional: bool = False) -> Body | Problem:
    """The body of the call, with nothing wrong in it. Where it is `optional`, none at all says the same as an empty object. Raises
    `ClientDisconnect`."""
    received = HttpRequest(request.scope, request.receive)
    content = await received.body(MAX_BODY_BYTES, _BODY_SECONDS)
    if isinstance(content, BodyFault):
        return _BODY_TOO_LARGE if content is BodyFault.TOO_LARGE else _BODY_TIMED_OUT
    if optional and not content:
        content = b"{}"
    elif not received.is_sent_as(JSON):
        return _UNSUPPORTED_MEDIA_TYPE
    try:
        body = read_body(model, content)
    except MalformedJson as error:
        return requests.MALFORMED_JSON.problem(f"The body is not one JSON document: {error}.")
    return invalid(body) if isinstance(body, list) else body


def invalid(faults: Sequence[Fault]) -> Problem:
    """Every fault in one answer."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    detail = f"The request has {count}; errors names each by JSON Pointer."
    return requests.VALIDATION_FAILED.problem(detail, faults=tuple(faults))


def read_page_query(request: Request, *, of_status: bool = False) -> PageQuery | Problem:
    """The page that the query parameters ask for. Parameters that mean nothing here are left alone."""
    parameters = {name: request.query_params.getlist(name) for name in request.query_params}
    limit, cursor = read_limit(parameters), read_cursor(parameters)
    status = _status(parameters.get("status", ())) if of_status else None
    if isinstance(limit, Fault) or isinstance(cursor, Fault) or isinstance(status, Fault):
        return invalid_query([fault for fault in (limit, cursor, status) if isinstance(fault, Fault)])
    return PageQuery(cursor, limit, status)


def _status(given: Sequence[str]) -> DeliveryStatus | Fault | None:
    wanted = set(given)
    if not wanted:
        return None
    if len(wanted) > 1:
        return Fault("/status", "contradictory", "is given more than once, with different values")
    if not wanted <= set(DeliveryStatus):
        return Fault("/status", "invalid_value", f"must be one of {', '.join(DeliveryStatus)}")
    return DeliveryStatus(wanted.pop())
