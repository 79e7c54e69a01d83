"""Server-side errors."""

from typing import Final

from forwarder.reservation.problems.problem import Chapter

_SAME_KEY: Final = "Send the same request again after `Retry-After` seconds, with the same `Idempotency-Key`."

SERVICE: Final = Chapter(
    "The service",
    "Temporary server-side errors. After a 503, retry after the `Retry-After` interval.",
)

LOG_UNAVAILABLE: Final = SERVICE.problem(
    "log_unavailable",
    "The service cannot accept reservations right now",
    503,
    "The log did not acknowledge the submission in time. It may still have been stored.",
    f"{_SAME_KEY} With a key the reservation is made at most once; without one, possibly twice.",
)
OVERLOADED: Final = SERVICE.problem(
    "overloaded",
    "The server is at capacity",
    503,
    "The process is at its limit of concurrent requests, request bytes or unread responses, or your workspace has used its share. "
    "Nothing was accepted.",
    "Send the same request again after `Retry-After` seconds, with fewer requests in parallel.",
)
CARDS_UNAVAILABLE: Final = SERVICE.problem(
    "cards_unavailable",
    "The service cannot accept cards right now",
    503,
    "There is no valid key to encrypt cards with: the workers, or the database, have been down for days. Nothing was "
    "accepted. Reservations without a card still work.",
    _SAME_KEY,
)
TOO_MANY_CONNECTIONS: Final = SERVICE.problem(
    "too_many_connections",
    "Too many connections",
    503,
    "The process is at its limit of connections, in total or for one address. The connection is closed.",
    "Reuse connections; open a new one after `Retry-After` seconds.",
)
STORE_UNAVAILABLE: Final = SERVICE.problem(
    "store_unavailable",
    "The service cannot look reservations up right now",
    503,
    "The database does not respond, so a reservation or an `Idempotency-Key` cannot be looked up. Nothing was accepted.",
    _SAME_KEY,
)
TENANCY_UNAVAILABLE: Final = SERVICE.problem(
    "tenancy_unavailable",
    "The service cannot check credentials right now",
    503,
    "The database does not respond, and the API key is not cached. Nothing was accepted.",
    _SAME_KEY,
)
INTERNAL_ERROR: Final = SERVICE.problem(
    "internal_error",
    "Internal error",
    500,
    "An unexpected error in the service. The request may or may not have taken effect.",
    "Send the same request again with the same `Idempotency-Key`, and give the operator the `reference`.",
)
