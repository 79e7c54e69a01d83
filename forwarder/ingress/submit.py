"""A submission that was admitted: read the terms → validate → identify and seal → publish → respond. What is counted and logged of
it, and the response. What came before under its idempotency key is not published again, but given its receipt again."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, NamedTuple, assert_never

import structlog
from pydantic_core import from_json, to_json

from forwarder.http.fields import Wait, read_wait
from forwarder.http.messages import (
    JSON_BODY,
    NO_STORE,
    PROBLEM_JSON,
    BodyFault,
    HttpRequest,
    Response,
    envelope,
    problem_body,
    retry_after,
)
from forwarder.ingress.card_text import CardTextCheck
from forwarder.ingress.dry_run import DRY_RUN, DryRun, asks_for_dry_run, dry_run, rehearsed
from forwarder.ingress.duplicates import KeyHint, RecentSubmissions
from forwarder.ingress.idempotency import Attempt, IdempotencyCache, Receipt, receipt_of
from forwarder.ingress.losses import CallerWarning, Losses
from forwarder.ingress.message import NewSubmission, SubmissionBuilder, read_terms
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.problems import (
    LOG_UNAVAILABLE,
    OVERLOADED,
    STORE_UNAVAILABLE,
    UNSUPPORTED_MEDIA_TYPE,
    implausible,
    malformed_json,
    refusal,
    unread_body,
    validation_failed,
)
from forwarder.observability.metrics import DEFERRED, PUBLISH_SECONDS, submissions
from forwarder.process.loops import TimeSlice, yield_to_loop
from forwarder.reservation.outcome import Status
from forwarder.reservation.plausibility import Plausibility, plausibility
from forwarder.reservation.problems import endings
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.record import pending_record
from forwarder.reservation.request import MAX_BODY_BYTES, Operation
from forwarder.reservation.validation import MalformedJson, Reading, read_request
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.callers import Caller
from forwarder.topics.outcomes import DuplicateOf, OutcomeEvent
from forwarder.topics.port import LogUnavailable, Message

_SUBMISSIONS: Final = "/api/v1/vrs/submissions/"
_KEY_HELP: Final = (b"link", b'</docs#submitBookingEngineReservation>; rel="help"; title="Idempotency-Key"')
"""Where a caller who sends no Idempotency-Key reads what it does."""

_REPLAYED: Final = (b"idempotent-replayed", b"true")
_REJECTED: Final = endings.REJECTED.problem("The PMS gave no reason. Ask the property.")

_log = structlog.get_logger()


class SubmissionPublisher:
    """Publishes submissions to the log. No more than `max_in_flight` are not yet acknowledged, in however few requests they
    came."""

    def __init__(self, parts: IngressParts) -> None:
        self._publisher = parts.publisher
        self._requests_topic = parts.requests_topic
        self._idempotency = IdempotencyCache(parts.reader, parts.settings.max_keys_remembered)
        self._recent = RecentSubmissions(parts.reader, parts.settings.max_keys_remembered)
        self.hint = KeyHint()
        self._max_in_flight = parts.settings.max_in_flight
        self._clock = parts.clock
        self._in_flight = 0

    async def publish(self, submission: NewSubmission) -> Receipt | Problem:
        """Publish it, unless its idempotency key, or what it asks for, says that this was done before."""
        if not submission.keyed:
            return await self._publish_keyless(submission)
        try:
            found = await self._idempotency.look_up(submission)
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        if not isinstance(found, Attempt):
            return found
        with found:
            problem = await self._send((submission.message(found.accepted_at),))
            return problem or Receipt(submission.request_id, found.acknowledged())

    async def _publish_keyless(self, submission: NewSubmission) -> Receipt | Problem:
        earlier = self._recent.find(submission)
        known = None if earlier is None else await self._recent.decide(submission, earlier)
        if known is not None:
            return known
        problem = await self._send((submission.message(submission.accepted_at),))
        if problem is not None:
            return problem
        self._recent.remember(submission)
        return Receipt(submission.request_id, submission.accepted_at)

    async def publish_all(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem] | Problem:
        """What `publish` says to each of the account's `submissions`, in their order; or the problem that kept all of them
        from the log. Their keys are looked up by one statement, and what is new is published as one batch, no request id
        twice."""
        try:
            known = await self._idempotency.look_up_all(
                account_id, [submission for submission in submissions if submission.keyed]
            )
        except StoreUnavailable:
            return STORE_UNAVAILABLE
        with ExitStack() as attempts:
            for found in known:
                if isinstance(found, Attempt):
                    attempts.enter_context(found)
            keyless = await self._keyless(account_id, [each for each in submissions if not each.keyed])
            return await self._publish_new(submissions, iter(known), iter(keyless))

    async def _keyless(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem | None]:
        """What is known of those without a key that were sent before, or come twice in this bulk; None of those that are new."""
        found = [(each, earlier) for each in submissions if (earlier := self._recent.find(each)) is not None]
        decided = iter(await self._recent.decide_all(account_id, found)) if found else iter(())
        sent_before = {each.request_id: next(decided) for each, _ in found}
        first: dict[str, Receipt | Problem] = {}
        known: list[Receipt | Problem | None] = []
        for each in submissions:
            receipt = sent_before.get(each.request_id)
            if receipt is None and each.natural is not None:
                receipt = first.get(each.natural.key)
                first.setdefault(each.natural.key, Receipt(each.request_id, each.accepted_at, duplicate=True))
            known.append(receipt)
        return known

    async def _publish_new(
        self,
        submissions: Sequence[NewSubmission],
        known: Iterator[Receipt | Problem | Attempt],
        keyless: Iterator[Receipt | Problem | None],
    ) -> Sequence[Receipt | Problem] | Problem:
        """`known`: what is known of those that have a key, in their order; `keyless`: of those that have none."""
        results: list[Receipt | Problem | Attempt | None] = []
        messages: dict[str, Message] = {}
        time_slice = TimeSlice()
        for submission in submissions:
            found = next(known) if submission.keyed else next(keyless)
            results.append(found)
            if found is None or isinstance(found, Attempt):
                accepted_at = submission.accepted_at if found is None else found.accepted_at
                message = messages.setdefault(submission.request_id, submission.message(accepted_at))
                if time_slice.used_up(len(message.value)):
                    await yield_to_loop()
        problem = await self._send([*messages.values()]) if messages else None
        return problem or [self._receipt(*each) for each in zip(submissions, results, strict=True)]

    def _receipt(self, submission: NewSubmission, found: Receipt | Problem | Attempt | None) -> Receipt | Problem:
        """Of one of a bulk that is safe now."""
        if found is None:
            self._recent.remember(submission)
            return Receipt(submission.request_id, submission.accepted_at)
        return Receipt(submission.request_id, found.acknowledged()) if isinstance(found, Attempt) else found

    async def _send(self, messages: Sequence[Message]) -> Problem | None:
        if self._in_flight + len(messages) > self._max_in_flight:
            return OVERLOADED
        self._in_flight += len(messages)
        began = self._clock.monotonic()
        try:
            await self._publisher.publish(self._requests_topic, messages)
        except LogUnavailable:
            return LOG_UNAVAILABLE
        finally:
            self._in_flight -= len(messages)
            DEFERRED.observe(PUBLISH_SECONDS, self._clock.monotonic() - began)
        return None


class Accepted(NamedTuple):
    """A submission that is safe on the log, its receipt, and how long its caller is ready to wait."""

    submission: NewSubmission
    receipt: Receipt
    wait: Wait


class SubmitEndpoint:
    """The endpoint of one operation. Expected failures come back as problems; none is raised but `ClientDisconnect`, before
    anything was published."""

    parameters: Collection[str] = frozenset({DRY_RUN})

    def __init__(self, operation: Operation, parts: IngressParts, publisher: SubmissionPublisher) -> None:
        self._operation = operation
        self._parts = parts
        self._card_text = CardTextCheck(parts.settings.card_numbers_in_text)
        self._builder = SubmissionBuilder(parts.ids, parts.sealer, self._card_text)
        self._losses = Losses(parts.preview)
        self._publisher = publisher
        self._default_wait = Wait(parts.settings.wait_seconds if operation == "general" else 0)
        self._log = _log.bind()

    async def respond(self, caller: Caller, request: HttpRequest) -> Response:
        if request.scope["query_string"] and (trying := asks_for_dry_run(request)):
            return self.refuse(trying, caller) if isinstance(trying, Problem) else await self._try(caller, request)
        result = await self._accept(caller, request)
        return self.refuse(result, caller) if isinstance(result, Problem) else self._confirm(result, caller, request)

    async def _accept(self, caller: Caller, request: HttpRequest) -> Accepted | Problem:
        """Make the submission safe, and wait for its outcome where the caller does."""
        submission = await self._build(caller, request)
        if isinstance(submission, Problem):
            return submission
        wait = self._wait(request)
        if wait.seconds:
            receipt = await self._publish_and_wait(submission, wait, request)
        else:
            receipt = await self._publisher.publish(submission)
        return receipt if isinstance(receipt, Problem) else Accepted(submission, receipt, wait)

    async def _build(self, caller: Caller, request: HttpRequest) -> NewSubmission | Problem:
        """Apart from `_accept`, which then waits for the log: an unsealed card stays in memory no longer than it must."""
        terms = read_terms(request)
        if isinstance(terms, Problem):
            return terms
        now = self._parts.clock.now()
        check = plausibility(now, caller.account.skipped_checks)
        read = await self._read(request, check)
        if isinstance(read, Problem):
            return read
        reservation, unknown = read
        refused = implausible(check, reservation)
        built = self._builder.build(caller, self._operation, reservation, terms, now=now, refused=refused)
        if isinstance(built, Problem):
            return built
        warnings = self._losses.warnings(caller.account, reservation, unknown)
        return built._replace(warnings=warnings) if warnings else built

    async def _read(self, request: HttpRequest, check: Plausibility) -> Reading | Problem:
        """What the body asks for, right in its form."""
        if not request.is_sent_as(JSON_BODY):
            return UNSUPPORTED_MEDIA_TYPE
        body = await request.body(MAX_BODY_BYTES, self._parts.settings.body_seconds)
        if isinstance(body, BodyFault):
            return unread_body(body)
        try:
            read = read_request(self._operation, body, check)
        except MalformedJson as error:
            return malformed_json(str(error))
        return validation_failed(read) if isinstance(read, list) else read

    async def _publish_and_wait(self, submission: NewSubmission, wait: Wait, request: HttpRequest) -> Receipt | Problem:
        async with self._parts.outcomes.expecting(submission.request_id) as expected:
            receipt = await self._publisher.publish(submission)
            if expected is None or isinstance(receipt, Problem) or receipt.settled is not None:
                return receipt
            if receipt.request_id == submission.request_id:
                heard = await expected.within(self._left(wait, request), request.client_left)
                if not isinstance(heard, DuplicateOf):
                    return receipt._replace(settled=heard)
                receipt = receipt._replace(request_id=heard.request_id, duplicate=True)
        return await self._wait_for_original(submission.account_id, receipt, wait, request)

    async def _wait_for_original(self, account_id: str, receipt: Receipt, wait: Wait, request: HttpRequest) -> Receipt:
        """The receipt of the submission that was sent again, with its outcome as soon as it has one."""
        async with self._parts.outcomes.expecting(receipt.request_id) as expected:
            try:
                stored = await self._parts.reader.submission(account_id, receipt.request_id)
            except StoreUnavailable:
                return receipt
            if stored is not None:
                receipt = receipt_of(stored)._replace(duplicate=True, replayed=receipt.replayed)
            if expected is None or receipt.settled is not None:
                return receipt
            heard = await expected.within(self._left(wait, request), request.client_left)
            return receipt._replace(settled=None if isinstance(heard, DuplicateOf) else heard)

    def _left(self, wait: Wait, request: HttpRequest) -> float:
        return wait.seconds - (self._parts.clock.monotonic() - request.started)

    def _wait(self, request: HttpRequest) -> Wait:
        prefer = request.fields.get(b"prefer")
        if prefer is None:
            return self._default_wait
        return read_wait(prefer.decode("latin-1"), self._default_wait, self._parts.settings.max_wait_seconds)

    async def _try(self, caller: Caller, request: HttpRequest) -> Response:
        tried = await self._try_out(caller, request)
        if isinstance(tried, Problem):
            return self.refuse(tried, caller)
        DEFERRED.count(submissions(self._operation, "dry_run"))
        _log.info(
            "submission.tried",
            account_id=caller.account.id,
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            operation=self._operation,
            codes=[problem.code for problem in tried.refused],
        )
        return dry_run_response(tried)

    async def _try_out(self, caller: Caller, request: HttpRequest) -> DryRun | Problem:
        """What would come of the submission, were it accepted."""
        terms = read_terms(request)
        if isinstance(terms, Problem):
            return terms
        now = self._parts.clock.now()
        check = plausibility(now, caller.account.skipped_checks)
        read = await self._read(request, check)
        if isinstance(read, Problem):
            return read
        refused = implausible(check, read.request)
        tried = refused or dry_run(caller.account, read, now, self._losses, self._card_text)
        return tried if isinstance(tried, Problem) else await rehearsed(tried, self._parts.preview())

    def _confirm(self, accepted: Accepted, caller: Caller, request: HttpRequest) -> Response:
        DEFERRED.count(submissions(self._operation, "accepted"))
        receipt, submission = accepted.receipt, accepted.submission
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
            card=submission.card is not None,
            deadline_seconds=submission.deadline_seconds,
            wait_seconds=accepted.wait.seconds,
            seconds=round(self._parts.clock.monotonic() - request.started, 6),
        )
        # The contract promises a record to callers of the general operation. The other's, who are answered at once, would only
        # wait longer for it.
        shown = submission.reservation if self._operation == "general" else None
        retry_seconds = self._parts.settings.retry_after_seconds
        response = receipt_response(receipt, accepted.wait, request.origin, retry_seconds, shown)
        if submission.warnings:
            response = with_warnings(response, submission.warnings)
        if not submission.keyed and self._publisher.hint.is_due(caller.key_id):
            response = replace(response, headers=(*response.headers, _KEY_HELP))
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
        return refusal(problem, self._parts.settings.retry_after_seconds)


def dry_run_response(tried: DryRun) -> Response:
    """The response to who tried a submission out."""
    return Response(200, envelope(tried.success, to_json(tried.as_json())), (NO_STORE,))


def receipt_response(
    receipt: Receipt, wait: Wait, origin: str, retry_after_seconds: int, reservation: bytes | None = None
) -> Response:
    """The response on the caller's terms: to one who waits, the outcome where there is one; else where to follow it, with the
    record of `reservation` as far as it is known, where that is given."""
    applied = ((b"preference-applied", wait.applied.encode()),) if wait.applied else ()
    if receipt.duplicate:
        applied = (*applied, (b"duplicate-of", receipt.request_id.encode()))
    if receipt.replayed:
        applied = (*applied, _REPLAYED)
    if not wait.seconds or receipt.settled is None:
        return _accepted(receipt, origin, reservation, retry_after(retry_after_seconds), *applied)
    match receipt.settled.status:
        case Status.CONFIRMED | Status.CANCELLED:
            return _created(receipt.settled, *applied)
        case Status.REJECTED:
            return _rejected(receipt.settled, *applied)
        case Status.PENDING | Status.FAILED | Status.IN_DOUBT:
            return _accepted(receipt, origin, reservation, retry_after(retry_after_seconds), *applied)
        case _:
            assert_never(receipt.settled.status)


def with_warnings(response: Response, warnings: Sequence[CallerWarning]) -> Response:
    """The same, with what its caller is warned of beside the answer. A refusal says what is wrong by itself."""
    if response.status >= 300:  # noqa: PLR2004 - HTTP's successes
        return response
    shown = to_json([warning.as_json() for warning in warnings])
    return replace(response, body=b'%b,"warnings":%b}' % (response.body[:-1], shown))


def receipt_json(receipt: Receipt, origin: str) -> dict[str, Any]:
    """The receipt as a caller reads it who does not wait."""
    # In the header a path, which stays true behind any proxy; here the address to paste.
    shown: dict[str, Any] = {
        "requestId": receipt.request_id,
        "status": receipt.status,
        "acceptedAt": receipt.accepted_at,
        "statusUrl": f"{origin}{_SUBMISSIONS}{receipt.request_id}",
    }
    return {**shown, "duplicate": True} if receipt.duplicate else shown


def _accepted(receipt: Receipt, origin: str, reservation: bytes | None, *headers: tuple[bytes, bytes]) -> Response:
    shown = receipt_json(receipt, origin)
    if reservation is not None:
        shown = _known_record(receipt, reservation) | shown
    location = (b"location", f"{_SUBMISSIONS}{receipt.request_id}".encode())
    return Response(202, envelope(receipt.status.success, to_json(shown)), (location, NO_STORE, *headers))


def _known_record(receipt: Receipt, reservation: bytes) -> dict[str, Any]:
    if receipt.settled is None:
        return pending_record(from_json(reservation), receipt.request_id, receipt.accepted_at)
    record: dict[str, Any] = from_json(receipt.settled.record)
    return record


def _created(settled: OutcomeEvent, *headers: tuple[bytes, bytes]) -> Response:
    location = (b"location", b"/api/v1/vrs/reservations/%d" % settled.reservation_id)
    return Response(201, envelope(settled.status.success, settled.record), (location, NO_STORE, *headers))


def _rejected(settled: OutcomeEvent, *headers: tuple[bytes, bytes]) -> Response:
    problem = settled.problem or _REJECTED.as_json()
    return Response(problem["status"], problem_body(problem), (NO_STORE, *headers), PROBLEM_JSON)
