"""Problems of a request: its caller, its content, its target."""

from typing import Final

from forwarder.reservation.problems.problem import ProblemType

UNAUTHENTICATED: Final = ProblemType(
    "unauthenticated",
    "Not authenticated",
    401,
    "The `Authorization` header is missing or malformed, or its API key is unknown or was revoked.",
    "Send `Authorization: Bearer <API key>` with a key that is in force.",
)
KEY_EXPIRED: Final = ProblemType(
    "key_expired",
    "The API key has expired",
    401,
    "The API key was made to work until a moment that is over, which `detail` names.",
    "Ask the operator for another key, or to prolong this one.",
)
TOO_MANY_BAD_TOKENS: Final = ProblemType(
    "too_many_bad_tokens",
    "Too many unknown API keys",
    429,
    "Too many requests with API keys that are unknown or were revoked came from this address. A key that is in force is let in all "
    "the same.",
    "Send the key that you were given, unchanged. Others from this address may be trying keys: tell whoever runs it.",
)
INSUFFICIENT_SCOPE: Final = ProblemType(
    "insufficient_scope",
    "The API key lacks a scope",
    403,
    "The API key is in force, and was not made for this operation. `scope` names what it lacks.",
    "Use a key that has the scope, or ask the operator to add it: `forwarder key change`.",
)
ADDRESS_NOT_ALLOWED: Final = ProblemType(
    "address_not_allowed",
    "Not from this address",
    403,
    "The API key may be used from certain addresses only, and the request came from another one, which `detail` names.",
    "Call from an address that the key allows, or ask the operator to allow this one.",
)
MISSING_HEADER: Final = ProblemType(
    "missing_header",
    "A header is missing",
    400,
    "`workspaceId` or `integrationAccountId`, or both, are missing or empty. `detail` names all that are.",
    "Send both headers with every request.",
)
CONFLICTING_HEADERS: Final = ProblemType(
    "conflicting_headers",
    "A header came twice, with different values",
    400,
    "`Authorization`, `workspaceId` or `integrationAccountId` came more than once, and not always the same. A proxy, or a wrapper "
    "around the client, may have added one.",
    "Send each of them once. The same header with the same value counts as one.",
)
WRONG_WORKSPACE: Final = ProblemType(
    "wrong_workspace",
    "Not this key's workspace",
    403,
    "The API key belongs to another workspace than the one that `workspaceId` names.",
    "Name the workspace that the key was made for, or use a key of that workspace.",
)
ACCOUNT_NOT_FOUND: Final = ProblemType(
    "account_not_found",
    "No such integration account",
    404,
    "The workspace has no integration account of the identifier in `integrationAccountId`.",
    "Use the identifier of an integration account of this workspace.",
)
TEST_MODE_UNAVAILABLE: Final = ProblemType(
    "test_mode_unavailable",
    "There is no test mode here",
    403,
    "The API key is a test key, and the deployment has no simulator. Nothing was accepted.",
    "Ask the operator to set `FORWARDER_SIMULATOR_URL`, or use a deployment that has test mode.",
)
RATE_LIMITED: Final = ProblemType(
    "rate_limited",
    "Too many requests",
    429,
    "The API key has used up its rate limit, which `RateLimit-Policy` tells.",
    "Send the same request again after `Retry-After` seconds, and keep to what `RateLimit` says is left.",
)
UNSUPPORTED_MEDIA_TYPE: Final = ProblemType(
    "unsupported_media_type",
    "Unsupported media type",
    415,
    "The body is not declared as JSON in UTF-8, or is compressed.",
    "Send plain JSON in UTF-8 with `Content-Type: application/json`.",
)
BODY_TOO_LARGE: Final = ProblemType(
    "body_too_large",
    "The body is too large",
    413,
    "The body is longer than the service reads, and the connection is closed; or longer than the deployment's Kafka topic takes.",
    "Shorten the longest texts, such as `notes` and `comments`.",
)
BODY_TIMED_OUT: Final = ProblemType(
    "body_timed_out",
    "The body did not come in time",
    408,
    "The rest of the body was waited for in vain. The connection is closed.",
    "Send the request again, whole.",
)
HEAD_TIMED_OUT: Final = ProblemType(
    "head_timed_out",
    "The headers did not come in time",
    408,
    "A request was begun and its headers did not end in time. The connection is closed.",
    "Send the request again, whole.",
)
MALFORMED_JSON: Final = ProblemType(
    "malformed_json",
    "The body is not JSON",
    400,
    "The body is not one JSON document in UTF-8, is nested too deeply, holds `NaN` or `Infinity`, or has one name twice in an "
    "object.",
    "Let a JSON library write the body. `detail` says where reading ended.",
)
VALIDATION_FAILED: Final = ProblemType(
    "validation_failed",
    "The request is not valid",
    422,
    "The body is JSON, and some of its values are not what the operation takes.",
    "Put right every value that `errors` names by its JSON Pointer; all of them are there at once.",
)
CARD_NUMBER_IN_TEXT: Final = ProblemType(
    "card_number_in_text",
    "A card number where none belongs",
    422,
    "A text outside `cardDetails`, such as `notes`, holds what looks like a card number or its security code. Such texts are kept "
    "and shown, so nothing was accepted. `errors` names each by its JSON Pointer, and never the number.",
    "Send the card as `cardDetails`, and leave it out of every other text.",
)
INVALID_QUERY: Final = ProblemType(
    "invalid_query",
    "The query parameters are not valid",
    400,
    "A parameter is none that the operation takes, has none of the values that it takes, is given twice with different ones, or "
    "ends a range before it begins.",
    "Follow `meta.cursors.next` as it is; ask for at most 200 items a page; write days as `YYYY-MM-DD`, moments with their offset.",
)
INVALID_KEY: Final = ProblemType(
    "invalid_idempotency_key",
    "Invalid Idempotency-Key",
    400,
    "The `Idempotency-Key` is empty, too long, comes twice with different values, has other characters than printable ASCII, or "
    "came as the header of a bulk, of which each item has its own.",
    'Send one string in double quotes, such as `"order-42"`.',
)
INVALID_DEADLINE: Final = ProblemType(
    "invalid_forward_deadline",
    "Invalid Forward-Deadline",
    400,
    "The `Forward-Deadline` is no whole number of seconds within its bounds, or comes twice.",
    "Send seconds in plain digits, such as `300`, or leave the header out.",
)
KEY_REUSED: Final = ProblemType(
    "idempotency_key_reused",
    "The Idempotency-Key belongs to another request",
    422,
    "This account has used the key before, with another body or for the other operation. `requestId` is that of the first.",
    "Use a new key for each reservation, and the same key only to send the same request again.",
)
TRANSACTION_REUSED: Final = ProblemType(
    "transaction_reused",
    "The transaction belongs to another reservation",
    409,
    "No longer sent: one transaction may pay for several reservations. Releases before 0.2 refused a submission whose "
    "`transactionId` an earlier one had for another reservation, which `transactionOf` names.",
    "Use a new `transactionId` for a new reservation, or give each of the two an `Idempotency-Key` of its own.",
)
SIMILAR_SUBMISSION: Final = ProblemType(
    "similar_submission",
    "There is a submission for the same stay and guest",
    409,
    "The account refuses a submission without an `Idempotency-Key` for the stay and the guest of an earlier one that may stand, "
    "with another body. `similarTo` names the earlier one, `differing` the fields that differ. Nothing was accepted.",
    "Cancel the earlier one and submit again, or give this one an `Idempotency-Key` of its own where it is another room.",
)
INVALID_ITEM: Final = ProblemType(
    "invalid_item",
    "The item of the bulk is not valid",
    422,
    "An item of a bulk is no JSON object of the members that it may have. The other items are not concerned.",
    "Put right every member that `errors` names by its JSON Pointer into the item, and send this item again.",
)
INVALID_BULK_SIZE: Final = ProblemType(
    "invalid_bulk_size",
    "The bulk has no item, or too many",
    422,
    "A bulk has no item, or more than one call takes. Nothing was accepted.",
    "Send 1 to 1,000 items in one call, and the others in further calls.",
)
SUBMISSION_NOT_FOUND: Final = ProblemType(
    "submission_not_found",
    "No such submission",
    404,
    "The integration account has no submission with that `requestId`. One that was accepted never answers this.",
    "Check the `requestId`, and that `integrationAccountId` is the account that submitted it.",
)
RESERVATION_NOT_FOUND: Final = ProblemType(
    "reservation_not_found",
    "No such reservation",
    404,
    "The integration account has no reservation with that `id`.",
    "Check the `id`, and that `integrationAccountId` is the account that submitted it.",
)
NOT_FOUND: Final = ProblemType(
    "not_found",
    "Not found",
    404,
    "There is nothing at this path. A path has one spelling; `/` at its end counts.",
    "Check the path against the contract.",
)
HEADERS_TOO_LARGE: Final = ProblemType(
    "headers_too_large",
    "The headers are too large",
    431,
    "The target and the headers of the request are longer than the service reads. The connection is closed.",
    "Leave out headers that nobody asked for, such as cookies.",
)
METHOD_NOT_ALLOWED: Final = ProblemType(
    "method_not_allowed",
    "Method not allowed",
    405,
    "There is something at this path, and it does not take this method.",
    "Use a method that the `Allow` header names.",
)
