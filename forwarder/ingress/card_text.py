"""Card numbers in the texts of a request: masks them, or refuses the submission, before anything else is done with it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from forwarder.ingress.losses import CallerWarning
from forwarder.reservation.checks.card_numbers import (
    MIN_DIGITS,
    CardNumbersInText,
    What,
    digits_of,
    find,
    mask,
    may_hold,
    may_hold_any,
)
from forwarder.reservation.checks.plausibility import CARD_LIKE_IDS
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.reservation.request import BookingEngineRequest
from forwarder.reservation.usual import AnyRequest, UsualRequest

_MAY_LOOK_LIKE_CARDS: Final = frozenset({"/propertyId", "/roomId", "/paymentProviderId", "/transactionId"})
_IDENTIFIERS: Final = _MAY_LOOK_LIKE_CARDS | {"/paymentProviderKey", "/promotionCode", "/guest/email"}
"""Fields that are never masked: masked, they would identify something else."""

_WHAT: Final = {"card_number": "a card number", "security_code": "a card's security code"}

MASKED: Final = "card_number_masked"


class Checked(NamedTuple):
    """A request and its published form, without card numbers in texts. `refused`: where there were some, and they are not masked
    alone. `warnings`: of the texts that were masked."""

    request: AnyRequest
    published: bytes
    refused: Problem | None = None
    warnings: tuple[CallerWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class CardTextCheck:
    """Applies the policy for card numbers outside `cardDetails`.

    `mask`: those in texts are masked. An identifier is refused if it holds the number of the request's own card; other
    identifiers that look like card numbers are taken, since one random number of 16 digits in 37 does. `refuse`: refuses both,
    except for identifiers of an account that skips the check (`CARD_LIKE_IDS`)."""

    policy: CardNumbersInText = "mask"

    def check(self, request: AnyRequest, published: bytes, skipped: Collection[str]) -> Checked:
        """`published`: the form of `request` that is published, where the card is masked already."""
        card = getattr(request, "card_details", None)
        number = "" if card is None else digits_of(card.card_number or "")
        if len(number) < MIN_DIGITS and not may_hold_any(published):  # as nearly always
            return Checked(request, published)
        return self._look(request, published, number, skipped)

    def check_text(self, text: str, pointer: str) -> tuple[str, tuple[CallerWarning, ...]] | Problem:
        """The same for one text: as it is kept, and the warning if it was masked."""
        faults = list(_faults(text, pointer)) if may_hold(text) else []
        if not faults:
            return text, ()
        return _refusal(faults) if self.policy == "refuse" else (mask(text), _warnings(faults))

    def _look(self, request: AnyRequest, published: bytes, number: str, skipped: Collection[str]) -> Checked:
        document: dict[str, Any] = from_json(published)
        shown_card = document.pop("cardDetails", None)
        # The identifiers in which card numbers are not looked for.
        allowed = _IDENTIFIERS if self.policy == "mask" else _MAY_LOOK_LIKE_CARDS if CARD_LIKE_IDS in skipped else ()
        faults: list[Fault] = []
        for pointer, text in _texts(document, ""):
            if pointer in _IDENTIFIERS and len(number) >= MIN_DIGITS and number in digits_of(text):
                faults.append(_fault(pointer, "card_number"))
            elif pointer not in allowed:
                faults += _faults(text, pointer)
        if not faults:
            return Checked(request, published)
        cleaned = _masked(document, "", {fault.pointer for fault in faults})
        model = BookingEngineRequest if isinstance(request, UsualRequest) else type(request)
        clean = model.model_validate(cleaned)
        if shown_card is not None:
            clean = clean.model_copy(update={"card_details": getattr(request, "card_details", None)})
            cleaned["cardDetails"] = shown_card
        refused = self.policy == "refuse" or any(fault.pointer in _IDENTIFIERS for fault in faults)
        return Checked(clean, to_json(cleaned), _refusal(faults) if refused else None, _warnings(faults))


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
    return mask(str(value)) if pointer in at else value


def _faults(text: str, pointer: str) -> Iterator[Fault]:
    """One fault for each kind of finding, without any of its digits."""
    for what in sorted({found.what for found in find(text)}):
        yield _fault(pointer, what)


def _fault(pointer: str, what: What) -> Fault:
    return Fault(pointer, what, f"must not hold {_WHAT[what]}: send the card as cardDetails")


def _warnings(faults: Sequence[Fault]) -> tuple[CallerWarning, ...]:
    detail = "This text seemed to hold {what}: its digits were masked. Send the card as cardDetails."
    return tuple(
        CallerWarning(MASKED, fault.pointer, detail.format(what=_WHAT[fault.code]))
        for fault in faults
        if fault.pointer not in _IDENTIFIERS
    )


def _refusal(faults: list[Fault]) -> Problem:
    return catalogue.CARD_NUMBER_IN_TEXT.problem(
        "A text looks as if it held a card; errors names each by JSON Pointer. Nothing was accepted.", faults=faults
    )
