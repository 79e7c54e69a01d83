"""The catalogue of problems, by chapter and by code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from forwarder.reservation.problems import endings, requests, rules, service, webhooks
from forwarder.reservation.problems.problem import ProblemType


@dataclass(frozen=True, slots=True)
class Chapter:
    """Problems that are documented together."""

    title: str
    about: str
    problems: tuple[ProblemType, ...]


CHAPTERS: Final = (
    Chapter(
        "Authentication and limits",
        "The three headers that every request needs, the key's permissions, and its rate limit. Nothing was accepted.",
        (
            requests.UNAUTHENTICATED,
            requests.KEY_EXPIRED,
            requests.TOO_MANY_BAD_TOKENS,
            requests.ADDRESS_NOT_ALLOWED,
            requests.INSUFFICIENT_SCOPE,
            requests.MISSING_HEADER,
            requests.CONFLICTING_HEADERS,
            requests.WRONG_WORKSPACE,
            requests.ACCOUNT_NOT_FOUND,
            requests.TEST_MODE_UNAVAILABLE,
            requests.RATE_LIMITED,
        ),
    ),
    Chapter(
        "The request",
        "Faults of the request itself. Nothing was accepted.",
        (
            requests.HEADERS_TOO_LARGE,
            requests.UNSUPPORTED_MEDIA_TYPE,
            requests.BODY_TOO_LARGE,
            requests.BODY_TIMED_OUT,
            requests.HEAD_TIMED_OUT,
            requests.MALFORMED_JSON,
            requests.VALIDATION_FAILED,
            requests.CARD_NUMBER_IN_TEXT,
            requests.INVALID_QUERY,
            requests.INVALID_KEY,
            requests.INVALID_DEADLINE,
            requests.KEY_REUSED,
            requests.TRANSACTION_REUSED,
            requests.SIMILAR_SUBMISSION,
            requests.INVALID_ITEM,
            requests.INVALID_BULK_SIZE,
        ),
    ),
    Chapter(
        "Rules of the integration",
        "Rules of the integration account's kind of PMS. Nothing was accepted, and `errors` lists each violation with its JSON "
        "Pointer. If the account changes after a submission was accepted, the submission can end `REJECTED` with the same codes.",
        (
            rules.CARD_REQUIRED,
            rules.CARD_INVALID,
            rules.WEBSITE_REQUIRED,
            rules.NO_ROOMS,
        ),
    ),
    Chapter(
        "Not found",
        "",
        (
            requests.SUBMISSION_NOT_FOUND,
            requests.RESERVATION_NOT_FOUND,
            requests.NOT_FOUND,
            requests.METHOD_NOT_ALLOWED,
        ),
    ),
    Chapter(
        "The service",
        "Temporary server-side errors. After a 503, retry after the `Retry-After` interval.",
        (
            service.LOG_UNAVAILABLE,
            service.OVERLOADED,
            service.CARDS_UNAVAILABLE,
            service.TOO_MANY_CONNECTIONS,
            service.STORE_UNAVAILABLE,
            service.TENANCY_UNAVAILABLE,
            service.INTERNAL_ERROR,
        ),
    ),
    Chapter(
        "Rejected reservations",
        "Status `REJECTED`: a rule, or the PMS, refused the reservation. Returned to callers that wait; otherwise found in the "
        "submission, the record, or the results topic.",
        (
            endings.ROOM_UNAVAILABLE,
            endings.CARD_REFUSED,
            endings.PRICE_CHANGED,
            endings.PROPERTY_NOT_FOUND,
            endings.ROOM_NOT_FOUND,
            endings.GUEST_REFUSED,
            endings.PMS_REFUSED,
            endings.REJECTED,
            endings.REJECTED_BY_OPERATOR,
        ),
    ),
    Chapter(
        "Failed and in doubt",
        "Recorded with the submission, never returned to a request: the caller gets 202.",
        (endings.DELIVERY_FAILED, endings.CARD_GONE, endings.CARD_NOT_BOUND, endings.IN_DOUBT),
    ),
    Chapter(
        "Cancellations",
        "The first two are returned at once. The others are returned to callers that wait, and recorded with the submission, under "
        "`cancellation`.",
        (
            endings.NOT_MADE,
            endings.CANCELLATION_NOT_SUPPORTED,
            endings.CANCELLATION_REFUSED,
            endings.CANCELLATION_FAILED,
        ),
    ),
    Chapter(
        "Webhooks",
        "Returned to calls that manage webhooks.",
        (
            webhooks.LIVE_KEY_NEEDED,
            webhooks.WEBHOOK_NOT_FOUND,
            webhooks.DELIVERY_NOT_FOUND,
            webhooks.WEBHOOK_DISABLED,
            webhooks.TOO_MANY_WEBHOOKS,
        ),
    ),
)
"""The catalogue, in the order of the documentation."""

CATALOGUE: Final[Mapping[str, ProblemType]] = {one.code: one for chapter in CHAPTERS for one in chapter.problems}
"""The catalogue by code."""
