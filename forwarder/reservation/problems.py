"""`Problem`, with a stable `code` that programs may branch on; and the catalogue of every problem that the service responds with or
records, by chapter: code, title, HTTP status; when it occurs; what to do. Pure.

A code never changes its meaning. docs/reference/problems.md and `/problems/<code>` are generated from here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from forwarder.reservation.checks.card_numbers import mask


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One fault of a request: `pointer` is the RFC 6901 JSON Pointer of the value at fault."""

    pointer: str
    code: str
    detail: str

    def as_json(self) -> dict[str, str]:
        return {"pointer": self.pointer, "code": self.code, "detail": self.detail}


def pointer_to(*steps: str | int) -> str:
    """The JSON Pointer of these members and indexes. Names, which a caller wrote, are cut to 64 characters, card numbers masked."""
    names = (mask(str(step))[:64] for step in steps)
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def with_absolute_links(document: bytes, base_url: bytes) -> bytes:
    """The JSON `document`, in which the links of problems begin with `base_url`, if there is one."""
    if base_url and b'"/problems/' in document:
        # The links of problems as they are written; the quotes cannot occur inside a JSON text.
        for link in (b'"type":"/problems/', b'"instance":"/api/'):
            document = document.replace(link, link.replace(b'"/', b'"%b/' % base_url))
    return document


def summary_of(faults: Sequence[FieldFault]) -> str:
    """The detail of a problem with these faults: the first one, and how many more there are."""
    first = f"{faults[0].pointer or 'The body'} {faults[0].detail}"
    more = len(faults) - 1
    others = f" There {'is 1 more error' if more == 1 else f'are {more} more errors'}." if more else ""
    return f"{first}{'' if first[-1] in '.?' else '.'}{others} See errors for details."


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal that says what is wrong, where, and what would be right. `status`: the HTTP status of the response.
    `retry_after`: the seconds after which to retry, if the problem itself knows."""

    code: str
    title: str
    status: int
    detail: str
    request_id: str | None = None
    faults: tuple[FieldFault, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    retry_after: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The members of RFC 9457 in its order, then ours; absent ones are left out."""
        body: dict[str, Any] = {"type": f"/problems/{self.code}", "title": self.title, "status": self.status}
        body |= {"detail": self.detail, "code": self.code}
        if self.request_id is not None:
            body |= {"requestId": self.request_id, "instance": f"/api/v1/vrs/submissions/{self.request_id}"}
        if self.faults:
            body["errors"] = [fault.as_json() for fault in self.faults]
        return {**body, **self.extra}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Problem":
        members = {"type", "title", "status", "detail", "code", "requestId", "instance", "errors"}
        faults = tuple(FieldFault(**fault) for fault in body.get("errors", ()))
        extra = {name: value for name, value in body.items() if name not in members}
        return cls(body["code"], body["title"], body["status"], body["detail"], body.get("requestId"), faults, extra)


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of problem. `status`: its HTTP status, in responses and in records."""

    code: str
    title: str
    status: int
    when: str
    remedy: str

    def problem(
        self,
        detail: str,
        request_id: str | None = None,
        *,
        faults: Sequence[FieldFault] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> Problem:
        """One occurrence; `detail` has its specifics."""
        return Problem(self.code, self.title, self.status, detail, request_id, tuple(faults), extra or {})


@dataclass(slots=True)
class Chapter:
    title: str
    about: str
    problems: list[ProblemType] = field(default_factory=list)

    def problem(self, code: str, title: str, status: int, when: str, remedy: str) -> ProblemType:
        self.problems.append(ProblemType(code, title, status, when, remedy))
        return self.problems[-1]


# --- the catalogue ---

_SAME_KEY: Final = "Send the same request again after `Retry-After` seconds, with the same `Idempotency-Key`."

# A problem is a paragraph, not an argument a line.
# fmt: off
AUTHENTICATION: Final = Chapter("Authentication and limits",
    "The three headers that every request needs, the key's permissions, and its rate limit. Nothing was accepted.")
UNAUTHENTICATED: Final = AUTHENTICATION.problem("unauthenticated", "Not authenticated", 401,
    "The `Authorization` header is missing or malformed, or its API key is unknown or was revoked.",
    "Send `Authorization: Bearer <API key>` with a valid key.")
KEY_EXPIRED: Final = AUTHENTICATION.problem("key_expired", "The API key has expired", 401,
    "The API key has expired; `detail` says when.",
    "Ask your operator to renew or replace the key.")
TOO_MANY_BAD_TOKENS: Final = AUTHENTICATION.problem("too_many_bad_tokens", "Too many unknown API keys", 429,
    "Too many requests with unknown or revoked API keys came from this address. Valid keys still work.",
    "Send your key exactly as issued. If it is correct, another client at this address may be guessing keys: inform "
    "its administrator.")
ADDRESS_NOT_ALLOWED: Final = AUTHENTICATION.problem("address_not_allowed", "Not from this address", 403,
    "The API key may be used only from certain addresses, and the request came from another one; `detail` names it.",
    "Call from an address that the key allows, or ask the operator to allow this one.")
INSUFFICIENT_SCOPE: Final = AUTHENTICATION.problem("insufficient_scope", "The API key lacks a scope", 403,
    "The API key is valid but lacks the scope for this operation. `scope` names the missing one.",
    "Use a key that has the scope, or ask the operator to add it: `forwarder key change`.")
MISSING_HEADER: Final = AUTHENTICATION.problem("missing_header", "A header is missing", 400,
    "`workspaceId`, `integrationAccountId` or both are missing or empty. `detail` names them.",
    "Send both headers with every request.")
CONFLICTING_HEADERS: Final = AUTHENTICATION.problem("conflicting_headers", "A header came twice, with different values", 400,
    "`Authorization`, `workspaceId` or `integrationAccountId` was sent more than once with different values. A proxy, or a "
    "wrapper around the client, may have added one.",
    "Send each of them once. The same header with the same value counts as one.")
WRONG_WORKSPACE: Final = AUTHENTICATION.problem("wrong_workspace", "Not this key's workspace", 403,
    "The API key belongs to a workspace other than the one in `workspaceId`.",
    "Send the workspace of the key, or use a key of that workspace.")
ACCOUNT_NOT_FOUND: Final = AUTHENTICATION.problem("account_not_found", "No such integration account", 404,
    "The workspace has no integration account with the ID in `integrationAccountId`.",
    "Check the `integrationAccountId` header. Your operator can list valid IDs with `forwarder account list`.")
TEST_MODE_UNAVAILABLE: Final = AUTHENTICATION.problem("test_mode_unavailable", "There is no test mode here", 403,
    "The API key is a test key, and the deployment has no simulator. Nothing was accepted.",
    "Ask the operator to set `FORWARDER_SIMULATOR_URL`, or use a deployment that has test mode.")
RATE_LIMITED: Final = AUTHENTICATION.problem("rate_limited", "Too many requests", 429,
    "The API key, or all keys of its workspace together, have used up the rate limit that `RateLimit-Policy` describes.",
    "Send the same request again after `Retry-After` seconds, and stay within the quota left in `RateLimit`.")

REQUEST: Final = Chapter("The request", "Faults of the request itself. Nothing was accepted.")
HEADERS_TOO_LARGE: Final = REQUEST.problem("headers_too_large", "The headers are too large", 431,
    "The target and the headers of the request exceed the service's limit. The connection is closed.",
    "Remove headers that the service does not need, such as cookies.")
UNSUPPORTED_MEDIA_TYPE: Final = REQUEST.problem("unsupported_media_type", "Unsupported media type", 415,
    "The body is not declared as JSON in UTF-8, or is compressed.",
    "Send plain JSON in UTF-8 with `Content-Type: application/json`.")
BODY_TOO_LARGE: Final = REQUEST.problem("body_too_large", "The body is too large", 413,
    "The body exceeds the service's limit, and the connection is closed; or it exceeds the limit of the deployment's Kafka topic.",
    "Shorten the longest texts, such as `notes` and `comments`.")
BODY_TIMED_OUT: Final = REQUEST.problem("body_timed_out", "The body did not come in time", 408,
    "The rest of the body did not arrive in time. The connection is closed.",
    "Send the complete request again.")
HEAD_TIMED_OUT: Final = REQUEST.problem("head_timed_out", "The headers did not come in time", 408,
    "The headers of the request did not arrive completely in time. The connection is closed.",
    "Send the complete request again.")
MALFORMED_JSON: Final = REQUEST.problem("malformed_json", "The body is not JSON", 400,
    "The body is not one JSON document in UTF-8, is nested too deeply, holds `NaN` or `Infinity`, or has one name "
    "twice in an object.",
    "Write the body with a JSON library. `detail` says where parsing failed.")
VALIDATION_FAILED: Final = REQUEST.problem("validation_failed", "The request is not valid", 422,
    "The body is JSON, but some of its values are invalid for the operation.",
    "Fix every field listed in `errors`. All problems are reported in one response.")
CARD_NUMBER_IN_TEXT: Final = REQUEST.problem("card_number_in_text", "A card number where none belongs", 422,
    "A text outside `cardDetails`, such as `notes`, seems to contain a card number or security code. Such texts are "
    "stored and displayed, so nothing was accepted. `errors` lists each by its JSON Pointer, without the number.",
    "Send the card as `cardDetails`, and leave it out of every other text.")
INVALID_QUERY: Final = REQUEST.problem("invalid_query", "The query parameters are not valid", 400,
    "A query parameter is unknown, has an invalid value, is given twice with different values, or a range ends before it begins.",
    "Pass `meta.cursors.next` unchanged, request at most 200 items per page, and write days as `YYYY-MM-DD` and timestamps with "
    "a time zone.")
INVALID_KEY: Final = REQUEST.problem("invalid_idempotency_key", "Invalid Idempotency-Key", 400,
    "The `Idempotency-Key` is empty, too long, sent twice with different values, has characters outside printable "
    "ASCII, or was sent as a header of a bulk, where each item has its own.",
    'Send one string in double quotes, such as `"order-42"`.')
INVALID_DEADLINE: Final = REQUEST.problem("invalid_forward_deadline", "Invalid Forward-Deadline", 400,
    "The `Forward-Deadline` is not a whole number of seconds within its limits, or is sent twice.",
    "Send seconds in plain digits, such as `300`, or leave the header out.")
KEY_REUSED: Final = REQUEST.problem("idempotency_key_reused", "The Idempotency-Key belongs to another request", 422,
    "This account has used the key before, with another body or for the other operation. `requestId` names the first submission.",
    "Use a new key for each reservation, and the same key only to send the same request again.")
TRANSACTION_REUSED: Final = REQUEST.problem("transaction_reused", "The transaction belongs to another reservation", 409,
    "No longer sent: one transaction may pay for several reservations. Releases before 0.2 refused a submission if an "
    "earlier one had used its `transactionId` for another reservation, named in `transactionOf`.",
    "Use a new `transactionId` for a new reservation, or give each of the two an `Idempotency-Key` of its own.")
SIMILAR_SUBMISSION: Final = REQUEST.problem("similar_submission", "There is a submission for the same stay and guest", 409,
    "The account refuses a submission without an `Idempotency-Key` if an earlier one for the same stay and guest, with another "
    "body, is confirmed or still open. `similarTo` names it, `differing` the fields that differ. Nothing was accepted.",
    "Cancel the earlier one and submit again; or, if this is another room, send it with its own `Idempotency-Key`.")
INVALID_ITEM: Final = REQUEST.problem("invalid_item", "The item of the bulk is not valid", 422,
    "An item of a bulk is not a JSON object with the allowed members. The other items are not affected.",
    "Fix every member listed in `errors` (JSON Pointers into the item), and send this item again.")
INVALID_BULK_SIZE: Final = REQUEST.problem("invalid_bulk_size", "The bulk has no item, or too many", 422,
    "The bulk is empty, or exceeds the limit of one call. Nothing was accepted.",
    "Send 1 to 1,000 items per call, and the rest in further calls.")

RULES: Final = Chapter("Rules of the integration",
    "Rules of the integration account's kind of PMS. Nothing was accepted, and `errors` lists each violation with its JSON "
    "Pointer. If the account changes after a submission was accepted, the submission can end `REJECTED` with the same codes.")
CARD_REQUIRED: Final = RULES.problem("card_required", "The reservation needs a card", 422,
    "The integration is of kind `booking-sync`, `morChannel` is `PMS`, and there is no card number.",
    "Send it with `cardDetails.cardNumber`, or with `morChannel` `SELF`.")
CARD_INVALID: Final = RULES.problem("card_invalid", "The card is not valid", 422,
    "The card would be sent to the PMS, but its number is not 12 to 19 digits with a correct check digit, or its "
    "expiry date is invalid or past.",
    "Ask the guest for the card again; `errors` says what is wrong with it.")
WEBSITE_REQUIRED: Final = RULES.problem("website_id_required", "The reservation needs a website", 422,
    "The integration is of kind `website-builder`, and `paymentProviderId` is missing, empty, or not a website's identifier.",
    "Send the website's identifier in `paymentProviderId`.")
NO_ROOMS: Final = RULES.problem("no_rooms", "The integration has no rooms", 422,
    "The integration is of kind `booking-sync` or `hostaway`, which book whole properties, and `roomId` is not the `propertyId`.",
    "Send the `propertyId` as `roomId`.")

LOOKUPS: Final = Chapter("Not found", "")
SUBMISSION_NOT_FOUND: Final = LOOKUPS.problem("submission_not_found", "No such submission", 404,
    "The integration account has no submission with that `requestId`. An accepted submission never returns this.",
    "Check the `requestId`, and that `integrationAccountId` is the account that submitted it.")
RESERVATION_NOT_FOUND: Final = LOOKUPS.problem("reservation_not_found", "No such reservation", 404,
    "The integration account has no reservation with that `id`.",
    "Check the `id`, and that `integrationAccountId` is the account that submitted it.")
NOT_FOUND: Final = LOOKUPS.problem("not_found", "Not found", 404,
    "Unknown path. Paths must match exactly, including a trailing `/`.",
    "Check the path against the API documentation.")
METHOD_NOT_ALLOWED: Final = LOOKUPS.problem("method_not_allowed", "Method not allowed", 405,
    "The path exists but does not support this method.",
    "Use a method listed in the `Allow` header.")

SERVICE: Final = Chapter("The service", "Temporary server-side errors. After a 503, retry after the `Retry-After` interval.")
LOG_UNAVAILABLE: Final = SERVICE.problem("log_unavailable", "The service cannot accept reservations right now", 503,
    "The log did not acknowledge the submission in time. It may still have been stored.",
    f"{_SAME_KEY} With a key the reservation is made at most once; without one, possibly twice.")
OVERLOADED: Final = SERVICE.problem("overloaded", "The server is at capacity", 503,
    "The process is at its limit of concurrent requests, request bytes or unread responses, or your workspace has "
    "used its share. Nothing was accepted.",
    "Send the same request again after `Retry-After` seconds, with fewer requests in parallel.")
CARDS_UNAVAILABLE: Final = SERVICE.problem("cards_unavailable", "The service cannot accept cards right now", 503,
    "There is no valid key to encrypt cards with: the workers, or the database, have been down for days. Nothing was "
    "accepted. Reservations without a card still work.",
    _SAME_KEY)
TOO_MANY_CONNECTIONS: Final = SERVICE.problem("too_many_connections", "Too many connections", 503,
    "The process is at its limit of connections, in total or for one address. The connection is closed.",
    "Reuse connections; open a new one after `Retry-After` seconds.")
STORE_UNAVAILABLE: Final = SERVICE.problem("store_unavailable", "The service cannot look reservations up right now", 503,
    "The database does not respond, so a reservation or an `Idempotency-Key` cannot be looked up. Nothing was accepted.",
    _SAME_KEY)
TENANCY_UNAVAILABLE: Final = SERVICE.problem("tenancy_unavailable", "The service cannot check credentials right now", 503,
    "The database does not respond, and the API key is not cached. Nothing was accepted.",
    _SAME_KEY)
INTERNAL_ERROR: Final = SERVICE.problem("internal_error", "Internal error", 500,
    "An unexpected error in the service. The request may or may not have taken effect.",
    "Send the same request again with the same `Idempotency-Key`, and give the operator the `reference`.")

REJECTIONS: Final = Chapter("Rejected reservations",
    "Status `REJECTED`: a rule, or the PMS, refused the reservation. Returned to callers that wait; otherwise found "
    "in the submission, the record, or the results topic.")
ROOM_UNAVAILABLE: Final = REJECTIONS.problem("room_unavailable", "The room is not available", 409,
    "The room is taken or closed on some night of the stay.",
    "Offer the guest other dates or another room.")
CARD_REFUSED: Final = REJECTIONS.problem("card_refused", "The card was refused", 409,
    "The PMS, or its payment provider, did not accept the card.",
    "Ask the guest for another card and submit again, under a new `Idempotency-Key`.")
PRICE_CHANGED: Final = REJECTIONS.problem("price_changed", "The price has changed", 409,
    "The PMS does not agree with `totalPrice`.",
    "Get a new quote, and submit the new price under a new `Idempotency-Key`.")
PROPERTY_NOT_FOUND: Final = REJECTIONS.problem("property_not_found", "The property is not known", 409,
    "The PMS has no property with that `propertyId`, or does not let this account book it.",
    "Check `propertyId` and the integration account.")
ROOM_NOT_FOUND: Final = REJECTIONS.problem("room_not_found", "The room is not known", 409,
    "The property has no room with that `roomId`.",
    "Check `roomId`. For a property without rooms, send its `propertyId` as `roomId`.")
GUEST_REFUSED: Final = REJECTIONS.problem("guest_refused", "The guest was refused", 409,
    "The PMS does not accept the guest, or some of the guest's details.",
    "Read `detail`, correct the guest's details and submit again.")
PMS_REFUSED: Final = REJECTIONS.problem("pms_refused", "The PMS refused the reservation", 409,
    "The PMS refused the reservation for a reason that has no code of its own.",
    "Read `detail`: it quotes the PMS, or says what to check if the PMS gave no reason.")
REJECTED: Final = REJECTIONS.problem("rejected", "The reservation was rejected", 409,
    "The PMS refused the reservation, and no reason was recorded.",
    "Ask the property.")
REJECTED_BY_OPERATOR: Final = REJECTIONS.problem("rejected_by_operator", "The reservation was turned down", 409,
    "The reservation was in doubt. An operator found that it was not made, and decided not to make it. `detail` is "
    "the operator's note.",
    "If the guest still wants it, submit it again under a new `Idempotency-Key`.")

UNCERTAIN: Final = Chapter("Failed and in doubt",
    "Recorded with the submission, never returned to a request: the caller gets 202.")
DELIVERY_FAILED: Final = UNCERTAIN.problem("delivery_failed", "The reservation could not be delivered", 503,
    "The reservation could not be delivered to the PMS before its deadline. It was definitely not made. Status `FAILED`.",
    "Submit it again under a new `Idempotency-Key`, or ask the operator to replay it.")
CARD_GONE: Final = UNCERTAIN.problem("card_gone", "The card was destroyed before the reservation was made", 409,
    "Cards are deleted as soon as possible: at the deadline, or when the submission fails, and the security code "
    "after a push that may have used it. The reservation was definitely not made. Status `FAILED`.",
    "Submit it again, with the card, under a new `Idempotency-Key`.")
CARD_NOT_BOUND: Final = UNCERTAIN.problem("card_not_bound", "The card was not sealed for this reservation", 409,
    "The card was encrypted for another submission, integration account or PMS address. Nothing was sent. Status `FAILED`.",
    "Submit it again, with the card. Operators: check whether the account's base URL was changed, or rows or messages were "
    "tampered with.")
IN_DOUBT: Final = UNCERTAIN.problem("in_doubt", "The reservation may or may not have been made", 503,
    "The reservation was sent to the PMS, whose response does not show whether it was made. It is not sent again "
    "until that is settled. Status `IN_DOUBT`.",
    "Wait: a look-up or an operator will settle it, and an event reports the result. Do not submit it again meanwhile.")

CANCELLATIONS: Final = Chapter("Cancellations",
    "The first two are returned at once. The others are returned to callers that wait, and recorded with the "
    "submission, under `cancellation`.")
NOT_MADE: Final = CANCELLATIONS.problem("reservation_not_made", "There is no reservation to cancel", 409,
    "The submission ended `REJECTED` or `FAILED`, so there is no reservation.",
    "Nothing to do.")
CANCELLATION_NOT_SUPPORTED: Final = CANCELLATIONS.problem(
    "cancellation_not_supported", "Reservations of this integration cannot be cancelled", 409,
    "The forwarder cannot cancel reservations in this kind of PMS.",
    "Cancel it in the PMS.")
CANCELLATION_REFUSED: Final = CANCELLATIONS.problem("cancellation_refused", "The PMS refused to cancel the reservation", 409,
    "The PMS refused the cancellation. The reservation is unchanged.",
    "Read `detail`, and settle it with the property. You may request the cancellation again.")
CANCELLATION_FAILED: Final = CANCELLATIONS.problem("cancellation_failed", "The reservation could not be cancelled", 503,
    "The PMS did not cancel it before the deadline. The reservation is unchanged.",
    "Request the cancellation again.")

WEBHOOKS: Final = Chapter("Webhooks", "Returned to calls that manage webhooks.")
LIVE_KEY_NEEDED: Final = WEBHOOKS.problem("live_key_needed", "A test key cannot do this", 403,
    "A workspace's webhooks serve live and test mode alike, and only live keys can manage them.",
    "Manage webhooks with a live key of the workspace.")
WEBHOOK_NOT_FOUND: Final = WEBHOOKS.problem("webhook_not_found", "No such webhook", 404,
    "The workspace has no webhook with that `id`; it may have been removed.",
    "Use an `id` from the workspace's list of webhooks.")
DELIVERY_NOT_FOUND: Final = WEBHOOKS.problem("webhook_delivery_not_found", "No such delivery", 404,
    "The webhook has no delivery with that `id`; deliveries are deleted after 30 days.",
    "Use an `id` from the webhook's list of deliveries.")
WEBHOOK_DISABLED: Final = WEBHOOKS.problem("webhook_disabled", "The webhook is disabled", 409,
    "Nothing is sent to a disabled webhook. `disabledReason` says why it was disabled.",
    "Enable the webhook first, once its URL responds again.")
TOO_MANY_WEBHOOKS: Final = WEBHOOKS.problem("too_many_webhooks", "The workspace has reached its limit of webhooks", 409,
    "A workspace can have only a limited number of webhooks, because every event is sent to each that subscribes to it.",
    "Remove or change a webhook that you no longer need.")
# fmt: on

REFUSALS: Final = (
    *(ROOM_UNAVAILABLE, CARD_REFUSED, PRICE_CHANGED, PROPERTY_NOT_FOUND, ROOM_NOT_FOUND, GUEST_REFUSED),
    *(CANCELLATION_REFUSED, PMS_REFUSED),
)
"""The codes that a PMS's refusal may have."""

CHAPTERS: Final = AUTHENTICATION, REQUEST, RULES, LOOKUPS, SERVICE, REJECTIONS, UNCERTAIN, CANCELLATIONS, WEBHOOKS
"""In the order of the documentation."""

CATALOGUE: Final[Mapping[str, ProblemType]] = {one.code: one for chapter in CHAPTERS for one in chapter.problems}
