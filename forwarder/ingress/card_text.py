"""Card numbers in the texts of a request: refuses the submission, or masks the numbers, before anything else is done with it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from forwarder.reservation.checks.card_numbers import CardNumbersInText, find, mask, may_hold, may_hold_any
from forwarder.reservation.checks.plausibility import CARD_LIKE_IDS
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.reservation.request import BookingEngineRequest
from forwarder.reservation.usual import AnyRequest, UsualRequest

_MAY_LOOK_LIKE_CARDS: Final = frozenset({"/propertyId", "/roomId", "/paymentProviderId", "/transactionId"})
_IDENTIFIERS: Final = _MAY_LOOK_LIKE_CARDS | {"/paymentProviderKey", "/promotionCode", "/guest/email"}
"""Fields that are refused instead of masked: masked, they would identify something else."""

_WHAT: Final = {"card_number": "a card number", "security_code": "a card's security code"}


class Checked(NamedTuple):
    """A request and its published form, without card numbers in texts. `refused`: where there were some, and they are not masked
    alone."""

    request: AnyRequest
    published: bytes
    refused: Problem | None = None


@dataclass(frozen=True, slots=True)
class CardTextCheck:
    """Applies the policy for card numbers in texts. An account may skip it for identifiers that look like card numbers
    (`CARD_LIKE_IDS`)."""

    policy: CardNumbersInText = "refuse"

    def check(self, request: AnyRequest, published: bytes, skipped: Collection[str]) -> Checked:
        """`published`: the form of `request` that is published, where the card is masked already."""
        if not may_hold_any(published):  # as nearly always
            return Checked(request, published)
        return self._look(request, published, skipped)

    def check_text(self, text: str, pointer: str) -> str | Problem:
        """The same for one text."""
        faults = list(_faults(text, pointer)) if may_hold(text) else []
        if not faults:
            return text
        return _refusal(faults) if self.policy == "refuse" else mask(text)

    def _look(self, request: AnyRequest, published: bytes, skipped: Collection[str]) -> Checked:
        document: dict[str, Any] = from_json(published)
        shown_card = document.pop("cardDetails", None)
        faults = [fault for pointer, text in _texts(document, "") for fault in _faults(text, pointer)]
        if CARD_LIKE_IDS in skipped:
            faults = [fault for fault in faults if fault.pointer not in _MAY_LOOK_LIKE_CARDS]
        if not faults:
            return Checked(request, published)
        cleaned = _masked(document, "", {fault.pointer for fault in faults})
        model = BookingEngineRequest if isinstance(request, UsualRequest) else type(request)
        clean = model.model_validate(cleaned)
        if shown_card is not None:
            clean = clean.model_copy(update={"card_details": getattr(request, "card_details", None)})
            cleaned["cardDetails"] = shown_card
        refused = self.policy == "refuse" or any(fault.pointer in _IDENTIFIERS for fault in faults)
        return Checked(clean, to_json(cleaned), _refusal(faults) if refused else None)


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
        yield Fault(pointer, what, f"must not hold {_WHAT[what]}: send the card as cardDetails")


def _refusal(faults: list[Fault]) -> Problem:
    return requests.CARD_NUMBER_IN_TEXT.problem(
        "A text looks as if it held a card; errors names each by JSON Pointer. Nothing was accepted.", faults=faults
    )
