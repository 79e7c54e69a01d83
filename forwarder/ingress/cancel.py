"""An admitted cancellation: read → find its submission → publish, unless it is settled already → respond.

It is accepted as soon as its submission was, even before a worker has ingested that: the request id is proof enough. A worker that
ingests the cancellation first keeps it for the submission."""

import re
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

import structlog
from pydantic_core import to_json

from forwarder.http import messages
from forwarder.http.messages import JSON_BODY, NO_STORE, PROBLEM_JSON, BodyFault, HttpRequest, Response
from forwarder.http.parameters import Wait, read_wait
from forwarder.ingress import responses
from forwarder.ingress.message import IngressParts
from forwarder.ingress.publisher import RecentSubmissions
from forwarder.ingress.responses import CallerWarning, CardTextCheck
from forwarder.observability.metrics import PUBLISH_SECONDS, submissions
from forwarder.observability.tracing import TRACEPARENT, TRACESTATE, read_trace
from forwarder.oversight.audit import Actor, acting_as
from forwarder.process.shares import Shares
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import read_object
from forwarder.reservation.outcome import (
    CancellationBody,
    CancellationRequest,
    CancellationStatus,
    Status,
    not_made,
    not_supported,
)
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.reservation.submission import key_of
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.access import Caller
from forwarder.topics.codec import encode_cancellation
from forwarder.topics.outcomes import OutcomeEvent
from forwarder.topics.port import LogUnavailable, MessageTooLarge

_log = structlog.get_logger()

_NO_WAIT: Final = Wait(0)
_OVER: Final = frozenset({Status.CANCELLED, Status.REJECTED, Status.FAILED})


@dataclass(frozen=True, slots=True)
class Requested:
    """A cancellation that is safe on the log, or was requested before. `settled`: its result, if known."""

    request_id: str
    status: Status
    wait: Wait
    settled: OutcomeEvent | None = None


class CancelEndpoint:
    """The path names a submission or a reservation. Raises only `ClientDisconnect`, before anything was published."""

    parameters: Collection[str] = ()

    def __init__(self, parts: IngressParts, card_text: CardTextCheck, recent: RecentSubmissions) -> None:
        self._parts, self._recent, self._card_text = parts, recent, card_text
        self._in_flight = Shares(parts.settings.max_in_flight)

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        read = await self._read(request)
        if isinstance(read, Problem):
            return self.refuse(read, caller)
        reason, warnings = read
        prefer = request.headers.get("prefer")
        wait = _NO_WAIT if prefer is None else read_wait(prefer, _NO_WAIT, self._parts.settings.max_wait_seconds)
        try:
            requested = await self._accept(caller, request, reason, wait)
        except StoreUnavailable:
            requested = catalogue.STORE_UNAVAILABLE.problem(
                f"{responses.NOTHING_ACCEPTED}; what is to be cancelled twice is cancelled once."
            )
        if isinstance(requested, Problem):
            return self.refuse(requested, caller)
        response = self._confirm(requested, caller, request)
        return responses.with_warnings(response, warnings) if warnings else response

    async def _accept(
        self, caller: Caller, request: HttpRequest, reason: str | None, wait: Wait
    ) -> Requested | Problem:
        """Publishes the cancellation, and waits for its result if the caller does. Raises `StoreUnavailable`."""
        reader, given, revision = self._parts.reader, request.scope["path_params"]["id"], 0
        request_id = given if self._parts.ids.vouches(caller.account.id, given) else None
        if re.fullmatch(r"[1-9][0-9]{0,17}", given):
            stored = await reader.reservation(caller.account.id, int(given))
            request_id = None if stored is None else stored.request_id
        elif request_id is not None and (stored := await reader.submission(caller.account.id, given)) is not None:
            request_id = stored.request_id  # of a duplicate, the original's
        if request_id is None:
            return catalogue.SUBMISSION_NOT_FOUND.problem("This integration account has no submission of that id.")

        def is_result(event: OutcomeEvent) -> bool:
            return event.revision > revision and (event.status in _OVER or event.cancellation is not None)

        outcomes = self._parts.outcomes
        async with (
            outcomes.expecting(request_id, is_result, party=caller.workspace_id) if wait.seconds else nullcontext()
        ) as expected:
            stored = await reader.submission(caller.account.id, request_id)
            revision = 0 if stored is None else stored.revision
            asked = Requested(request_id, Status.PENDING, wait)
            requested = await self._ask(caller, request, asked, reason, stored)
            request.leave_place()
            if expected is None or isinstance(requested, Problem) or requested.settled is not None:
                return requested
            left = wait.seconds - (self._parts.clock.monotonic() - request.started)
            heard = await expected.within(left, request.client_left)
            return replace(requested, settled=heard if isinstance(heard, OutcomeEvent) else None)

    async def _read(self, request: HttpRequest) -> tuple[str | None, Sequence[CallerWarning]] | Problem:
        body = await request.body(MAX_BODY_BYTES, self._parts.settings.body_seconds)
        if isinstance(body, BodyFault):
            return responses.UNREAD_BODY[body]
        if not body:
            return None, ()
        if not request.is_sent_as(JSON_BODY):
            return request.with_media_type(responses.UNSUPPORTED_MEDIA_TYPE)
        try:
            cancellation = read_object(CancellationBody, body)
        except MalformedJson as error:
            return responses.malformed_json(str(error))
        if isinstance(cancellation, list):
            return responses.validation_failed(cancellation)
        reason = cancellation.reason
        return (None, ()) if reason is None else self._card_text.check_text(reason, "/reason")

    async def _ask(
        self,
        caller: Caller,
        request: HttpRequest,
        asked: Requested,
        reason: str | None,
        stored: StoredSubmission | None,
    ) -> Requested | Problem:
        """Publishes it, unless the submission is over, or an earlier request for it is open or succeeded."""
        account, parts = caller.account, self._parts
        # To the submission's partition: the worker that reads it holds the submission's row.
        place, partition, revision, is_open = asked.request_id, None, 0, False
        if stored is not None:
            revision, place, partition = stored.revision, stored.property_id, stored.partition
            is_open = stored.cancellation is not None and stored.cancellation.status is CancellationStatus.REQUESTED
            asked = replace(asked, request_id=stored.request_id, status=stored.status)
            if stored.status is Status.CANCELLED:
                record = stored.record.encode()
                settled = OutcomeEvent(stored.status, stored.id, record, stored.problem, revision=revision)
                return replace(asked, settled=settled)
            if stored.status in _OVER:
                return not_made(stored.request_id, stored.status)
        request_id = asked.request_id
        if not parts.can_cancel(account):
            return not_supported(request_id, account.kind)
        if is_open:
            return asked
        trace = read_trace(request.headers.get(TRACEPARENT), request.headers.get(TRACESTATE))
        partition = parts.ids.partition(account.id, request_id) if partition is None else partition
        key, now = key_of(account.id, place), parts.clock.now()
        cancellation = CancellationRequest(request_id, account.id, key, now, reason, revision, trace, partition)
        if not self._in_flight.take(caller.workspace_id):
            return responses.OVERLOADED
        try:
            with acting_as(Actor("key", caller.key_id, messages.client_address(request.scope))):
                async with parts.audit.request(
                    "submission.cancel", workspace=caller.workspace_id, target=request_id, account=account.id
                ):
                    with PUBLISH_SECONDS.time():
                        message = parts.signer.signed(encode_cancellation(cancellation))
                        await parts.publisher.publish(parts.requests_topic, (message,))
        except LogUnavailable:
            return responses.LOG_UNAVAILABLE
        except MessageTooLarge as error:
            return responses.too_large_for_log(error.sizes[0], error.limit)
        finally:
            self._in_flight.give_back(caller.workspace_id)
        self._recent.note_cancelled(request_id, cancellation.requested_at)
        return asked

    def _confirm(self, requested: Requested, caller: Caller, request: HttpRequest) -> Response:
        submissions("cancel", "accepted").inc()
        settled = requested.settled
        _log.info(
            "cancellation.accepted",
            request_id=requested.request_id,
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            status=(requested.status if settled is None else settled.status).value,
            wait_seconds=requested.wait.seconds,
            seconds=round(self._parts.clock.monotonic() - request.started, 6),
        )
        settings = self._parts.settings
        return cancellation_response(requested, settings.public_url or request.origin, settings.retry_after_seconds)

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        submissions("cancel", problem.code).inc()
        _log.info(
            "cancellation.refused",
            request_id=problem.request_id,
            account_id=caller and caller.account.id,
            key_id=caller and caller.key_id,
            code=problem.code,
        )
        return responses.refusal(problem, self._parts.settings.retry_after_seconds)


def cancellation_response(requested: Requested, origin: str, retry_after_seconds: int) -> Response:
    """The result, if known; otherwise 202 with the address to poll."""
    wait, settled = requested.wait, requested.settled
    headers = ((b"preference-applied", wait.applied.encode()),) if wait.applied else ()
    again = messages.retry_after(retry_after_seconds)
    if settled is None:
        path = f"/api/v1/vrs/submissions/{requested.request_id}"
        data = {"requestId": requested.request_id, "status": requested.status.value}
        data |= {"cancellation": CancellationStatus.REQUESTED.value, "statusUrl": origin + path}
        body = messages.envelope(requested.status.success, to_json(data))
        return Response(202, body, ((b"location", path.encode()), again, *headers))
    match settled.status:
        case Status.CANCELLED:
            location = (b"location", b"/api/v1/vrs/reservations/%d" % settled.reservation_id)
            body = messages.envelope(settled.status.success, settled.record)
            return Response(200, body, (location, NO_STORE, *headers))
        case Status.REJECTED | Status.FAILED:
            return messages.problem_response(not_made(requested.request_id, settled.status), NO_STORE, *headers)
        case _:  # it came to nothing
            problem = (settled.cancellation or {})["problem"]
            if problem["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
                headers = (again, *headers)
            return Response(problem["status"], messages.problem_body(problem), (NO_STORE, *headers), PROBLEM_JSON)
