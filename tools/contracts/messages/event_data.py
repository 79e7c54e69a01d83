"""The shapes of the values of messages."""

from typing import Annotated, Any, Literal

from pydantic import Field

from forwarder.reservation.duplicates import MAX_WINDOW_SECONDS
from forwarder.reservation.outcome import Status
from forwarder.reservation.request import Operation
from forwarder.reservation.submission import MAX_DEADLINE_SECONDS
from tools.contracts.openapi.response_bodies import Cancellation
from tools.contracts.record import Moment, Part, RequestId, Reservation, maybe


class ResultData(Part):
    """What a result event says: whose it is, how it ended, and the record in full."""

    request_id: RequestId
    workspace_id: str
    integration_account_id: str
    status: Status
    reservation: Reservation
    cancellation: Cancellation = maybe("Of an event about a cancellation.")
    other_pms_reservation_ids: list[str] = maybe(
        "Other reservations that the PMS shows under the same reference. Ask the operator which of them is to stay."
    )
    similar_to: list[RequestId] = maybe(
        "Other submissions for the same stay and guest. Each is a reservation of its own."
    )
    test: Literal[True] = maybe("Of an event of test mode: what it tells of was made in a simulated PMS.")


class DuplicateData(Part):
    """That a submission is an earlier one sent again."""

    request_id: RequestId
    workspace_id: str
    integration_account_id: str
    duplicate_of: Annotated[
        RequestId, Field(description="The submission that it repeats, whose outcome is its outcome.")
    ]
    test: Literal[True] = maybe("Of an event of test mode.")


class ConflictData(Part):
    """That a submission was not made, because another body came before under its `Idempotency-Key`."""

    request_id: RequestId
    workspace_id: str
    integration_account_id: str
    accepted_at: Annotated[Moment, Field(description="When the submission that was not made was accepted.")]
    fingerprint: Annotated[str, Field(description="Its own: that of the submission that was made is another.")]
    code: Literal["conflicting_body"]
    test: Literal[True] = maybe("Of an event of test mode.")


class SealedCard(Part):
    """A card that only the holder of the private key can open. In a dead letter it is destroyed: `keyId` is `gone`."""

    key_id: str
    sealed: Annotated[str, Field(description="Base64; empty where the card is destroyed.")]


class SubmittedData(Part):
    """A submission on its way to the worker."""

    request_id: RequestId
    workspace_id: str
    integration_account_id: str
    operation: Operation
    accepted_at: Moment
    fingerprint: Annotated[str, Field(description="Tells one payload from another, and reveals neither.")]
    card: SealedCard | None
    reservation: dict[str, Any]
    deadline_seconds: int = maybe("For how long it is worth forwarding.", ge=1, le=MAX_DEADLINE_SECONDS)
    natural_key: str = maybe("Recognises what is asked for when it is sent again: a keyed digest.")
    transaction_key: str = maybe("The same of its `transactionId` alone.")
    duplicate_window_seconds: int = maybe("For how long it is recognised.", ge=0, le=MAX_WINDOW_SECONDS)
    keyed: bool = maybe("Whether it came with an `Idempotency-Key`.")
    same_key: str = maybe("Equal for two submissions that are the same: a keyed digest.")
    stay_key: str = maybe("Equal for two submissions for the same stay and guest: a keyed digest.")


class CancellationRequestedData(Part):
    """That a submission is to be cancelled, on its way to the worker."""

    request_id: RequestId
    integration_account_id: str
    requested_at: Moment
    reason: str | None
    revision: Annotated[int, Field(description="That of the submission's last event when this was asked for.", ge=0)]
