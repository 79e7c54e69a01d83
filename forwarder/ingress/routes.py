"""The ingress over HTTP: its addresses, the guard of each (authentication, admission, the rate limit of the key), and the main
flow.

An admitted submission: read the terms → validate → identify and seal → publish → respond; its metrics and log event. A repeat under
the same idempotency key gets the first one's receipt instead of being published again."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

import structlog
from pydantic_core import to_json
from starlette import types
from starlette.routing import Route

from forwarder.http import messages
from forwarder.http.messages import JSON_BODY, NO_STORE, BodyFault, HttpRequest, Response
from forwarder.http.parameters import Wait, read_wait, refuse_unknown
from forwarder.ingress import message, responses
from forwarder.ingress.bulk import BulkEndpoint
from forwarder.ingress.cancel import CancelEndpoint
from forwarder.ingress.message import IngressParts, NewSubmission, SubmissionBuilder
from forwarder.ingress.publisher import SubmissionPublisher
from forwarder.ingress.responses import CardTextCheck, Losses, Receipt, receipt_of
from forwarder.observability.logging import tells_usual
from forwarder.observability.metrics import DEFERRED, submissions
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import MAX_BULK_BYTES, Plausibility, Reading, plausibility, read_request
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import MAX_BODY_BYTES, Operation
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.access import Caller, forbidden, rate_limited, with_allowance
from forwarder.tenancy.port import Scope, TenancyUnavailable
from forwarder.topics.outcomes import ConflictingBody, DuplicateOf, OutcomeEvent

_USUAL = frozenset({Status.PENDING, Status.CONFIRMED})
_log = structlog.get_logger()


class SubmitEndpoint:
    """One operation. Returns expected failures as problems; raises only `ClientDisconnect`, before anything was published."""

    parameters: Collection[str] = frozenset({message.DRY_RUN})

    def __init__(
        self, operation: Operation, parts: IngressParts, builder: SubmissionBuilder, publisher: SubmissionPublisher
    ) -> None:
        self._operation, self._parts, self._builder, self._publisher = operation, parts, builder, publisher
        self._default_wait = Wait(parts.settings.wait_seconds if operation == "general" else 0)
        self._log = _log.bind()

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        trying = message.asks_for_dry_run(request)
        if isinstance(trying, Problem):
            return self.refuse(trying, caller)
        result = await (self._try_out if trying else self._accept)(caller, request)
        return self.refuse(result, caller) if isinstance(result, Problem) else result

    async def _accept(self, caller: Caller, request: HttpRequest) -> Response | Problem:
        read = await self._read(caller, request)
        if isinstance(read, Problem):
            return read
        submission = self._builder.build(caller, self._operation, *read)
        del read  # an unsealed card stays in memory no longer than that
        if isinstance(submission, Problem):
            return submission
        wait, prefer = self._default_wait, request.fields.get(b"prefer")
        if prefer is not None:
            wait = read_wait(prefer.decode("latin-1"), wait, self._parts.settings.max_wait_seconds)
        if wait.seconds:
            receipt = await self._publish_and_wait(submission, wait, request)
        else:
            receipt = await self._publisher.publish(submission)
        return receipt if isinstance(receipt, Problem) else self._confirm(submission, receipt, wait, caller, request)

    async def _read(
        self, caller: Caller, request: HttpRequest
    ) -> tuple[Reading, message.Terms, Plausibility, datetime] | Problem:
        """The validated body, the terms, the checks of its values, and the moment that they are for."""
        terms = message.read_terms(request)
        if isinstance(terms, Problem):
            return terms
        if not request.is_sent_as(JSON_BODY):
            return request.with_media_type(responses.UNSUPPORTED_MEDIA_TYPE)
        body = await request.body(MAX_BODY_BYTES, self._parts.settings.body_seconds)
        if isinstance(body, BodyFault):
            return responses.UNREAD_BODY[body]
        now = self._parts.clock.now()
        check = plausibility(now, caller.account.skipped_checks)
        try:
            read = read_request(self._operation, body, check)
        except MalformedJson as error:
            return responses.malformed_json(str(error))
        return responses.validation_failed(read) if isinstance(read, list) else (read, terms, check, now)

    async def _publish_and_wait(self, submission: NewSubmission, wait: Wait, request: HttpRequest) -> Receipt | Problem:
        own, outcomes = submission.request_id, self._parts.outcomes
        party, size = submission.workspace_id, len(submission.reservation)
        async with outcomes.expecting(own, party=party, size=size, fingerprint=submission.fingerprint) as expected:
            receipt = await self._publisher.publish(submission)
            request.leave_place()
            if expected is None or isinstance(receipt, Problem) or receipt.settled is not None:
                return receipt
            if receipt.request_id == own:
                heard = await expected.within(self._left(wait, request), request.client_left)
                if isinstance(heard, ConflictingBody):
                    return responses.key_reused(own)
                if not isinstance(heard, DuplicateOf):
                    similar = receipt.similar_to or (() if heard is None else heard.similar_to)
                    receipt = receipt._replace(settled=heard, similar_to=similar)
                    stored = None
                    if heard is None or submission.keyed:
                        with suppress(StoreUnavailable):
                            stored = await self._parts.reader.submission(submission.account_id, own)
                    if stored is None:
                        return receipt
                    # The outcome that was heard may be that of another body under its key.
                    if submission.keyed and stored.fingerprint != submission.fingerprint:
                        return responses.key_reused(own)
                    found = receipt_of(stored)  # the record has the reservation's id
                    return receipt if heard else receipt._replace(settled=found.settled, record=found.record)
                receipt = receipt._replace(request_id=heard.request_id, duplicate=True)
        return await self._wait_for_original(submission, receipt, wait, request)

    async def _wait_for_original(
        self, submission: NewSubmission, receipt: Receipt, wait: Wait, request: HttpRequest
    ) -> Receipt:
        """The receipt of the submission that was sent again, with its outcome. One that repeats yet another is followed."""
        followed = {submission.request_id}
        outcomes, party, size = self._parts.outcomes, submission.workspace_id, len(submission.reservation)
        while receipt.request_id not in followed:
            followed.add(receipt.request_id)
            async with outcomes.expecting(receipt.request_id, party=party, size=size) as expected:
                try:
                    stored = await self._parts.reader.submission(submission.account_id, receipt.request_id)
                except StoreUnavailable:
                    return receipt
                if stored is not None:
                    changed = receipt.changed or stored.fingerprint != submission.fingerprint
                    found = receipt_of(stored)._replace(duplicate=True, replayed=receipt.replayed, changed=changed)
                    moved, receipt = found.request_id != receipt.request_id, found
                    if moved and receipt.settled is None:
                        continue
                if expected is None or receipt.settled is not None:
                    return receipt
                heard = await expected.within(self._left(wait, request), request.client_left)
                if not isinstance(heard, DuplicateOf):
                    return receipt._replace(settled=heard if isinstance(heard, OutcomeEvent) else None)
                receipt = receipt._replace(request_id=heard.request_id)
        return receipt._replace(duplicate=receipt.request_id != submission.request_id)

    def _left(self, wait: Wait, request: HttpRequest) -> float:
        return wait.seconds - (self._parts.clock.monotonic() - request.started)

    async def _try_out(self, caller: Caller, request: HttpRequest) -> Response | Problem:
        read = await self._read(caller, request)
        if isinstance(read, Problem):
            return read
        reading, _, check, now = read
        tried = await message.dry_run(self._builder, self._parts.preview(), caller.account, reading, check, now)
        if isinstance(tried, Problem):
            return tried
        DEFERRED.count(submissions(self._operation, "dry_run"))
        _log.info(
            "submission.tried",
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            operation=self._operation,
            codes=[problem.code for problem in tried.refused],
        )
        return Response(200, messages.envelope(not tried.refused, to_json(tried.as_json())), (NO_STORE,))

    def _confirm(
        self, submission: NewSubmission, receipt: Receipt, wait: Wait, caller: Caller, request: HttpRequest
    ) -> Response:
        DEFERRED.count(submissions(self._operation, "accepted"))
        odd = receipt.duplicate or receipt.replayed or receipt.similar_to or submission.warnings
        if odd or receipt.status not in _USUAL or tells_usual(receipt.request_id):
            self._log.info(
                "submission.accepted",
                request_id=receipt.request_id,
                account_id=submission.account_id,
                workspace_id=submission.workspace_id,
                key_id=caller.key_id,
                operation=self._operation,
                status=receipt.status,
                keyed=submission.keyed,
                duplicate=receipt.duplicate,
                similar=len(receipt.similar_to),
                card=submission.card is not None,
                deadline_seconds=submission.deadline_seconds,
                wait_seconds=wait.seconds,
                seconds=round(self._parts.clock.monotonic() - request.started, 6),
            )
        # The contract promises a record only to callers of the general operation. Callers of the other one are answered at once,
        # and building it would only delay that.
        shown = submission.reservation if self._operation == "general" else None
        origin = self._parts.settings.public_url or request.origin
        response = responses.receipt_response(receipt, wait, origin, self._parts.settings.retry_after_seconds, shown)
        if warnings := (*submission.warnings, *responses.receipt_warnings(receipt)):
            response = responses.with_warnings(response, warnings)
        if not submission.keyed and self._publisher.key_help_is_due(caller.key_id):
            # Points a caller who sends no Idempotency-Key to its documentation.
            help_link = b'</docs#submitBookingEngineReservation>; rel="help"; title="Idempotency-Key"'
            response = replace(response, headers=(*response.headers, (b"link", help_link)))
        return response

    def refuse(self, problem: Problem, caller: Caller | None) -> Response:
        DEFERRED.count(submissions(self._operation, problem.code))
        _log.info(
            "submission.refused",
            request_id=problem.request_id,
            account_id=caller and caller.account.id,
            key_id=caller and caller.key_id,
            operation=self._operation,
            code=problem.code,
            faults=[(fault.pointer, fault.code) for fault in problem.faults],
        )
        return responses.refusal(problem, self._parts.settings.retry_after_seconds)


Endpoint = SubmitEndpoint | BulkEndpoint | CancelEndpoint


class Guarded:
    """Guards `endpoint`, for keys that have `scope`. Unless `limited`, the endpoint applies the limits of keys itself."""

    def __init__(self, parts: IngressParts, endpoint: Endpoint, scope: Scope, *, limited: bool = True) -> None:
        self._parts, self._endpoint, self._scope, self._limited = parts, endpoint, scope, limited

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        await (await self.respond(scope, receive))(scope, receive, send)

    async def respond(self, scope: types.Scope, receive: types.Receive) -> Response:
        """The response of the endpoint, or the refusal that keeps the request from it."""
        endpoint = self._endpoint
        request = HttpRequest(scope, receive, self._parts.clock.monotonic())
        caller = await self._authenticate(request)
        if isinstance(caller, Problem):
            # `BadTokens` logs a flood of unknown tokens once; do not log each request.
            is_flood = caller.code == catalogue.TOO_MANY_BAD_TOKENS.code
            return messages.problem_response(caller) if is_flood else endpoint.refuse(caller, None)
        # A place counted for the caller's workspace; converts the one that the application took for the address, if any.
        place: messages.RequestShare | None = scope.get(messages.PLACE)
        if place is None:
            place = scope[messages.PLACE] = self._parts.admission.enter(caller.workspace_id)
        elif not place.claim(caller.workspace_id):
            place = None
        if place is None:
            return endpoint.refuse(responses.OVERLOADED, caller)
        try:
            refused = None
            if caller.networks or self._scope not in caller.scopes:
                refused = forbidden(caller, self._scope, messages.client_address(scope))
            if refused is None and scope["query_string"]:
                refused = refuse_unknown(scope, endpoint.parameters)
            if refused is not None:
                return endpoint.refuse(refused, caller)
            allowance = None
            if self._limited:
                shared = caller.workspace_id, caller.shared_limit
                allowance = self._parts.limits.take(caller.key_id, caller.limit, 1, shared)
            if allowance is not None and not allowance.admitted:
                return with_allowance(endpoint.refuse(rate_limited(allowance), caller), allowance)
            response = await endpoint.respond(caller, request)
            return response if allowance is None else with_allowance(response, allowance)
        finally:
            place.leave()

    async def _authenticate(self, request: HttpRequest) -> Caller | Problem:
        """The caller, with the integration account. Until it is found, the request counts against its address."""
        known = self._parts.access.recent(request.fields)
        if known is not None and (self._parts.settings.test_mode or not known.account.test):
            return known
        address, place = messages.client_address(request.scope), None
        if messages.PLACE not in request.scope and (place := self._parts.admission.enter_unknown(address)) is None:
            return responses.OVERLOADED
        try:
            caller = await self._parts.access.caller(request.fields, address)
        except TenancyUnavailable:
            return catalogue.TENANCY_UNAVAILABLE.problem(f"{responses.NOTHING_ACCEPTED}.")
        finally:
            if place is not None:
                place.leave()
        if isinstance(caller, Caller) and caller.account.test and not self._parts.settings.test_mode:
            return catalogue.TEST_MODE_UNAVAILABLE.problem(
                "The API key is a test key, and this deployment has no simulator for it. Nothing was accepted."
            )
        return caller


def ingress_routes(parts: IngressParts) -> messages.Routes:
    """Both operations, bulks of them, and cancellation. They share the bounds on what is under way, and a memory of recent keys."""
    publisher = SubmissionPublisher(parts)
    card_text = CardTextCheck(parts.settings.card_numbers_in_text)
    partition = partial(parts.publisher.partition, parts.requests_topic)
    builder = SubmissionBuilder(parts.ids, parts.sealer, Losses(parts.preview), card_text, partition)
    # Longer than a workspace's share, a bulk would never be admitted.
    bulk = BulkEndpoint(parts, builder, publisher, max_bytes=min(MAX_BULK_BYTES, parts.admission.bodies.largest))
    endpoints = {
        "/booking-engine": Guarded(parts, SubmitEndpoint("booking-engine", parts, builder, publisher), "submit"),
        "": Guarded(parts, SubmitEndpoint("general", parts, builder, publisher), "submit"),
        "/bulk": Guarded(parts, bulk, "submit", limited=False),
        "/{id}/cancel": Guarded(parts, CancelEndpoint(parts, card_text, publisher.recent), "cancel"),
    }
    return [Route(f"/api/v1/vrs/reservations{path}", each, methods=["POST"]) for path, each in endpoints.items()]
