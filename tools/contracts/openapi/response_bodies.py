"""The shapes of the service's answers."""

from typing import Annotated, Any, Literal

from pydantic import Field

from forwarder.reservation.cancellation import CancellationStatus
from forwarder.reservation.outcome import Status
from tools.contracts.record import Moment, Part, Problem, RequestId, Reservation, maybe

StatusUrl = Annotated[
    str,
    Field(description="Where to follow it, as the caller addressed the service.", json_schema_extra={"format": "uri"}),
]


Success = Annotated[
    bool,
    Field(
        description="False once it is sure that no reservation came of it (`REJECTED`, `FAILED`); else `status` tells more."
    ),
]
_SIMILAR = "Other submissions for the same stay and guest. Each is a reservation of its own."
_WARNED = "What of the request does not reach the PMS. Absent where nothing is lost."
WouldPass = Annotated[bool, Field(description="Whether it would be accepted.")]


class Attempt(Part):
    """One exchange with the PMS, or an operator's word. Of a great many only the last are kept; `number` goes on."""

    number: Annotated[int, Field(ge=1)]
    action: Literal["prepare", "create", "find", "cancel", "settle"]
    started_at: Moment
    duration_ms: Annotated[int, Field(ge=0)]
    outcome: Literal["confirmed", "rejected", "deferred", "in_doubt", "absent", "cancelled"]
    reason: str = maybe("What was said, for programs.")
    detail: str = maybe("The same for people.")


class Cancellation(Part):
    """How a cancellation that was asked for stands."""

    status: CancellationStatus
    requested_at: Moment
    reason: Annotated[str | None, Field(description="As the caller gave it.")]
    problem: Annotated[Problem | None, Field(description="Why it came to nothing.")]


class ConflictingBody(Part):
    """A submission that was not made, because another body came before under its `Idempotency-Key`."""

    code: Literal["conflicting_body"]
    accepted_at: Annotated[Moment, Field(description="When the last of them was accepted.")]
    detail: str


class Submission(Part):
    """Where a submission stands. In the moment before a worker takes it in, all but `requestId` and `status` is empty."""

    request_id: RequestId
    status: Status
    accepted_at: Moment | None
    updated_at: Moment | None
    reservation_id: Annotated[int | None, Field(description="The `id` of its reservation.", ge=1)]
    attempts: list[Attempt]
    problem: Annotated[Problem | None, Field(description="Why it is not confirmed.")]
    record: Reservation | None
    cancellation: Annotated[Cancellation | None, Field(description="None was asked for where it is null.")]
    evidence: list[str] = maybe("While the PMS may have made it, what is known of that, as sentences.")
    similar_to: list[RequestId] = maybe(_SIMILAR)
    conflicting_body: ConflictingBody = maybe("Another body came under its `Idempotency-Key`, and was not made.")


class SubmissionWarning(Part):
    """Something to know about a submission that is accepted all the same."""

    code: Annotated[
        str,
        Field(
            description="`unknown_field`, `card_not_sent`, `field_not_sent`, `card_number_masked`, "
            "`price_rounded`, `sent_again`, `similar_submission`; others may come."
        ),
    ]
    pointer: Annotated[str, Field(description="JSON Pointer (RFC 6901) of what it speaks of, from the reservation on.")]
    detail: str


class Receipt(Part):
    """A submission that is safe: it will be carried to its end, whatever happens."""

    request_id: RequestId
    status: Status
    accepted_at: Moment
    status_url: StatusUrl
    duplicate: Literal[True] = maybe("It is an earlier submission, which was sent again. Nothing more is booked.")
    similar_to: list[RequestId] = maybe(_SIMILAR)


class AcceptedReservation(Reservation):
    """The reservation record of a submission that is safe, as far as it is known, and its receipt."""

    id: int = maybe("The reservation's identifier here, once a worker took it in.", ge=1)
    accepted_at: Moment
    status_url: StatusUrl
    similar_to: list[RequestId] = maybe(_SIMILAR)


class _OfItem(Part):
    index: Annotated[int, Field(ge=0, description="Which item of the bulk it is about, from 0 on.")]
    line: int = maybe("On which line it came, from 1 on, blank ones counted: of NDJSON alone.")
    idempotency_key: str = maybe("The item's own, where it has one.")


class SafeItem(_OfItem, Receipt):
    """An item of a bulk that is safe."""

    success: Success
    warnings: list[SubmissionWarning] = maybe(_WARNED)


class Refused(_OfItem):
    """An item of a bulk that was not accepted, and why."""

    success: Literal[False]
    problem: Problem


class SentRequest(Part):
    """A request to the PMS, as it would go out: without credentials, and of a card the masked number alone."""

    method: str
    path: Annotated[str, Field(description="With its query, and without the host.")]
    media_type: Annotated[str | None, Field(description="How the body is written.")]
    body: Annotated[Any, Field(description="As JSON; of a form its fields by their names. Null where there is none.")]


class WouldSend(Part):
    """What the PMS would be sent. `the-request-id` stands for the request id, which only a submission is given."""

    requests: Annotated[
        list[SentRequest], Field(description="In their order, up to the one whose answer decides what follows.")
    ]
    assumed: Annotated[
        list[str], Field(description="What in them only the PMS can say, such as an id, and what stands there instead.")
    ]


class DryRun(Part):
    """What would come of a submission. Nothing was published."""

    dry_run: Literal[True]
    account_kind: Annotated[str, Field(description="The integration account's kind of PMS, whose rules hold.")]
    account_paused: Annotated[bool, Field(description="Whether it would wait until the account is resumed.")]
    would_send: Annotated[WouldSend | None, Field(description="None where it would be refused.")]
    refusals: Annotated[
        list[Problem],
        Field(
            description="What each rule says that refuses it: all of them. Or what keeps it from the PMS as the account is set."
        ),
    ]
    warnings: list[SubmissionWarning]


class TriedItem(_OfItem, DryRun):
    """What would come of an item of a bulk."""

    success: WouldPass


class Bulk(Part):
    """What became of the items of a bulk."""

    accepted: Annotated[int, Field(ge=0, description="How many are safe.")]
    refused: Annotated[int, Field(ge=0, description="How many are not, and never will be as they are.")]
    results: Annotated[list[SafeItem | Refused | TriedItem], Field(description="One an item, in their order.")]


class CancellationReceipt(Part):
    """A cancellation that is safe: it will be carried to its end, whatever happens. `status` is the submission's."""

    request_id: RequestId
    status: Status
    cancellation: CancellationStatus
    status_url: StatusUrl


class Cursors(Part):
    """Where this page and its neighbours begin. Empty where there is no such page."""

    previous: str
    current: Annotated[str, Field(description="`1` on the first page.")]
    next: Annotated[str, Field(description="To be passed as `cursor`, as it is.")]


class Meta(Part):
    """About a page."""

    limit: Annotated[int, Field(ge=1, le=200)]
    cursors: Cursors


class ProblemBody(Problem):
    """What answers a request that is refused: the problem, and `success` for who looks at that alone."""

    success: Literal[False]
    http_request_id: str = maybe("The `Request-Id` of the answer. Left out where the request could not even be read.")


class ReservationEnvelope(Part):
    """One reservation."""

    success: Success
    data: Reservation
    warnings: list[SubmissionWarning] = maybe(_WARNED)


class ReservationPage(Part):
    """Reservations in the order in which they were taken in, or the newest first."""

    data: list[Reservation]
    meta: Meta


class ReceiptEnvelope(Part):
    """The submission is safe."""

    success: Success
    data: Receipt
    warnings: list[SubmissionWarning] = maybe(_WARNED)


class AcceptedEnvelope(Part):
    """The submission is safe, and this is known of its reservation."""

    success: Success
    data: AcceptedReservation
    warnings: list[SubmissionWarning] = maybe(_WARNED)


class BulkEnvelope(Part):
    """What became of each item."""

    success: Annotated[bool, Field(description="Whether every item is a success.")]
    data: Bulk


class DryRunEnvelope(Part):
    """What would come of it."""

    success: WouldPass
    data: DryRun


class CancellationReceiptEnvelope(Part):
    """The cancellation is safe."""

    success: Success
    data: CancellationReceipt


class SubmissionEnvelope(Part):
    """A submission."""

    success: Success
    data: Submission
