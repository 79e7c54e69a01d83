"""Warnings about a request: unknown fields, a rounded price, fields that the account's PMS does not receive; and card numbers in
its texts, which are masked, or refuse the submission, before anything else is done with it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from forwarder.pms.port import AccountConnection, Loss, Preview
from forwarder.reservation.checks import card_numbers
from forwarder.reservation.checks.faults import nearest
from forwarder.reservation.checks.fields import Reading
from forwarder.reservation.checks.plausibility import CARD_LIKE_IDS
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Fault, Problem, pointer_to
from forwarder.reservation.request import BookingEngineRequest
from forwarder.reservation.usual import AnyRequest, UsualRequest, given
from forwarder.tenancy.port import Account

_MAX_ACCOUNTS: Final = 4_096
_CARD: Final = "cardDetails"


class CallerWarning(NamedTuple):
    """`pointer`: the JSON Pointer (RFC 6901) of what it speaks of, from the reservation on."""

    code: str
    pointer: str
    detail: str

    def as_json(self) -> dict[str, str]:
        return self._asdict()


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
        if losses:  # hardly ever; else the request need not be serialized
            fields = given(request)
            found += dict.fromkeys(_of_field(account.kind, loss) for loss in losses if _is_lost(loss, fields))
        return tuple(found)


def connection_to(account: Account) -> AccountConnection:
    """The connection without the credential, which an ingress cannot open."""
    return AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)


def _is_lost(loss: Loss, given: Mapping[str, Any]) -> bool:
    if loss.unless is not None and given.get(loss.unless[0]) == loss.unless[1]:
        return False
    value: Any = given
    for part in loss.field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value is not None and value != ""


def _of_field(kind: str, loss: Loss) -> CallerWarning:
    reason = loss.reason.removeprefix("sensitive: ")
    why = f"{reason[:1].upper()}{reason[1:]}."
    if loss.field.startswith(_CARD):
        detail = f"The card goes nowhere: this {kind} account does not send it. {why}"
        return CallerWarning("card_not_sent", f"/{_CARD}", detail)
    detail = f"The PMS of this {kind} account is not sent this field. {why}"
    return CallerWarning("field_not_sent", "/" + loss.field.replace(".", "/"), detail)


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
        faults: list[Fault] = []
        for pointer, text in _texts(document, ""):
            if (
                pointer in _IDENTIFIERS
                and len(number) >= card_numbers.MIN_DIGITS
                and number in card_numbers.digits_of(text)
            ):
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
        if not faults:
            return text, ()
        return _refusal(faults) if self.policy == "refuse" else (card_numbers.mask(text), _warnings(faults))


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


def _faults(text: str, pointer: str) -> Iterator[Fault]:
    """One fault for each kind of finding, without any of its digits."""
    for what in sorted({found.what for found in card_numbers.find(text)}):
        yield _fault(pointer, what)


def _fault(pointer: str, what: card_numbers.What) -> Fault:
    return Fault(pointer, what, f"must not hold {_WHAT[what]}: send the card as cardDetails")


def _warnings(faults: Sequence[Fault]) -> tuple[CallerWarning, ...]:
    detail = "This text seemed to hold {what}: its digits were masked. Send the card as cardDetails."
    return tuple(
        CallerWarning("card_number_masked", fault.pointer, detail.format(what=_WHAT[fault.code]))
        for fault in faults
        if fault.pointer not in _IDENTIFIERS
    )


def _refusal(faults: list[Fault]) -> Problem:
    return catalogue.CARD_NUMBER_IN_TEXT.problem(
        "A text looks as if it held a card; errors names each by JSON Pointer. Nothing was accepted.", faults=faults
    )
