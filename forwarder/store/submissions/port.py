"""The values that the worker, operators and the store exchange: arriving submissions, leased work, outcomes and their events; and
the exceptions that `store.database` translates drivers' errors into. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from forwarder.process.clock import iso
from forwarder.reservation.evidence import NOTHING_SENT, Evidence
from forwarder.reservation.fast import value
from forwarder.reservation.outcome import (
    FAILURE_CLASS,
    AnyOutcome,
    Cancellation,
    CancellationRequest,
    Confirmed,
    Status,
    cancellation_status,
    describe,
)
from forwarder.reservation.problems import Problem
from forwarder.reservation.record import (
    MAX_DETAIL,
    MAX_ID,
    MAX_REASON,
    MAX_RECORD_BYTES,
    ResultEvent,
    SubmissionState,
    bounded,
    compose_record,
    cut_text,
    fits,
    fitting_record,
    record_id_of,
    result_data,
)
from forwarder.reservation.request import SealedCard
from forwarder.reservation.submission import Submission


class StoreUnavailable(Exception):
    """The store could not be reached or did not answer in time. The call was carried out completely or not at all."""


class Unstorable(ValueError):
    """The database rejects the values: no row was changed. Expected only where foreign content is ingested."""


UNCHECKED: Final = "the database was restarted, or is another one, and has not been checked yet"
UNKNOWN: Final = "{}"  # the target of a push whose worker recorded none: it cannot be looked up afterwards


@value(frozen=True, slots=True)
class Attempt:
    """One attempt: its `action` (`create`, `find`, `cancel`), `outcome` (`confirmed`, `rejected`, `deferred`, `in_doubt`, `absent`,
    `cancelled`), and the `reason` and `detail` from the PMS or the worker."""

    number: int
    action: str
    started_at: str
    duration_ms: int
    outcome: str
    reason: str | None = None
    detail: str | None = None


@value(frozen=True, slots=True)
class CardKey:
    """The keys of a row's card, each wrapped by the secret `secret_id`: of the security code, None if there is none or it was
    destroyed, and of the rest. Not needed from `expires_at` on. `sealing_key`: the card is still sealed to the topic's key of that
    id, and has no keys of its own yet; `secret_id` and `number_key` are empty then."""

    request_id: str
    secret_id: str
    number_key: str
    code_key: str | None
    expires_at: datetime
    sealing_key: str | None = None


@value(frozen=True, slots=True)
class KeptCard:
    """A row's stored card, with the fields needed to reseal it."""

    request_id: str
    account_id: str
    card: SealedCard
    expires_at: datetime


@value(frozen=True, slots=True)
class Arrival:
    """A submission as the worker ingests it. `partition`, `offset`, `timestamp_ms` (UTC, since 1970) and `size` (bytes; 0 if not
    counted): of its message on the log. `held`: the worker has room for it and leases it at once; otherwise it waits in the store,
    due at once. `replay_of`: it replays a dead letter, of the failure with that revision. `request`: the JSON text of its
    reservation, if known. `target`: as in `Work`. `card_key`: kept with the row, if it is new. `record_ids_taken`: how many of its
    candidate record ids others have."""

    submission: Submission
    partition: int
    deadline_at: datetime
    held: bool
    offset: int = 0
    timestamp_ms: int = 0
    replay_of: int | None = None
    size: int = 0
    request: bytes | None = None
    target: str | None = UNKNOWN
    card_key: CardKey | None = None
    record_ids_taken: int = 0

    @property
    def record_id(self) -> int:
        return record_id_of(self.submission.request_id, taken=self.record_ids_taken)


@dataclass(frozen=True, slots=True)
class CancellationArrival:
    """A cancellation as the worker ingests it. `deadline_at`: until when the PMS is asked for it, if it can be asked now."""

    request: CancellationRequest
    deadline_at: datetime


@dataclass(frozen=True, slots=True)
class NotedOn:
    """The row that a cancellation is noted on: its submission, its partition, and the worker that holds it, if one does."""

    request_id: str
    partition: int
    held_by: str | None


@dataclass(frozen=True, slots=True)
class NotedCancellation:
    """The cancellation noted on a submission: when it was requested (ISO 8601), and why."""

    requested_at: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PmsReservation:
    """The reservation that the PMS made for a submission, and its record of section 2.5."""

    pms_reservation_id: str
    record: Mapping[str, Any]


@value(frozen=True, slots=True)
class Work:
    """A submission to be worked on, leased to a worker.
    `id`: the row's. `record_id`: the record's, which callers see. `partition`, `offset`, `timestamp_ms`: as in its `Arrival`.
    `status`: PENDING; or IN_DOUBT if it may only be looked up; or CONFIRMED if it is to be cancelled.
    `target`: where pushes under this lease go, and the key or reference in them, so that they can be looked up afterwards. If they
    have neither, `mark_pushing` marks each push before its first byte. None if it must not be pushed.
    `evidence`: of earlier pushes. `pushing`: an intent to push was made durable, and the push's end is not known.
    `takeovers`: how many workers it was taken over from. `tries`: attempts since it became pending, or could be cancelled.
    `cancellation`: set if it is to be cancelled. `pms_reservation`: set if it is CONFIRMED.
    `leased_by`: the worker id it was leased to; a worker that lost its lease continues under another id.
    `size`: bytes of its request and its sealed card as texts, or a little more; 0 if not counted.
    `similar_to`: the request ids of others for the same stay and guest.
    `unreadable`: the row cannot be read. Only the fields needed to end it are set; its reservation is missing."""

    id: int
    record_id: int
    submission: Submission
    partition: int
    created_at: str
    deadline_at: datetime
    attempts: tuple[Attempt, ...]
    revision: int
    evidence: Evidence = NOTHING_SENT
    pushing: bool = False
    status: Status = Status.PENDING
    tries: int = 0
    offset: int = 0
    timestamp_ms: int = 0
    cancellation: NotedCancellation | None = None
    pms_reservation: PmsReservation | None = None
    leased_by: str = ""
    size: int = 0
    target: str | None = None
    takeovers: int = 0
    similar_to: Sequence[str] = ()
    unreadable: bool = False

    @property
    def possibly_sent(self) -> bool:
        """Whether an earlier push may have made a reservation, which must be settled before another create."""
        return bool(self.evidence.lines) and bool(self.evidence.open)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A submission that turned out, when ingested, to repeat the one with the request id `duplicate_of`. `replayed`: it is a
    replayed dead letter, and stays FAILED because the other replaces it."""

    submission: Submission
    duplicate_of: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message for the dead-letter topic: the one of the requests topic, with headers that say why it failed."""

    key: str
    value: str
    headers: Mapping[str, str]

    @property
    def failure_class(self) -> str | None:
        return self.headers.get(FAILURE_CLASS)


@value(frozen=True, slots=True)
class Ended:
    """A submission's outcome, recorded together with its event, and the dead letter that is published with that. `look_at`: when to
    look it up again, if IN_DOUBT; None leaves that to an operator. `cancel_problem`: why the cancellation failed, if it stays
    CONFIRMED. `cancel_by`: the deadline of the cancellation, if one was noted before. `evidence`: of its pushes. `doubles`: the ids
    of other reservations that the PMS shows under its reference."""

    work_id: int
    status: Status
    attempts: Sequence[Attempt]
    updated_at: datetime
    event: ResultEvent
    pms_reservation_id: str | None = None
    problem: Mapping[str, Any] | None = None
    look_at: datetime | None = None
    dead_letter: DeadLetter | None = None
    cancelled_at: datetime | None = None
    cancel_problem: Mapping[str, Any] | None = None
    cancel_by: datetime | None = None
    evidence: Evidence = NOTHING_SENT
    doubles: tuple[str, ...] = ()


@value(frozen=True, slots=True)
class Postponed:
    """A submission to be retried: its lease ends, and it is due at `due_at`; None if it is IN_DOUBT and must not be looked up any
    more. `evidence`: of its pushes. `work`: the row as it was leased; nothing is recorded if it has been recorded since."""

    work: Work
    attempts: Sequence[Attempt]
    updated_at: datetime
    due_at: datetime | None
    evidence: Evidence = NOTHING_SENT


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A lease holder's sign of life: `sequence` changes with each renewal; each renewal is good for `lease_seconds`."""

    worker_id: str
    sequence: int
    lease_seconds: float


class OutboxEvent(Struct, frozen=True):
    """A recorded event that is not known to be published, and its dead letter. Ids follow the order of recording. `in_turn`: the
    earlier events of its submission are known to be published. `faults`: how often publishing it failed unexpectedly."""

    id: int
    event: ResultEvent
    dead_letter: DeadLetter | None = None
    in_turn: bool = False
    faults: int = 0


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """One worker's throttle for the PMS of an account. `breaker`: closed, open, half_open; `reason`: why it is open.
    `wait_seconds`: until the next push may start, by breaker, rate and the PMS's own requests; None if that depends on a push in
    flight. `in_flight`: pushes now; `limit`: the maximum now; `allowed`: the account's setting. `requests_left`: requests that may
    be sent at once, of `requests_burst`; None if the rate is not limited."""

    account_id: str
    breaker: str
    reason: str | None
    wait_seconds: float | None
    in_flight: int
    limit: int
    allowed: int
    requests_left: float | None
    requests_burst: float | None


def with_attempt(
    attempts: tuple[Attempt, ...], action: str, started_at: str, seconds: float, outcome: AnyOutcome
) -> tuple[Attempt, ...]:
    """`attempts` and one more. Keeps the last 50; numbering continues."""
    number = attempts[-1].number + 1 if attempts else 1
    name, reason, detail = describe(outcome)
    reason, detail = reason and cut_text(reason, MAX_REASON), detail and cut_text(detail, MAX_DETAIL)
    return (*attempts, Attempt(number, action, started_at, round(seconds * 1000), name, reason, detail))[-50:]


def completed(
    work: Work,
    attempts: Sequence[Attempt],
    status: Status,
    *,
    now: datetime,
    confirmed: Confirmed | None = None,
    problem: Problem | None = None,
    cancel_by: datetime | None = None,
    evidence: Evidence = NOTHING_SENT,
) -> Ended:
    """The end of `work`, with its event. `confirmed`: the PMS's result, if confirmed; `problem`: the reason, if not."""
    moment, is_cancelled = iso(now), status is Status.CANCELLED
    described = None if problem is None else described_problem(replace(problem, request_id=work.submission.request_id))
    state = SubmissionState(
        work.record_id,
        work.submission.request_id,
        status,
        work.created_at,
        moment,
        cancelled_at=moment if is_cancelled else "",
        pms_reservation_id=None if confirmed is None else cut_text(confirmed.pms_reservation_id, MAX_ID),
        pms_record=None if confirmed is None else confirmed.record,
        problem=described,
    )
    record = compose_record(work.submission.reservation, state)
    cancellation = cancellation_of(work, status) if is_cancelled else None
    doubles = () if confirmed is None else confirmed.doubles
    return Ended(
        work.id,
        status,
        attempts,
        now,
        event_of(work, status, moment, record, cancellation, doubles),
        state.pms_reservation_id,
        described,
        cancelled_at=now if is_cancelled else None,
        cancel_by=cancel_by,
        evidence=evidence,
        doubles=doubles,
    )


def event_of(
    work: Work,
    status: Status,
    moment: str,
    record: Mapping[str, Any],
    cancellation: Cancellation | None,
    doubles: Sequence[str] = (),
) -> ResultEvent:
    """The event for `work` at `moment` (ISO 8601), with the next revision. Cuts the PMS's data if the record would be too large."""
    it = work.submission

    def event(record: Mapping[str, Any]) -> ResultEvent:
        data = result_data(
            request_id=it.request_id,
            workspace_id=it.workspace_id,
            account_id=it.account_id,
            status=status,
            record=record,
            cancellation=cancellation,
            doubles=doubles,
            similar_to=work.similar_to,
        )
        return ResultEvent(it.request_id, work.revision + 1, status, it.key, moment, data, it.trace)

    whole = event(record)
    try:
        if len(whole.written.record) <= MAX_RECORD_BYTES:  # as nearly always
            return whole
    except (ValueError, TypeError, RecursionError):
        pass  # it contains values that JSON cannot represent
    return event(fitting_record(record))


def described_problem(problem: Problem) -> dict[str, Any]:
    """`problem` in its stored form: long texts from a PMS are cut."""
    described = problem.as_json()
    return described if fits(described, 4 * 1024) else bounded(described, 8 * 1024)


def cancellation_of(work: Work, status: Status, problem: Mapping[str, Any] | None = None) -> Cancellation | None:
    """The cancellation of `work` in `status`; None if none was requested."""
    if (asked := work.cancellation) is None:
        return None
    return Cancellation(cancellation_status(status, problem), asked.requested_at, asked.reason, problem)
