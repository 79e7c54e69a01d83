"""What the ingress tells callers: warnings about a request (unknown fields, a rounded price, fields that the account's PMS does not
receive, card numbers in texts, which are masked or refuse the submission); refusals; receipts, and outcomes within the wait."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, assert_never

from pydantic_core import from_json, to_json

from forwarder.http import messages
from forwarder.http.messages import NO_STORE, PROBLEM_JSON, BodyFault, Response
from forwarder.http.parameters import Wait
from forwarder.pms.port import AccountConnection, Loss, Preview
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks import card_numbers
from forwarder.reservation.checks.faults import nearest
from forwarder.reservation.checks.fields import CARD_LIKE_IDS, Reading
from forwarder.reservation.fast import AnyRequest, UsualRequest, given, json_text
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import FieldFault, Problem, pointer_to, summary_of
from forwarder.reservation.record import pending_record
from forwarder.reservation.request import MAX_BODY_BYTES, BookingEngineRequest
from forwarder.store.lists.port import StoredSubmission
from forwarder.tenancy.port import Account
from forwarder.topics.outcomes import OutcomeEvent

_MAX_ACCOUNTS: Final = 4_096
_CARD: Final = "cardDetails"


class CallerWarning(NamedTuple):
    """`pointer`: the JSON Pointer (RFC 6901) of what it speaks of, from the reservation on."""

    code: str
    pointer: str
    detail: str


class Losses:
    """The fields that accounts do not send to their PMS, usually none. Cached per account until the account changes."""

    def __init__(self, preview: Callable[[], Preview]) -> None:
        self._preview = preview
        self._known: dict[str, tuple[Account, Sequence[Loss]]] = {}

    def warnings(self, account: Account, read: Reading) -> tuple[CallerWarning, ...]:
        """Warnings about fields of a request that do not reach the account's PMS, its unknown fields, and a rounded price."""
        request, found = read.request, list[CallerWarning]()
        for field in read.unknown:
            pointer = field.place + pointer_to(field.name)
            meant = nearest(field.name, field.known)
            hint = "" if meant is None else f" Did you mean {meant}?"
            found.append(CallerWarning("unknown_field", pointer, f"There is no such field; it was ignored.{hint}"))
        if read.rounded:
            currency = f" {request.currency}" if request.currency else ""
            more = f"The price had more decimals than{currency or ' a currency'} has."
            detail = f"{more} It was rounded to {request.total_price}{currency}."
            found.append(CallerWarning("price_rounded", "/totalPrice", detail))
        known = self._known.get(account.id)
        if known is None or known[0] is not account:
            if len(self._known) >= _MAX_ACCOUNTS:
                self._known.clear()
            known = self._known[account.id] = account, self._preview().losses(connection_to(account))
        card = getattr(request, "card_details", None)
        losses = [loss for loss in known[1] if card is not None or not loss.field.startswith(_CARD)]
        if not losses:  # nearly always; else the request has to be serialized
            return tuple(found)
        lost, fields = list[CallerWarning](), given(request)
        for loss in losses:
            value: Any = fields
            for part in loss.field.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            kept = loss.unless is not None and fields.get(loss.unless[0]) == loss.unless[1]
            if kept or value is None or value == "":
                continue
            reason = loss.reason.removeprefix("sensitive: ")
            why = f"{reason[:1].upper()}{reason[1:]}."
            if loss.field.startswith(_CARD):
                detail = f"The card goes nowhere: this {account.kind} account does not send it. {why}"
                lost.append(CallerWarning("card_not_sent", f"/{_CARD}", detail))
            else:
                detail = f"The PMS of this {account.kind} account is not sent this field. {why}"
                lost.append(CallerWarning("field_not_sent", "/" + loss.field.replace(".", "/"), detail))
        return (*found, *dict.fromkeys(lost))


def connection_to(account: Account) -> AccountConnection:
    """The connection without the credential, which an ingress cannot open."""
    return AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)


_MAY_LOOK_LIKE_CARDS: Final = frozenset({"/propertyId", "/roomId", "/paymentProviderId", "/transactionId"})
_IDENTIFIERS: Final = _MAY_LOOK_LIKE_CARDS | {"/paymentProviderKey", "/promotionCode", "/guest/email"}
"""Fields that are never masked: masked, they would identify something else."""
_WHAT: Final = {"card_number": "a card number", "security_code": "a card's security code"}


class Checked(NamedTuple):
    """A request and its published form without card numbers in texts. `refused`: there were some, not masked alone."""

    request: AnyRequest
    published: bytes
    refused: Problem | None = None
    warnings: tuple[CallerWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class CardTextCheck:
    """Applies the policy for card numbers outside `cardDetails`. `mask`: those in texts are masked. An identifier is refused if it
    holds the number of the request's own card; other identifiers that look like card numbers are taken, since one random number of
    16 digits in 37 does. `refuse`: refuses both, except for identifiers of an account that skips the check (`CARD_LIKE_IDS`)."""

    policy: card_numbers.CardNumbersInText = "mask"

    def check(self, request: AnyRequest, published: bytes, skipped: Collection[str]) -> Checked:
        """`published`: the form of `request` that is published, where the card is masked already."""
        card = getattr(request, "card_details", None)
        number = "" if card is None else card_numbers.digits_of(card.card_number or "")
        if len(number) < card_numbers.MIN_DIGITS and not card_numbers.may_hold_any(published):  # as nearly always
            return Checked(request, published)
        document: dict[str, Any] = from_json(published)
        shown_card = document.pop("cardDetails", None)
        # The identifiers in which card numbers are not looked for.
        allowed = _IDENTIFIERS if self.policy == "mask" else _MAY_LOOK_LIKE_CARDS if CARD_LIKE_IDS in skipped else ()
        faults: list[FieldFault] = []
        for pointer, text in _texts(document, ""):
            own = pointer in _IDENTIFIERS and len(number) >= card_numbers.MIN_DIGITS
            if own and number in card_numbers.digits_of(text):
                faults.append(_fault(pointer, "card_number"))
            elif pointer not in allowed:
                faults += _faults(text, pointer)
        if not faults:
            return Checked(request, published)
        cleaned = _masked(document, "", {fault.pointer for fault in faults})
        model = BookingEngineRequest if isinstance(request, UsualRequest) else type(request)
        clean = model.model_validate(cleaned)
        if shown_card is not None:
            clean = clean.model_copy(update={"card_details": card})
            cleaned["cardDetails"] = shown_card
        refused = self.policy == "refuse" or any(fault.pointer in _IDENTIFIERS for fault in faults)
        return Checked(clean, to_json(cleaned), _refusal(faults) if refused else None, _warnings(faults))

    def check_text(self, text: str, pointer: str) -> tuple[str, tuple[CallerWarning, ...]] | Problem:
        """The same for one text: as it is kept, and the warning if it was masked."""
        faults = list(_faults(text, pointer)) if card_numbers.may_hold(text) else []
        if faults and self.policy == "refuse":
            return _refusal(faults)
        return (card_numbers.mask(text), _warnings(faults)) if faults else (text, ())


def _texts(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """The texts and integers in a JSON object, with their JSON Pointers. No field name of a request needs escaping."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(part, f"{pointer}/{name}")
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        yield pointer, str(value)


def _masked(value: Any, pointer: str, at: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {name: _masked(part, f"{pointer}/{name}", at) for name, part in value.items()}
    return card_numbers.mask(str(value)) if pointer in at else value


def _faults(text: str, pointer: str) -> Iterator[FieldFault]:
    """One fault for each kind of finding, without any of its digits."""
    for what in sorted({found.what for found in card_numbers.find(text)}):
        yield _fault(pointer, what)


def _fault(pointer: str, what: card_numbers.What) -> FieldFault:
    return FieldFault(pointer, what, f"must not hold {_WHAT[what]}: send the card as cardDetails")


def _warnings(faults: Sequence[FieldFault]) -> tuple[CallerWarning, ...]:
    detail = "This text seemed to hold {}: its digits were masked. Send the card as cardDetails."
    masked = [fault for fault in faults if fault.pointer not in _IDENTIFIERS]
    return tuple(CallerWarning("card_number_masked", one.pointer, detail.format(_WHAT[one.code])) for one in masked)


def _refusal(faults: list[FieldFault]) -> Problem:
    return catalogue.CARD_NUMBER_IN_TEXT.problem(
        "A text looks as if it held a card; errors names each by JSON Pointer. Nothing was accepted.", faults=faults
    )


NOTHING_ACCEPTED: Final = "Nothing was accepted. Send the same request again in a moment"
LOG_UNAVAILABLE: Final = catalogue.LOG_UNAVAILABLE.problem(
    "It is not known whether the log stored this. Send the same request again in a moment; with an Idempotency-Key it is booked at "
    "most once."
)
OVERLOADED: Final = catalogue.OVERLOADED.problem(f"{NOTHING_ACCEPTED}.")
UNSUPPORTED_MEDIA_TYPE: Final = catalogue.UNSUPPORTED_MEDIA_TYPE.problem(
    "The body must be JSON in UTF-8, not compressed, sent with Content-Type: application/json."
)
_NO_ROOM = f"Your workspace is sending as many bytes at once as it may. {NOTHING_ACCEPTED}."
UNREAD_BODY: Final = {
    BodyFault.TOO_LARGE: catalogue.BODY_TOO_LARGE.problem(f"The body must have at most {MAX_BODY_BYTES} bytes."),
    BodyFault.TIMED_OUT: catalogue.BODY_TIMED_OUT.problem(f"{NOTHING_ACCEPTED}."),
    BodyFault.NO_ROOM: catalogue.OVERLOADED.problem(_NO_ROOM),
}


def too_large_for_log(size: int, limit: int | None) -> Problem:
    """The deployment's log does not accept a message of `size` bytes: the request and the forwarder's own fields."""
    takes = "less" if limit is None else f"at most {limit}"
    return catalogue.BODY_TOO_LARGE.problem(
        f"With the forwarder's own fields the request has {size} bytes; this deployment accepts {takes}. Nothing was accepted."
    )


def malformed_json(where: str, what: str = "body") -> Problem:
    """`where`: the position at which `what` stops being JSON."""
    return catalogue.MALFORMED_JSON.problem(f"The {what} is not one JSON document: {where}.")


def validation_failed(faults: Sequence[FieldFault]) -> Problem:
    return catalogue.VALIDATION_FAILED.problem(summary_of(faults), faults=faults)


def key_reused(request_id: str) -> Problem:
    """The key was used before, in this account, for something else."""
    return catalogue.KEY_REUSED.problem(
        "This Idempotency-Key was used before with another body or for the other operation. Use a new key for a new reservation.",
        request_id,
    )


def refusal(problem: Problem, retry_after_seconds: int) -> Response:
    """The response to a submission that was not accepted."""
    # The rest of such a body is not read, so the connection cannot be used again.
    always = {catalogue.BODY_TOO_LARGE.code, catalogue.BODY_TIMED_OUT.code}
    unread = problem.code in always or problem is UNREAD_BODY[BodyFault.NO_ROOM]
    headers = ((b"connection", b"close"),) if unread else ()
    return messages.problem_response(problem, *headers, retry_after_seconds=retry_after_seconds)


_SUBMISSIONS: Final = "/api/v1/vrs/submissions/"


class Receipt(NamedTuple):
    """A safe submission, with its outcome if it has one. `duplicate`: the receipt of an earlier one that was sent again without its
    key; `changed`: with another body; `replayed`: the receipt of the earlier one with the same key. `similar_to`: the request ids
    of others for the same stay and guest that this process knows. `record`: of the store, while it has no outcome."""

    request_id: str
    accepted_at: str
    settled: OutcomeEvent | None = None
    duplicate: bool = False
    replayed: bool = False
    changed: bool = False
    similar_to: Sequence[str] = ()
    record: bytes | None = None

    @property
    def status(self) -> Status:
        return Status.PENDING if self.settled is None else self.settled.status


def receipt_of(stored: StoredSubmission) -> Receipt:
    if stored.status is Status.PENDING:
        return Receipt(stored.request_id, stored.accepted_at, record=stored.record.encode())
    settled = OutcomeEvent(stored.status, stored.id, stored.record.encode(), stored.problem)
    return Receipt(stored.request_id, stored.accepted_at, settled)


def receipt_response(
    receipt: Receipt, wait: Wait, origin: str, retry_after_seconds: int, reservation: bytes | None = None
) -> Response:
    """The outcome if the caller waits and there is one; else 202: the address to poll, and the record of `reservation` if given."""
    applied = [(b"preference-applied", wait.applied.encode())] if wait.applied else []
    if receipt.duplicate:
        applied.append((b"duplicate-of", receipt.request_id.encode()))
    if receipt.replayed:
        applied.append((b"idempotent-replayed", b"true"))
    settled = receipt.settled
    if wait.seconds and settled is not None:
        match settled.status:
            case Status.CONFIRMED | Status.CANCELLED:
                location = (b"location", b"/api/v1/vrs/reservations/%d" % settled.reservation_id)
                body = messages.envelope(settled.status.success, settled.record)
                return Response(201, body, (location, NO_STORE, *applied))
            case Status.REJECTED:
                unexplained = catalogue.REJECTED.problem("The PMS gave no reason. Ask the property.")
                problem = settled.problem or unexplained.as_json()
                return Response(problem["status"], messages.problem_body(problem), (NO_STORE, *applied), PROBLEM_JSON)
            case Status.PENDING | Status.FAILED | Status.IN_DOUBT:
                pass
            case _:
                assert_never(settled.status)
    shown = receipt_json(receipt, origin)
    if reservation is not None:
        known = receipt.record if settled is None else settled.record
        pending = (receipt.request_id, receipt.accepted_at)
        shown = (pending_record(from_json(reservation), *pending) if known is None else from_json(known)) | shown
    location = (b"location", f"{_SUBMISSIONS}{receipt.request_id}".encode())
    headers = (location, NO_STORE, messages.retry_after(retry_after_seconds), *applied)
    return Response(202, messages.envelope(receipt.status.success, json_text(shown)), headers)


def with_warnings(response: Response, warnings: Sequence[CallerWarning]) -> Response:
    """The response with `warnings` in its body. Refusals are returned unchanged."""
    if response.status >= 300:  # noqa: PLR2004 - HTTP's successes
        return response
    shown = to_json([warning._asdict() for warning in warnings])
    return replace(response, body=b'%b,"warnings":%b}' % (response.body[:-1], shown))


def receipt_json(receipt: Receipt, origin: str) -> dict[str, Any]:
    """The receipt as a caller reads it who does not wait."""
    shown = {"requestId": receipt.request_id, "status": receipt.status, "acceptedAt": receipt.accepted_at}
    # In the header a path, which stays true behind any proxy; here the address to paste.
    shown["statusUrl"] = f"{origin}{_SUBMISSIONS}{receipt.request_id}"
    duplicate = {"duplicate": True} if receipt.duplicate else {}
    return {**shown, **duplicate, **({"similarTo": list(receipt.similar_to)} if receipt.similar_to else {})}


def receipt_warnings(receipt: Receipt) -> Sequence[CallerWarning]:
    """Warns of a submission that repeats an earlier one, or adds a reservation to another for the same stay and guest."""
    if receipt.duplicate:
        differs = " Its body differs in other fields, which were not taken over." if receipt.changed else ""
        detail = f"This is the submission {receipt.request_id}, sent again, and books nothing more.{differs}"
        return (CallerWarning("sent_again", "", f"{detail} For another room, send an Idempotency-Key of its own."),)
    if receipt.similar_to:
        detail = f"The same guest has the same stay there already: {', '.join(receipt.similar_to)}."
        own = " This is a reservation of its own; cancel the one that is not meant."
        return (CallerWarning("similar_submission", "", detail + own),)
    return ()
