"""Outcomes of reservations that were not confirmed, and results of cancellations."""

from typing import Final

from forwarder.reservation.problems.problem import Chapter

REJECTIONS: Final = Chapter(
    "Rejected reservations",
    "Status `REJECTED`: a rule, or the PMS, refused the reservation. Returned to callers that wait; otherwise found in the "
    "submission, the record, or the results topic.",
)

ROOM_UNAVAILABLE: Final = REJECTIONS.problem(
    "room_unavailable",
    "The room is not available",
    409,
    "The room is taken or closed on some night of the stay.",
    "Offer the guest other dates or another room.",
)
CARD_REFUSED: Final = REJECTIONS.problem(
    "card_refused",
    "The card was refused",
    409,
    "The PMS, or its payment provider, did not accept the card.",
    "Ask the guest for another card and submit again, under a new `Idempotency-Key`.",
)
PRICE_CHANGED: Final = REJECTIONS.problem(
    "price_changed",
    "The price has changed",
    409,
    "The PMS does not agree with `totalPrice`.",
    "Get a new quote, and submit the new price under a new `Idempotency-Key`.",
)
PROPERTY_NOT_FOUND: Final = REJECTIONS.problem(
    "property_not_found",
    "The property is not known",
    409,
    "The PMS has no property with that `propertyId`, or does not let this account book it.",
    "Check `propertyId` and the integration account.",
)
ROOM_NOT_FOUND: Final = REJECTIONS.problem(
    "room_not_found",
    "The room is not known",
    409,
    "The property has no room with that `roomId`.",
    "Check `roomId`. For a property without rooms, send its `propertyId` as `roomId`.",
)
GUEST_REFUSED: Final = REJECTIONS.problem(
    "guest_refused",
    "The guest was refused",
    409,
    "The PMS does not accept the guest, or some of the guest's details.",
    "Read `detail`, correct the guest's details and submit again.",
)
PMS_REFUSED: Final = REJECTIONS.problem(
    "pms_refused",
    "The PMS refused the reservation",
    409,
    "The PMS refused the reservation for a reason that has no code of its own.",
    "Read `detail`: it quotes the PMS, or says what to check if the PMS gave no reason.",
)
REJECTED: Final = REJECTIONS.problem(
    "rejected",
    "The reservation was rejected",
    409,
    "The PMS refused the reservation, and no reason was recorded.",
    "Ask the property.",
)
REJECTED_BY_OPERATOR: Final = REJECTIONS.problem(
    "rejected_by_operator",
    "The reservation was turned down",
    409,
    "The reservation was in doubt. An operator found that it was not made, and decided not to make it. `detail` is the operator's "
    "note.",
    "If the guest still wants it, submit it again under a new `Idempotency-Key`.",
)

UNCERTAIN: Final = Chapter(
    "Failed and in doubt",
    "Recorded with the submission, never returned to a request: the caller gets 202.",
)

DELIVERY_FAILED: Final = UNCERTAIN.problem(
    "delivery_failed",
    "The reservation could not be delivered",
    503,
    "The reservation could not be delivered to the PMS before its deadline. It was definitely not made. Status `FAILED`.",
    "Submit it again under a new `Idempotency-Key`, or ask the operator to replay it.",
)
CARD_GONE: Final = UNCERTAIN.problem(
    "card_gone",
    "The card was destroyed before the reservation was made",
    409,
    "Cards are deleted as soon as possible: at the deadline, or when the submission fails, and the security code after a push that "
    "may have used it. The reservation was definitely not made. Status `FAILED`.",
    "Submit it again, with the card, under a new `Idempotency-Key`.",
)
CARD_NOT_BOUND: Final = UNCERTAIN.problem(
    "card_not_bound",
    "The card was not sealed for this reservation",
    409,
    "The card was encrypted for another submission, integration account or PMS address. Nothing was sent. Status `FAILED`.",
    "Submit it again, with the card. Operators: check whether the account's base URL was changed, or rows or messages were "
    "tampered with.",
)
IN_DOUBT: Final = UNCERTAIN.problem(
    "in_doubt",
    "The reservation may or may not have been made",
    503,
    "The reservation was sent to the PMS, whose response does not show whether it was made. It is not sent again until that is "
    "settled. Status `IN_DOUBT`.",
    "Wait: a look-up or an operator will settle it, and an event reports the result. Do not submit it again meanwhile.",
)

CANCELLATIONS: Final = Chapter(
    "Cancellations",
    "The first two are returned at once. The others are returned to callers that wait, and recorded with the submission, under "
    "`cancellation`.",
)

NOT_MADE: Final = CANCELLATIONS.problem(
    "reservation_not_made",
    "There is no reservation to cancel",
    409,
    "The submission ended `REJECTED` or `FAILED`, so there is no reservation.",
    "Nothing to do.",
)
CANCELLATION_NOT_SUPPORTED: Final = CANCELLATIONS.problem(
    "cancellation_not_supported",
    "Reservations of this integration cannot be cancelled",
    409,
    "The forwarder cannot cancel reservations in this kind of PMS.",
    "Cancel it in the PMS.",
)
CANCELLATION_REFUSED: Final = CANCELLATIONS.problem(
    "cancellation_refused",
    "The PMS refused to cancel the reservation",
    409,
    "The PMS refused the cancellation. The reservation is unchanged.",
    "Read `detail`, and settle it with the property. You may request the cancellation again.",
)
CANCELLATION_FAILED: Final = CANCELLATIONS.problem(
    "cancellation_failed",
    "The reservation could not be cancelled",
    503,
    "The PMS did not cancel it before the deadline. The reservation is unchanged.",
    "Request the cancellation again.",
)

REFUSALS: Final = (
    ROOM_UNAVAILABLE,
    CARD_REFUSED,
    PRICE_CHANGED,
    PROPERTY_NOT_FOUND,
    ROOM_NOT_FOUND,
    GUEST_REFUSED,
    CANCELLATION_REFUSED,
    PMS_REFUSED,
)
"""The codes that a PMS's refusal may have."""
