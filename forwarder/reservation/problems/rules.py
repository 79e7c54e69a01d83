"""Violations of an integration's rules: refused by the ingress, or by the worker if the account has changed since."""

from typing import Final

from forwarder.reservation.problems.problem import ProblemType

CARD_REQUIRED: Final = ProblemType(
    "card_required",
    "The reservation needs a card",
    422,
    "The integration is of kind `booking-sync`, `morChannel` is `PMS`, and there is no card number.",
    "Send it with `cardDetails.cardNumber`, or with `morChannel` `SELF`.",
)
CARD_INVALID: Final = ProblemType(
    "card_invalid",
    "The card is not valid",
    422,
    "The card would be sent to the PMS, but its number is not 12 to 19 digits with a correct check digit, or its expiry date is "
    "invalid or past.",
    "Ask the guest for the card again; `errors` says what is wrong with it.",
)
WEBSITE_REQUIRED: Final = ProblemType(
    "website_id_required",
    "The reservation needs a website",
    422,
    "The integration is of kind `website-builder`, and `paymentProviderId` is missing, empty, or not a website's identifier.",
    "Send the website's identifier in `paymentProviderId`.",
)
NO_ROOMS: Final = ProblemType(
    "no_rooms",
    "The integration has no rooms",
    422,
    "The integration is of kind `booking-sync` or `hostaway`, which book whole properties, and `roomId` is not the `propertyId`.",
    "Send the `propertyId` as `roomId`.",
)
