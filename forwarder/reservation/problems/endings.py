"""Reservations that ended unconfirmed, and results of cancellations."""

from typing import Final

from forwarder.reservation.problems.problem import ProblemType

REJECTED: Final = ProblemType(
    "rejected",
    "The reservation was rejected",
    409,
    "The PMS refused the reservation, and no reason is on record.",
    "Ask the property.",
)
REJECTED_BY_OPERATOR: Final = ProblemType(
    "rejected_by_operator",
    "The reservation was turned down",
    409,
    "It was in doubt whether the reservation had been made; an operator found that it was not, and that it is not to be. "
    "`detail` is the operator's word.",
    "Submit it anew where it is still wanted, under a new `Idempotency-Key`.",
)
ROOM_UNAVAILABLE: Final = ProblemType(
    "room_unavailable",
    "The room is not available",
    409,
    "The room is taken or closed on some night of the stay.",
    "Offer the guest other dates or another room.",
)
CARD_REFUSED: Final = ProblemType(
    "card_refused",
    "The card was refused",
    409,
    "The PMS, or its payment provider, did not take the card.",
    "Ask the guest for another card and submit it anew, under a new `Idempotency-Key`.",
)
PRICE_CHANGED: Final = ProblemType(
    "price_changed",
    "The price has changed",
    409,
    "The PMS does not agree with `totalPrice`.",
    "Quote anew, and submit the new price under a new `Idempotency-Key`.",
)
PROPERTY_NOT_FOUND: Final = ProblemType(
    "property_not_found",
    "The property is not known",
    409,
    "The PMS has no property of that `propertyId`, or does not let this account book it.",
    "Check `propertyId` and the integration account.",
)
ROOM_NOT_FOUND: Final = ProblemType(
    "room_not_found",
    "The room is not known",
    409,
    "The property has no room of that `roomId`.",
    "Check `roomId`; a property without rooms takes its `propertyId` there.",
)
GUEST_REFUSED: Final = ProblemType(
    "guest_refused",
    "The guest was refused",
    409,
    "The PMS does not take the guest, or something that was said of the guest.",
    "Read `detail`; put the guest's details right and submit it anew.",
)
PMS_REFUSED: Final = ProblemType(
    "pms_refused",
    "The PMS refused the reservation",
    409,
    "The PMS said no, for a reason that is none of the others.",
    "Read `detail`, which holds the PMS's own words, or what to check where it had none.",
)
DELIVERY_FAILED: Final = ProblemType(
    "delivery_failed",
    "The reservation could not be delivered",
    503,
    "The PMS could not be made to take the reservation before its deadline. It was surely not made. Status `FAILED`.",
    "Submit it anew under a new `Idempotency-Key`, or have the operator replay it.",
)
CARD_GONE: Final = ProblemType(
    "card_gone",
    "The card was destroyed before the reservation was made",
    409,
    "Cards are kept no longer than they are needed: not after the deadline, nor in a dead letter, and a security code not after a "
    "push that may have used it. The reservation was surely not made. Status `FAILED`.",
    "Submit it anew, with the card, under a new `Idempotency-Key`.",
)
CARD_NOT_BOUND: Final = ProblemType(
    "card_not_bound",
    "The card was not sealed for this reservation",
    409,
    "The card was sealed for another submission, integration account or address of the PMS than it is used for now. Nothing was "
    "sent. Status `FAILED`.",
    "Submit it anew, with the card. The operator finds out what moved it, or whether the account's address was changed.",
)
IN_DOUBT: Final = ProblemType(
    "in_doubt",
    "The reservation may or may not have been made",
    503,
    "The PMS was sent the reservation and did not say what became of it. It is not sent again until that is settled. "
    "Status `IN_DOUBT`.",
    "Wait: a look-up or an operator settles it, and an event tells how. Do not submit it anew meanwhile.",
)
NOT_MADE: Final = ProblemType(
    "reservation_not_made",
    "There is no reservation to cancel",
    409,
    "The submission ended `REJECTED` or `FAILED`: nothing was made of it.",
    "Nothing is left to do.",
)
CANCELLATION_NOT_SUPPORTED: Final = ProblemType(
    "cancellation_not_supported",
    "Reservations of this integration cannot be cancelled",
    409,
    "The integration's kind of PMS takes no cancellations from here.",
    "Cancel it in the PMS.",
)
CANCELLATION_REFUSED: Final = ProblemType(
    "cancellation_refused",
    "The PMS refused to cancel the reservation",
    409,
    "The PMS said no to the cancellation. The reservation stays as it was.",
    "Read `detail`; settle it with the property. It may be asked for again.",
)
CANCELLATION_FAILED: Final = ProblemType(
    "cancellation_failed",
    "The reservation could not be cancelled",
    503,
    "The PMS could not be made to cancel it before the deadline. The reservation stays as it was.",
    "Ask for the cancellation again.",
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
