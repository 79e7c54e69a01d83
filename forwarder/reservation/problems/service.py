"""Trouble of the service's own."""

from typing import Final

from forwarder.reservation.problems.problem import ProblemType

_SAME_KEY: Final = "Send the same request again after `Retry-After` seconds, with the same `Idempotency-Key`."

LOG_UNAVAILABLE: Final = ProblemType(
    "log_unavailable",
    "The service cannot take reservations in right now",
    503,
    "The log did not acknowledge the submission in time. It may have reached the log all the same.",
    f"{_SAME_KEY} With a key the reservation is made at most once; without one, perhaps twice.",
)
OVERLOADED: Final = ProblemType(
    "overloaded",
    "The server is at capacity",
    503,
    "The process has as many requests, bytes of bodies or unread responses under way as it takes on, or your workspace has its "
    "share of them. Nothing was accepted.",
    "Send the same request again after `Retry-After` seconds, and fewer at one time.",
)
TOO_MANY_CONNECTIONS: Final = ProblemType(
    "too_many_connections",
    "Too many connections",
    503,
    "The process that was asked holds as many connections as it takes on, or as many of one address. The connection is closed.",
    "Keep connections and use them again; open a new one after `Retry-After` seconds.",
)
CARDS_UNAVAILABLE: Final = ProblemType(
    "cards_unavailable",
    "The service cannot take cards right now",
    503,
    "There is no key that a card could be sealed to: the workers, or the database, have been away for days. Reservations without a "
    "card are taken. Nothing was accepted.",
    _SAME_KEY,
)
STORE_UNAVAILABLE: Final = ProblemType(
    "store_unavailable",
    "The service cannot look reservations up right now",
    503,
    "The database does not answer: a reservation cannot be read, or an `Idempotency-Key` not be looked up. Nothing was accepted.",
    _SAME_KEY,
)
TENANCY_UNAVAILABLE: Final = ProblemType(
    "tenancy_unavailable",
    "The service cannot check credentials right now",
    503,
    "The database does not answer, and the API key is not one that was seen a moment ago. Nothing was accepted.",
    _SAME_KEY,
)
INTERNAL_ERROR: Final = ProblemType(
    "internal_error",
    "Internal error",
    500,
    "A fault of the service. It is not known whether the request took effect.",
    "Send the same request again with the same `Idempotency-Key`; tell the operator the `reference`.",
)
